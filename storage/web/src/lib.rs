//! A static web server over kernel sockets: the paper's kHTTPd on the network-ready cache (Peng et
//! al., section 4.3).
//!
//! * [`WebServer`] (`server.rs`) listens; a thread serves each connection (`connection.rs`).
//! * `site.rs` finds files below a folder, as somebody to whom nobody has given rights.
//! * `reply.rs` is what a request is answered with. Content comes as references from a
//!   [`Payload`](nicache_payload::Payload), and goes to the socket by one `writev` with its head.
//! * [`Revised`] (`revisions.rs`) counts changes of files as they pass, so a reply is of one
//!   version.
//!
//! What requests and replies look like is that of `nicache serve` ([`nicache_host::server`]):
//! parser, heads, validators, error pages.
//!
//! Deliberately absent: TLS, HTTP/2, compression, lists of directories, parts of several ranges.

#![forbid(unsafe_code)]

mod connection;
mod counts;
mod reply;
mod revisions;
mod server;
mod site;

pub use counts::WebCounters;
pub use revisions::{Revised, Revisions};
pub use server::{WebConfig, WebError, WebServer};
