//! Mounts that are in no namespace: whoever has no descriptor does not see them, and the last
//! descriptor ends them.
//!
//! Read first: fsopen(2), fsmount(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, fstat, open, openat};
use rustix::io::retry_on_intr;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

/// A FUSE file system without a server so far: its connection's descriptor, and its root.
pub(crate) fn fuse() -> io::Result<(OwnedFd, OwnedFd)> {
    let connection = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", "nicache")?;
    fsconfig_set_string(context.as_fd(), "fd", connection.as_raw_fd().to_string())?;
    // A folder.
    fsconfig_set_string(context.as_fd(), "rootmode", "40000")?;
    fsconfig_set_string(context.as_fd(), "user_id", "0")?;
    fsconfig_set_string(context.as_fd(), "group_id", "0")?;
    Ok((connection, mount(context, MountAttrFlags::MOUNT_ATTR_NODEV)?))
}

/// The ext4 on a block device. Keys must go to their place and nowhere else, so data never goes
/// into the journal. Of what decides about durability, nothing is left to the superblock, whose
/// mount options (`tune2fs -o`) are second to these: without barriers, the kernel would not ask for
/// flushes.
pub(crate) fn ext4(device: &str) -> io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device)?;
    fsconfig_set_string(context.as_fd(), "data", "ordered")?;
    fsconfig_set_string(context.as_fd(), "barrier", "1")?;
    fsconfig_set_string(context.as_fd(), "errors", "remount-ro")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    mount(context, attributes)
}

/// Ends a FUSE connection: everything that waits for it gets an error. `root` is the file system's.
pub(crate) fn abort(root: &impl AsFd) -> io::Result<()> {
    // The kernel names connections after the device number of their file system, whose major part
    // is 0.
    let connection = fstat(root)?.st_dev;
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let control = mount(context, MountAttrFlags::empty())?;
    let number = rustix::fs::minor(connection);
    let file = openat(
        &control,
        format!("{number}/abort"),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(&file, b"1")?;
    Ok(())
}

fn mount(context: OwnedFd, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    if let Err(error) = fsconfig_create(context.as_fd()) {
        let told = context_messages(&context);
        return Err(if told.is_empty() {
            error.into()
        } else {
            io::Error::other(format!("{error}: {told}"))
        });
    }
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// What the kernel has to say about a failed attempt (fsopen(2), "the message retrieval
/// interface").
fn context_messages(context: &OwnedFd) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(bytes @ 1..) = retry_on_intr(|| rustix::io::read(context, &mut buffer)) {
        all.push(
            String::from_utf8_lossy(&buffer[..bytes])
                .trim_start_matches(['e', 'w', 'i', ' '])
                .trim()
                .to_owned(),
        );
    }
    all.join("; ")
}
