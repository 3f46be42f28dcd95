//! A FUSE file system with one file, whose content is a block device's.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, ReplyXattr, Request, Session, SessionACL, WriteFlags,
};
use nicache_initiator::{BLOCK_BYTES, LunError};

use crate::blocks::{Blocks, error_number, is_whole};

/// The file's name.
pub(crate) const FILE_NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);
/// The file does not change but through this server.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// The longest write; the kernel's limit is the same.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests of the loop device at once.
const BACKGROUND_MAX: u16 = 64;

/// Serves the file until the file system is gone.
pub(crate) fn serve(blocks: Arc<dyn Blocks>, fuse: OwnedFd, threads: usize) -> io::Result<()> {
    let mut config = Config::default();
    config.n_threads = Some(threads.max(1));
    config.clone_fd = true;
    config.acl = SessionACL::All;
    Session::from_fd(OneFile { blocks }, fuse, SessionACL::All, config)?.run().or_else(is_end)
}

/// Whether an error of the connection only means that the file system is gone. The kernel says
/// ENODEV for it, which the library knows, but ECONNABORTED to a thread that has just taken the
/// last close of the file when the unmount takes the connection away (`fuse_dev_do_read` of
/// fs/fuse/dev.c). Nothing is lost by it: data that did not arrive is told by the last `syncfs`.
fn is_end(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ECONNABORTED) { Ok(()) } else { Err(error) }
}

struct OneFile {
    blocks: Arc<dyn Blocks>,
}

impl OneFile {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == FILE;
        FileAttr {
            ino: inode,
            size: if is_file { self.blocks.capacity_bytes() } else { 0 },
            blocks: if is_file { self.blocks.capacity_bytes() / 512 } else { 0 },
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o600 } else { 0o500 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        }
    }

    fn is_whole(&self, inode: INodeNo, offset: u64, bytes: usize) -> bool {
        inode == FILE && is_whole(&*self.blocks, offset, bytes)
    }
}

fn errno(error: &LunError) -> Errno {
    Errno::from_i32(error_number(error))
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel with lower limits says which it has, and takes those.
        if let Err(limit) = config.set_max_write(WRITE_BYTES_MAX) {
            let _ = config.set_max_write(limit);
        }
        if let Err(limit) = config.set_max_background(BACKGROUND_MAX) {
            let _ = config.set_max_background(limit);
        }
        // Without it, the loop device's requests wait for each other.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE_NAME {
            reply.entry(&FOREVER, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        );
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if !self.is_whole(inode, offset, size as usize) {
            return reply.error(Errno::EINVAL);
        }
        let mut data = vec![0; size as usize];
        match self.blocks.read(offset, &mut data) {
            Ok(()) => reply.data(&data),
            Err(error) => {
                tracing::error!("{error}");
                reply.error(errno(&error));
            }
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if !self.is_whole(inode, offset, data.len()) {
            return reply.error(Errno::EINVAL);
        }
        match self.blocks.write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => {
                tracing::error!("{error}");
                reply.error(errno(&error));
            }
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close, which says nothing about durability.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.blocks.flush() {
            Ok(()) => reply.ok(),
            Err(error) => {
                tracing::error!("{error}");
                reply.error(errno(&error));
            }
        }
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        // The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_the_unmount_takes_away_has_ended_and_others_have_failed() {
        assert!(is_end(io::Error::from_raw_os_error(libc::ECONNABORTED)).is_ok());
        assert!(is_end(io::Error::from_raw_os_error(libc::EIO)).is_err());
        assert!(is_end(io::Error::new(io::ErrorKind::InvalidData, "Invalid request")).is_err());
    }
}
