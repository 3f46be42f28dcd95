//! A static web server whose content enters by reference only.
//!
//! ```text
//! request.rs  bytes of a connection ─▶ what is asked for
//! range.rs    Range (RFC 9110 section 14)
//! validator.rs  ETag and Last-Modified that cannot lie, and conditions
//! reply.rs    status and head
//! listing.rs  pages that the server makes itself: lists of directories, errors
//! live.rs     streams and playlists
//! output.rs   sendfile: pieces of files, in the order of the requests
//! service.rs  the loop: frames, connections, requests, packets
//! ```
//!
//! Deliberately absent: TLS, HTTP/2, compression, uploads, programs.

mod listing;
mod live;
mod output;
mod range;
mod reply;
mod request;
mod service;
mod validator;

pub use live::{LiveCounters, LiveSource};
pub use service::{Broken, CardPort, Layout, Route, Service, ServiceConfig, ServiceCounters};
