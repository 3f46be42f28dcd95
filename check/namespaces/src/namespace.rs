//! A namespace of a test, whose commands panic.

use std::ops::Deref;
use std::process::{Command, Output, Stdio};

use crate::process::Process;

/// A network namespace: a thread that is in it and runs what it is given. Sockets made there stay
/// in it, and processes live in it.
#[derive(Debug)]
pub struct Namespace(nicache_netns::Namespace);

impl Namespace {
    /// One whose loopback interface is down. `None`, with the reason printed: this machine makes
    /// none for us.
    pub fn new() -> Option<Self> {
        match nicache_netns::Namespace::create() {
            Ok(namespace) => Some(Self(namespace)),
            Err(error) => {
                println!("skipped: no network namespace: {error}");
                None
            }
        }
    }

    /// A namespace whose loopback interface is up. `None`, with the reason printed: this machine
    /// makes none for us.
    pub fn with_loopback() -> Option<Self> {
        let namespace = Self::new()?;
        namespace.ip("link set lo up");
        Some(namespace)
    }

    /// Its inode number.
    pub fn inode(&self) -> u32 {
        // The kernel gives them 32 bits.
        self.0.inode() as u32
    }

    /// Runs a program inside with arguments that blanks separate, and returns what it said. Panics
    /// if it fails.
    pub fn command(&self, program: &str, arguments: impl AsRef<str>) -> String {
        let words = format!("{program} {}", arguments.as_ref());
        self.0.command(&words).unwrap_or_else(|error| panic!("{error}"))
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

    /// Gives this namespace an interface `name`, up, whose other end is `end` in the namespace
    /// `middle`, up. Neither has an address. Panics if the names are taken.
    pub fn veth(&self, name: &str, middle: &Self, end: &str) {
        self.0.veth(name, middle, end).unwrap_or_else(|error| panic!("{error}"));
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

/// What does not fail: jobs, names.
impl Deref for Namespace {
    type Target = nicache_netns::Namespace;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
