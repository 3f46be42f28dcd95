//! A network namespace of a thread's, and what runs in it.

use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::thread::{Pid, gettid};

type Job = Box<dyn FnOnce() + Send>;

/// A namespace: a thread that is in it and runs what it is given. What is made there stays in it.
#[derive(Debug)]
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    tid: Pid,
}

impl Namespace {
    /// A new one, with loopback up.
    ///
    /// # Errors
    /// The system makes none for us.
    pub fn create() -> io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let (started, start) = channel();
        let body = move || {
            // Sound: only `UnshareFlags::FILES` is not.
            #[allow(deprecated)]
            let made = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
            let is_made = made.is_ok();
            let _ = started.send(made.map(|()| gettid()));
            if is_made {
                inbox.iter().for_each(|job| job());
            }
        };
        let thread = std::thread::Builder::new().name("namespace".into()).spawn(body)?;
        let tid = start.recv().map_err(io::Error::other)??;
        let namespace = Self { jobs: Some(jobs), thread: Some(thread), tid };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// `None`, with the reason printed: this machine makes none for us.
    #[cfg(test)]
    pub(crate) fn for_test() -> Option<Self> {
        Self::create().map_err(|error| println!("skipped: no network namespace: {error}")).ok()
    }

    /// The thread in it: `/proc/PROCESS/task/THREAD/ns/net` is the namespace.
    pub fn tid(&self) -> u32 {
        self.tid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Runs `job` inside and waits for its result.
    ///
    /// # Panics
    /// If the job does.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let job = Box::new(move || drop(done.send(job())));
        self.jobs
            .as_ref()
            .expect("it is there until the end")
            .send(job)
            .expect("the thread lives as long");
        result.recv().expect("a job does not panic")
    }

    /// Runs `ip` inside.
    ///
    /// # Errors
    /// What it says.
    pub fn ip(&self, arguments: &str) -> io::Result<()> {
        let arguments = arguments.to_owned();
        self.run(move || ip(&arguments))
    }

    /// Gives this namespace an interface `name`, up, whose other end is `end` in the namespace
    /// `middle`, up, with no address.
    ///
    /// # Errors
    /// What the system says.
    pub fn veth(&self, name: &str, middle: &Self, end: &str) -> io::Result<()> {
        middle.ip(&format!("link add {end} type veth peer name {name} netns {}", self.tid()))?;
        middle.ip(&format!("link set {end} addrgenmode none up"))?;
        self.ip(&format!("link set {name} addrgenmode none up"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs `ip` in the calling thread's namespace.
///
/// # Errors
/// What it says.
pub(super) fn ip(arguments: &str) -> io::Result<()> {
    let output =
        Command::new("ip").args(arguments.split_whitespace()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("the program ip is not installed (package iproute2)")
        }
        _ => error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {arguments}: {}", said.trim())))
}
