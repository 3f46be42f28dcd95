//! Network namespaces for tests: those of [`nicache_netns`], with panics for errors, and programs
//! that end with the test.
//!
//! * [`Namespace`]: one with a thread in it, to which work is given; pairs of interfaces join two
//!   of them.
//! * [`enter_private`], [`enter_new`], [`enter`]: the calling thread moves into another one.
//! * [`inside`]: work in the namespace of another process.
//! * [`Process`], [`wait_for_listener`]: programs that run in one.
//!
//! What is made here panics with what a command said if something fails: a test has nothing better
//! to do.

#![forbid(unsafe_code)]

mod command;
mod namespace;
mod process;

use std::fs::File;
use std::os::unix::fs::MetadataExt;

pub use command::{ip, output, run};
pub use namespace::Namespace;
pub use nicache_netns::{enter, enter_new, of_this_thread};
pub use process::{Process, wait_for_listener};

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
        enter(netns).unwrap();
        work()
    };
    std::thread::spawn(body).join().unwrap()
}

/// Inode number of the calling thread's network namespace.
pub fn inode() -> u32 {
    // The kernel gives them 32 bits.
    of_this_thread().unwrap().metadata().unwrap().ino() as u32
}
