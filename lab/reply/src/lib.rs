//! Reads HTTP/1.x replies out of the bytes of a connection, whatever the pieces in which they come.
//! No I/O.
//!
//! * [`ReplyReader`] finds the replies in what the caller has received, and hands over the bodies
//!   where they are. It copies nothing but a head that comes in pieces, and is made for those that
//!   measure.
//! * [`WholeReader`] keeps what the connection brings until a reply is whole.
//!
//! Both take a head as the card does: what leaves a reply's end in doubt is an error
//! ([`nicache_http::parse_framing`]).
//!
//! Read first: RFC 9112, section 6.3 (how long a body is); then `reader.rs`. Deliberately absent:
//! sockets and timeouts, which every client has in its own way.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod head;
mod reader;
mod whole;

pub use head::{Head, field, fields};
pub use nicache_http::{Framing, Method};
pub use reader::{AtClose, ReplyError, ReplyReader};
pub use whole::{WholeReader, WholeReply};
