//! The server's network namespace, unnamed, held by one thread.
//!
//! The thread lives as long as the [`Namespace`]: what must happen inside (creating the host TAP,
//! listening for `--share`, starting the server) is handed to it as a job. By its number every
//! process of the server is known ([`guard`](super::guard)).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;

use anyhow::{Context, Result};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    jobs: mpsc::Sender<Job>,
    /// Opened before a watcher is there, which takes everything that happens inside for the
    /// server's doing.
    file: File,
    inode: u64,
}

impl Namespace {
    /// Makes it, empty.
    pub(crate) fn create() -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (made, result) = mpsc::channel();
        let body = move || {
            let unshared = unshare().and_then(|()| File::open("/proc/thread-self/ns/net"));
            let ready = unshared.is_ok();
            let _ = made.send(unshared.and_then(|file| Ok((file.metadata()?.ino(), file))));
            if ready {
                queue.into_iter().for_each(|job| job());
            }
        };
        std::thread::Builder::new().name("server-netns".into()).spawn(body)?;
        let (inode, file) = result.recv()?.context(
            "cannot make a network namespace for the server: this needs root with CAP_SYS_ADMIN and a kernel with CONFIG_NET_NS",
        )?;
        Ok(Self { jobs, file, inode })
    }

    /// Inode number of the network namespace, by which the watcher knows the server.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// A file of the network namespace. While it is open, the kernel gives no other one its number.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Runs `job` inside and waits for its result.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let job = Box::new(move || {
            let _ = done.send(job());
        });
        self.jobs.send(job).expect("the namespace's thread lives as long as the namespace");
        result.recv().expect("a job does not panic")
    }
}

#[allow(unsafe_code)]
fn unshare() -> io::Result<()> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: only CLONE_FILES makes unshare(2) unsafe (file descriptors of other threads would go
    // stale); it is not asked for.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}
