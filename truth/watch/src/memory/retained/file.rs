//! One file that is followed: what is known of its last opening and its changes, and whether the
//! server still has what it read.

use std::borrow::Cow;
use std::collections::BTreeSet;

use nicache_coherence::{RevisionTable, SourceSlot, Stamp};
use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::memory::grace::Grace;
use crate::resolve::node::Node;
use crate::resolve::resolver::Walk;
use crate::witnesses::event::{Identity, LookupEvent};
use crate::witnesses::mappings::runs;

/// A server that has not read a changed file for this long is taken to have no use for it any
/// longer; what it still keeps of it is bounded by the age of dynamic entries.
pub(crate) const DIRTY_NS_MAX: u64 = 60_000_000_000;
/// A file that the server reads anew this often within [`VOLATILE_NS`], changed each time, is data
/// that it does not keep, if the same process has also read it as often although it was what it had
/// read before, [`REREAD_NS`] ago or more; or, while somebody has it open for writing, the latter
/// alone. What is compiled from a file is read once per change, or twice in a row; but a file that
/// was changed a moment ago is read for each request, because PHP does not keep what may not be
/// whole yet (`opcache.file_update_protection`, 2 s). So only readings long after the change
/// ([`FRESH_NS`]) tell that it is not kept.
pub(super) const VOLATILE_CHANGES: u32 = 16;
pub(super) const VOLATILE_NS: u64 = 60_000_000_000;
pub(super) const REREAD_NS: u64 = 10_000_000;
pub(super) const FRESH_NS: i128 = 10_000_000_000;

/// The present change time of what a path leads to, if that is still the inode.
pub(super) fn changed_ns_of(path: &[u8], identity: Identity) -> Option<u64> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    let is_same = stat.stx_ino == identity.ino
        && stat.stx_dev_major << 20 | stat.stx_dev_minor == identity.dev;
    let seconds = u64::try_from(stat.stx_ctime.tv_sec).ok()?;
    is_same.then(|| seconds * 1_000_000_000 + u64::from(stat.stx_ctime.tv_nsec))
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) path: Option<Box<[u8]>>,
    /// It was opened for reading alone. What a program opens to read and write is its data (a
    /// session, a database), which it reads anew each time.
    pub(super) is_read_only: bool,
    /// Process that opened it, if only one did.
    pub(super) opener: Option<u32>,
    pub(super) first_opened_ns: u64,
    /// The clock when it was last opened.
    pub(super) opened: Stamp,
    /// Its change time then (0: it would tell nothing), and the clock when it was first opened with
    /// that.
    pub(super) changed_ns: u64,
    pub(super) changed_since: Stamp,
    /// It may have changed after it was opened last, with nobody to tell.
    pub(super) unsettled: bool,
    /// Changes up to this stamp were none: the change time is the same as before. A file's first
    /// reading after it was written moves its access time, which the kernel's witness cannot tell
    /// from a change in every call.
    pub(super) unchanged_up_to: Stamp,
    /// The stamp that makes it dirty, and since when that is known.
    pub(super) dirty: Option<(Stamp, u64)>,
    /// When it was read after a change, and who had read it before.
    pub(super) grace: Grace,
    /// Times that it was found changed when it was opened again, and that the process which had
    /// opened it last found it unchanged; since when.
    pub(super) changes: u32,
    pub(super) rereads: u32,
    pub(super) counted_since_ns: u64,
    pub(super) counted_ns: u64,
    pub(super) last_opener: u32,
    /// On an overlay, where no change has the file's own slot.
    pub(super) layered: Option<Layered>,
    /// Where its layers are is not known yet of what the server has opened last.
    pub(super) is_to_be_found: bool,
    /// Something on the way has changed: is it another file now?
    pub(super) is_to_be_seen: bool,
    /// Its path led elsewhere when it was last looked at after a mount.
    pub(super) is_elsewhere: bool,
    /// It is code that a process runs, and another file has its name now. The process goes on with
    /// what it has, and never looks again.
    pub(super) is_replaced_code: bool,
}

/// What a file on an overlay is.
#[derive(Debug)]
pub(super) struct Layered {
    /// Slots of the way to it in each layer, and its own.
    pub(super) slots: Box<[SourceSlot]>,
    /// The file that has its bytes, and its change time.
    pub(super) file: (Identity, i128),
    /// By which it can be looked up again.
    pub(super) opening: LookupEvent,
}

impl Layered {
    pub(super) fn new(
        walk: &Walk,
        node: &Node,
        opening: &LookupEvent,
        table: &RevisionTable,
    ) -> Option<Self> {
        let slots: BTreeSet<SourceSlot> = walk.slots.iter().copied().collect();
        for &slot in &slots {
            table.track(slot);
        }
        let file = node.layers().first().map(|file| (file.identity, file.changed_ns))?;
        Some(Self { slots: slots.into_iter().collect(), file, opening: opening.clone() })
    }
}

impl File {
    /// The stamp of the last change that may concern the file.
    pub(super) fn stamp(&self, identity: Identity, table: &RevisionTable) -> Stamp {
        let layers = self.layered.iter().flat_map(|layered| layered.slots.iter().copied());
        std::iter::once(identity.slot())
            .chain(layers)
            .map(|slot| table.stamp_of(slot))
            .max()
            .unwrap_or_default()
    }

    /// Has the file changed since the server read it last, and found nothing there?
    pub(super) fn is_outdated(
        &mut self,
        identity: Identity,
        missing_at: Stamp,
        table: &RevisionTable,
    ) -> bool {
        let stamp = self.stamp(identity, table);
        let is_unsettled = self.unsettled && missing_at <= self.opened;
        let was_seen = stamp < self.opened.max(missing_at);
        // The stamp may be of the access time that this very reading has moved.
        is_unsettled || !was_seen && !self.is_same_as_opened(identity, stamp, table)
    }

    /// Was it given up by now ([`DIRTY_NS_MAX`])?
    pub(super) fn is_given_up(&self, now_ns: u64) -> bool {
        self.dirty.is_some_and(|(_, since_ns)| now_ns >= since_ns + DIRTY_NS_MAX) && self.is_kept()
    }

    /// Does the server keep what it reads of it?
    pub(super) fn is_kept(&self) -> bool {
        self.is_read_only && !self.is_volatile() && !self.is_replaced_code
    }

    /// See [`File::is_replaced_code`]. One that is written in place changes what the process does.
    pub(super) fn has_become_replaced_code(&self, identity: Identity) -> bool {
        let is_replaced =
            self.path.as_ref().is_some_and(|path| changed_ns_of(path, identity).is_none());
        is_replaced && runs(self.last_opener, identity)
    }

    pub(super) fn is_volatile(&self) -> bool {
        // What somebody holds open for writing changes with nobody to tell.
        self.rereads >= VOLATILE_CHANGES && (self.changes >= VOLATILE_CHANGES || self.unsettled)
    }

    /// Is the file the one that was opened, with the change time of that moment? `stamp` was read
    /// before.
    pub(super) fn is_same_as_opened(
        &mut self,
        identity: Identity,
        stamp: Stamp,
        table: &RevisionTable,
    ) -> bool {
        if stamp <= self.unchanged_up_to {
            return true;
        }
        if self.layered.is_some() {
            self.is_to_be_seen = true;
            return false;
        }
        let Some(path) = &self.path else { return false };
        // A change that is under way may have its stamp before its time, and get another stamp once
        // it has that: this clock or a later one.
        let clock = table.clock();
        let is_same =
            self.changed_ns != 0 && changed_ns_of(path, identity) == Some(self.changed_ns);
        if is_same && stamp < clock {
            self.unchanged_up_to = stamp;
        }
        is_same
    }

    pub(super) fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.path.as_deref().unwrap_or_default())
    }
}

/// A file that is followed. On an overlay names that are links to one file in a lower layer have
/// its number in common, and each gets a copy of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) identity: Identity,
    /// The name, on an overlay.
    pub(super) path: Option<Box<[u8]>>,
}

impl Key {
    pub(super) fn new(identity: Identity, opening: &LookupEvent) -> Self {
        Self { identity, path: opening.on_overlay.then(|| opening.path.clone()) }
    }
}
