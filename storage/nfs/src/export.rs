//! Directories that are exported.
//!
//! An export is a private copy of the mount that the directory is on, with the directory as its
//! root and without the mounts below it (`open_tree(2)`, `OPEN_TREE_CLONE`). So the kernel itself
//! lets nobody out by `..`, nobody comes into another file system, and no mount table changes. The
//! file system stays in use while the server runs.
//!
//! What the kernel cannot know: a *file* that a client has the handle of, and that somebody moves
//! out of an exported subtree, is still reachable by that handle, as an open file would be. A
//! *directory* that is moved out is refused (`Node::check_directory`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, SeekFrom, StatxAttributes, StatxFlags, openat, statx,
};
use rustix::mount::{OpenTreeFlags, open_tree};
use thiserror::Error;

use crate::client::ClientRule;
use crate::handle::ExportId;
use crate::kernel::handle_of;

/// A directory to export.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// The path by which clients mount it, such as `/data`.
    pub name: String,
    /// The directory.
    pub path: PathBuf,
    /// `path` is the root of a whole file system on a mount that is in no namespace (fsmount(2)).
    /// Then the mount itself is used: it is as good as a copy, and kernels before 6.15 copy no such
    /// mount.
    pub is_detached_root: bool,
    /// Who may use it; nobody if empty.
    pub clients: Vec<ClientRule>,
    /// Whether a change of names or attributes is durable before it is answered, as RFC 1813
    /// (section 4.8) asks. Without it, a crash of the server's machine may undo the last seconds of
    /// them; committed data are durable in either case. It costs a journal commit for each change.
    pub is_sync: bool,
}

/// An export cannot be used.
#[derive(Debug, Error)]
pub enum ExportError {
    /// Not a path that clients can mount.
    #[error(
        "the export's name '{0}' must begin with / and have no empty, '.' or '..' part, nor end with /"
    )]
    Name(String),
    /// Two exports that handles could not tell apart.
    #[error("the exports '{0}' and '{1}' cannot be told apart: give one of them another name")]
    Twice(String, String),
    /// The directory cannot be opened or its mount not be copied.
    #[error("cannot export {path}: {error}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why it cannot be exported.
        error: io::Error,
    },
    /// The file system has no handles, or too long ones.
    #[error("cannot export {path}: its file system has no handles of files that fit ({error})")]
    NoHandles {
        /// The directory.
        path: PathBuf,
        /// What the system says of its handles.
        error: io::Error,
    },
}

/// A directory that is exported.
#[derive(Debug)]
pub(crate) struct Export {
    /// What its handles say.
    pub id: ExportId,
    /// The path by which clients mount it.
    pub name: String,
    /// Who may use it.
    pub clients: Vec<ClientRule>,
    /// Whether changes are durable before they are answered.
    pub is_sync: bool,
    /// The directory, open for reading, on a mount of its own.
    pub root: OwnedFd,
    /// The root's inode number.
    pub root_inode: u64,
    /// What attributes say of the file system; the same after a restart.
    pub fsid: u64,
    /// Whether it is a part of a file system, so directories can be moved out of it.
    pub is_subtree: bool,
    /// The longest file that the file system can hold, in bytes.
    pub file_bytes_max: u64,
}

impl Export {
    /// Opens a directory for export.
    pub(crate) fn open(config: ExportConfig) -> Result<Self, ExportError> {
        let is_name = config.name == "/"
            || config.name.strip_prefix('/').is_some_and(|parts| {
                parts.split('/').all(|part| !matches!(part, "" | "." | ".."))
                    && config.name.len() <= 1000
            });
        if !is_name {
            return Err(ExportError::Name(config.name));
        }
        let open_error = |error: rustix::io::Errno| ExportError::Open {
            path: config.path.clone(),
            error: error.into(),
        };
        let is_subtree =
            !config.is_detached_root && is_subtree(&config.path).map_err(open_error)?;
        let tree = if config.is_detached_root {
            openat(
                CWD,
                &config.path,
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        } else {
            open_tree(
                CWD,
                &config.path,
                OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
            )
        };
        let tree = tree.map_err(open_error)?;
        // Handles are opened below a descriptor that is not O_PATH.
        let root =
            openat(&tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(open_error)?;
        let stat = rustix::fs::fstat(&root).map_err(open_error)?;
        handle_of(root.as_fd(), c"")
            .map_err(|error| ExportError::NoHandles { path: config.path.clone(), error })?;
        let statvfs = rustix::fs::fstatvfs(&root).map_err(open_error)?;
        let hash = blake3::hash(config.name.as_bytes());
        let word =
            |at: usize| u32::from_be_bytes(*hash.as_bytes()[at..].first_chunk().expect("32 bytes"));
        let fsid = statvfs.f_fsid ^ (u64::from(word(4)) << 32 | u64::from(word(8)));
        Ok(Self {
            id: ExportId(word(0)),
            name: config.name,
            clients: config.clients,
            is_sync: config.is_sync,
            root_inode: stat.st_ino,
            fsid,
            is_subtree,
            file_bytes_max: file_bytes_max(&root),
            root,
        })
    }

    /// Opens all, and sees that their handles can be told apart.
    pub(crate) fn open_all(configs: Vec<ExportConfig>) -> Result<Vec<Self>, ExportError> {
        let mut exports: Vec<Self> = Vec::new();
        for config in configs {
            let export = Self::open(config)?;
            if let Some(other) = exports.iter().find(|other| other.id == export.id) {
                return Err(ExportError::Twice(other.name.clone(), export.name));
            }
            exports.push(export);
        }
        Ok(exports)
    }
}

/// Whether `path` is not the root of a whole file system.
fn is_subtree(path: &Path) -> rustix::io::Result<bool> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?;
    if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(true);
    }
    let id = found.stx_mnt_id.to_string();
    // proc(5): mount ID, parent ID, device, root of the mount within the file system.
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let is_whole = table.lines().any(|line| {
        let mut fields = line.split(' ');
        fields.next() == Some(&id) && fields.nth(2) == Some("/")
    });
    Ok(!is_whole)
}

/// The kernel refuses to seek further than a file can be long. Asked of a file without a name;
/// where none can be made, it is what the protocol can say.
fn file_bytes_max(root: &OwnedFd) -> u64 {
    let all = i64::MAX.cast_unsigned();
    let Ok(file) =
        openat(root, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    else {
        return all;
    };
    let file = File::from(file);
    let (mut possible, mut impossible) = (0, all + 1);
    while impossible - possible > 1 {
        let middle = possible + (impossible - possible) / 2;
        match rustix::fs::seek(&file, SeekFrom::Start(middle)) {
            Ok(_) => possible = middle,
            Err(_) => impossible = middle,
        }
    }
    possible
}
