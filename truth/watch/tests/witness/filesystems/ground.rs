//! Makes a file system and mounts it where this thread, and what it starts, alone see it. The loop
//! device goes with the mount, and the mount with the thread.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// `struct loop_config` of linux/loop.h.
const LOOP_CONFIG_BYTES: usize = 304;
/// Of `info.lo_flags` therein.
const FLAGS_OFFSET: usize = 8 + 52;
const IMAGE_BYTES: u64 = 1 << 30;

/// Moves the calling thread to a mount namespace of its own.
pub(crate) fn own_mounts() {
    // SAFETY: this thread alone moves, and holds no files that it shares.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
}

/// Mounts an empty file system of this type on an empty directory, in a mount namespace of the
/// calling thread's own.
pub(crate) fn mount_own(kind: &str, point: &Path) {
    own_mounts();
    if kind == "tmpfs" {
        return mount("tmpfs", point, "tmpfs", MountFlags::empty(), None).unwrap();
    }
    let image = point.with_extension("image");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&image).unwrap();
    file.set_len(IMAGE_BYTES).unwrap();
    let made = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).output();
    let made =
        made.unwrap_or_else(|error| panic!("mkfs.{kind}: {error}; install it with tools/setup"));
    assert!(made.status.success(), "mkfs.{kind}: {}", String::from_utf8_lossy(&made.stderr));
    let (device, name) = attach(&file);
    mount(name.as_str(), point, kind, MountFlags::empty(), None).unwrap();
    drop(device);
    std::fs::remove_file(&image).unwrap();
}

/// A loop device that ends with its last user, which is the mount.
fn attach(image: &File) -> (File, String) {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control").unwrap();
    let mut config = [0_u8; LOOP_CONFIG_BYTES];
    config[..4].copy_from_slice(&image.as_raw_fd().to_ne_bytes());
    config[FLAGS_OFFSET..FLAGS_OFFSET + 4].copy_from_slice(&LO_FLAGS_AUTOCLEAR.to_ne_bytes());
    for _ in 0..100 {
        // SAFETY: no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        assert!(number >= 0, "{}", std::io::Error::last_os_error());
        let name = format!("/dev/loop{number}");
        let device = open_device(&name);
        // SAFETY: the structure is as long as the kernel takes it to be.
        if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, config.as_ptr()) } == 0 {
            return (device, name);
        }
        // Somebody else has taken it meanwhile.
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{name}: {error}");
    }
    panic!("no free loop device");
}

fn open_device(name: &str) -> File {
    let path = CString::new(name).unwrap();
    // SAFETY: a valid C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    assert!(fd >= 0, "{name}: {}", std::io::Error::last_os_error());
    // SAFETY: just opened, and ours.
    unsafe { File::from_raw_fd(fd) }
}
