//! A namespace with a thread in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::thread::{Pid, gettid};

use crate::{command, enter_new, of_this_thread, within};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace: a thread that is in it and runs what it is given. What is made there stays
/// in it. Clones are the same one; it lasts as long as any of them.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    /// There until the end, as the thread is.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    thread_id: Pid,
    file: File,
    inode: u64,
}

impl Namespace {
    /// A new one, whose loopback interface is down.
    ///
    /// # Errors
    /// Not permitted, or the kernel has no network namespaces.
    pub fn create() -> io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let (made, result) = channel();
        let body = move || {
            let file = enter_new().and_then(|()| of_this_thread());
            let is_made = file.is_ok();
            // Fails only if nobody waits any longer.
            let _ = made.send(file.map(|file| (gettid(), file)));
            if is_made {
                inbox.into_iter().for_each(|job| job());
            }
        };
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn(body)?;
        let (thread_id, file) = result.recv().map_err(io::Error::other)??;
        let inode = file.metadata()?.ino();
        Ok(Self(Arc::new(Inside {
            jobs: Some(jobs),
            thread: Some(thread),
            thread_id,
            file,
            inode,
        })))
    }

    /// A new one, whose loopback interface is up.
    ///
    /// # Errors
    /// As [`Namespace::create`]; what `ip` says.
    pub fn with_loopback() -> io::Result<Self> {
        let namespace = Self::create()?;
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The namespace's inode number. No other network namespace has it while this one's file is
    /// open.
    pub fn inode(&self) -> u64 {
        self.0.inode
    }

    /// A file of it, opened when it was made.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }

    /// The thread that is inside, by which `ip` names the namespace.
    pub fn thread_id(&self) -> u32 {
        self.0.thread_id.as_raw_nonzero().get().unsigned_abs()
    }

    /// Runs `job` inside and waits for its result. A process that it starts is inside, too, and the
    /// thread that has started it lives as long as the namespace.
    ///
    /// # Panics
    /// If the job does. The namespace lives on.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let job = move || drop(done.send(catch_unwind(AssertUnwindSafe(job))));
        self.0
            .jobs
            .as_ref()
            .expect("it is there until the end")
            .send(Box::new(job))
            .expect("the thread lives as long as the namespace");
        let result = result.recv().expect("the thread runs every job");
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs `job` on a thread of its own inside, to which things may be lent.
    ///
    /// # Errors
    /// The thread is not permitted to enter.
    ///
    /// # Panics
    /// If the job does.
    pub fn lend<T: Send>(&self, job: impl FnOnce() -> T + Send) -> io::Result<T> {
        within(self.file(), job)
    }

    /// Runs a command inside, whose words blanks separate, and returns what it wrote to standard
    /// output.
    ///
    /// # Errors
    /// It cannot be started, or fails: then with what it said.
    pub fn command(&self, words: &str) -> io::Result<String> {
        let words = words.to_owned();
        self.run(move || command(&words))
    }

    /// Runs `ip` inside.
    ///
    /// # Errors
    /// As [`Namespace::command`].
    pub fn ip(&self, arguments: &str) -> io::Result<String> {
        self.command(&format!("ip {arguments}"))
    }

    /// Gives this namespace an interface `name`, up, whose other end is `end` in the namespace
    /// `middle`, up. Neither has an address, not even one of its link.
    ///
    /// # Errors
    /// As [`Namespace::command`].
    pub fn veth(&self, name: &str, middle: &Self, end: &str) -> io::Result<()> {
        let thread = self.thread_id();
        middle.ip(&format!("link add {end} type veth peer name {name} netns {thread}"))?;
        middle.ip(&format!("link set {end} addrgenmode none up"))?;
        self.ip(&format!("link set {name} addrgenmode none up"))?;
        Ok(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn namespace() -> Option<Namespace> {
        let made = Namespace::with_loopback();
        made.map_err(|error| println!("skipped: no network namespace: {error}")).ok()
    }

    fn inode_here() -> u64 {
        of_this_thread().unwrap().metadata().unwrap().ino()
    }

    #[test]
    fn jobs_run_inside_and_threads_may_be_lent_things() {
        let Some(namespace) = namespace() else { return };
        assert_ne!(namespace.inode(), inode_here());
        assert_eq!(namespace.run(inode_here), namespace.inode());
        let lent = [1, 2, 3];
        let (inode, sum) =
            namespace.lend(|| (inode_here(), lent.iter().sum::<i32>())).expect("it is there");
        assert_eq!((inode, sum), (namespace.inode(), 6));
        assert!(namespace.run(|| TcpListener::bind("127.0.0.1:0")).is_ok());
    }

    #[test]
    fn a_job_that_panics_leaves_the_namespace_alive() {
        let Some(namespace) = namespace() else { return };
        let panic = catch_unwind(AssertUnwindSafe(|| namespace.run(|| panic!("as told"))));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as told"));
        assert_eq!(namespace.run(inode_here), namespace.inode());
    }

    #[test]
    fn two_namespaces_are_joined_and_commands_say_what_failed() {
        let (Some(left), Some(right)) = (namespace(), namespace()) else { return };
        left.veth("eth0", &right, "end").unwrap();
        left.ip("address add 10.0.0.1/24 dev eth0").unwrap();
        let shown = left.command("ip -brief address show dev eth0").unwrap();
        assert!(shown.contains("UP") && shown.contains("10.0.0.1/24"), "{shown}");
        assert!(!shown.contains("fe80"), "{shown}");
        let error = right.ip("link set none up").unwrap_err().to_string();
        assert!(error.starts_with("`ip link set none up` failed"), "{error}");
    }

    #[test]
    fn it_lasts_as_long_as_any_clone() {
        let Some(namespace) = namespace() else { return };
        let thread = format!("/proc/self/task/{}", namespace.thread_id());
        let clone = namespace.clone();
        drop(namespace);
        assert!(std::fs::exists(&thread).unwrap());
        assert_eq!(clone.run(inode_here), clone.inode());
        drop(clone);
        // The kernel wakes whoever joins a thread just before that is gone from /proc.
        while std::fs::exists(&thread).unwrap() {
            std::thread::yield_now();
        }
    }
}
