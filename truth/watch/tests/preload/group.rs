//! Programs of the server that do not have the library.

use std::process::{Child, Command, Stdio};

use nicache_watch::Witness;

use crate::program::Memory;

/// Runs until its input ends.
fn start(adjust: impl FnOnce(&mut Command)) -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    adjust(&mut command);
    command.spawn().unwrap()
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn as_long_as_there_is_one_nothing_is_judged() {
    const STEP_NS: u64 = 300_000_000;
    // In a network namespace of its own, so other tests' programs are none of the server's.
    std::thread::spawn(|| {
        nicache_namespaces::enter_new().unwrap();
        let mut memory = Memory::new();
        let mut now = nicache_clock::monotonic_ns();
        let mut blind = |memory: &mut Memory| {
            memory.events();
            now += STEP_NS;
            memory.witness.handle_time(&memory.table, now);
            memory.witness.blind_until_ns() >= now
        };
        assert!(!blind(&mut memory));
        let followed = start(|command| memory.give_to(command, "server"));
        // It may take a moment until it has loaded the library.
        assert!((0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            !blind(&mut memory)
        }));
        let stranger = start(|_| {});
        assert!(blind(&mut memory) && blind(&mut memory));
        end(stranger);
        blind(&mut memory);
        assert!(!blind(&mut memory));
        end(followed);
        assert!(!blind(&mut memory));
    })
    .join()
    .unwrap();
}
