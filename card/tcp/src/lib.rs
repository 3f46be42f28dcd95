//! The TCP of the card, as state machines.
//!
//! Nothing here performs input or output, reads a clock or allocates after construction: time and
//! random keys are arguments, events go in through `handle_*`, actions come out of `poll_*`. One
//! file holds one mechanism.
//!
//! | file | mechanism | read first |
//! |---|---|---|
//! | [`seq`], [`time`] | sequence numbers, instants | RFC 9293 section 3.4 |
//! | [`wire`], [`options`] | parsing and emitting headers | RFC 9293 section 3.1, RFC 7323, RFC 2018 |
//! | [`checksum`], [`mod@rewrite`] | ones'-complement sums, header rewriting in place | RFC 1071, RFC 1624 |
//! | [`address`], [`frame`] | Ethernet, VLAN tags and IP around a segment | RFC 791, RFC 8200 |
//! | [`wrapped`] | options, extension headers and fragments | RFC 791, RFC 8200 |
//! | [`splice`] | mapping one flow between two sequence spaces | module head |
//! | [`sender`] | the byte-stream sender | RFC 9293, RFC 5681 |
//! | [`plain`] | most segments, in one look | RFC 7323 section 5.6 |
//! | [`rtt`], [`rto`] | round-trip estimate, retransmission timeout | RFC 6298, RFC 7323 |
//! | [`scoreboard`], [`rack`], [`tail_probe`] | what has arrived, what is lost | RFC 2018, RFC 8985 |
//! | [`recovery`], [`prr`], [`undo`] | repairing losses, and taking reductions back | RFC 6675, RFC 6582, RFC 9937, RFC 5682, RFC 3522 |
//! | [`cubic`], [`hystart`], [`mod@usage`] | congestion window | RFC 9438, RFC 9406, RFC 7661 |
//! | [`pacing`], [`ecn`] | departure times, congestion marks | module head, RFC 3168 |
//! | [`window`], [`persist`] | peer's window, zero-window probes | RFC 9293 sections 3.10.7.4, 3.8.6.1 |
//! | [`receiver`] | in-order receiver for request bytes | RFC 9293 section 3.10.7.4 |
//! | [`handshake`], [`isn`] | answering a SYN, initial sequence numbers | RFC 9293, RFC 6528 |
//! | [`half_open`], [`syn_cookie`], [`cookie_keys`], [`syn_pressure`] | floods of SYNs | RFC 4987 |
//! | [`challenge`], [`patience`] | forged segments, peers that take their time | RFC 5961, RFC 9293 section 3.8.4 |
//! | [`black_hole`] | segments too long for a path that does not say so | RFC 4821 |
//! | [`timestamps`] | our timestamp clock, PAWS | RFC 7323 |
//! | [`wheel`] | timers of many connections | module head |
//! | [`rst`], [`close`], [`time_wait`] | resets, closing, TIME-WAIT | RFC 5961, RFC 9293 section 3.6 |
//!
//! Deliberately absent: urgent data, accurate ECN, TCP Fast Open, probing for a larger path MTU.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]
#![warn(missing_docs)]

pub mod address;
pub mod black_hole;
pub mod challenge;
pub mod close;
pub mod cookie_keys;
pub mod cubic;
pub mod ecn;
mod flags;
pub mod frame;
pub mod half_open;
pub mod handshake;
mod headers;
pub mod hystart;
pub mod isn;
pub mod options;
pub mod pacing;
pub mod patience;
pub mod persist;
pub mod plain;
pub mod prr;
pub mod rack;
pub mod receiver;
pub mod recovery;
pub mod rewrite;
pub mod rst;
pub mod rto;
pub mod rtt;
pub mod scoreboard;
pub mod sender;
pub mod seq;
pub mod splice;
pub mod syn_cookie;
pub mod syn_pressure;
pub mod tail_probe;
pub mod time;
pub mod time_wait;
pub mod timestamps;
pub mod undo;
pub mod usage;
pub mod wheel;
pub mod window;
pub mod wire;
pub mod wrapped;

pub use ecn::Codepoint;
pub use nicache_checksum as checksum;
pub use options::{SackBlocks, SynOptions, Timestamps};
pub use rewrite::{AckRewrite, Rewrite, SackRewrite, rewrite};
pub use sender::{
    AckError, AckInfo, AckOutcome, PeerLimits, Sender, SenderConfig, TimeoutOutcome, Transmit,
    TransmitKind,
};
pub use seq::Seq;
pub use splice::Splice;
pub use time::{Time, earliest};
pub use wheel::Wheel;
pub use wire::{Flags, HeadRepr, SegmentHead, WireError, parse};
