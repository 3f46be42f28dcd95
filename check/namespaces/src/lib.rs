//! Network namespaces for tests. They have no name, so they and their interfaces are gone when
//! their threads and processes are, however a test ends.
//!
//! * [`Namespace`]: one with a thread in it, to which work is given; pairs of interfaces join two
//!   of them.
//! * [`enter_new`], [`enter_private`]: the calling thread moves into a new one.
//! * [`inside`]: work in the namespace of another process.
//! * [`Process`], [`wait_for_listener`]: programs that run in one.
//!
//! All of it panics with what a command said if something fails: a test has nothing better to do.

#![forbid(unsafe_code)]

mod command;
mod namespace;
mod process;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

pub use command::{ip, output, run};
pub use namespace::Namespace;
pub use process::{Process, wait_for_listener};

/// Moves the calling thread into a new network namespace. Its loopback interface is down.
///
/// # Errors
/// Not permitted, or the kernel has no network namespaces.
pub fn enter_new() -> io::Result<()> {
    // Sound: only `UnshareFlags::FILES` is not.
    #[allow(deprecated)]
    Ok(rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET)?)
}

/// Moves the calling thread of a test into a new network namespace with its loopback interface up.
/// Panics without root.
pub fn enter_private() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces: run it as root"
    );
    enter_new().unwrap();
    ip("link set lo up");
}

/// Runs `work` on a new thread in the network namespace of process `pid`.
pub fn inside<T: Send + 'static>(pid: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let netns = File::open(format!("/proc/{pid}/ns/net")).unwrap();
    let body = move || {
        rustix::thread::move_into_link_name_space(netns.as_fd(), None).unwrap();
        work()
    };
    std::thread::spawn(body).join().unwrap()
}

/// Inode number of the calling thread's network namespace.
pub fn inode() -> u32 {
    // The kernel gives them 32 bits.
    std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32
}
