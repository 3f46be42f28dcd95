//! The signals that a process of ours catches.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// The signals that the supervisor receives, in order.
#[derive(Debug)]
pub(crate) struct Signals {
    pipes: Vec<(i32, UnixStream)>,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch() -> Result<Self> {
        let mut pipes = Vec::new();
        for number in [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2] {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(number, theirs)?;
            pipes.push((number, ours));
        }
        Ok(Self { pipes })
    }

    /// Readable when one has arrived.
    pub(crate) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes.iter().map(|(_, pipe)| pipe.as_fd())
    }

    /// Takes one that has arrived.
    pub(crate) fn take(&self) -> Option<i32> {
        self.pipes.iter().find_map(|(number, pipe)| {
            let mut reader: &UnixStream = pipe;
            matches!(reader.read(&mut [0; 64]), Ok(count) if count > 0).then_some(*number)
        })
    }
}
