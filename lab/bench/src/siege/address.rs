//! The attackers' addresses.

use nicache_tcp::frame::Mac;

/// The attackers' MAC address, a local one.
pub(super) const MAC: Mac = [0x02, 0x73, 0x69, 0x65, 0x67, 0x65];
/// First two bytes of all attackers' addresses: the half of the range for measurements (RFC 2544)
/// that nicache does not use itself.
pub(super) const NETWORK: [u8; 2] = [198, 19];
