//! READDIR and READDIRPLUS.
//!
//! A cookie is the kernel's own offset of the next entry: ext4's is a hash of the name, XFS' and
//! btrfs' a place that no other entry takes. So it means the same after entries came and went, and
//! after a restart. The verifier says whose cookie it is.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Access, AtFlags, Mode, OFlags, RawDir, SeekFrom, Stat, open, seek, statat};

use super::request::{Object, Request, put_status_and_post};
use crate::attributes::put_post;
use crate::handle::{HandleBytes, is_of_inode};
use crate::kernel::{self, handle_of};
use crate::limits::DIRECTORY_REPLY_BYTES_MAX;
use crate::protocol::Status;
use crate::xdr::{padding, put};

/// Where to go on reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct From {
    pub cookie: u64,
    pub verifier: [u8; 8],
}

/// How much a reply may hold, in bytes.
struct Budget {
    /// Of all results behind the status: attributes, verifier, entries, end.
    all: usize,
    /// Of names, inode numbers and cookies.
    names: usize,
}

/// Bytes of `fattr3`.
const ATTRIBUTES_BYTES: usize = 84;
/// Bytes of results beside entries: attributes, verifier, the end of the list, whether it is the
/// end of the directory.
const FRAME_BYTES: usize = 4 + ATTRIBUTES_BYTES + 8 + 4 + 4;

/// Bytes that the kernel gives entries in at a time.
const BUFFER_BYTES_MAX: usize = 32 << 10;
const BUFFER_BYTES_MIN: usize = 2 << 10;

impl Request<'_> {
    pub(super) fn read_directory(
        &mut self,
        handle: &[u8],
        from: From,
        count: u32,
        out: &mut Vec<u8>,
    ) -> Status {
        let all = count.min(DIRECTORY_REPLY_BYTES_MAX) as usize;
        self.list(handle, from, Budget { all, names: all }, false, out)
    }

    pub(super) fn read_directory_plus(
        &mut self,
        handle: &[u8],
        from: From,
        directory_count: u32,
        count_max: u32,
        out: &mut Vec<u8>,
    ) -> Status {
        let all = count_max.min(DIRECTORY_REPLY_BYTES_MAX) as usize;
        self.list(handle, from, Budget { all, names: directory_count as usize }, true, out)
    }

    fn list(
        &mut self,
        handle: &[u8],
        from: From,
        budget: Budget,
        with_attributes: bool,
        out: &mut Vec<u8>,
    ) -> Status {
        let directory = match self.directory(handle) {
            Ok(directory) => directory,
            Err(status) => {
                put_status_and_post(out, status, None);
                return status;
            }
        };
        let mut entries = Vec::new();
        match self.entries(&directory, from, &budget, with_attributes, &mut entries) {
            Ok(is_end) => {
                put_status_and_post(out, Status::Ok, Some(&directory));
                out.extend_from_slice(&verifier(&directory));
                out.extend_from_slice(&entries);
                put::bool(out, false);
                put::bool(out, is_end);
                Status::Ok
            }
            Err(status) => {
                put_status_and_post(out, status, Some(&directory));
                status
            }
        }
    }

    /// Appends as many entries as may be, and says whether they are the last ones.
    fn entries(
        &mut self,
        directory: &Object<'_>,
        from: From,
        budget: &Budget,
        with_attributes: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        if from.cookie != 0 && from.verifier != verifier(directory) {
            return Err(Status::BadCookie);
        }
        directory.node.stat()?;
        // By its path in /proc the kernel judges the directory's own mode only; and the place in it
        // belongs to this request alone.
        let open = open(
            directory.node.proc_path(),
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if from.cookie != 0 {
            seek(&open, SeekFrom::Start(from.cookie)).map_err(|_| Status::BadCookie)?;
        }
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES_MAX];
        let size = budget.names.min(budget.all).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        let mut listing = RawDir::new(&open, &mut buffer[..size]);
        let mut names_bytes = 0;
        let may_search =
            with_attributes && kernel::may(directory.node.path(), Access::EXEC_OK).is_ok();
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name();
            let name_bytes = name.to_bytes().len();
            let entry_bytes = 4 + 8 + 4 + name_bytes + padding(name_bytes) + 8;
            let more =
                may_search.then(|| self.attributes(directory, &open, name, entry.ino())).flatten();
            let more_bytes = match &more {
                _ if !with_attributes => 0,
                Some((_, handle)) => {
                    4 + ATTRIBUTES_BYTES + 4 + 4 + handle.len() + padding(handle.len())
                }
                None => 8,
            };
            if FRAME_BYTES + out.len() + entry_bytes + more_bytes > budget.all
                || (names_bytes + entry_bytes > budget.names && !out.is_empty())
            {
                return if out.is_empty() { Err(Status::TooSmall) } else { Ok(false) };
            }
            names_bytes += entry_bytes;
            let is_up = name == c".." && directory.node.id.inode == directory.export.root_inode;
            put::bool(out, true);
            put::u64(out, if is_up { directory.export.root_inode } else { entry.ino() });
            put::opaque(out, name.to_bytes());
            put::u64(out, entry.next_entry_cookie());
            if with_attributes {
                put_post(out, more.as_ref().map(|(stat, _)| stat), directory.export.fsid);
                put::bool(out, more.is_some());
                if let Some((_, handle)) = &more {
                    put::opaque(out, handle);
                }
            }
        }
        Ok(true)
    }

    /// Attributes and handle of an entry, if the caller may know them and both are of the same
    /// file.
    fn attributes(
        &self,
        directory: &Object<'_>,
        open: &OwnedFd,
        name: &CStr,
        inode: u64,
    ) -> Option<(Stat, HandleBytes)> {
        let is_up = name == c".." && directory.node.id.inode == directory.export.root_inode;
        if is_up || name == c"." {
            return Some((directory.node.stat().ok()?, directory.node.handle.clone()));
        }
        // A file that is open already can be asked itself.
        if let Some(node) = self.service.nodes.get_by_inode(&directory.node, inode)
            && let Ok(stat) = node.stat()
        {
            return Some((stat, node.handle.clone()));
        }
        let kernel = handle_of(open.as_fd(), name).ok()?;
        let stat = statat(open, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        // The name may have come to stand for another file in between.
        let is_same = match is_of_inode(&kernel, stat.st_ino) {
            Some(is_same) => is_same,
            None => handle_of(open.as_fd(), name).ok()? == kernel,
        };
        if !is_same {
            return None;
        }
        Some((stat, self.service.key.seal(directory.export.id, &kernel)?))
    }
}

/// The verifier of a directory's cookies.
fn verifier(directory: &Object<'_>) -> [u8; 8] {
    let id = directory.node.id;
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&id.inode.to_be_bytes());
    bytes[8..].copy_from_slice(&id.generation.to_be_bytes());
    *blake3::hash(&bytes).as_bytes().first_chunk().expect("32 bytes")
}
