//! Witnesses that are stopped in the middle: which programs are guarded, and how.
//!
//! Read first: `ebpf/gaps.h`. What becomes of a program that was passed over: `overseer.rs`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use nicache_kernel::{Findings, Symbol};

use crate::witnesses::notes::READER;

/// Sees the gaps.
const SEES: &str = "see_gaps";
/// Is told which programs are to be guarded.
const GUARDS: &str = "guard_programs";
/// Where it finds them.
const GUARDED: &str = "guarded_programs";
/// The map of `see_gaps`, which says where a processor has its own variables.
const PROCESSORS: &str = "processor_gaps";
/// `GUARDS_MAX` of `ebpf/gaps.h`, less the one for all programs on events.
const PROGRAMS_MAX: usize = 63;
/// Bytes of a `struct guarded`: an address, a descriptor, a count, the programs' descriptors, and
/// what fills the last word.
const GUARDED_SIZE: usize = (8 + 4 + 4 + PROGRAMS_MAX * 4).next_multiple_of(8);

/// Is it a program on an event of perf, in which no task is stopped? All of those are guarded
/// together. The others that are used where tasks are stopped do nothing but raise stamps, or
/// remember only what is done without after a gap (`may_have_missed_times` in `ebpf/table.h`).
pub(super) fn is_event(program: &str) -> bool {
    program.ends_with("_event")
}

/// Is it attached to something?
pub(super) fn is_attached(program: &str) -> bool {
    ![GUARDS, READER].contains(&program)
}

/// Must it be there before the others?
pub(super) fn comes_first(program: &str) -> bool {
    program == SEES
}

/// Why programs could not be guarded.
#[derive(Debug)]
pub(super) struct Unguarded;

/// Tells `see_gaps` which programs are to be guarded. Nothing is attached yet.
pub(super) fn guard(object: &Object, findings: &Findings) -> Result<(), Unguarded> {
    if !findings.takes(GUARDS) {
        return Ok(());
    }
    let map = |name| object.maps().find(|map| map.name() == OsStr::new(name)).ok_or(Unguarded);
    let is_guarded = |name: &OsStr| {
        let name = name.to_str().unwrap_or_default();
        findings.takes(name) && is_attached(name) && name != SEES && !is_event(name)
    };
    let programs: Vec<i32> = object
        .progs()
        .filter(|program| is_guarded(program.name()))
        .map(|program| program.as_fd().as_raw_fd())
        .collect();
    if programs.len() > PROGRAMS_MAX {
        return Err(Unguarded);
    }
    let mut guarded = Vec::from(Symbol::BpfProgActive.address().to_ne_bytes());
    guarded.extend(map(PROCESSORS)?.as_fd().as_raw_fd().to_ne_bytes());
    guarded.extend((programs.len() as u32).to_ne_bytes());
    guarded.extend(programs.iter().flat_map(|program| program.to_ne_bytes()));
    guarded.resize(GUARDED_SIZE, 0);
    let program =
        object.progs_mut().find(|program| program.name() == OsStr::new(GUARDS)).ok_or(Unguarded)?;
    let key = 0_u32.to_ne_bytes();
    map(GUARDED)?.update(&key, &guarded, MapFlags::ANY).map_err(|_| Unguarded)?;
    match program.test_run(ProgramInput::default()).map(|output| output.return_value) {
        Ok(0) => Ok(()),
        // It cannot be seen who is in a program on an event of perf (a kernel without
        // CONFIG_KALLSYMS_ALL). Where no task is stopped in any program, nobody needs to.
        Ok(2) if findings.is_rehearsal => Ok(()),
        _ => Err(Unguarded),
    }
}
