//! What the tests share: a loaded watcher, a directory on ext4, and a thread that plays the server.

#![allow(dead_code, missing_docs)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use nicache_coherence::SourceSlot;
use tempfile::TempDir;

/// A fresh directory on ext4, removed at the end.
pub fn directory_on_ext4() -> TempDir {
    let bases = [PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from("/var/tmp")];
    for base in bases {
        if rustix::fs::statfs(&base).is_ok_and(|fs| fs.f_type as u64 == 0xef53) {
            return tempfile::tempdir_in(base).unwrap();
        }
    }
    panic!("neither the target directory nor /var/tmp is on ext4, the only watched file system");
}

/// Slot of what a path leads to, links at the end not followed.
pub fn slot(path: &Path) -> SourceSlot {
    let stat = fs::symlink_metadata(path).unwrap();
    let dev = stat.dev();
    SourceSlot::of_device_inode(rustix::fs::major(dev), rustix::fs::minor(dev), stat.ino())
}

/// Inode number of the calling thread's network namespace.
pub fn netns_of_this_thread() -> u32 {
    fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own: the kernel's witnesses take it for the server.
pub struct ServerThread {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    pub netns: u32,
}

impl ServerThread {
    pub fn start() -> ServerThread {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (started, netns) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: this thread alone moves to another network namespace; it has no sockets.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
            started.send(netns_of_this_thread()).unwrap();
            for job in queue {
                job();
            }
        });
        ServerThread { jobs: Some(jobs), thread: Some(thread), netns: netns.recv().unwrap() }
    }

    /// Runs `job` on the server's thread and returns its result.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.jobs.as_ref().unwrap().send(Box::new(move || done.send(job()).unwrap())).unwrap();
        result.recv().unwrap()
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = self.thread.take().unwrap().join();
    }
}
