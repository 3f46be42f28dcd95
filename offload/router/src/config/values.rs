//! Words of a configuration that stand for something: each says what it is, and what it could be.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use nicache_forward::names::Pattern;
use nicache_forward::tuple::Protocol;
use serde::{Deserialize, Deserializer, de};

/// A string that is read as something else. What does not fit is an error at its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Word).map_err(de::Error::custom)
    }
}

/// An address with the length of its link's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked(pub IpAddr, pub u8);

impl FromStr for Linked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || format!("`{text}` is not an address with a length, such as 10.1.0.1/24");
        let (address, len) = text.split_once('/').ok_or_else(odd)?;
        let address: IpAddr = address.parse().map_err(|_| odd())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = len.parse().ok().filter(|len| *len <= most).ok_or_else(odd)?;
        Ok(Self(address, len))
    }
}

/// An address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub IpAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Address)
            .map_err(|_| format!("`{text}` is not an address such as 192.0.2.1 or 2001:db8::1"))
    }
}

/// An address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket(pub SocketAddr);

impl FromStr for Socket {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.parse().ok().filter(|socket: &SocketAddr| socket.port() != 0);
        let odd = || {
            format!(
                "`{text}` is not an address with a port, such as 192.0.2.1:80 or [2001:db8::1]:80"
            )
        };
        parsed.map(Socket).ok_or_else(odd)
    }
}

/// TCP or UDP, and for rules also ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport(pub Protocol);

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self(Protocol::Tcp)),
            "udp" => Ok(Self(Protocol::Udp)),
            "icmp" => Ok(Self(Protocol::Query)),
            _ => Err(format!("`{text}` is not a protocol: write tcp, udp or icmp")),
        }
    }
}

/// A name of a host, or the end of some: `shop.example`, `*.shop.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named(pub Pattern);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || {
            format!(
                "`{text}` is not a name such as shop.example or *.shop.example (omit names for the back end that takes all others)"
            )
        };
        Pattern::new(text).map(Named).ok_or_else(odd)
    }
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyVersion;

impl FromStr for ProxyVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "v2" {
            Ok(Self)
        } else {
            Err(format!(
                "`{text}` is not a version of the PROXY protocol that is spoken here: write v2"
            ))
        }
    }
}

/// A range of ports: `80`, `8000-8099`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || format!("`{text}` is not a port or a range of ports, such as 80 or 8000-8099");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().map_err(|_| odd())?, last.parse().map_err(|_| odd())?);
        if first > last { Err(odd()) } else { Ok(Self(first..=last)) }
    }
}

/// By what the card is on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPortKind {
    /// A packet socket.
    #[default]
    Packet,
    /// AF_XDP sockets.
    Xdp,
    /// A TAP that nicache makes: this machine is at its other end.
    Tap,
}

impl fmt::Display for LinkPortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Tap => "tap",
        })
    }
}

impl FromStr for LinkPortKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Packet, Self::Xdp, Self::Tap];
        let found = all.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not a kind of port: write packet, xdp or tap"))
    }
}

/// A port of this machine that the kernel goes on to serve: `tcp/22`, `udp/60000-61000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Which ports.
    pub ports: RangeInclusive<u16>,
}

impl FromStr for Kept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || {
            format!(
                "`{text}` does not say which port stays with this machine: write tcp/22 or udp/500-4500"
            )
        };
        let (protocol, ports) = text.split_once('/').ok_or_else(odd)?;
        let Transport(protocol) = protocol.parse().map_err(|_| odd())?;
        if protocol == Protocol::Query {
            return Err(odd());
        }
        Ok(Self { protocol, ports: ports.parse::<Ports>().map_err(|_| odd())?.0 })
    }
}

/// A time: `500ms`, `2s`, `5m`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ms = nicache_span::milliseconds(text).filter(|ms| (1..=86_400_000).contains(ms));
        let odd = || format!("`{text}` is not a time from 1ms to 24h, such as 500ms, 2s or 5m");
        ms.map(|ms| Self(Duration::from_millis(ms))).ok_or_else(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_what_is_none() {
        assert_eq!("10.1.0.1/24".parse(), Ok(Linked("10.1.0.1".parse().unwrap(), 24)));
        assert_eq!("8000-8099".parse(), Ok(Ports(8000..=8099)));
        assert_eq!("tcp/22".parse(), Ok(Kept { protocol: Protocol::Tcp, ports: 22..=22 }));
        assert_eq!("500ms".parse(), Ok(Span(Duration::from_millis(500))));
        assert_eq!("5m".parse(), Ok(Span(Duration::from_secs(300))));
        for odd in ["10.1.0.1", "10.1.0.1/33", "x/24", "10.1.0.1/-1", ""] {
            assert!(odd.parse::<Linked>().is_err(), "{odd}");
        }
        for kind in [LinkPortKind::Packet, LinkPortKind::Xdp, LinkPortKind::Tap] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("afxdp".parse::<LinkPortKind>().is_err());
        for odd in ["", "9-8", "70000", "80-", "a"] {
            assert!(odd.parse::<Ports>().is_err(), "{odd}");
        }
        for odd in ["22", "tcp", "icmp/8", "tcp/x"] {
            assert!(odd.parse::<Kept>().is_err(), "{odd}");
        }
        for odd in ["", "1", "0s", "25h", "-1s", "1d", "99999999999999999999h"] {
            assert!(odd.parse::<Span>().is_err(), "{odd}");
        }
        for odd in ["1.2.3.4", "1.2.3.4:0", ":80", "host:80"] {
            assert!(odd.parse::<Socket>().is_err(), "{odd}");
        }
    }
}
