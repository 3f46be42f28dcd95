//! The PROXY protocol, versions 1 and 2: what a proxy says about its client in front of the first
//! request of a connection (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// A header of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The header's version.
    pub version: ProxyVersion,
    /// The header's length in bytes.
    pub len: usize,
    /// The client; `None` if the proxy speaks for itself (LOCAL, UNKNOWN), or of one that has no IP
    /// address.
    pub client: Option<SocketAddr>,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preface {
    /// No header of the PROXY protocol.
    Absent,
    /// The beginning of one, so far.
    Partial,
    /// One.
    Header(ProxyHeader),
    /// One that is wrong, or too long: nobody knows where the first request begins.
    Malformed,
}

/// Longest header that is read. The protocol allows 64 KiB, of which certificates may take some;
/// without them a header has below 250 bytes.
pub const PREFACE_BYTES_MAX: usize = 512;

const V1: &[u8; 6] = b"PROXY ";
/// Section 2.1: the longest line, with its end.
const V1_BYTES_MAX: usize = 107;
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, length.
const V2_FIXED_BYTES: usize = 16;

/// Looks at the first bytes of a connection.
pub fn parse_preface(bytes: &[u8]) -> Preface {
    let begins = |signature: &[u8]| {
        let common = bytes.len().min(signature.len());
        bytes[..common] == signature[..common]
    };
    match bytes.first() {
        None => Preface::Partial,
        Some(b'P') if begins(V1) => parse_v1(bytes),
        Some(b'\r') if begins(V2) => parse_v2(bytes),
        Some(_) => Preface::Absent,
    }
}

fn parse_v1(bytes: &[u8]) -> Preface {
    let window = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|two| two == b"\r\n") else {
        return if window.len() == V1_BYTES_MAX { Preface::Malformed } else { Preface::Partial };
    };
    let header =
        |client| Preface::Header(ProxyHeader { version: ProxyVersion::V1, len: end + 2, client });
    let mut words = bytes[V1.len()..end].split(|byte| *byte == b' ');
    let mut word = || str::from_utf8(words.next()?).ok();
    let (family, source, destination) = match word() {
        // The rest of the line means nothing.
        Some("UNKNOWN") => return header(None),
        Some(family @ ("TCP4" | "TCP6")) => (family, word(), word()),
        _ => return Preface::Malformed,
    };
    let (source_port, destination_port, more) =
        (word().and_then(port), word().and_then(port), word());
    let is_v4 = family == "TCP4";
    let address = |text: Option<&str>| {
        text?.parse::<IpAddr>().ok().filter(|address| address.is_ipv4() == is_v4)
    };
    match (address(source), address(destination), source_port, destination_port, more) {
        (Some(source), Some(_), Some(port), Some(_), None) => {
            header(Some(SocketAddr::new(source, port)))
        }
        _ => Preface::Malformed,
    }
}

fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

fn parse_v2(bytes: &[u8]) -> Preface {
    let Some(fixed) = bytes.first_chunk::<V2_FIXED_BYTES>() else { return Preface::Partial };
    let [.., command, family, high, low] = *fixed;
    let rest_len = usize::from(u16::from_be_bytes([high, low]));
    let len = V2_FIXED_BYTES + rest_len;
    // Section 2.2: a receiver must refuse other versions and commands.
    if !matches!(command, 0x20 | 0x21) || len > PREFACE_BYTES_MAX {
        return Preface::Malformed;
    }
    let Some(rest) = bytes.get(V2_FIXED_BYTES..len) else { return Preface::Partial };
    let client = match (command, family) {
        // LOCAL: the addresses mean nothing.
        (0x20, _) => None,
        (_, 0x11 | 0x12) => match rest.first_chunk::<12>() {
            Some([a, b, c, d, _, _, _, _, high, low, _, _]) => Some(SocketAddr::new(
                Ipv4Addr::new(*a, *b, *c, *d).into(),
                u16::from_be_bytes([*high, *low]),
            )),
            None => return Preface::Malformed,
        },
        (_, 0x21 | 0x22) => match (rest.first_chunk::<16>(), rest.get(32..34), rest.get(34..36)) {
            (Some(source), Some(&[high, low]), Some(_)) => Some(SocketAddr::new(
                Ipv6Addr::from(*source).into(),
                u16::from_be_bytes([high, low]),
            )),
            _ => return Preface::Malformed,
        },
        // AF_UNIX: 108 bytes for each end.
        (_, 0x31 | 0x32) if rest.len() >= 216 => None,
        (_, 0x31 | 0x32) => return Preface::Malformed,
        // UNSPEC, and what is not known: the address of the connection counts.
        _ => None,
    };
    Preface::Header(ProxyHeader { version: ProxyVersion::V2, len, client })
}

/// A header of that version for a connection from `client` to `server`; `None` for the client: of
/// the proxy's own.
pub fn proxy_header(
    version: ProxyVersion,
    client: Option<(Ipv4Addr, u16)>,
    server: (Ipv4Addr, u16),
) -> Vec<u8> {
    match (version, client) {
        (ProxyVersion::V1, None) => b"PROXY UNKNOWN\r\n".to_vec(),
        (ProxyVersion::V1, Some((address, port))) => {
            format!("PROXY TCP4 {address} {} {port} {}\r\n", server.0, server.1).into_bytes()
        }
        (ProxyVersion::V2, None) => [&V2[..], &[0x20, 0, 0, 0]].concat(),
        (ProxyVersion::V2, Some((address, port))) => {
            let ports = [port.to_be_bytes(), server.1.to_be_bytes()].concat();
            [&V2[..], &[0x21, 0x11, 0, 12], &address.octets(), &server.0.octets(), &ports].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(bytes: &[u8]) -> Option<Option<String>> {
        match parse_preface(bytes) {
            Preface::Header(header) => Some(header.client.map(|client| client.to_string())),
            _ => None,
        }
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = (rest.len() as u16).to_be_bytes();
        [&V2[..], &[command, family], &len, rest].concat()
    }

    #[test]
    fn lines_of_text() {
        let some = |text: &str| Some(Some(text.to_owned()));
        assert_eq!(
            client(b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\nGET /"),
            some("192.0.2.7:4711")
        );
        assert_eq!(client(b"PROXY TCP6 2001:db8::1 ::1 1 80\r\n"), some("[2001:db8::1]:1"));
        assert_eq!(client(b"PROXY UNKNOWN\r\n"), Some(None));
        assert_eq!(client(b"PROXY UNKNOWN ff:: ff:: 1 2\r\n"), Some(None));
        for bad in [
            "PROXY TCP4 192.0.2.7 10.0.0.1 4711\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 4711 80 \r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 04711 80\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 65536 80\r\n",
            "PROXY TCP4 ::1 ::1 1 80\r\n",
            "PROXY TCP4  192.0.2.7 10.0.0.1 4711 80\r\n",
            "PROXY TCP5 192.0.2.7 10.0.0.1 4711 80\r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(parse_preface(bad.as_bytes()), Preface::Malformed, "{bad}");
        }
        assert_eq!(
            parse_preface(format!("PROXY UNKNOWN {}", "a".repeat(200)).as_bytes()),
            Preface::Malformed
        );
        for other in [
            "GET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\n",
            "PROXYX",
            "\r\nGET /",
            "\r\n\r\n\0\r\nQUIX",
            "x",
        ] {
            assert_eq!(parse_preface(other.as_bytes()), Preface::Absent, "{other}");
        }
    }

    #[test]
    fn binary_ones() {
        let four = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
        assert_eq!(client(&v2(0x21, 0x11, &four)), Some(Some("192.0.2.7:4711".to_owned())));
        // With an extension behind.
        assert_eq!(
            client(&v2(0x21, 0x11, &[&four[..], &[4, 0, 1, 9]].concat())),
            Some(Some("192.0.2.7:4711".to_owned()))
        );
        let six = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1], &[0; 16], &[0, 9, 0, 80]].concat();
        assert_eq!(client(&v2(0x21, 0x21, &six)), Some(Some("[2001:db8::1]:9".to_owned())));
        for nobody in
            [v2(0x20, 0x11, &four), v2(0x20, 0, &[]), v2(0x21, 0, &[]), v2(0x21, 0x31, &[0; 216])]
        {
            assert_eq!(client(&nobody), Some(None));
        }
        for bad in [
            v2(0x11, 0x11, &four),
            v2(0x22, 0x11, &four),
            v2(0x21, 0x11, &four[1..]),
            v2(0x21, 0x21, &six[1..]),
            v2(0x21, 0x31, &[0; 215]),
            v2(0x21, 0x11, &[0; 600]),
        ] {
            assert_eq!(parse_preface(&bad), Preface::Malformed);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for client in [None, Some((Ipv4Addr::new(192, 0, 2, 7), 61_000))] {
                let bytes = proxy_header(version, client, (Ipv4Addr::LOCALHOST, 80));
                let expected = client.map(|(address, port)| SocketAddr::new(address.into(), port));
                let header = ProxyHeader { version, len: bytes.len(), client: expected };
                assert_eq!(parse_preface(&bytes), Preface::Header(header));
            }
        }
    }

    proptest! {
        /// More bytes change nothing once it is decided, and any part of a header is the beginning
        /// of one.
        #[test]
        fn it_is_decided_once(
            start in prop::sample::select(vec![
                b"PROXY TCP4 1.2.3.4 1.2.3.4 5 6\r\n".to_vec(),
                b"PROXY UNKNOWN\r\n".to_vec(),
                [&V2[..], &[0x21, 0x11, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 2]].concat(),
                [&V2[..], &[0x21, 0x31, 1, 0]].concat(),
                V2.to_vec(),
                b"PROXY ".to_vec(),
            ]),
            flips in prop::collection::vec((0usize..64, any::<u8>()), 0..3),
            rest in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let mut bytes = [start, rest].concat();
            for (at, byte) in flips {
                if let Some(slot) = bytes.get_mut(at) {
                    *slot = byte;
                }
            }
            let whole = parse_preface(&bytes);
            for len in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
                let part = parse_preface(&bytes[..len]);
                prop_assert!(
                    part == Preface::Partial || part == whole,
                    "{len}: {part:?}, {whole:?}"
                );
                if let Preface::Header(header) = part {
                    prop_assert!(header.len <= len);
                }
            }
        }
    }
}
