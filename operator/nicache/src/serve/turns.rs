//! The loop of a process that works with a card through memory: the host's and the forwarder's. It
//! takes turns while there is work, then naps, then sleeps, and listens to its supervisor.

use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::Result;
use nicache_port::{CpuPressure, Idle, IdlePolicy, IdleStep, NAP, wait};
use nicache_tcp::Time;
use serde::de::DeserializeOwned;

use super::channel::Inbox;
use crate::engine::monotonic;

/// How many turns pass between two looks at the supervisor's socket under load.
const TURNS_PER_LOOK: u32 = 256;

/// What a process does with its card.
pub(crate) trait Turns {
    /// What its supervisor says.
    type Message: DeserializeOwned;

    /// Does what there is to do; returns how much that was.
    fn turn(&mut self, now: Time, supervisor: BorrowedFd<'_>) -> Result<usize>;

    /// Does the card run on the same processor?
    fn is_beside_card(&mut self) -> bool;

    /// Waits for work, or for the supervisor.
    fn sleep(&mut self, inbox: &Inbox) -> Result<()>;

    /// Does what the supervisor says.
    fn handle(
        &mut self,
        message: Self::Message,
        files: Vec<OwnedFd>,
        supervisor: BorrowedFd<'_>,
    ) -> Result<()>;
}

/// Takes turns until the supervisor is gone.
pub(crate) fn take_turns<T: Turns>(process: &mut T, inbox: &mut Inbox) -> Result<()> {
    let mut idle = Idle::new(IdlePolicy::default());
    let mut pressure = CpuPressure::of_machine();
    let mut turns = 0u32;
    loop {
        let now = monotonic();
        turns = turns.wrapping_add(1);
        let done = process.turn(now, inbox.socket())?;
        if done > 0 {
            idle.handle_work(now.0, done);
            if !turns.is_multiple_of(TURNS_PER_LOOK) {
                continue;
            }
        } else {
            idle.set_contended(pressure.is_contended(now.0));
            let step = idle.poll(now.0);
            // All work comes from the card, and one on the same processor can only go on when this
            // one sleeps.
            let step = if process.is_beside_card() { IdleStep::Sleep } else { step };
            match step {
                IdleStep::Again => {
                    std::hint::spin_loop();
                    continue;
                }
                IdleStep::Nap => {
                    wait(&[], Some(NAP))?;
                    continue;
                }
                IdleStep::Sleep => process.sleep(inbox)?,
            }
        }
        match inbox.take::<T::Message>() {
            Ok(None) => {}
            Ok(Some((message, files))) => process.handle(message, files, inbox.socket())?,
            Err(error) => {
                tracing::debug!("{error:#}");
                return Ok(());
            }
        }
    }
}
