//! A program that does what it does by io_uring, where no system call shows it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = include_str!("ring.py");

/// What to run for `ring.py` with these words.
pub(crate) fn command(words: &[&str]) -> Vec<String> {
    [&["python3", "-c", SCRIPT], words].concat().into_iter().map(str::to_owned).collect()
}

/// A program that is killed when it is dropped.
pub(crate) struct Ring(Child);

impl Ring {
    /// Starts it. It has asked for something once when this returns.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
