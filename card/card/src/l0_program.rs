//! What the card and the program that answers before it tell each other: replies, and connections
//! on loan.

use nicache_coherence::Epoch;
use nicache_tcp::{Seq, Time};

use crate::packet::FlowKey;

/// Longest request whose reply is published, in bytes.
pub const L0_HEAD_BYTES: usize = 384;
/// Longest reply that is published, in bytes.
pub const L0_REPLY_BYTES: usize = 12_288;

/// The program, as the card sees it.
pub trait L0: Send {
    /// Lends a connection; its place, or `None` if there is no room for it.
    fn lend(&mut self, loan: &Loan) -> Option<u32>;
    /// Takes it back as it stands; `None` if the program does not let go of it.
    fn take_back(&mut self, place: u32) -> Option<Loan>;
    /// When the program last did something for it.
    fn used(&self, place: u32) -> Time;
    /// Number of the slot of a request's reply, below [`slots`](L0::slots); `None` if it can have
    /// none.
    fn slot_of(&self, head: &[u8]) -> Option<usize>;
    /// How many slots there are.
    fn slots(&self) -> usize;
    /// Longest reply that it can give, in bytes, at most [`L0_REPLY_BYTES`].
    fn reply_bytes_max(&self) -> usize;
    /// Publishes a reply in place of whatever is in its slot.
    fn publish(&mut self, reply: &Published<'_>) -> bool;
    /// Withdraws all replies: requests that come from now on get none of them.
    fn revoke(&mut self);
    /// Requests that replies in a slot have answered since the start.
    fn served(&self, slot: usize) -> u64;
}

/// A reply that is published.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    /// The reply's request, byte for byte.
    pub head: &'a [u8],
    /// Head and body.
    pub bytes: &'a [u8],
    /// Ones'-complement sum of `bytes`.
    pub sum: u16,
    /// The epoch at which its sources were compared.
    pub epoch: Epoch,
    /// Until when it may be given.
    pub until: Time,
    /// The entry's name, for the card.
    pub tag: u64,
    /// `Date` of the head, in seconds since 1970.
    pub date: u64,
}

/// A connection on loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// The connection's ends; no VLAN tags.
    pub key: FlowKey,
    /// Next byte expected from the client.
    pub rcv_nxt: Seq,
    /// First byte that the client has not acknowledged.
    pub snd_una: Seq,
    /// First byte that it has not been sent.
    pub snd_nxt: Seq,
    /// Right edge of the client's window.
    pub edge: Seq,
    /// Shift of the client's windows.
    pub client_scale: u8,
    /// The window field of segments to the client.
    pub window: u16,
    /// Payload of a segment at most, in bytes.
    pub segment_bytes: u16,
    /// Payload that may be sent at once to a client on this machine, in bytes; else longer replies
    /// go in segments, by the card. L0 sets it to 0 when it finds that the client is elsewhere.
    pub burst_bytes: u16,
    /// If timestamps were agreed on.
    pub timestamps: Option<LoanTimestamps>,
    /// When L0 last did something for it; 0: it has not yet.
    pub used: Time,
    /// Of the reply from `snd_una` to `snd_nxt`: [`Published::tag`](crate::Published), and `Date`
    /// in seconds since 1970.
    pub tag: u64,
    /// `Date` of the reply from `snd_una` to `snd_nxt`, in seconds since 1970.
    pub date: u64,
}

/// Timestamps of a connection on loan (RFC 7323), in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanTimestamps {
    /// TS.Recent.
    pub recent: u32,
    /// TSval at 0 ms of the card's time.
    pub stamp: u32,
    /// The last TSval that was sent.
    pub sent: u32,
}
