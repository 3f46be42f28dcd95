//! Other processes of the machine, by `/proc`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::Pid;

/// All that this process can see.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Processes whose network namespace has this inode number. One that has ended and waits to be
/// collected has none.
pub(crate) fn processes_in(network: u64) -> impl Iterator<Item = u32> {
    let is_in = move |process: &u32| {
        std::fs::metadata(format!("/proc/{process}/ns/net"))
            .is_ok_and(|namespace| namespace.ino() == network)
    };
    processes().filter(is_in)
}

/// Processes that the first thread of this process has started.
pub(crate) fn children_of(process: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"))
        .unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Who started it, or took it over.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    stat_of(process)?.get(1)?.parse().ok()
}

/// Have all its threads been stopped by a signal, or ended? A signal takes effect when a thread
/// leaves the kernel.
pub(crate) fn is_stopped(process: u32) -> bool {
    let threads =
        std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let is_still = |state: &str| matches!(state, "T" | "t" | "Z" | "X");
    threads
        .filter_map(|thread| fields(&thread.path().join("stat")))
        .all(|stat| stat.first().is_none_or(|state| is_still(state)))
}

/// When it began, in clock ticks since the start of the machine: its number may be another's later.
pub(crate) fn begun(process: u32) -> Option<u64> {
    stat_of(process)?.get(19)?.parse().ok()
}

/// The name of its program, cut to 15 bytes.
pub(crate) fn command_of(process: u32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?.trim_end().to_owned())
}

/// Its number as system calls want it.
///
/// # Errors
/// No process has it.
pub(crate) fn pid(process: u32) -> Result<Pid> {
    Pid::from_raw(i32::try_from(process)?).context("no process has the number 0")
}

/// The fields of /proc/PID/stat (proc_pid_stat(5)) behind the name, from the third on.
fn stat_of(process: u32) -> Option<Vec<String>> {
    fields(Path::new(&format!("/proc/{process}/stat")))
}

fn fields(stat: &Path) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(stat).ok()?;
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_child() {
        let own = std::process::id();
        assert_eq!(
            parent_of(own),
            rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get() as u32)
        );
        assert!(begun(own) > begun(1) && begun(0).is_none());
        let network = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert!(processes_in(network).any(|process| process == own));
        let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
        assert_eq!(parent_of(child.id()), Some(own));
        assert!(!is_stopped(child.id()));
        rustix::process::kill_process(pid(child.id()).unwrap(), rustix::process::Signal::STOP)
            .unwrap();
        while !is_stopped(child.id()) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(command_of(child.id()), None);
    }
}
