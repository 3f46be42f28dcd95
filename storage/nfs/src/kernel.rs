//! System calls that no library offers: handles of files, groups of one thread, permission of an
//! open file.
//!
//! The only unsafe code of the crate.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::fs::{Access, OFlags};
use rustix::thread::Gid;

/// Bytes of a kernel's handle at most: what fits into a handle of the protocol beside this server's
/// own fields.
pub(crate) const KERNEL_HANDLE_BYTES_MAX: usize = 36;

/// A file, as the kernel's file system names it (`struct file_handle`, open_by_handle_at(2)).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KernelHandle {
    /// What the bytes mean; the file system's own number.
    pub kind: i32,
    /// The bytes.
    pub bytes: ArrayVec<u8, KERNEL_HANDLE_BYTES_MAX>,
}

/// `struct file_handle` with room.
#[repr(C)]
struct RawHandle {
    handle_bytes: libc::c_uint,
    handle_type: libc::c_int,
    f_handle: [u8; KERNEL_HANDLE_BYTES_MAX],
}

const _: () = {
    assert!(offset_of!(RawHandle, handle_bytes) == offset_of!(libc::file_handle, handle_bytes));
    assert!(offset_of!(RawHandle, handle_type) == offset_of!(libc::file_handle, handle_type));
    assert!(offset_of!(RawHandle, f_handle) == offset_of!(libc::file_handle, f_handle));
};

/// The handle of `name` in `directory`, without following a symbolic link; of `directory` itself if
/// `name` is empty. `EOVERFLOW` if the file system's handles are too long.
pub(crate) fn handle_of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<KernelHandle> {
    let mut raw = RawHandle {
        handle_bytes: KERNEL_HANDLE_BYTES_MAX as libc::c_uint,
        handle_type: 0,
        f_handle: [0; KERNEL_HANDLE_BYTES_MAX],
    };
    let mut mount_id = 0;
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: `raw` begins like a file_handle (asserted above) and has as many bytes behind it as
    // `handle_bytes` says; the kernel writes no more than those. The other pointers are to live
    // values of the types that the call takes.
    let result = unsafe {
        libc::name_to_handle_at(
            directory.as_raw_fd(),
            name.as_ptr(),
            (&raw mut raw).cast(),
            &raw mut mount_id,
            flags,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = raw.f_handle.get(..raw.handle_bytes as usize).ok_or(io::ErrorKind::InvalidData)?;
    Ok(KernelHandle { kind: raw.handle_type, bytes: bytes.iter().copied().collect() })
}

/// Opens the file that `handle` names on the mount that `mount` is on. `ESTALE` if it is gone. The
/// thread needs `CAP_DAC_READ_SEARCH`.
pub(crate) fn open_handle(
    mount: BorrowedFd<'_>,
    handle: &KernelHandle,
    flags: OFlags,
) -> io::Result<OwnedFd> {
    let mut raw = RawHandle {
        handle_bytes: handle.bytes.len() as libc::c_uint,
        handle_type: handle.kind,
        f_handle: [0; KERNEL_HANDLE_BYTES_MAX],
    };
    raw.f_handle[..handle.bytes.len()].copy_from_slice(&handle.bytes);
    // SAFETY: `raw` begins like a file_handle (asserted above) and has at least as many bytes
    // behind it as `handle_bytes` says.
    let fd = unsafe {
        libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut raw).cast(),
            flags.bits() as libc::c_int,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets the supplementary groups of this thread alone; libc's own function sets those of all
/// threads.
pub(crate) fn set_thread_groups(groups: &[Gid]) -> io::Result<()> {
    // SAFETY: Gid is a transparent u32 (rustix says so), as gid_t is; the kernel reads as many as
    // the length says.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this thread may do `access` to an open file, whatever the file was opened for
/// (faccessat2(2) with an empty path).
pub(crate) fn may(file: impl AsFd, access: Access) -> io::Result<()> {
    // SAFETY: the path is a live C string, and the call writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            access.bits(),
            libc::AT_EMPTY_PATH | libc::AT_EACCESS,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, openat};

    #[test]
    fn a_handle_leads_back_until_the_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), "x").unwrap();
        let directory =
            openat(CWD, folder.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let handle = handle_of(directory.as_fd(), c"f").unwrap();
        let file = open_handle(directory.as_fd(), &handle, OFlags::PATH | OFlags::CLOEXEC).unwrap();
        assert_eq!(handle_of(file.as_fd(), c"").unwrap(), handle);
        may(&file, Access::READ_OK).unwrap();
        drop(file);
        std::fs::remove_file(folder.path().join("f")).unwrap();
        let error =
            open_handle(directory.as_fd(), &handle, OFlags::PATH | OFlags::CLOEXEC).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    }
}
