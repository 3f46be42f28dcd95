//! A database on another machine: a relay in front of it tells the hosts of cards what it receives,
//! before it receives it.
//!
//! * On the database's machine: [`Proxy`] (`proxy.rs`) is the door that clients use, [`Publisher`]
//!   (`publisher.rs`) numbers what happens and knows for whom a change has to wait, [`Door`]
//!   (`cards.rs`) is where card hosts connect.
//! * On a card's host: [`follow()`] (`follow.rs`) connects to the relay, [`Subscriber`]
//!   (`subscriber.rs`) knows whether nothing is missing and for how long that is certain,
//!   [`Validity`] (`validity.rs`) how the cards stop in time. What events mean is the
//!   [`Follower`]'s business.
//! * Between them: [`ToCard`] and [`ToRelay`] (`message.rs`), in frames of the Noise protocol
//!   (`channel.rs`), or sealed (`envelope.rs`) on a bus (`nats.rs`).
//!
//! `publisher.rs`, `subscriber.rs` and `validity.rs` do no I/O and read no clock;
//! `tests/simulation` tries to break them.
#![forbid(unsafe_code)]

mod cards;
mod channel;
mod envelope;
mod follow;
mod hub;
mod key;
mod message;
mod nats;
mod proxy;
mod publisher;
mod socket;
mod structure;
mod subscriber;
mod validity;

pub use cards::{Door, DoorCounters};
pub use channel::{Receiver, Sender, initiate, respond};
pub use follow::{Follower, follow};
pub use hub::Hub;
pub use key::Key;
pub use message::{
    CONNECTIONS_MAX, EVENT_BYTES_MAX, Event, MESSAGE_BYTES_MAX, Malformed, REPLY_BYTES,
    STRUCTURE_PART_BYTES, Step, ToCard, ToRelay,
};
pub use nats::{Bus, follow_bus, serve};
pub use proxy::{Proxy, ProxyCounters};
pub use publisher::{CARDS_MAX, CardId, Publisher, PublisherCounters, Session};
pub use structure::Structures;
pub use subscriber::{Lost, RENEWAL_NS, SILENCE_NS, Subscriber, Taken};
pub use validity::{GUARD_NS, Validity};
