//! What a path leads to: an inode, and who may do what with it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use nicache_coherence::SourceSlot;
use rustix::fs::{FileType, Mode, OFlags, RawDir};

use crate::witnesses::event::Identity;

/// An inode that is held by an `O_PATH` descriptor.
#[derive(Debug)]
pub struct Node {
    pub(crate) fd: OwnedFd,
    /// Device and inode number.
    pub identity: Identity,
    /// Type of file.
    pub kind: FileType,
    /// Length in bytes.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub modified_s: i64,
    /// Last change of the inode, seconds since 1970.
    pub changed_s: i64,
    /// Last change of the inode, nanoseconds since 1970.
    pub changed_ns: i128,
    /// Who may do what with it.
    pub(super) access: Permissions,
    /// Device number, if it is a device.
    pub(super) rdev: (u32, u32),
    pub(super) mount: u64,
    pub(super) watched: bool,
    pub(super) only_times: bool,
    pub(super) tells_writes: bool,
    pub(super) is_overlay: bool,
    /// It is in the upper layer of the overlay that it is a part of.
    pub(super) is_upper: bool,
    /// On an overlay: what it is in the layers, the uppermost first. Of a file the first alone,
    /// which it is.
    pub(super) layers: Vec<Self>,
    /// Another layer has that name, too.
    pub(super) is_in_several: bool,
}

impl Node {
    /// Is every change of it witnessed?
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// /dev/null, zero, full, random, urandom: what comes out of them is not a source of anything.
    pub fn is_harmless_device(&self) -> bool {
        self.kind == FileType::CharacterDevice
            && self.rdev.0 == 1
            && matches!(self.rdev.1, 3 | 5 | 7 | 8 | 9)
    }

    /// Do nothing but change times tell of its changes?
    pub fn has_only_times(&self) -> bool {
        self.only_times
    }

    /// Is each of its changes told after its effect, but for stores to a mapping?
    pub(crate) fn tells_writes(&self) -> bool {
        self.tells_writes
    }

    /// Is it on an overlay?
    pub(crate) fn is_layered(&self) -> bool {
        self.is_overlay
    }

    pub(super) fn has_timed_layers(&self) -> bool {
        self.layers.iter().any(|layer| layer.only_times)
    }

    /// On an overlay: does another layer have the same name, so this file may be a copy?
    pub(crate) fn is_in_several_layers(&self) -> bool {
        self.is_in_several
    }

    /// On an overlay: what it is in the layers.
    pub fn layers(&self) -> &[Self] {
        &self.layers
    }

    /// Its own slot, and those of what it is in the layers.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SourceSlot> + '_ {
        std::iter::once(self).chain(&self.layers).map(|node| node.identity.slot())
    }

    /// Who may do what with it.
    pub(crate) fn access(&self) -> Permissions {
        self.access
    }

    /// May everybody read it?
    pub fn is_readable_by_all(&self) -> bool {
        self.access.let_all(0o444)
    }

    /// Opens the file for reading, past the access time.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(
            format!("/proc/self/fd/{}", self.fd.as_raw_fd()),
            flags,
            Mode::empty(),
        )?)
    }

    /// Names in the directory; those of folders end in a slash. What is not UTF-8 is left out.
    ///
    /// # Errors
    /// What the system says: it is not a directory, or not to be read.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
        let listing = rustix::fs::openat(&self.fd, c".", flags, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(&listing, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                let slash = if entry.file_type() == FileType::Directory { "/" } else { "" };
                names.push(format!("{name}{slash}"));
            }
        }
        Ok(names)
    }
}

/// Mode bits, owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permissions {
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Permissions {
    /// Mode bits as in `stat`, and user and group of the owner.
    pub(crate) fn new(mode: u16, (uid, gid): (u32, u32)) -> Self {
        Self { mode, uid, gid }
    }

    /// Do the mode bits give this to owner, group and others alike?
    pub fn let_all(self, bits: u16) -> bool {
        self.mode & bits == bits
    }
}
