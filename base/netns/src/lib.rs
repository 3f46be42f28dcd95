//! Network namespaces. They have no name, so they and their interfaces are gone when the threads
//! and processes in them are, however these end.
//!
//! * [`Namespace`]: one with a thread in it, to which work is given; pairs of interfaces join two
//!   of them.
//! * [`enter_new`], [`enter`]: the calling thread moves into another one; [`within`]: a thread of
//!   its own does one piece of work there.
//! * [`command()`], [`ip`]: programs in the namespace of the calling thread.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod command;
mod namespace;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use command::{command, ip};
pub use namespace::Namespace;

/// Moves the calling thread into a new network namespace. Its loopback interface is down.
///
/// # Errors
/// Not permitted, or the kernel has no network namespaces.
pub fn enter_new() -> io::Result<()> {
    // Sound: only `UnshareFlags::FILES` is not, with which descriptors of other threads go stale.
    #[allow(deprecated)]
    Ok(rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET)?)
}

/// Moves the calling thread into a network namespace that is there, by a file of it
/// ([`of_this_thread`], or `/proc/PID/ns/net`).
///
/// # Errors
/// Not permitted, or the file is not a network namespace's.
pub fn enter(namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Runs `job` on a thread of its own in a network namespace, by a file of it as for [`enter`].
/// Sockets that it opens belong to that namespace and may be used anywhere.
///
/// # Errors
/// As [`enter`].
///
/// # Panics
/// If the job does.
pub fn within<T: Send>(
    namespace: impl AsFd + Send,
    job: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let body = || enter(namespace).map(|()| job());
        scope.spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A file of the calling thread's network namespace, which is there as long as the file is open.
///
/// # Errors
/// There is no `/proc`, or too many files are open.
pub fn of_this_thread() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}
