//! Whether the kernel stops in the middle of its own work to run another task.
//!
//! A program at a function is passed over if the same program has been stopped on that processor:
//! the kernel guards every such program against itself. Where tasks are not stopped in there
//! (`preempt=none` or `voluntary`, which Debian 12 and 13 have), that cannot be. Programs at
//! tracepoints were never stopped until Linux 6.19; in 7.3 they are.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramInput};

use crate::symbols::Symbol;

/// libelf wants its memory aligned.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/preemption.bpf.o")));

/// `addresses` of `ebpf/preemption.bpf.c`.
const ADDRESSES: [Symbol; 5] = [
    Symbol::Stext,
    Symbol::PreemptDynamicMode,
    Symbol::PreemptSchedule,
    Symbol::PerCpuOffset,
    Symbol::PreemptCount,
];

/// Is it certain that it does not? Without the right to load a program, or to see the kernel's
/// addresses (CAP_SYSLOG), it is not.
pub(crate) fn is_unpreempted() -> bool {
    silently(ask) == Some(1)
}

/// Is it certain that no program at a tracepoint is stopped, although the kernel stops in the
/// middle of its own work? Takes some 50 ms.
pub(crate) fn has_whole_tracepoints() -> bool {
    match silently(look).and_then(|looked| looked.is_whole()) {
        Some(is_whole) => is_whole,
        // It does not show it.
        None => release().is_some_and(|release| release < FIRST_STOPPED),
    }
}

/// The first release of which it is not certain that a program at a tracepoint is never stopped.
const FIRST_STOPPED: u32 = 7;

fn release() -> Option<u32> {
    rustix::system::uname().release().to_str().ok()?.split('.').next()?.parse().ok()
}

/// libbpf would say why not; the answer is what counts here.
fn silently<T>(run: impl FnOnce() -> T) -> T {
    fn keep_silent(_: PrintLevel, _: String) {}
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep_silent)));
    let answer = run();
    libbpf_rs::set_print(before);
    answer
}

fn ask() -> Option<u32> {
    let object = load(&["is_unpreempted"])?;
    let program = object.progs_mut().find(|program| program.name() == "is_unpreempted")?;
    Some(program.test_run(ProgramInput::default()).ok()?.return_value)
}

fn load(programs: &[&str]) -> Option<Object> {
    let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).ok()?;
    for mut program in open.progs_mut() {
        let is_wanted = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(is_wanted);
    }
    let mut places = open.maps_mut().find(|map| map.name() == ".rodata.addresses")?;
    for (place, symbol) in places.initial_value_mut()?.chunks_exact_mut(8).zip(ADDRESSES) {
        place.copy_from_slice(&symbol.address().to_ne_bytes());
    }
    open.load().ok()
}

/// `struct looked` of `ebpf/preemption.bpf.c`.
struct Looked {
    runs: [u32; 2],
    stoppable: [u32; 2],
    unknown: u32,
}

impl Looked {
    fn is_whole(&self) -> Option<bool> {
        let is_known = self.unknown == 0 && self.runs.iter().all(|&runs| runs > 0);
        is_known.then_some(self.stoppable == [0; 2])
    }
}

/// Makes a system call and a thread, and looks whether the programs could be stopped there.
fn look() -> Option<Looked> {
    let object = load(&["at_call", "at_fork"])?;
    let looks = object.maps().find(|map| map.name() == "looks")?;
    let key = 0_u32.to_ne_bytes();
    let mut value = [0; 24];
    value[..4].copy_from_slice(&std::process::id().to_ne_bytes());
    looks.update(&key, &value, MapFlags::ANY).ok()?;
    let _links: Vec<Link> = object
        .progs_mut()
        .filter(|program| program.autoload())
        .map(|program| program.attach().ok())
        .collect::<Option<_>>()?;
    std::thread::spawn(|| ()).join().ok()?;
    let value = looks.lookup(&key, MapFlags::ANY).ok()??;
    let word =
        |at: usize| value.get(at..at + 4)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
    Some(Looked {
        runs: [word(4)?, word(8)?],
        stoppable: [word(12)?, word(16)?],
        unknown: word(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_tracepoints_are_looked_at() {
        let looked = look().expect("the programs are loaded, and run");
        assert!(looked.runs.iter().all(|&runs| runs > 0));
        assert_eq!(looked.unknown > 0, looked.is_whole().is_none());
        assert!(release().is_some_and(|release| release >= 5));
    }
}
