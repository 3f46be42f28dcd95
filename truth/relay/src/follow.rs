//! A card host's way to a relay over TCP.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nicache_clock::boottime_ns;

use crate::channel;
use crate::key::Key;
use crate::message::{Event, ToCard, ToRelay};
use crate::subscriber::{Subscriber, Taken};

/// How long to wait for bytes before looking whether something is to be sent.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait before the next try.
const AGAIN: Duration = Duration::from_millis(200);
const CONNECT: Duration = Duration::from_secs(2);
/// A relay that takes nothing for so long is gone.
const SEND: Duration = Duration::from_secs(2);

/// What a card host does with what a relay tells it.
pub trait Follower: Send + Sync {
    /// All that rests on the database is void now, and when this returns every card knows.
    fn void(&self, reason: &str);
    /// Events follow; `resumed`: nothing is missing since the last. On the connections `busy`
    /// something is not done.
    fn begin(&self, resumed: bool, busy: &[u64]);
    /// When this returns the event has taken effect.
    fn take(&self, event: Event);
    /// No change can happen without an event before this time (CLOCK_BOOTTIME).
    fn extend(&self, until_ns: u64);
    /// See [`ToRelay::Renew`].
    fn is_plain(&self) -> bool;
    /// The next question about the structure of a database, with its number.
    fn question(&self) -> Option<(u64, Option<String>)>;
    /// The answer, or why there is none.
    fn answer(&self, ask: u64, answer: Result<Vec<u8>, String>);
}

/// Follows the relay at an address until the process ends.
pub fn follow(
    address: SocketAddr,
    key: &Key,
    subscriber: &mut Subscriber,
    follower: &dyn Follower,
) -> ! {
    let mut said = String::new();
    loop {
        let Err(error) = follow_once(address, key, subscriber, follower);
        subscriber.lose();
        let reason = error.to_string();
        follower.void(&reason);
        if said != reason {
            tracing::warn!(relay = %address, "the relay is not followed, pages that asked its database are not kept: {reason}");
            said = reason;
        }
        std::thread::sleep(AGAIN);
    }
}

fn follow_once(
    address: SocketAddr,
    key: &Key,
    subscriber: &mut Subscriber,
    follower: &dyn Follower,
) -> io::Result<std::convert::Infallible> {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    let (mut sender, mut receiver) = channel::initiate(stream, key)?;
    sender.set_timeout(SEND)?;
    receiver.set_timeout(PAUSE)?;
    sender.push(&subscriber.greet(boottime_ns()).encode())?;
    sender.flush()?;
    let mut structure = Structure::default();
    loop {
        let mut ack = None;
        let result = receiver.receive(|bytes| {
            let message = ToCard::decode(bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            take(message, subscriber, follower, &mut structure, &mut ack)
        });
        // What has taken effect is acknowledged, whatever came behind it.
        if let Some(ack) = ack {
            sender.push(&ack.encode())?;
            sender.flush()?;
        }
        result?;
        if let Some(renewal) =
            subscriber.handle_time(boottime_ns(), follower.is_plain()).map_err(io::Error::other)?
        {
            sender.push(&renewal.encode())?;
        }
        while subscriber.is_following()
            && let Some((ask, database)) = follower.question()
        {
            sender.push(&ToRelay::AskStructure { ask, database }.encode())?;
        }
        sender.flush()?;
    }
}

/// Takes one message; an event puts its acknowledgment into `ack`.
pub(crate) fn take(
    message: ToCard,
    subscriber: &mut Subscriber,
    follower: &dyn Follower,
    structure: &mut Structure,
    ack: &mut Option<ToRelay>,
) -> io::Result<()> {
    match subscriber.handle(message, boottime_ns()).map_err(io::Error::other)? {
        Taken::Nothing => {}
        Taken::Begins { resumed, busy } => {
            tracing::info!(resumed, "the relay is followed");
            follower.begin(resumed, &busy);
        }
        Taken::Event(event) => {
            follower.take(event);
            let earlier = ack.take();
            *ack = subscriber.taken().or(earlier);
        }
        Taken::Structure { ask, part, last, failed } => {
            structure.take(follower, ask, part, last, failed);
        }
    }
    if let Some(until_ns) = subscriber.until_ns() {
        follower.extend(until_ns);
    }
    Ok(())
}

/// Longest structure in bytes.
const STRUCTURE_BYTES_MAX: usize = 64 << 20;

/// The parts of an answer.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    ask: u64,
    bytes: Vec<u8>,
}

impl Structure {
    fn take(&mut self, follower: &dyn Follower, ask: u64, part: Vec<u8>, last: bool, failed: bool) {
        if ask != self.ask {
            *self = Self { ask, bytes: Vec::new() };
        }
        self.bytes.extend(part);
        if self.bytes.len() > STRUCTURE_BYTES_MAX {
            self.bytes.clear();
            return follower.answer(ask, Err("the structure is too long".into()));
        }
        if last {
            let bytes = std::mem::take(&mut self.bytes);
            let answer =
                if failed { Err(String::from_utf8_lossy(&bytes).into_owned()) } else { Ok(bytes) };
            follower.answer(ask, answer);
        }
    }
}
