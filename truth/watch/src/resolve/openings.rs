//! May the server read a file that it has only looked for?
//!
//! The right to read a file is asked for when it is opened. A server that keeps descriptors (nginx
//! with `open_file_cache`) looks from time to time whether the path still leads to the file that it
//! has open, and goes on sending from that, whoever may read the file by now. Such a reply is a
//! file's only if the same process could open the file as it is: it did so in the past, and since
//! then nothing has changed of the inode, or nothing of who may read it.

use std::collections::HashMap;

use nicache_coherence::{RevisionTable, Rule, SourceSlot, Stamp};

use crate::resolve::resolver::{Node, Permissions};
use crate::resolve::settled::telling_change_ns;
use crate::witnesses::event::{Identity, LookupEvent};

/// Openings that are remembered. With more of them all are forgotten, and such files are not kept
/// until they are opened again.
const OPENINGS_MAX: usize = 65_536;

/// Files that each process of the server has opened to read.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    last: HashMap<(u32, Identity), Opening>,
}

#[derive(Clone, Copy, Debug)]
struct Opening {
    clock: Stamp,
    /// 0: it tells nothing.
    changed_ns: u64,
    access: Permissions,
}

impl Openings {
    /// Takes note of what the server did.
    pub(crate) fn observe(&mut self, event: &LookupEvent) {
        let Some(identity) = event.inode.filter(|_| event.opens_to_read()) else { return };
        let key = (event.tgid, identity);
        if self.last.len() >= OPENINGS_MAX && !self.last.contains_key(&key) {
            self.last.clear();
        }
        let access = Permissions::new(event.mode, event.owner);
        self.last.insert(
            key,
            Opening { clock: event.clock, changed_ns: telling_change_ns(event), access },
        );
    }

    /// The process has ended, and another one may get its number.
    pub(crate) fn forget_process(&mut self, tgid: u32) {
        self.last.retain(|(opener, _), _| *opener != tgid);
    }

    /// Could this process open the file as it is now?
    pub(crate) fn could_open(&self, tgid: u32, node: &Node, table: &RevisionTable) -> bool {
        if !Rule::Opened.holds() {
            return true;
        }
        let Some(opening) = self.last.get(&(tgid, node.identity)) else { return false };
        let is_same_inode =
            opening.changed_ns != 0 && i128::from(opening.changed_ns) == node.changed_ns;
        let has_same_lists = table.is_unchanged(
            &[SourceSlot::EVERYTHING, SourceSlot::MOUNTS, SourceSlot::ACCESS_LISTS],
            opening.clock,
        );
        is_same_inode || has_same_lists && opening.access == node.access()
    }
}
