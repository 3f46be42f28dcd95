//! The relay's door for card hosts: accepts them over TCP, and sends each its events.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::channel::{self, Receiver, Sender};
use crate::hub::Hub;
use crate::key::Key;
use crate::message::{ToCard, ToRelay};
use crate::publisher::{CARDS_MAX, Session};
use crate::structure::Structures;
use crate::subscriber::SILENCE_NS;

/// Connections that have not said who they are.
const STRANGERS_MAX: usize = 64;
const SILENCE: Duration = Duration::from_nanos(SILENCE_NS);
/// Messages sent by one system call.
const BATCH_MAX: usize = 64;

/// Counters, since the start.
#[derive(Debug, Default)]
pub struct DoorCounters {
    /// Connections that did not know the key, or sent nonsense.
    pub refused: AtomicU64,
    /// Connections that were closed at once, as too many others were open.
    pub crowded: AtomicU64,
}

/// The relay's door for card hosts: accepts them over TCP, and sends each its events.
#[derive(Clone, Debug)]
pub struct Door {
    /// Whom card hosts are told about.
    pub hub: Arc<Hub>,
    /// Who answers questions about the structure.
    pub structures: Arc<Structures>,
    /// What card hosts must know.
    pub key: Key,
    /// What happened.
    pub counters: Arc<DoorCounters>,
}

impl Door {
    /// Accepts card hosts until the process ends.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(self, listener: TcpListener) -> io::Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        let body = move || {
            loop {
                let stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!("a card host cannot be accepted: {error}");
                        std::thread::sleep(Duration::from_millis(100));
                        continue;
                    }
                };
                if open.fetch_add(1, Ordering::SeqCst) >= CARDS_MAX + STRANGERS_MAX {
                    open.fetch_sub(1, Ordering::SeqCst);
                    self.counters.crowded.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let (door, count) = (self.clone(), Arc::clone(&open));
                let body = move || {
                    door.admit(stream);
                    count.fetch_sub(1, Ordering::SeqCst);
                };
                if std::thread::Builder::new().name("card".into()).spawn(body).is_err() {
                    open.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        std::thread::Builder::new().name("cards".into()).spawn(body)?;
        Ok(())
    }

    fn admit(&self, stream: TcpStream) {
        let peer = stream.peer_addr().map_or_else(|_| "?".to_owned(), |peer| peer.to_string());
        let (sender, receiver) = match channel::respond(stream, &self.key) {
            Ok(channel) => channel,
            Err(error) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(peer, "a card host was refused: {error}");
                return;
            }
        };
        match self.serve(sender, receiver, &peer) {
            Ok(()) => {}
            Err(error) => {
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData
                ) {
                    self.counters.refused.fetch_add(1, Ordering::Relaxed);
                }
                tracing::info!(peer, "a card host is gone: {error}");
            }
        }
    }

    fn serve(&self, sender: Sender, mut receiver: Receiver, peer: &str) -> io::Result<()> {
        receiver.set_timeout(SILENCE)?;
        sender.set_timeout(SILENCE)?;
        let mut sender = Some(sender);
        let mut session: Option<Session> = None;
        let result = loop {
            let received = receiver.receive(|bytes| {
                let message = ToRelay::decode(bytes)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                self.take(&message, &mut session, &mut sender, peer)
            });
            match received {
                Ok(true) => {}
                Ok(false) => break Err(io::ErrorKind::TimedOut.into()),
                Err(error) => break Err(error),
            }
        };
        if let Some(session) = session {
            self.hub.disconnect(session);
        }
        result
    }

    fn take(
        &self,
        message: &ToRelay,
        session: &mut Option<Session>,
        sender: &mut Option<Sender>,
        peer: &str,
    ) -> io::Result<()> {
        if let (ToRelay::Hello { card, .. }, Some(sender)) = (message, sender.take()) {
            let new = self
                .hub
                .connect(*card, false)
                .ok_or_else(|| io::Error::other("too many card hosts"))?;
            tracing::info!(peer, card, "a card host follows");
            *session = Some(new);
            let hub = Arc::clone(&self.hub);
            std::thread::Builder::new()
                .name("events".into())
                .spawn(move || send(&hub, new, sender))?;
        }
        let Some(session) = *session else { return Err(io::ErrorKind::InvalidData.into()) };
        match message {
            ToRelay::AskStructure { ask, database } => {
                let (hub, ask) = (Arc::clone(&self.hub), *ask);
                self.structures.ask(database.clone(), move |part, last, failed| {
                    hub.answer(session, ToCard::Structure { ask, part, last, failed });
                });
            }
            message => self.hub.handle(session, message),
        }
        Ok(())
    }
}

/// Sends what there is for a card host, until it is cut off.
fn send(hub: &Hub, session: Session, mut sender: Sender) {
    while let Some(messages) = hub.messages(session, BATCH_MAX) {
        let pushed = messages.iter().try_for_each(|message| sender.push(&message.encode()));
        if pushed.and_then(|()| sender.flush()).is_err() {
            break;
        }
    }
    sender.close();
    hub.disconnect(session);
}
