//! A table of descriptors for the threads that answer the device, and for no others.
//!
//! A killed process closes its descriptors only when its last thread has ended, and a thread that
//! waits, in the kernel, for a page of the file system does not end before the device answers. If
//! that thread shared the FUSE connection's descriptor, it would wait for itself. The threads that
//! answer never touch the file system; they end at once, close the connection, and so set the
//! others free.

use std::io;
use std::os::fd::RawFd;

/// Gives the calling thread, and those that it starts later, a table of its own with the standard
/// streams and `keep`. Everything else that is open stays open in the other threads only.
pub(crate) fn isolate_descriptors(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: no memory changes. Descriptors that this thread uses from now on are the standard
    // streams, those of `keep`, and its own.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut keep: Vec<u32> = keep.iter().map(|descriptor| *descriptor as u32).collect();
    keep.sort_unstable();
    let mut first = libc::STDERR_FILENO as u32 + 1;
    for descriptor in keep.into_iter().chain([u32::MAX]) {
        if let Some(last) = descriptor.checked_sub(1).filter(|last| *last >= first) {
            // SAFETY: the table is this thread's own, so what is closed here is still open for
            // everybody who has it.
            if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        first = first.max(descriptor.saturating_add(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn other_threads_keep_what_this_one_closes() {
        let (kept, mut lost) =
            (File::open("/proc/self/stat").unwrap(), File::open("/proc/self/stat").unwrap());
        let (kept_fd, lost_fd) = (kept.as_raw_fd(), lost.as_raw_fd());
        std::thread::spawn(move || {
            isolate_descriptors(&[kept_fd]).unwrap();
            let is_open = |fd| std::fs::read_link(format!("/proc/thread-self/fd/{fd}")).is_ok();
            assert!(is_open(kept_fd) && !is_open(lost_fd) && is_open(2));
        })
        .join()
        .unwrap();
        assert!(lost.read(&mut [0; 8]).unwrap() > 0);
    }
}
