//! The supervisor's side of the conversation with the watcher: one question at a time.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use super::children::wait_readable;
use crate::control::ANSWER_TIMEOUT;
use crate::inquiry::{FromWatch, ToWatch};
use crate::setup::{receive_message, send_message};

/// Asks the watcher.
#[derive(Debug)]
pub struct WatchLink {
    /// `None` once an answer did not come: a later one would be taken for that to another question.
    socket: Mutex<Option<OwnedFd>>,
}

impl WatchLink {
    /// Takes over the socket of a watcher that has sent its report.
    pub fn new(socket: OwnedFd) -> WatchLink {
        WatchLink { socket: Mutex::new(Some(socket)) }
    }

    /// Asks and waits for the answer, at most [`ANSWER_TIMEOUT`].
    pub fn ask(&self, question: &ToWatch) -> Result<FromWatch> {
        let mut socket = self.socket.lock().expect("no holder of this lock panics");
        let Some(to_watch) = socket.as_ref() else { bail!("the watcher does not answer") };
        send_message(to_watch, question, &[])?;
        if !wait_readable(std::os::fd::AsFd::as_fd(to_watch), ANSWER_TIMEOUT)? {
            *socket = None;
            bail!("the watcher does not answer");
        }
        Ok(receive_message(to_watch)?.context("the watcher is gone")?.0)
    }
}
