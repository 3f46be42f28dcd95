//! Where block devices come from.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};

use crate::detached;
use crate::fuse_file::FILE_NAME;
use crate::loop_device::LoopDevice;

/// A block device whose requests another process answers.
pub(crate) trait BlockNode {
    /// The device's file.
    fn path(&self) -> &str;

    /// Lets every request fail that the server has not answered, now and later.
    fn abort(&mut self) -> io::Result<()>;

    /// Whether what is between the file system and the server has ended, so nothing answers.
    fn is_broken(&mut self) -> bool;

    /// Whether dropping this would take the device from a file system that is still mounted.
    fn is_needed(&self) -> bool;
}

/// A loop device over a file of a FUSE file system: anywhere.
pub(crate) struct LoopOverFuse {
    // In this order: each holds the next one.
    device: LoopDevice,
    root: OwnedFd,
}

/// A FUSE file system that waits for its server.
pub(crate) struct Unserved {
    root: OwnedFd,
}

impl LoopOverFuse {
    /// What the server needs, and what [`Unserved::attach`] continues with while it serves.
    pub(crate) fn prepare() -> io::Result<(OwnedFd, Unserved)> {
        let (connection, root) = detached::fuse()?;
        Ok((connection, Unserved { root }))
    }
}

impl Unserved {
    /// Waits for the server and attaches the device.
    pub(crate) fn attach(self) -> io::Result<LoopOverFuse> {
        let file = openat(
            &self.root,
            FILE_NAME,
            OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let device = LoopDevice::attach(&file)?;
        Ok(LoopOverFuse { device, root: self.root })
    }
}

impl BlockNode for LoopOverFuse {
    fn path(&self) -> &str {
        self.device.path()
    }

    fn abort(&mut self) -> io::Result<()> {
        detached::abort(&self.root)
    }

    fn is_broken(&mut self) -> bool {
        false
    }

    fn is_needed(&self) -> bool {
        // A loop device clears itself when its last user has gone.
        false
    }
}
