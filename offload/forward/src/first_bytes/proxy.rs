//! What a back end is told of its client in front of the first bytes: version 2 of the PROXY
//! protocol.
//!
//! Read first: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, section 2.2.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::tuple::Tuple;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, on behalf of a client.
const PROXY: u8 = 0x21;
/// TCP over IPv4, and over IPv6.
const FAMILIES: [u8; 2] = [0x11, 0x21];
/// Bytes of the longest header that is written.
pub const HEADER_BYTES_MAX: usize = 16 + 36;

/// The header for a connection whose packets come in like this.
pub fn header(connection: &Tuple) -> ArrayVec<u8, HEADER_BYTES_MAX> {
    let ends = [connection.source, connection.destination];
    let is_v6 = connection.source.address.is_ipv6();
    let mut header = ArrayVec::new();
    header.extend(*SIGNATURE);
    header.extend([PROXY, FAMILIES[usize::from(is_v6)]]);
    header.extend((if is_v6 { 36u16 } else { 12 }).to_be_bytes());
    for end in ends {
        match end.address {
            IpAddr::V4(v4) => header.extend(v4.octets()),
            IpAddr::V6(v6) => header.extend(v6.octets()),
        }
    }
    ends.iter().for_each(|end| header.extend(end.port.to_be_bytes()));
    header
}

#[cfg(test)]
mod tests {
    use nicache_http::{Preface, parse_preface};

    use super::*;
    use crate::tuple::{Endpoint, Protocol};

    /// Our own web cache reads a header as it is meant.
    #[test]
    fn it_is_read_as_it_is_meant() {
        for (client, ours) in
            [("192.0.2.7:4711", "10.0.0.1:443"), ("[2001:db8::7]:4711", "[2001:db8::1]:443")]
        {
            let end = |text: &str| Endpoint::from(text.parse::<std::net::SocketAddr>().unwrap());
            let header = header(&Tuple {
                protocol: Protocol::Tcp,
                source: end(client),
                destination: end(ours),
            });
            let Preface::Header(read) = parse_preface(&header) else { panic!("{header:?}") };
            assert_eq!((read.len, read.client), (header.len(), Some(client.parse().unwrap())));
        }
    }
}
