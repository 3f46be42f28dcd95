//! The health of back ends: the thread that checks them, and what the forwarder is told of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use anyhow::Result;
use nicache_bus::Doorbell;
use nicache_router::config::Plan;
use nicache_router::health::{self, Verdict};

use super::messages::ToForwarder;
use super::place::Place;
use crate::setup::send_message;
use crate::supervisor::children::Child;

/// The thread that checks back ends. Dropping it ends it.
pub(super) struct Health {
    stop: Arc<Doorbell>,
    pub(super) bell: Arc<Doorbell>,
    pub(super) told: Receiver<Verdict>,
    thread: Option<JoinHandle<()>>,
    /// What was found last, for a forwarder that is started again.
    pub(super) verdicts: BTreeMap<(u16, u16), Verdict>,
}

impl Health {
    pub(super) fn start(plan: &Plan, place: &Place) -> Result<Self> {
        let (stop, bell) = (Arc::new(Doorbell::new()?), Arc::new(Doorbell::new()?));
        let (tell, told) = channel();
        let (checks, stopped, rung) = (plan.checks.clone(), Arc::clone(&stop), Arc::clone(&bell));
        // Sockets are of the namespace of the thread that makes them.
        let thread = place.run(move || {
            std::thread::Builder::new().name("health".into()).spawn(move || {
                let outcome = health::run(checks, &stopped, |verdict| {
                    if tell.send(verdict).is_ok() {
                        rung.ring();
                    }
                });
                if let Err(error) = outcome {
                    tracing::error!("health is no longer checked: {error}");
                }
            })
        })?;
        Ok(Self { stop, bell, told, thread: Some(thread), verdicts: BTreeMap::new() })
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells the forwarder what was found.
pub(super) fn tell_health(forwarder: &Child, Verdict { chosen, is_up, reason }: &Verdict) {
    let message = ToForwarder::Health {
        service: chosen.service,
        back_end: chosen.back_end,
        is_up: *is_up,
        reason: reason.clone(),
    };
    // One that is just ending is told at its next start.
    if let Err(error) = send_message(&forwarder.channel, &message, &[]) {
        tracing::debug!("the forwarder was not told of a back end: {error:#}");
    }
}
