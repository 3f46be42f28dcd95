//! Files that the server has opened, and may have kept.
//!
//! The right to read a file is asked for when it is opened. A server that keeps descriptors (nginx
//! with `open_file_cache`) looks from time to time whether the path still leads to the file that it
//! has open, and goes on sending from that, whoever may read the file by now. Such a reply is a
//! file's only if the same process could open the file as it is: it did so in the past, and since
//! then nothing has changed of the inode, or nothing of who may read it.
//!
//! Between two such looks it sends what it has with nothing to be seen of it: see `copies.rs`.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use nicache_clock::monotonic_ns;
use nicache_coherence::{BODY_HASH_BYTES, RevisionTable, Rule, SourceSlot, Stamp};
use rustix::fs::FileType;

use crate::resolve::node::{Node, Permissions};
use crate::resolve::resolver::Resolver;
use crate::resolve::settled::telling_change_ns;
use crate::witnesses::event::{Identity, LookupEvent};

/// Files that are remembered, of all processes. With more of them those of the process with the
/// most are forgotten.
const FILES_MAX: usize = 65_536;
/// Paths by which a process has opened one file.
const PATHS_MAX: usize = 8;
/// Descriptors of one path that may still be open. With more of them it is looked which are.
const DESCRIPTORS_MAX: usize = 16;

/// Process and file.
pub(crate) type Key = (u32, Identity);

/// Files of one length.
#[derive(Debug, Default)]
struct SameLen {
    /// Those that may be open.
    open: HashSet<Key>,
    /// Those that are closed.
    closed: HashSet<Key>,
}

/// Files that each process of the server has opened to read.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    files: HashMap<Key, Vec<Opening>>,
    by_len: HashMap<u64, SameLen>,
    /// Living processes of which some are forgotten.
    forgotten: HashSet<u32>,
    /// Some were never told.
    has_lost: bool,
}

/// By one of the paths that lead to a file.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// What the process did last, and when.
    pub(crate) event: LookupEvent,
    /// Those that the process got, unless they are known to be closed.
    pub(crate) descriptors: Vec<i64>,
    /// BLAKE3 of the file's bytes when it was opened, if that is known.
    pub(crate) contents: Option<[u8; BODY_HASH_BYTES]>,
    /// 0: it tells nothing.
    changed_ns: u64,
    /// `None`: nobody saw it being opened.
    access: Option<Permissions>,
}

impl Opening {
    /// Has nothing been told of the file since? `node` is what it leads to now.
    pub(crate) fn is_unchanged(&self, node: &Node, table: &RevisionTable) -> bool {
        self.is_same_inode(node)
            || node.slots().all(|slot| table.is_unchanged(&[slot], self.event.clock))
    }

    fn is_same_inode(&self, node: &Node) -> bool {
        self.changed_ns != 0 && i128::from(self.changed_ns) == node.changed_ns
    }
}

impl Openings {
    /// Takes note of what the server did.
    pub(crate) fn observe(&mut self, event: &LookupEvent) {
        let Some(identity) = event.inode.filter(|_| event.opens_to_read()) else { return };
        self.insert(
            (event.tgid, identity),
            Opening {
                event: event.clone(),
                descriptors: vec![event.ret],
                contents: None,
                changed_ns: telling_change_ns(event),
                access: Some(Permissions::new(event.mode, event.owner)),
            },
        );
    }

    /// Takes note of the files that a process has open which nobody saw open them.
    pub(crate) fn add_held(&mut self, process: u32, clock: Stamp, resolver: &mut Resolver) {
        let folder = format!("/proc/{process}/fd");
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(path) = std::fs::read_link(entry.path()) else { continue };
            let Ok(descriptor) = entry.file_name().to_string_lossy().parse() else { continue };
            if !path.is_absolute() {
                continue;
            }
            let Ok(node) = resolver.node_of(&format!("{folder}/{descriptor}")) else { continue };
            if node.kind != FileType::RegularFile {
                continue;
            }
            let event = LookupEvent {
                ret: descriptor,
                tgid: process,
                tid: process,
                inode: Some(node.identity),
                size: node.size,
                clock,
                path: path.as_os_str().as_bytes().into(),
                ..LookupEvent::blank(monotonic_ns())
            };
            let descriptors = vec![descriptor];
            let opening =
                Opening { event, descriptors, contents: None, changed_ns: 0, access: None };
            self.insert((process, node.identity), opening);
        }
    }

    fn insert(&mut self, key: Key, mut opening: Opening) {
        if !self.files.contains_key(&key) && self.files.len() >= FILES_MAX {
            self.make_room();
        }
        let len = opening.event.size;
        let paths = self.files.entry(key).or_default();
        // As long as before, in all of its paths.
        if let Some(before) = paths.first()
            && before.event.size != len
        {
            let former = before.event.size;
            paths.clear();
            Self::unlist(&mut self.by_len, former, key);
        }
        let is_same_path = |before: &Opening| {
            (&before.event.path, before.event.dirfd, before.event.directory)
                == (&opening.event.path, opening.event.dirfd, opening.event.directory)
        };
        let before = paths.iter().position(is_same_path).map(|at| paths.swap_remove(at));
        if let Some(before) = &before {
            let others = before.descriptors.iter().filter(|known| **known != opening.event.ret);
            opening.descriptors.extend(others);
        }
        if opening.descriptors.len() > DESCRIPTORS_MAX {
            let folder = format!("/proc/{}/fd", key.0);
            opening.descriptors.retain(|descriptor| {
                std::fs::symlink_metadata(format!("{folder}/{descriptor}")).is_ok()
            });
            self.has_lost |= opening.descriptors.len() > DESCRIPTORS_MAX;
            opening.descriptors.truncate(DESCRIPTORS_MAX);
        }
        // The same bytes as the last time.
        if opening.changed_ns != 0
            && let Some(before) = before.or_else(|| paths.first().cloned())
            && before.changed_ns == opening.changed_ns
        {
            opening.contents = before.contents;
        }
        if paths.len() >= PATHS_MAX {
            self.has_lost = true;
            paths.remove(0);
        }
        paths.push(opening);
        let same = self.by_len.entry(len).or_default();
        same.closed.remove(&key);
        same.open.insert(key);
    }

    fn unlist(by_len: &mut HashMap<u64, SameLen>, len: u64, key: Key) {
        if let Some(same) = by_len.get_mut(&len) {
            same.open.remove(&key);
            same.closed.remove(&key);
            if same.open.is_empty() && same.closed.is_empty() {
                by_len.remove(&len);
            }
        }
    }

    fn make_room(&mut self) {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for (process, _) in self.files.keys() {
            *counts.entry(*process).or_default() += 1;
        }
        let Some((process, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return };
        self.forget_process(process);
        self.forgotten.insert(process);
    }

    /// The process has ended, and another one may get its number.
    pub(crate) fn forget_process(&mut self, tgid: u32) {
        self.forgotten.remove(&tgid);
        let by_len = &mut self.by_len;
        self.files.retain(|key, paths| {
            let stays = key.0 != tgid;
            if !stays && let Some(opening) = paths.first() {
                Self::unlist(by_len, opening.event.size, *key);
            }
            stays
        });
    }

    /// Events were lost.
    pub(crate) fn handle_lost(&mut self) {
        self.has_lost = true;
    }

    /// Has a process opened files that are not known?
    pub(crate) fn has_unknown(&self) -> bool {
        self.has_lost || !self.forgotten.is_empty()
    }

    /// Files of this length that processes may have open.
    pub(crate) fn open_of_len(&self, len: u64) -> impl Iterator<Item = Key> {
        self.by_len.get(&len).into_iter().flat_map(|same| &same.open).copied()
    }

    /// Those that are closed.
    pub(crate) fn closed_of_len(&self, len: u64) -> impl Iterator<Item = Key> {
        self.by_len.get(&len).into_iter().flat_map(|same| &same.closed).copied()
    }

    /// Takes note that the process has closed this file, whatever the path.
    pub(crate) fn note_closed(&mut self, key: Key) {
        let len = self.paths(key).first().map(|opening| opening.event.size);
        if let Some(same) = len.and_then(|len| self.by_len.get_mut(&len))
            && same.open.remove(&key)
        {
            same.closed.insert(key);
        }
    }

    /// How the process has opened the file, by each of the paths.
    pub(crate) fn paths(&self, key: Key) -> &[Opening] {
        self.files.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The bytes of a file now, which it also had when it was opened, unless a change since is
    /// told.
    pub(crate) fn note_contents(
        &mut self,
        node: &Node,
        hash: [u8; BODY_HASH_BYTES],
        table: &RevisionTable,
    ) {
        let all = self.open_of_len(node.size).chain(self.closed_of_len(node.size));
        let keys: Vec<Key> = all.filter(|(_, identity)| *identity == node.identity).collect();
        for key in keys {
            for opening in self.files.get_mut(&key).into_iter().flatten() {
                if opening.is_unchanged(node, table) {
                    opening.contents = Some(hash);
                }
            }
        }
    }

    /// Could this process open the file as it is now?
    pub(crate) fn could_open(&self, tgid: u32, node: &Node, table: &RevisionTable) -> bool {
        if !Rule::Opened.holds() {
            return true;
        }
        let could = |opening: &Opening| {
            let has_same_lists = table.is_unchanged(
                &[SourceSlot::EVERYTHING, SourceSlot::MOUNTS, SourceSlot::ACCESS_LISTS],
                opening.event.clock,
            );
            opening.is_same_inode(node) || has_same_lists && opening.access == Some(node.access())
        };
        self.files.get(&(tgid, node.identity)).is_some_and(|paths| paths.iter().any(could))
    }
}
