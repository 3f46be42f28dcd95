//! Revisions of files. They are the gateway's own: nobody else can write to the unit, and every
//! write of its clients passes here.
//!
//! A counter of writes that have begun and one of those that have ended, for each of some groups of
//! files. Equal counters are a revision: no write is under way, and as long as none begins, every
//! read is of the same version. Two files of one group cost each other a second look.

use std::fs::File;
use std::hash::BuildHasher as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use nicache_payload::{Extent, FileId, Payload, Stability};

const GROUPS: usize = 4096;

#[derive(Debug, Default)]
struct Group {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Revisions of files, for readers that want all bytes of one version: counts the writes of a
/// gateway's clients that have begun and ended, by groups of files.
#[derive(Debug)]
pub struct Revisions {
    groups: Box<[Group]>,
    state: FixedState,
}

impl Default for Revisions {
    fn default() -> Self {
        Self {
            groups: (0..GROUPS).map(|_| Group::default()).collect(),
            state: FixedState::default(),
        }
    }
}

impl Revisions {
    /// The file's revision; None while somebody writes to it.
    pub fn now(&self, id: FileId) -> Option<u64> {
        let group = self.group(id);
        // In this order: a write that begins in between is seen.
        let ended = group.ended.load(Ordering::SeqCst);
        let begun = group.begun.load(Ordering::SeqCst);
        (begun == ended).then_some(begun)
    }

    /// Whether no write has begun since the file had that revision. Ask after reading.
    pub fn is_still(&self, id: FileId, revision: u64) -> bool {
        self.group(id).begun.load(Ordering::SeqCst) == revision
    }

    fn group(&self, id: FileId) -> &Group {
        &self.groups[self.state.hash_one(id) as usize % GROUPS]
    }
}

/// A write that is under way.
struct Change<'r>(&'r Group);

impl<'r> Change<'r> {
    fn begin(revisions: &'r Revisions, id: FileId) -> Self {
        let group = revisions.group(id);
        group.begun.fetch_add(1, Ordering::SeqCst);
        Change(group)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// Payload whose changes are counted.
pub struct Revised {
    payload: Arc<dyn Payload>,
    revisions: Arc<Revisions>,
}

impl Revised {
    /// Every change of `payload`'s files has to pass through this.
    pub fn new(payload: Arc<dyn Payload>) -> Self {
        Self { payload, revisions: Arc::default() }
    }

    /// The revisions of the files.
    pub fn revisions(&self) -> &Arc<Revisions> {
        &self.revisions
    }
}

impl Payload for Revised {
    fn read(&self, file: &File, id: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        self.payload.read(file, id, offset, len)
    }

    fn write(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
        let _change = Change::begin(&self.revisions, id);
        self.payload.write(file, id, offset, data, stability)
    }

    fn commit(&self, file: &File, id: FileId) -> io::Result<()> {
        self.payload.commit(file, id)
    }

    fn resize(&self, file: &File, id: FileId, size: u64) -> io::Result<()> {
        let _change = Change::begin(&self.revisions, id);
        self.payload.resize(file, id, size)
    }

    fn verifier(&self) -> u64 {
        self.payload.verifier()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { inode: 7, generation: 1 };

    #[test]
    fn a_revision_ends_when_a_write_begins_and_the_next_begins_when_it_ends() {
        let revisions = Revisions::default();
        let first = revisions.now(FILE).unwrap();
        let change = Change::begin(&revisions, FILE);
        assert!(!revisions.is_still(FILE, first) && revisions.now(FILE).is_none());
        let other = Change::begin(&revisions, FILE);
        drop(change);
        assert!(revisions.now(FILE).is_none());
        drop(other);
        let second = revisions.now(FILE).unwrap();
        assert!(second != first && revisions.is_still(FILE, second));
    }
}
