//! The files of the server: every version that ever was, and when it could be seen.
//!
//! A write is an interval. The new version is visible from an instant inside of it, and the
//! writer's call returns at its end.

use std::cell::RefCell;
use std::rc::Rc;

use nicache_coherence::SourceSlot;

use crate::random::Random;

/// Seconds since 1970 at virtual time 0.
pub(crate) const UNIX_START_S: u64 = 1_700_000_000;

/// Seconds since 1970.
pub(crate) fn unix_s(now_ns: u64) -> u64 {
    UNIX_START_S + now_ns / 1_000_000_000
}

/// One version of a path.
#[derive(Clone, Debug)]
pub struct Version {
    /// Which inode holds it.
    pub inode: u64,
    /// The bytes; `None`: the path leads nowhere.
    pub bytes: Option<Rc<[u8]>>,
    /// When the server could first see it.
    pub visible_ns: u64,
    /// When its writer's call returned; `u64::MAX` while it runs.
    pub returned_ns: u64,
    /// Modification time in seconds since 1970.
    pub modified_s: u64,
    /// The server's validator.
    pub etag: String,
}

/// A path and its history.
#[derive(Debug)]
pub struct File {
    /// Its versions, oldest first.
    pub versions: Vec<Version>,
    /// A writer has it open.
    pub open_for_writing: bool,
    /// Its directory is locked by a rename until then.
    pub directory_locked_until_ns: u64,
    /// Always the same number of bytes, so a change in the middle of a reply goes unnoticed by
    /// its length.
    pub fixed_len: Option<usize>,
}

/// All files of the server.
#[derive(Debug)]
pub struct Files {
    files: Vec<File>,
    next_inode: u64,
}

/// Shared by server, writers, watcher and oracle; one thread.
pub(crate) type SharedFiles = Rc<RefCell<Files>>;

impl Files {
    /// `count` files with a first version each.
    pub fn new(count: usize, len_max: u64, random: &mut Random) -> Self {
        let mut files = Self { files: Vec::new(), next_inode: 1000 };
        for index in 0..count {
            let fixed_len = random.percent(50).then(|| random.range(1, len_max) as usize);
            files.files.push(File {
                versions: Vec::new(),
                open_for_writing: false,
                directory_locked_until_ns: 0,
                fixed_len,
            });
            let len = files.draw_len(index, len_max, random);
            let bytes = content(index, 0, len);
            let inode = files.new_inode();
            files.files[index].versions.push(Version {
                inode,
                etag: format!("\"{index}-0\""),
                bytes: Some(bytes),
                visible_ns: 0,
                returned_ns: 0,
                modified_s: UNIX_START_S - 1000 - index as u64,
            });
        }
        files
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The file with this number.
    pub fn get(&self, file: usize) -> &File {
        &self.files[file]
    }

    /// A file, to be changed.
    pub fn get_mut(&mut self, file: usize) -> &mut File {
        &mut self.files[file]
    }

    /// What the path leads to.
    pub fn current(&self, file: usize) -> &Version {
        self.files[file].versions.last().expect("a file has a first version")
    }

    /// The bytes in an inode now: a descriptor that was opened before a rename still reads the old
    /// one.
    pub fn read_inode(&self, file: usize, inode: u64) -> Option<Rc<[u8]>> {
        self.files[file].versions.iter().rev().find(|version| version.inode == inode)?.bytes.clone()
    }

    /// An inode number that was never used.
    pub fn new_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.next_inode
    }

    /// A length for the next version.
    pub fn draw_len(&self, file: usize, len_max: u64, random: &mut Random) -> usize {
        match self.files[file].fixed_len {
            Some(len) => len,
            None if random.percent(60) => random.range(1, 3000.min(len_max)) as usize,
            None => random.range(1, len_max) as usize,
        }
    }

    /// Whoever made the version with this validator knows that it is there: from now on none before
    /// it may be shown.
    pub fn return_of(&mut self, file: usize, etag: &str, now_ns: u64) {
        let versions = &mut self.files[file].versions;
        let Some(made) = versions.iter().position(|version| version.etag == etag) else { return };
        for version in &mut versions[..=made] {
            version.returned_ns = version.returned_ns.min(now_ns);
        }
    }

    /// The versions that a reply may show whose request was sent at `sent_ns` and which was
    /// complete at `end_ns` (I1): visible before the end, and not replaced by a write that had
    /// returned before the request was sent.
    pub fn allowed(
        &self,
        file: usize,
        sent_ns: u64,
        end_ns: u64,
    ) -> impl Iterator<Item = &Version> {
        let versions = &self.files[file].versions;
        versions.iter().enumerate().filter_map(move |(index, version)| {
            let replaced_ns = versions.get(index + 1).map_or(u64::MAX, |next| next.returned_ns);
            (version.visible_ns <= end_ns && replaced_ns > sent_ns).then_some(version)
        })
    }
}

/// Slot of an inode.
pub(crate) fn inode_slot(inode: u64) -> SourceSlot {
    SourceSlot::of_inode(8 << 20 | 1, inode)
}

/// Slot of the directory of a file.
pub(crate) fn directory_slot(file: usize) -> SourceSlot {
    SourceSlot::of_inode(8 << 20 | 1, 10 + file as u64 % 4)
}

/// Bytes that no other file or version has in the same place, but by chance.
pub(crate) fn content(file: usize, version: usize, len: usize) -> Rc<[u8]> {
    let mut random = Random::new((file as u64) << 32 | version as u64);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.word().to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}
