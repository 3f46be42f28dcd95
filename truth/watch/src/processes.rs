//! The processes of database servers whose statements the kernel shows.
//!
//! A server that is started later is found by the kernel at its exec, by its name, and its children at their fork; one that runs already is
//! looked for here, once.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nicache_coherence::RevisionTable;
use nicache_sql::Dialect;

const MYSQL: u32 = 1;
const POSTGRES: u32 = 2;

/// The first process of the database server that a process belongs to: PostgreSQL has one for each connection.
pub(crate) fn first_process(process: u32) -> Option<u32> {
    let name = |process: u32| std::fs::read_to_string(format!("/proc/{process}/comm")).ok();
    let own = name(process)?;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let parent = parent_in(&stat)?;
    Some(if name(parent).as_deref() == Some(&own) { parent } else { process })
}

/// As in `ebpf/sql.h`.
fn kind_of_name(name: &str) -> Option<u32> {
    match name.trim_end() {
        "mariadbd" | "mysqld" => Some(MYSQL),
        "postgres" => Some(POSTGRES),
        _ => None,
    }
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct DatabaseProcesses {
    pub(crate) map: Arc<MapHandle>,
}

impl DatabaseProcesses {
    /// Makes the kernel look at servers that run already.
    pub(crate) fn adopt_running(&self, table: &RevisionTable) -> io::Result<()> {
        // Twice, for one that was being forked.
        for _ in 0..2 {
            for process in processes() {
                let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                if let Some(kind) = kind_of_name(&name) {
                    self.map.update(&process.to_ne_bytes(), &kind.to_ne_bytes(), MapFlags::ANY).map_err(|error| {
                        io::Error::other(format!("following the database server {process}: {error}"))
                    })?;
                    table.announce_database(process);
                }
            }
        }
        Ok(())
    }

    /// Are the statements that the process receives seen?
    pub fn contains(&self, process: u32) -> bool {
        matches!(self.map.lookup(&process.to_ne_bytes(), MapFlags::ANY), Ok(Some(_)))
    }

    /// The servers, by their first processes.
    pub fn servers(&self) -> Vec<(u32, Dialect)> {
        let dialect = |process: u32| {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
            Some(if kind_of_name(&name)? == MYSQL { Dialect::MySql } else { Dialect::Postgres })
        };
        let first = processes().filter(|&process| self.contains(process) && first_process(process) == Some(process));
        first.filter_map(|process| Some((process, dialect(process)?))).collect()
    }

    /// Inode numbers of all sockets of these processes: connections that have begun.
    pub fn sockets(&self) -> HashSet<u64> {
        let mine = processes().filter(|&process| self.contains(process));
        mine.flat_map(sockets_of).collect()
    }
}

/// Who started a process, or took it over.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    parent_in(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The name, in parentheses, may hold anything; behind it come the state and the parent.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// All processes that this one can see.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// May a process in this network namespace ask for files by io_uring, as far as can be seen of a ring that it has already?
pub(crate) fn have_rings(server_netns: u32) -> bool {
    let is_ring = |name: &[u8]| name.windows(RING.len()).any(|part| part == RING);
    processes().any(|process| {
        let folder = Path::new("/proc").join(process.to_string());
        let is_server =
            std::fs::metadata(folder.join("ns/net")).is_ok_and(|netns| netns.ino() == u64::from(server_netns));
        let files = || std::fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        let links = || files().filter_map(|file| std::fs::read_link(file.path()).ok());
        is_server
            && (links().any(|link| is_ring(link.as_os_str().as_encoded_bytes()))
                || std::fs::read(folder.join("maps")).is_ok_and(|maps| is_ring(&maps)))
    })
}

/// How the kernel names the file of a ring.
const RING: &[u8] = b"anon_inode:[io_uring]";

/// Inode numbers of the sockets of a process; none if it is gone.
pub(crate) fn sockets_of(process: u32) -> Vec<u64> {
    try_sockets_of(process).unwrap_or_default()
}

/// The same, unless they cannot be looked at.
pub(crate) fn try_sockets_of(process: u32) -> std::io::Result<Vec<u64>> {
    let entries = std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"))?;
    let inode = |entry: std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(|entry| entry.map(inode).transpose()).collect()
}
