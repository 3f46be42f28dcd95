//! Forwarding whose payload stays on the card: what a host does that sees headers, and sends back
//! headers and the number of a place.
//!
//! Read first: Yocum and Chase 2001, "Payload Caching: High-Speed Data Forwarding for Network
//! Intermediaries".
//!
//! | file | mechanism | read first |
//! |---|---|---|
//! | [`pcache`] | which buffer is in which place of the card | Yocum and Chase 2001, section 4.1 |
//! | [`view`], [`rewrite`] | headers looked at, and changed with their checksums | RFC 791, RFC 8200, RFC 1624 |
//! | [`tcp_track`], [`conntrack`] | connections of others | RFC 5382, RFC 7857 |
//! | [`ports`], [`nat`] | inside addresses behind outside ones | RFC 4787 |
//! | [`icmp`] | errors translated, and our own | RFC 5508, RFC 1812 |
//! | [`allowance`] | how many errors and resets of our own | RFC 1812 section 4.3.2.8 |
//! | [`fragments`], `cutting` | later fragments, and packets cut into some | RFC 791 |
//! | [`maglev`], [`services`] | one address for many back ends | Eisenbud et al. 2016 |
//! | [`first_bytes`], [`names`], [`switch`] | a back end by the name that a client asks for | RFC 6066 section 3, RFC 9293 section 3.10 |
//! | `leaving` | connections whose back end has been drained | RFC 5961 section 3.2 |
//! | [`fan_out`] | one datagram to many | module head |
//! | [`rules`] | what may pass | module head |
//! | [`prefix`], [`routes`], [`neighbours`], [`solicitation`], [`interface`], [`links`] | the next hop | RFC 1812, RFC 826, RFC 4861 |
//! | `handling`, `begin`, `onward` | all of it, for one packet | module head |
//! | [`forwarder`], [`note`] | what is kept for that, in all and for a connection | module head |
//! | [`fast_path`], `entering` | connections that others forward, and what is known of them meanwhile | module head |
//! | [`saved`] | connections for a forwarder that takes over | module head |
//! | [`copying`] | whole frames between ports | module head |
//!
//! Nothing here performs input or output or reads a clock: time and random numbers are arguments.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

pub mod allowance;
pub mod backend;
mod begin;
pub mod bus;
pub mod config;
pub mod conntrack;
pub mod copying;
pub mod counters;
mod cutting;
pub mod decision;
pub mod engine;
mod entering;
pub mod fan_out;
pub mod fast_path;
pub mod first_bytes;
pub mod forwarder;
pub mod fragments;
mod frame;
mod handling;
pub mod icmp;
pub mod interface;
mod leaving;
pub mod links;
mod lists;
pub mod maglev;
pub mod modes;
pub mod names;
pub mod nat;
pub mod neighbours;
pub mod note;
mod onward;
mod packet;
pub mod pcache;
pub mod ports;
pub mod prefix;
pub mod rewrite;
pub mod routes;
pub mod rules;
pub mod saved;
mod segmenting;
pub mod services;
pub mod solicitation;
pub mod switch;
pub mod tcp_track;
pub mod tuple;
pub mod view;
mod waiting;

pub use config::Config;
pub use counters::{Counters, Drop};
pub use decision::{Decision, HEAD_BYTES_MAX, Head, Incoming, Moment, Outgoing};
pub use forwarder::Forwarder;
