//! Whoever forwards, in place of this forwarder, connections whose packets need no look any longer:
//! what is said to it, and what it says.
//!
//! Which connections these are is decided in `entering.rs`.

use std::fmt;
use std::io;

use nicache_tcp::Time;

use crate::tcp_track::Direction;
pub use crate::tcp_track::Numbers;
use crate::tuple::Tuple;

/// Connections that are entered at most.
pub const PLACES_MAX: u32 = 65_536;

/// What was forwarded elsewhere of a direction, since the connection has its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// When the last packet was; [`Time::ZERO`]: none.
    pub last: Time,
    /// Packets; a super-frame is one.
    pub packets: u64,
    /// Bytes of IP.
    pub bytes: u64,
}

/// How a packet is known that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// By which interface.
    pub interface: usize,
    /// Its ends.
    pub tuple: Tuple,
}

/// How numbers of TCP are changed in a segment; of services by name. Deltas are added, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The sequence number.
    pub seq: u32,
    /// The acknowledgment number.
    pub ack: u32,
    /// The sender's timestamp.
    pub tsval: u32,
    /// The timestamp that it echoes.
    pub tsecr: u32,
    /// Shifts of its window, before and after.
    pub scales: [u8; 2],
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The connection's place.
    pub place: u32,
    /// Its direction.
    pub direction: Direction,
    /// The edition of all that was decided; ways of others do not count.
    pub edition: u32,
    /// The interface that it goes out by.
    pub interface: usize,
    /// Its new ends.
    pub tuple: Tuple,
    /// Its other numbers. [`Numbers`] are as in the original direction after this change, and in
    /// the other one before.
    pub moved: Option<Moved>,
    /// Destination and source of the frame.
    pub macs: [u8; 12],
    /// Bytes of the longest IP packet that the link takes.
    pub mtu: u32,
    /// Until when this counts.
    pub until: Time,
}

/// Whoever forwards connections that are entered. A place is one of [`places`](Self::places)
/// numbers.
pub trait FastPath: fmt::Debug + Send {
    /// Connections that it has room for.
    fn places(&self) -> u32;

    /// Whether packets that come in or go out by an interface can be forwarded there.
    fn has(&self, interface: usize) -> bool;

    /// A place is a connection's from now on, of which nothing was forwarded yet.
    ///
    /// # Errors
    /// What the system says; as for all others.
    fn begin(&mut self, place: u32, numbers: Option<[Numbers; 2]>) -> io::Result<()>;

    /// Forwards such packets that way.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn enter(&mut self, arrival: &Arrival, way: &Way) -> io::Result<()>;

    /// No longer.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn leave(&mut self, arrival: &Arrival) -> io::Result<()>;

    /// What is known of a connection, and what was forwarded of it.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn look(&mut self, place: u32) -> io::Result<([Numbers; 2], [Passed; 2])>;

    /// More is known of a connection.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn tell(&mut self, place: u32, numbers: [Numbers; 2]) -> io::Result<()>;

    /// Only ways of this edition count, until a time.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn keep(&mut self, edition: u32, until: Time) -> io::Result<()>;

    /// Packets that it could not send on after all.
    fn unsent(&self) -> u64;
}

/// What was forwarded elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastCounters {
    /// Connections that are entered at the moment.
    pub connections: u64,
    /// Connections entered.
    pub entered: u64,
    /// How often all ways became void at once.
    pub voided: u64,
    /// Packets forwarded there.
    pub packets: u64,
    /// Bytes of IP in them.
    pub bytes: u64,
    /// Packets that were taken there and could not be sent.
    pub unsent: u64,
    /// Calls of the system that failed.
    pub failed: u64,
}
