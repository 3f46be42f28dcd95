//! The way over a bus, for many relays and many card hosts: NATS with JetStream.
//!
//! What a relay says goes into a stream, in order, once for all its card hosts ([`serve`]); what
//! they say comes back by the subject that it listens to. Nothing rests on the bus: what it loses
//! shows in the numbers, what it delays runs into the leases. Everything is sealed ([`Envelope`]).
//! The asynchronous client stays in this file.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::push::OrderedConfig;
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use futures_util::StreamExt;
use nicache_clock::boottime_ns;

use crate::envelope::Envelope;
use crate::follow::{Follower, Structure, take};
use crate::hub::{EVERYBODY, Hub};
use crate::key::Key;
use crate::message::{ToCard, ToRelay};
use crate::publisher::{CardId, Session};
use crate::structure::Structures;
use crate::subscriber::Subscriber;

/// How long to wait for a message before looking whether something is to be sent.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait before the next try.
const AGAIN: Duration = Duration::from_millis(300);
/// How long the bus may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked whether the stream is still there.
const STREAM: Duration = Duration::from_secs(1);
/// What nobody has fetched for so long is of no use any longer.
const AGE: Duration = Duration::from_secs(60);
const STREAM_BYTES_MAX: i64 = 64 << 20;
const BATCH_MAX: usize = 256;

/// Where a relay and its card hosts meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bus {
    /// URLs of servers, separated by commas: `nats://10.0.0.9:4222`, with `tls://` for TLS.
    pub servers: String,
    /// Name of the relay on the bus: letters, digits, `-` and `_`.
    pub name: String,
}

impl Bus {
    /// Is the name one that the bus takes?
    pub fn is_name(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=64).contains(&name.len()) && name.bytes().all(plain)
    }

    fn said_by_relay(&self) -> String {
        format!("nicache.{}.relay", self.name)
    }

    fn said_by_cards(&self) -> String {
        format!("nicache.{}.cards", self.name)
    }

    fn stream(&self) -> Config {
        Config {
            name: format!("nicache-{}", self.name),
            subjects: vec![self.said_by_relay()],
            storage: StorageType::Memory,
            retention: RetentionPolicy::Limits,
            max_age: AGE,
            max_bytes: STREAM_BYTES_MAX,
            ..Config::default()
        }
    }

    async fn connect(&self) -> io::Result<async_nats::Client> {
        let options =
            async_nats::ConnectOptions::new().name("nicache").connection_timeout(PATIENCE);
        options.connect(self.servers.as_str()).await.map_err(io::Error::other)
    }
}

fn run<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn in_time<T, E>(work: impl IntoFuture<Output = Result<T, E>>) -> io::Result<T>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match tokio::time::timeout(PATIENCE, work.into_future()).await {
        Ok(result) => result.map_err(io::Error::other),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the bus does not answer")),
    }
}

/// The relay's side, until the process ends. Starts its threads.
///
/// # Errors
/// No thread can be started.
pub fn serve(bus: Bus, hub: Arc<Hub>, structures: Arc<Structures>, key: &Key) -> io::Result<()> {
    let relay = Arc::new(Relay {
        incoming: Envelope::new(key, &bus.said_by_cards()),
        outgoing: Envelope::new(key, &bus.said_by_relay()),
        bus,
        hub,
        structures,
        sessions: Mutex::default(),
        cursor: AtomicU64::new(0),
    });
    let body = move || {
        let mut said = String::new();
        loop {
            if let Err(error) = run(relay.work()) {
                let text = error.to_string();
                if said != text {
                    tracing::warn!("the bus is out of reach: {text}");
                    said = text;
                }
            }
            std::thread::sleep(AGAIN);
        }
    };
    std::thread::Builder::new().name("bus".into()).spawn(body)?;
    Ok(())
}

struct Relay {
    bus: Bus,
    hub: Arc<Hub>,
    structures: Arc<Structures>,
    incoming: Envelope,
    outgoing: Envelope,
    sessions: Mutex<Vec<Session>>,
    /// Number of the next event that goes into the stream.
    cursor: AtomicU64,
}

impl Relay {
    async fn work(self: &Arc<Self>) -> io::Result<()> {
        let client = self.bus.connect().await?;
        let stream = jetstream::new(client.clone());
        in_time(stream.get_or_create_stream(self.bus.stream())).await?;
        let mut cards =
            client.subscribe(self.bus.said_by_cards()).await.map_err(io::Error::other)?;
        let (sender, mut outgoing) = tokio::sync::mpsc::channel(BATCH_MAX);
        let relay = Arc::clone(self);
        let pump = move || {
            loop {
                let mut cursor = relay.cursor.load(Ordering::SeqCst);
                let messages = relay.hub.bus_messages(&mut cursor, BATCH_MAX);
                // What is lost on the way from here shows as a gap.
                relay.cursor.store(cursor, Ordering::SeqCst);
                for (card, message) in messages {
                    let Some(sealed) = relay.outgoing.seal(card, &message.encode()) else {
                        continue;
                    };
                    if sender.blocking_send(sealed).is_err() {
                        return;
                    }
                }
                if sender.is_closed() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("bus-events".into()).spawn(pump)?;
        tracing::info!(servers = %self.bus.servers, name = %self.bus.name, "on the bus");
        let mut look = tokio::time::interval(STREAM);
        loop {
            tokio::select! {
                message = cards.next() => match message {
                    Some(message) => self.take(&message.payload),
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                },
                sealed = outgoing.recv() => match sealed {
                    Some(sealed) => {
                        client.publish(self.bus.said_by_relay(), sealed.into())
                            .await.map_err(io::Error::other)?;
                    }
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                },
                _ = look.tick() => {
                    // A server that was started anew has forgotten it; nothing waits for the
                    // answer.
                    let (stream, config) = (stream.clone(), self.bus.stream());
                    tokio::spawn(
                        async move { stream.get_or_create_stream(config).await.map(drop) });
                }
            }
        }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.sessions.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self, sealed: &[u8]) {
        let opened = self.incoming.open(sealed);
        let message = opened.and_then(|(card, bytes)| Ok((card, ToRelay::decode(&bytes)?)));
        let Ok((card, message)) = message else {
            self.hub.count_refused();
            return;
        };
        let mut sessions = self.sessions();
        let known = sessions.iter().copied().find(|session| session.id == card);
        let session = match (&message, known) {
            (ToRelay::Hello { card: named, .. }, _) if *named == card && card != EVERYBODY => {
                let Some(session) = self.hub.connect(card, true) else {
                    return self.hub.count_refused();
                };
                tracing::info!(card, "a card host follows over the bus");
                // Those that are long gone make room.
                sessions.retain(|session| session.id != card && self.hub.is_waited_for(session.id));
                sessions.push(session);
                session
            }
            (_, Some(session)) => session,
            _ => return self.hub.count_refused(),
        };
        drop(sessions);
        match &message {
            ToRelay::AskStructure { ask, database } => {
                let (hub, ask) = (Arc::clone(&self.hub), *ask);
                self.structures.ask(database.clone(), move |part, last, failed| {
                    hub.answer(session, ToCard::Structure { ask, part, last, failed });
                });
            }
            message => self.hub.handle(session, message),
        }
    }
}

/// Follows a relay over the bus until the process ends.
pub fn follow_bus(
    bus: &Bus,
    card: CardId,
    key: &Key,
    subscriber: &mut Subscriber,
    follower: &dyn Follower,
) -> ! {
    let mut said = String::new();
    loop {
        let Err(error) = run(follow_once(bus, card, key, subscriber, follower)) else { continue };
        subscriber.lose();
        let reason = error.to_string();
        follower.void(&reason);
        if said != reason {
            tracing::warn!(name = %bus.name, "the relay is not followed, pages that asked its database are not kept: {reason}");
            said = reason;
        }
        std::thread::sleep(AGAIN);
    }
}

async fn follow_once(
    bus: &Bus,
    card: CardId,
    key: &Key,
    subscriber: &mut Subscriber,
    follower: &dyn Follower,
) -> io::Result<()> {
    let incoming = Envelope::new(key, &bus.said_by_relay());
    let outgoing = Envelope::new(key, &bus.said_by_cards());
    let client = bus.connect().await?;
    let stream = jetstream::new(client.clone());
    let stream = in_time(stream.get_or_create_stream(bus.stream())).await?;
    let config = OrderedConfig {
        deliver_subject: client.new_inbox(),
        filter_subject: bus.said_by_relay(),
        deliver_policy: DeliverPolicy::New,
        replay_policy: ReplayPolicy::Instant,
        ..OrderedConfig::default()
    };
    let consumer = in_time(stream.create_consumer(config)).await?;
    let mut messages = in_time(consumer.messages()).await?;
    let send = async |message: ToRelay| -> io::Result<()> {
        let sealed = outgoing
            .seal(card, &message.encode())
            .ok_or_else(|| io::Error::other("no random numbers"))?;
        client.publish(bus.said_by_cards(), sealed.into()).await.map_err(io::Error::other)
    };
    send(subscriber.greet(boottime_ns())).await?;
    let mut structure = Structure::default();
    let mut look = tokio::time::interval(PAUSE);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = messages.next() => {
                let message =
                    message.ok_or(io::ErrorKind::UnexpectedEof)?.map_err(io::Error::other)?;
                // What others say is nothing.
                let Ok((whom, bytes)) = incoming.open(&message.payload) else { continue };
                if whom != card && whom != EVERYBODY {
                    continue;
                }
                let Ok(message) = ToCard::decode(&bytes) else { continue };
                let mut ack = None;
                take(message, subscriber, follower, &mut structure, &mut ack)?;
                if let Some(ack) = ack {
                    send(ack).await?;
                }
            }
            _ = look.tick() => {
                if let Some(renewal) = subscriber.handle_time(boottime_ns(), follower.is_plain())
                    .map_err(io::Error::other)? {
                    send(renewal).await?;
                }
                while subscriber.is_following()
                    && let Some((ask, database)) = follower.question()
                {
                    send(ToRelay::AskStructure { ask, database }).await?;
                }
            }
        }
    }
}
