//! A child's end of the socket to the supervisor, looked at between other work.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_port::{Wake, wait};
use serde::de::DeserializeOwned;

use crate::setup::receive_message;

/// A child's end of the socket to the supervisor, looked at between other work.
#[derive(Debug)]
pub(crate) struct Inbox(OwnedFd);

impl Inbox {
    /// Of a socket.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Readable when there is a message.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// A message, if one is there.
    ///
    /// # Errors
    /// The supervisor is gone, or sent what it never sends.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>> {
        match wait(&[self.0.as_fd()], Some(Duration::ZERO))? {
            Wake::TimedOut | Wake::Interrupted => Ok(None),
            Wake::Ready => receive_message(&self.0)?.context("the supervisor is gone").map(Some),
        }
    }

    /// The next message; `None`: the supervisor is gone.
    ///
    /// # Errors
    /// It sent what it never sends.
    pub(crate) fn wait<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Vec<OwnedFd>)>> {
        receive_message(&self.0)
    }
}
