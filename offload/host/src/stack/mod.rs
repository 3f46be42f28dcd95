//! TCP on the host, over buffers that refer to bytes: `nicache_tcp`'s machines put together for a
//! server.
//!
//! ```text
//! queue.rs       what is to be sent, as buffers, by sequence number
//! connection.rs  one connection: handshake, request bytes in, buffers out, close
//! table.rs       all connections, with their timers; TIME-WAIT
//! incoming.rs    what a received frame is; ARP and ping
//! ```
//!
//! Deliberately absent: connecting to others, IPv6, IP fragments and options, urgent data.

mod connection;
mod incoming;
mod queue;
mod table;

pub use connection::{Connection, Ends, Outgoing, REQUEST_WINDOW_BYTES, Reaction, StackConfig};
pub use incoming::{Incoming, parse};
pub use queue::{PACKET_PARTS_MAX, SendQueue};
pub use table::{ConnectionId, Connections, Handled, StackCounters};
