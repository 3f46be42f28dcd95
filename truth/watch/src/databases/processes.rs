//! The processes of database servers whose statements the kernel shows.
//!
//! A server that is started later is found by the kernel at its exec, by its name, and its children
//! at their fork; one that runs already is looked for here, once.

use std::collections::HashMap;
use std::io;

use nicache_coherence::RevisionTable;

use crate::databases::database::Database;
use crate::databases::kinds;
use crate::processes::{parent_in, processes, sockets_of};
use crate::witnesses::notes::Notes;

/// Processes of database servers whose statements the kernel shows: looks for those that run
/// already.
#[derive(Clone, Debug)]
pub struct DatabaseProcesses {
    pub(crate) notes: Notes,
}

impl DatabaseProcesses {
    /// Makes the kernel look at servers that run already.
    pub(crate) fn adopt_running(&self, table: &RevisionTable) -> io::Result<()> {
        // Twice, for one that was being forked.
        for _ in 0..2 {
            for process in processes() {
                let name =
                    std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                if let Some(kind) = kinds::by_process_name(&name) {
                    self.notes.note(&process.to_ne_bytes(), &kind.number().to_ne_bytes()).map_err(
                        |error| {
                            io::Error::other(format!(
                                "following the database server {process}: {error}"
                            ))
                        },
                    )?;
                    table.announce_database(process);
                }
            }
        }
        Ok(())
    }

    /// Are the statements that the process receives seen?
    pub fn contains(&self, process: u32) -> bool {
        matches!(self.notes.find([u64::from(process), 0]), Ok(Some(_)))
    }

    /// The servers, by their first processes.
    pub fn servers(&self) -> Vec<(u32, &'static dyn Database)> {
        let kind = |process: u32| {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
            kinds::by_process_name(&name)
        };
        let first = processes()
            .filter(|&process| self.contains(process) && first_process(process) == Some(process));
        first.filter_map(|process| Some((process, kind(process)?))).collect()
    }

    /// All sockets of these processes, by their inode numbers, each with a process that has it:
    /// connections that have begun.
    pub fn sockets(&self) -> HashMap<u64, u32> {
        let mine = processes().filter(|&process| self.contains(process));
        let with_owner =
            |process| sockets_of(process).into_iter().map(move |socket| (socket, process));
        mine.flat_map(with_owner).collect()
    }
}

/// The first process of the database server that a process belongs to: PostgreSQL has one for each
/// connection.
pub(crate) fn first_process(process: u32) -> Option<u32> {
    let name = |process: u32| std::fs::read_to_string(format!("/proc/{process}/comm")).ok();
    let own = name(process)?;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let parent = parent_in(&stat)?;
    Some(if name(parent).as_deref() == Some(&own) { parent } else { process })
}
