//! What `/proc` tells of processes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::databases::kinds;

/// How the kernel names the file of a ring.
const RING: &[u8] = b"anon_inode:[io_uring]";

/// Who started a process, or took it over.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    parent_in(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The name, in parentheses, may hold anything; behind it come the state and the parent.
pub(crate) fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// When a process was started, in ticks since the machine was: tells it from another one with its
/// number. `None` if it is gone.
pub(crate) fn start_of(process: u32) -> Option<u64> {
    start_in(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The 22nd field (proc_pid_stat(5)), 19 behind the state.
pub(crate) fn start_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// All processes that this one can see.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Is a process in this network namespace? False if it is gone.
pub(crate) fn is_in_namespace(process: u32, netns: u32) -> bool {
    let folder = Path::new("/proc").join(process.to_string());
    std::fs::metadata(folder.join("ns/net")).is_ok_and(|link| link.ino() == u64::from(netns))
}

/// Is the process certainly in another network namespace than this one? Not if it is gone.
pub(crate) fn is_outside_namespace(process: u32, netns: u32) -> bool {
    let folder = Path::new("/proc").join(process.to_string());
    std::fs::metadata(folder.join("ns/net")).is_ok_and(|link| link.ino() != u64::from(netns))
}

/// What the kernel handed to the program that a process executes, with addresses that are random:
/// tells it from what it executed before. `None` if it is gone.
pub(crate) fn image_of(process: u32) -> Option<Box<[u8]>> {
    let image = std::fs::read(format!("/proc/{process}/auxv")).ok()?;
    (!image.is_empty()).then(|| image.into())
}

/// May a process in this network namespace ask for files by io_uring, as far as can be seen of a
/// ring that it has already? Not a database server, which is watched by what it receives.
pub(crate) fn have_rings(server_netns: u32) -> bool {
    let is_ring = |name: &[u8]| name.windows(RING.len()).any(|part| part == RING);
    processes().any(|process| {
        let folder = Path::new("/proc").join(process.to_string());
        let name = || std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let is_server =
            is_in_namespace(process, server_netns) && kinds::by_process_name(&name()).is_none();
        let files = || std::fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        let links = || files().filter_map(|file| std::fs::read_link(file.path()).ok());
        is_server
            && (links().any(|link| is_ring(link.as_os_str().as_encoded_bytes()))
                || std::fs::read(folder.join("maps")).is_ok_and(|maps| is_ring(&maps)))
    })
}

/// Inode numbers of the sockets of a process; none if it is gone.
pub(crate) fn sockets_of(process: u32) -> Vec<u64> {
    try_sockets_of(process).unwrap_or_default()
}

/// Inode numbers of the sockets of a process.
///
/// # Errors
/// They cannot be looked at.
pub(crate) fn try_sockets_of(process: u32) -> std::io::Result<Vec<u64>> {
    let entries = std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"))?;
    let inode = |entry: std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(|entry| entry.map(inode).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use nicache_namespaces::Namespace;

    use super::*;

    /// Has a ring of io_uring until it is killed.
    const RING_OWNER: &str = "import ctypes, time
ring = ctypes.CDLL(None, use_errno=True).syscall(425, 2, ctypes.create_string_buffer(120))
print(ring, flush=True)
time.sleep(60)";

    #[test]
    fn the_rings_of_a_database_server_are_its_own_affair() {
        let Some(network) = Namespace::new() else { return };
        let folder = tempfile::tempdir().unwrap();
        for (name, has_rings) in [("mariadbd", false), ("postgres", false), ("application", true)] {
            let program = folder.path().join(name);
            std::os::unix::fs::symlink("/usr/bin/python3", &program).unwrap();
            let mut owner = network.run(move || {
                let mut command = Command::new(program);
                command.args(["-c", RING_OWNER]).stdout(Stdio::piped()).spawn().unwrap()
            });
            let mut said = String::new();
            BufReader::new(owner.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
            let found = have_rings(network.inode());
            let _ = owner.kill();
            let _ = owner.wait();
            assert!(said.trim().parse::<i32>().unwrap() >= 0, "there is no ring");
            assert_eq!(found, has_rings, "{name}");
        }
    }
}
