//! Notices a card that lives and does nothing: it is asked all the time, and killed if it does not answer. What is done about a dead card is another's business ([`card_unit`](super::card_unit)).

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Signal, pidfd_send_signal};

use super::card_link::CardLink;
use crate::control::Question;

/// Between two questions.
const EVERY: Duration = Duration::from_millis(100);
/// How long an answer is waited for, in steps, so that a machine that stood still for a while is not taken for a card that does.
const STEP: Duration = Duration::from_millis(70);
const STEPS: u32 = 10;

/// Watches one card process; dropping it ends that.
#[derive(Debug)]
pub struct Watchdog {
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    /// Watches the card behind `link`, whose process `pidfd` names.
    pub fn start(link: Arc<CardLink>, pidfd: OwnedFd) -> Result<Watchdog> {
        let (stop, stopped) = mpsc::channel::<()>();
        let body = move || {
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if link.ask_in_steps(Question::Alive, STEP, STEPS).is_ok() {
                    continue;
                }
                // It may have been told to stop meanwhile.
                if stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    tracing::error!("the card has not answered for {} ms and is killed", (STEP * STEPS).as_millis());
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                }
                return;
            }
        };
        std::thread::Builder::new().name("watchdog".into()).spawn(body)?;
        Ok(Watchdog { _stop: stop })
    }
}
