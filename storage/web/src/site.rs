//! Files below a folder.
//!
//! The thread that asks acts as somebody to whom nobody has given rights, so the kernel finds only
//! what everybody may read. Nothing leads out of the folder, and links are not followed: whoever
//! writes to the unit makes them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nicache_filemap::generation;
use nicache_payload::FileId;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use rustix::io::Errno;

/// What a path that ends in a slash leads to.
const INDEX: &str = "index.html";

/// A file that is open for reading.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) file: File,
    pub(crate) id: FileId,
    /// Since when the path has led here at the latest, in nanoseconds since 1970.
    pub(crate) since_ns: i128,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Found {
    File(Page),
    /// A folder, although the path does not end in a slash.
    Folder,
    Missing,
    Forbidden,
    /// The file system cannot say.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Site {
    root: OwnedFd,
}

impl Site {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root }
    }

    /// What a decoded path leads to, which begins with a slash and has no dots (see
    /// [`nicache_host::server::request`]).
    pub(crate) fn find(&self, path: &[u8]) -> Found {
        let is_folder = path.ends_with(b"/");
        let name = path.strip_prefix(b"/").unwrap_or(path);
        let name = if is_folder { [name, INDEX.as_bytes()].concat() } else { name.to_vec() };
        match self.open(&name) {
            Ok(found) => found,
            Err(Errno::NOENT) if is_folder && self.is_folder(path) => Found::Forbidden,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL) => Found::Missing,
            // A link on the way, or a way out.
            Err(Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::NXIO) => {
                Found::Forbidden
            }
            Err(_) => Found::Failed,
        }
    }

    fn is_folder(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        path.is_empty() || self.open_any(path, OFlags::PATH | OFlags::DIRECTORY).is_ok()
    }

    fn open(&self, name: &[u8]) -> Result<Found, Errno> {
        // Opening a pipe would wait for whoever writes to it.
        let file = self.open_any(name, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Found::Folder),
            _ => return Ok(Found::Forbidden),
        }
        let file = File::from(file);
        let generation =
            generation(&file).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // A name that leads elsewhere from now on changes its folder's time.
        let mut since_ns = changed_ns(&fstat(&self.root)?);
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            let folder = statat(
                self.root.as_fd(),
                Path::new(OsStr::from_bytes(&name[..at])),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
            since_ns = since_ns.max(changed_ns(&folder));
        }
        Ok(Found::File(Page { file, id: FileId { inode: stat.st_ino, generation }, since_ns }))
    }

    fn open_any(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(
            self.root.as_fd(),
            Path::new(OsStr::from_bytes(name)),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    }
}

/// When a file or its attributes changed last, which no program sets at will.
pub(crate) fn changed_ns(stat: &Stat) -> i128 {
    i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec)
}
