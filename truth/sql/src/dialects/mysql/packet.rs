//! What a packet can be, and what client and server can agree on: what both readers of the protocol
//! go by.

/// The largest payload of one packet; one that is as large goes on in the next.
pub(super) const PACKET_BYTES_MAX: usize = 0xff_ffff;

// Capabilities, by their names in MariaDB's and MySQL's sources without `CLIENT_`.
pub(super) const COMPRESS: u32 = 1 << 5;
pub(super) const PROTOCOL_41: u32 = 1 << 9;
pub(super) const SSL: u32 = 1 << 11;
pub(super) const ZSTD_COMPRESSION: u32 = 1 << 26;
