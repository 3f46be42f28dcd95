//! Where the registrar's look-ups come from, and how far they can be trusted: the kernel
//! ([`kernel`](crate::witnesses::kernel)), or a library in the server's programs
//! ([`preload`](crate::witnesses::preload)).

use std::collections::HashSet;

use nicache_coherence::{RevisionTable, Stamp};

use crate::witnesses::event::{Identity, LookupEvent, Stillness};

/// How far [`Witness::drain`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything that was there at the call is out.
    All,
    /// A record is still being written on another processor; what lies behind it cannot be read
    /// yet.
    Busy,
    /// There is what no witness writes. It is of no further use.
    Corrupt,
}

/// File systems whose every change is witnessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// ext4 (and ext2 and ext3, which the same driver serves).
    pub ext4: bool,
    /// XFS.
    pub xfs: bool,
    /// Btrfs, with all its subvolumes.
    pub btrfs: bool,
    /// Files in memory.
    pub tmpfs: bool,
    /// Any file system that this machine alone changes, as far as the changes come from processes
    /// that tell of them.
    pub local: bool,
    /// What this kernel lacks, each a sentence for operators. Not empty: something is not kept on
    /// it.
    pub missing: Vec<String>,
}

/// A file that was opened to read, by which path is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntoldFile {
    /// The file.
    pub inode: Identity,
    /// The table's clock at that time.
    pub clock: Stamp,
    /// The file's change time then, in nanoseconds since 1970; 0: unknown.
    pub changed_ns: u64,
    /// What that says of changes to come.
    pub stillness: Stillness,
}

/// Where the registrar's look-ups come from, and how far they can be trusted: the kernel, or a
/// library in the server's programs.
pub trait Witness: Send {
    /// Hands out the events that are there at the time of the call, in the order in which room for
    /// them was reserved.
    fn drain(&mut self, handle: &mut dyn FnMut(LookupEvent)) -> Drained;

    /// What is watched.
    fn coverage(&self) -> &Coverage;

    /// Are changes seen whoever makes them? If not, no entry may live longer than what nobody can
    /// see may be old: nothing is [static](nicache_coherence::Class::Static).
    fn sees_everybody(&self) -> bool;

    /// Files that the server has opened to read although there was no room to tell, since the last
    /// call. To be called when [`RevisionTable::lost`] has moved.
    fn take_untold_files(&mut self) -> Vec<UntoldFile> {
        Vec::new()
    }

    /// Is each change of the file seen after its effect, also while it is open for writing? Asked
    /// of files of a file system of which that is so unless they are mapped.
    fn sees_writers_of(&self, _file: Identity) -> bool {
        false
    }

    /// The processes of the server that have taken a request or a connection and are there; `None`:
    /// that is not known. To be asked when [`RevisionTable::lost`] has moved.
    fn takers(&self) -> Option<HashSet<u32>> {
        None
    }

    /// Does it tell what programs ask for by io_uring? If not, whoever has a ring may ask for
    /// anything.
    fn sees_rings(&self) -> bool {
        false
    }

    /// Called every 50 ms or so.
    fn handle_time(&mut self, _table: &RevisionTable, _now_ns: u64) {}

    /// Does it no longer see everything, for good? Then another watcher is needed.
    fn is_blind(&self) -> bool {
        false
    }

    /// Up to this time (CLOCK_MONOTONIC) there were programs of the server that the witness does
    /// not see; `u64::MAX`: there may be one now.
    fn blind_until_ns(&self) -> u64 {
        0
    }
}
