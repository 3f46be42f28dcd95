//! Sees to it that nothing of the server outlives nicache, however that ends.
//!
//! The server's processes have the numbers that everybody else on the machine sees, so `nginx
//! -s reload`, log rotation and the hooks of certificates find them by the server's own PID file.
//! (In a PID namespace of its own the kernel would kill them with its first process, but the file
//! would name other processes of the machine.) What is to be killed is known by the server's
//! network namespace, which nobody else has.
//!
//! The supervisor does it at its end. If it is killed, the *guard* does, a process that waits for
//! nothing else. It does not have nicache's name, for whoever kills everything of that name means
//! the server, too, and somebody has to be left to do it.

use std::time::{Duration, Instant};

use anyhow::Result;
use nicache_netns::Namespace;
use rustix::process::{Signal, kill_process};

use super::children::{Child, Role, first_word};
use crate::processes::{pid, processes_in};
use crate::setup::{GuardSetup, send_message};

/// Longer than processes take to end that were killed, but for those that hang in the kernel.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long the guard may stand still at its start.
const START: Duration = Duration::from_secs(20);

/// Ends what is left of the server when it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    server_netns: u64,
    _process: Child,
}

impl Guard {
    /// Before the server is started.
    pub(crate) fn start(namespace: &Namespace) -> Result<Self> {
        let mut process = Child::start(Role::Guard)?;
        let server_netns = namespace.inode();
        // It has the file open, too, so the number stays this namespace's.
        send_message(&process.channel, &GuardSetup { server_netns }, &[namespace.file()])?;
        first_word::<GuardSetup>(&mut process, START)?;
        Ok(Self { server_netns, _process: process })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        end_all_in(self.server_netns);
    }
}

/// Kills every process whose network namespace has this number, until there is none.
pub(crate) fn end_all_in(network: u64) {
    let own = std::process::id();
    let find = || processes_in(network).filter(|&process| process != own).collect();
    end_all(find, |process| {
        if let Ok(pid) = pid(process) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
}

/// Kills what is found until nothing is. One look is not enough: numbers are used again from the
/// lowest, so the last process may start another one behind the look, and end before the look
/// comes to itself.
fn end_all(mut find: impl FnMut() -> Vec<u32>, kill: impl Fn(u32)) {
    let deadline = Instant::now() + PATIENCE;
    let mut looks_in_vain = 0;
    while looks_in_vain < 2 && Instant::now() <= deadline {
        let found = find();
        looks_in_vain = if found.is_empty() { looks_in_vain + 1 } else { 0 };
        found.into_iter().for_each(&kill);
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_one_look_misses_is_ended_by_the_next() {
        let looks = RefCell::new(vec![vec![7], vec![], vec![5], vec![], vec![]].into_iter());
        let killed = RefCell::new(Vec::new());
        end_all(|| looks.borrow_mut().next().unwrap(), |process| killed.borrow_mut().push(process));
        assert_eq!(*killed.borrow(), [7, 5]);
        assert!(looks.borrow_mut().next().is_none());
    }
}
