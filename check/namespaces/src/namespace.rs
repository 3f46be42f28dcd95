//! A namespace with a thread in it.

use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::process::Process;
use crate::{enter_new, inode};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace: a thread that is in it and runs what it is given. Sockets made there stay
/// in it, and processes live in it.
#[derive(Debug)]
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    inode: u32,
}

impl Namespace {
    /// One whose loopback interface is down. `None`, with the reason printed: this machine makes
    /// none for us.
    pub fn new() -> Option<Self> {
        let (jobs, inbox) = channel::<Job>();
        let (started, start) = channel();
        let thread = std::thread::spawn(move || {
            let entered = enter_new().map(|()| inode());
            // Fails only if nobody waits any longer.
            let _ = started.send(entered);
            inbox.iter().for_each(|job| job());
        });
        match start.recv().unwrap() {
            Ok(inode) => Some(Self { jobs: Some(jobs), thread: Some(thread), inode }),
            Err(error) => {
                println!("skipped: no network namespace: {error}");
                None
            }
        }
    }

    /// The same with its loopback interface up.
    pub fn with_loopback() -> Option<Self> {
        let namespace = Self::new()?;
        namespace.ip("link set lo up");
        Some(namespace)
    }

    /// Its inode number.
    pub fn inode(&self) -> u32 {
        self.inode
    }

    /// Runs `job` inside and waits for its result. Panics if the job does.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = channel();
        let job = Box::new(move || drop(done.send(job())));
        self.jobs
            .as_ref()
            .expect("they are there until it is dropped")
            .send(job)
            .expect("a job has panicked");
        result.recv().expect("the job panicked")
    }

    /// Runs a program inside with arguments that blanks separate, and returns what it said. Panics
    /// if it fails.
    pub fn command(&self, program: &str, arguments: impl AsRef<str>) -> String {
        let (named, given) = (program.to_owned(), arguments.as_ref().to_owned());
        // What fails panics here, and the namespace lives on.
        let output = self.run(move || crate::output(&named, &given));
        crate::command::text_of(&output, program, arguments.as_ref())
    }

    /// Runs a command inside whose words blanks separate, whatever comes of it.
    pub fn output(&self, command: &str) -> Output {
        let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
        let (program, arguments) = (program.to_owned(), arguments.to_owned());
        self.run(move || crate::output(&program, &arguments))
    }

    /// Runs `ip` inside. Panics if it fails.
    pub fn ip(&self, arguments: impl AsRef<str>) -> String {
        self.command("ip", arguments)
    }

    /// The thread that is inside, by which `ip` names the namespace.
    pub fn thread_id(&self) -> i32 {
        self.run(|| rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Gives this namespace an interface `name`, up, whose other end is `end` in the namespace
    /// `middle`, up and with no address.
    pub fn veth(&self, name: &str, middle: &Self, end: &str) {
        middle.ip(format!("link add {end} type veth peer name {name} netns {}", self.thread_id()));
        middle.ip(format!("link set {end} addrgenmode none up"));
        self.ip(format!("link set {name} up"));
    }

    /// Starts a program inside. It ends with the value that is returned.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Process {
        let program = program.to_owned();
        let arguments: Vec<String> =
            arguments.iter().map(|&argument| argument.to_owned()).collect();
        let start = move || Command::new(&program).args(arguments).stdin(Stdio::null()).spawn();
        Process(self.run(start).unwrap_or_else(|error| panic!("{error}")))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
