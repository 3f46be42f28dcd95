//! Names of the two ends: addresses and ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Port of the server.
pub(crate) const SERVER_PORT: u16 = 80;
/// Port of the client's connection 0; connection n has this plus n.
const CLIENT_PORT_BASE: u16 = 40_000;

/// Address of the client.
pub(crate) fn client(ip: u8) -> IpAddr {
    number(ip, 1)
}

/// Address of the server.
pub(crate) fn server(ip: u8) -> IpAddr {
    number(ip, 2)
}

/// Address of a router on the way.
pub(crate) fn router(ip: u8) -> IpAddr {
    number(ip, 3)
}

/// Address of the client that is heard of before the script begins.
pub(crate) fn stranger(ip: u8) -> IpAddr {
    number(ip, 4)
}

/// Address and port of one of the clients of a flood.
pub(crate) fn flooding(ip: u8, at: u32) -> (IpAddr, u16) {
    let [_, high, mid, low] = at.to_be_bytes();
    let address = match ip {
        // RFC 2544's addresses for tests of devices.
        4 => IpAddr::V4(Ipv4Addr::new(198, 18 | (high & 1), mid, low)),
        _ => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, (at >> 16) as u16, at as u16)),
    };
    (address, 10_000 + (at % 50_000) as u16)
}

/// Port of the client on a connection.
pub(crate) fn client_port(connection: u16) -> u16 {
    CLIENT_PORT_BASE + connection
}

/// The connection that has this port of the client.
pub(crate) fn connection(client_port: u16) -> Option<u16> {
    client_port.checked_sub(CLIENT_PORT_BASE).filter(|number| (1..1000).contains(number))
}

/// An address of the wire. RFC 5737's and RFC 3849's for documentation.
fn number(ip: u8, host: u8) -> IpAddr {
    match ip {
        4 => IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)),
        _ => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host))),
    }
}
