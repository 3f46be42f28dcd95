//! A static web server whose content enters by reference only.
//!
//! ```text
//! request.rs  bytes of a connection ─▶ what is asked for
//! validator.rs  ETag and Last-Modified that cannot lie, and conditions
//! reply.rs    status and head
//! listing.rs  pages that the server makes itself: lists of directories, errors
//! live.rs     streams and playlists
//! output.rs   sendfile: pieces of files, in the order of the requests
//! service.rs  the loop: frames and timers
//!   requests.rs   requests of a connection
//!   replies.rs    what they are answered with
//!   transmit.rs   replies become packets
//!   broadcast.rs  streams and playlists
//!   changes.rs    changes of files are carried over to cards
//!   routing.rs    by which card a client is served
//! config.rs   settings, and where things are in host memory
//! ```
//!
//! Deliberately absent: TLS, HTTP/2, compression, uploads, programs.

mod broadcast;
mod changes;
mod config;
pub mod listing;
mod live;
mod output;
mod replies;
pub mod reply;
pub mod request;
mod requests;
mod routing;
mod service;
mod transmit;
pub mod validator;

pub use config::{CardLink, FRAME_BYTES, FRAMES, Layout, Route, ServiceConfig};
pub use live::{LiveCounters, LiveSource, segments};
pub use service::{Broken, Service, ServiceCounters};
