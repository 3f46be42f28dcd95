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
//! | [`frame`] | Ethernet and IPv4 around a segment | RFC 791 |
//! | [`splice`] | mapping one flow between two sequence spaces | module head |
//! | [`sender`] | the byte-stream sender | RFC 9293, RFC 5681 |
//! | [`rtt`], [`rto`] | round-trip estimate, retransmission timeout | RFC 6298, RFC 7323 |
//! | [`sack`], [`recovery`] | scoreboard, loss detection and recovery | RFC 2018, RFC 6675, RFC 6582 |
//! | [`cubic`] | congestion window | RFC 9438 |
//! | [`window`], [`persist`] | peer's window, zero-window probes | RFC 9293 sections 3.10.7.4, 3.8.6.1 |
//! | [`receiver`] | in-order receiver for request bytes | RFC 9293 section 3.10.7.4 |
//! | [`handshake`], [`isn`] | answering a SYN, initial sequence numbers | RFC 9293, RFC 6528 |
//! | [`timestamps`] | our timestamp clock, PAWS | RFC 7323 |
//! | [`wheel`] | timers of many connections | module head |
//! | [`rst`], [`close`], [`time_wait`] | resets, closing, TIME-WAIT | RFC 5961, RFC 9293 section 3.6 |
//!
//! Deliberately absent: urgent data, ECN, TCP Fast Open, path MTU discovery (the caller
//! sets the segment size), pacing.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod checksum;
pub mod close;
pub mod cubic;
pub mod frame;
pub mod handshake;
pub mod isn;
pub mod options;
pub mod persist;
pub mod receiver;
pub mod recovery;
pub mod rewrite;
pub mod rst;
pub mod rto;
pub mod rtt;
pub mod sack;
pub mod sender;
pub mod seq;
pub mod splice;
pub mod time;
pub mod time_wait;
pub mod timestamps;
pub mod wheel;
pub mod window;
pub mod wire;

pub use options::{SackBlocks, SynOptions, Timestamps};
pub use rewrite::{AckRewrite, Rewrite, SackRewrite, rewrite};
pub use sender::{
    AckError, AckInfo, AckOutcome, PeerLimits, Sender, SenderConfig, TimeoutOutcome, Transmit, TransmitKind,
};
pub use seq::Seq;
pub use splice::Splice;
pub use time::Time;
pub use wheel::Wheel;
pub use wire::{Flags, HeadRepr, SegmentHead, WireError, parse};
