//! A loop device over a file, by its system calls: it clears itself when nobody uses it any longer.
//!
//! Read first: loop(4).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nicache_initiator::BLOCK_BYTES;
use rustix::fs::{Mode, OFlags, open};

use crate::block_queue::has_stable_pages;

/// `include/uapi/linux/loop.h`.
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

/// A loop device that this process holds.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: String,
    _device: OwnedFd,
}

impl LoopDevice {
    /// Attaches a file, with direct I/O and blocks of [`BLOCK_BYTES`].
    pub(crate) fn attach(file: &OwnedFd) -> io::Result<Self> {
        let control = open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // Others take free devices, too.
        for _ in 0..64 {
            // SAFETY: the descriptor is open; the request takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = format!("/dev/loop{number}");
            let device = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            let mut name = [0; 64];
            name[..7].copy_from_slice(b"nicache");
            let config = LoopConfig {
                fd: file.as_raw_fd() as u32,
                block_size: BLOCK_BYTES as u32,
                info: LoopInfo64 {
                    device: 0,
                    inode: 0,
                    rdevice: 0,
                    offset: 0,
                    size_limit: 0,
                    number: 0,
                    encrypt_type: 0,
                    encrypt_key_size: 0,
                    flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
                    file_name: name,
                    crypt_name: [0; 64],
                    encrypt_key: [0; 32],
                    init: [0; 2],
                },
                reserved: [0; 8],
            };
            // SAFETY: the descriptor is open; the argument is a `struct loop_config`, which the
            // kernel reads.
            if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } == 0 {
                let device = Self { path, _device: device };
                device.set_up(number)?;
                return Ok(device);
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
        }
        Err(io::Error::other("no loop device is free"))
    }

    fn set_up(&self, number: i32) -> io::Result<()> {
        // Without direct I/O, the file system would wait for pages that wait for this process.
        if fs::read_to_string(format!("/sys/block/loop{number}/loop/dio"))?.trim() != "1" {
            return Err(io::Error::other(format!("{} does not do direct I/O", self.path)));
        }
        has_stable_pages(&format!("loop{number}"))
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}
