//! What others ask the supervisor's own thread to do: children must be started by it, because they
//! end with the thread that starts them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};

/// How long an upgrade may take: a card with much memory needs a while.
const UPGRADE: Duration = Duration::from_secs(120);

/// An order.
#[derive(Debug)]
pub(super) enum Order {
    /// Replace the card.
    Upgrade {
        /// By a card of this program.
        program: PathBuf,
        /// Process of the new card.
        reply: mpsc::Sender<Result<u32>>,
    },
}

/// The supervisor's end.
#[derive(Debug)]
pub(super) struct Orders {
    inbox: mpsc::Receiver<Order>,
    bell: Arc<OwnedFd>,
}

/// Everybody else's end.
#[derive(Debug, Clone)]
pub(super) struct OrderDesk {
    outbox: mpsc::Sender<Order>,
    bell: Arc<OwnedFd>,
}

/// Both ends.
pub(super) fn orders() -> Result<(Orders, OrderDesk)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (outbox, inbox) = mpsc::channel();
    Ok((Orders { inbox, bell: Arc::clone(&bell) }, OrderDesk { outbox, bell }))
}

impl Orders {
    /// Takes one that has come.
    pub(super) fn take(&self) -> Option<Order> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.inbox.try_recv().ok()
    }
}

impl AsFd for Orders {
    /// Readable when one has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl OrderDesk {
    /// Has the card replaced; the process of the new one.
    pub(super) fn upgrade(&self, program: PathBuf) -> Result<u32> {
        let (reply, answer) = mpsc::channel();
        self.outbox
            .send(Order::Upgrade { program, reply })
            .ok()
            .context("the supervisor is ending")?;
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        answer.recv_timeout(UPGRADE).context("the supervisor does not answer")?
    }
}
