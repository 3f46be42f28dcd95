//! Packets made and judged without a line of the code under test: word by word, as the RFCs say.

#![allow(dead_code)]

use std::net::IpAddr;

use nicache_port::{Checksum, Offload};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

/// A packet to be made.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub to_mac: [u8; 6],
    pub from_mac: [u8; 6],
    pub tags: Vec<[u8; 4]>,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub hops: u8,
    /// Options of IPv4 or destination options of IPv6, in words of 4 or 8 bytes.
    pub extras: usize,
    pub protocol: u8,
    /// Ports; for echoes the identifier, and whether it is a request (1) or a reply (0).
    pub ports: (u16, u16),
    pub tcp: (u32, u32, u8),
    pub payload: Vec<u8>,
    /// The checksum has the sum of the pseudo-header alone.
    pub is_partial: bool,
    /// UDP without a checksum.
    pub is_unsummed: bool,
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            source,
            destination,
            hops,
            extras,
            protocol,
            ports,
            tcp,
            payload,
            is_partial,
            is_unsummed,
            ..
        } = self;
        let short = &payload[..payload.len().min(16)];
        write!(
            f,
            "protocol {protocol} {source} {destination} {ports:?} hops {hops} extras {extras} tcp {tcp:?} "
        )?;
        write!(f, "payload {} {short:?} partial {is_partial} unsummed {is_unsummed}", payload.len())
    }
}

pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;
pub(crate) const RST: u8 = 4;
pub(crate) const FIN: u8 = 1;

impl Recipe {
    pub(crate) fn new(protocol: u8, source: (IpAddr, u16), destination: (IpAddr, u16)) -> Self {
        Self {
            to_mac: [2, 0, 0, 0, 1, 0],
            from_mac: [4, 0, 0, 0, 0, 1],
            tags: Vec::new(),
            source: source.0,
            destination: destination.0,
            hops: 64,
            extras: 0,
            protocol,
            ports: (source.1, destination.1),
            tcp: (1000, 0, SYN),
            payload: Vec::new(),
            is_partial: false,
            is_unsummed: false,
        }
    }

    /// Bytes behind the IP header, with a right checksum.
    pub(crate) fn transport(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let field = match self.protocol {
            TCP => {
                out.extend(self.ports.0.to_be_bytes());
                out.extend(self.ports.1.to_be_bytes());
                out.extend(self.tcp.0.to_be_bytes());
                out.extend(self.tcp.1.to_be_bytes());
                out.extend([0x80, self.tcp.2, 0x20, 0, 0, 0, 0, 0]);
                // Timestamps, in a form that needs no padding elsewhere.
                out.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
                16
            }
            UDP => {
                out.extend(self.ports.0.to_be_bytes());
                out.extend(self.ports.1.to_be_bytes());
                out.extend((8 + self.payload.len() as u16).to_be_bytes());
                out.extend([0, 0]);
                6
            }
            ICMP | ICMPV6 => {
                let kind = match (self.protocol, self.ports.1) {
                    (ICMP, 1) => 8,
                    (ICMP, _) => 0,
                    (_, 1) => 128,
                    _ => 129,
                };
                out.extend([kind, 0, 0, 0]);
                out.extend(self.ports.0.to_be_bytes());
                out.extend([0, 1]);
                2
            }
            _ => {
                out.extend(&self.payload);
                return out;
            }
        };
        out.extend(&self.payload);
        let len = out.len();
        if self.protocol == UDP && self.is_unsummed {
            return out;
        }
        let pseudo = if self.protocol == ICMP {
            Vec::new()
        } else {
            pseudo(self.source, self.destination, self.protocol, len)
        };
        let value = if self.is_partial {
            sum(&pseudo)
        } else {
            match !sum(&[&pseudo[..], &out[..]].concat()) {
                0 if self.protocol == UDP => 0xffff,
                value => value,
            }
        };
        out[field..field + 2].copy_from_slice(&value.to_be_bytes());
        out
    }

    /// Bytes before the IP header.
    pub(crate) fn ethernet(&self) -> Vec<u8> {
        let mut out = [self.to_mac, self.from_mac].concat();
        self.tags.iter().for_each(|tag| out.extend(tag));
        out.extend(if self.source.is_ipv4() { [8, 0] } else { [0x86, 0xdd] });
        out
    }

    /// A frame with some of the transport bytes: all of them, or a fragment of them at an offset.
    fn frame_of(&self, bytes: &[u8], fragment: Option<(u16, bool, u32)>) -> Vec<u8> {
        let mut out = self.ethernet();
        let at = out.len();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = 20 + 4 * self.extras;
                let (offset, more, id) = fragment.unwrap_or((0, false, 0x1234));
                let place = (offset / 8)
                    | if more { 0x2000 } else { 0 }
                    | if fragment.is_none() { 0x4000 } else { 0 };
                out.extend([0x40 | (header / 4) as u8, 0]);
                out.extend(((header + bytes.len()) as u16).to_be_bytes());
                out.extend((id as u16).to_be_bytes());
                out.extend(place.to_be_bytes());
                out.extend([self.hops, self.protocol, 0, 0]);
                out.extend(source.octets());
                out.extend(destination.octets());
                out.extend(vec![1; 4 * self.extras]);
                let value = !sum(&out[at..at + header]);
                out[at + 10..at + 12].copy_from_slice(&value.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let extra = 8 * self.extras + if fragment.is_some() { 8 } else { 0 };
                out.extend([0x60, 0, 0, 0]);
                out.extend(((extra + bytes.len()) as u16).to_be_bytes());
                let behind = if fragment.is_some() { 44 } else { self.protocol };
                out.extend([if self.extras > 0 { 60 } else { behind }, self.hops]);
                out.extend(source.octets());
                out.extend(destination.octets());
                for left in (0..self.extras).rev() {
                    out.extend([if left > 0 { 60 } else { behind }, 0, 1, 4, 0, 0, 0, 0]);
                }
                if let Some((offset, more, id)) = fragment {
                    out.extend([self.protocol, 0]);
                    out.extend((offset | u16::from(more)).to_be_bytes());
                    out.extend(id.to_be_bytes());
                }
            }
            _ => panic!("two versions"),
        }
        out.extend(bytes);
        out
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        self.frame_of(&self.transport(), None)
    }

    pub(crate) fn offload(&self) -> Offload {
        let offset = match self.protocol {
            TCP => 16,
            UDP => 6,
            _ => 2,
        };
        let start = (self.frame().len() - self.transport().len()) as u16;
        let checksum = if self.is_partial {
            Checksum::Partial { start, offset }
        } else {
            Checksum::Unverified
        };
        Offload { checksum, gso: None }
    }

    /// The packet in fragments of so many bytes each, a multiple of 8.
    pub(crate) fn fragments(&self, bytes: usize, id: u32) -> Vec<Vec<u8>> {
        let transport = self.transport();
        let count = transport.len().div_ceil(bytes);
        let pieces = transport.chunks(bytes).enumerate();
        pieces
            .map(|(number, piece)| {
                self.frame_of(piece, Some(((number * bytes) as u16, number + 1 < count, id)))
            })
            .collect()
    }

    /// An ICMP error from somebody about a packet, of which so many bytes are quoted.
    pub(crate) fn error(
        from: IpAddr,
        about: &[u8],
        quoted: usize,
        (kind, code): (u8, u8),
        mtu: u16,
    ) -> Self {
        let seen = Seen::of(about);
        let quote = &about[seen.network_at..about.len().min(seen.network_at + quoted)];
        let is_v6 = from.is_ipv6();
        let mut message = vec![kind, code, 0, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend(quote);
        let protocol = if is_v6 { ICMPV6 } else { ICMP };
        let pseudo =
            if is_v6 { pseudo(from, seen.source, protocol, message.len()) } else { Vec::new() };
        let value = !sum(&[&pseudo[..], &message[..]].concat());
        message[2..4].copy_from_slice(&value.to_be_bytes());
        Self { payload: message, ..Self::new(protocol, (from, 0), (seen.source, 0)) }
    }

    /// A frame whose transport bytes are the payload as it is.
    pub(crate) fn raw_frame(&self) -> Vec<u8> {
        self.frame_of(&self.payload, None)
    }
}

/// What is in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub network_at: usize,
    pub transport_at: usize,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub hops: u8,
    pub protocol: u8,
    pub ports: (u16, u16),
    pub is_fragment: bool,
    pub tags: Vec<u8>,
}

impl Seen {
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut network_at = 14;
        while frame[network_at - 2..network_at] == [0x81, 0] {
            network_at += 4;
        }
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let ip = &frame[network_at..];
        let (source, destination, hops, mut protocol, mut transport_at, mut is_fragment) = if ip[0]
            >> 4
            == 4
        {
            let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap());
            let header = usize::from(ip[0] & 15) * 4;
            let is_fragment = word(network_at + 6) & 0x3fff != 0;
            (address(12), address(16), ip[8], ip[9], network_at + header, is_fragment)
        } else {
            let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap());
            (address(8), address(24), ip[7], ip[6], network_at + 40, false)
        };
        while source.is_ipv6() && matches!(protocol, 60 | 44) {
            is_fragment |= protocol == 44;
            protocol = frame[transport_at];
            transport_at += 8;
        }
        let ports = match protocol {
            TCP | UDP if frame.len() >= transport_at + 4 => {
                (word(transport_at), word(transport_at + 2))
            }
            ICMP | ICMPV6 if frame.len() >= transport_at + 6 => {
                (word(transport_at + 4), u16::from(matches!(frame[transport_at], 8 | 128)))
            }
            _ => (0, 0),
        };
        let tags = frame[12..network_at - 2].to_vec();
        Self {
            network_at,
            transport_at,
            source,
            destination,
            hops,
            protocol,
            ports,
            is_fragment,
            tags,
        }
    }

    pub(crate) fn from(&self) -> (IpAddr, u16) {
        (self.source, self.ports.0)
    }
}

/// Judges all that a whole frame says of itself: lengths and checksums, computed anew.
pub(crate) fn verify(frame: &[u8], offload: Offload) -> Result<Seen, String> {
    let seen = Seen::of(frame);
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let end = if seen.source.is_ipv4() {
        if sum(
            &frame[seen.network_at..seen.network_at + usize::from(frame[seen.network_at] & 15) * 4]
        ) != 0xffff
        {
            return Err("checksum of the IPv4 header".into());
        }
        seen.network_at + usize::from(word(seen.network_at + 2))
    } else {
        seen.network_at + 40 + usize::from(word(seen.network_at + 4))
    };
    if end != frame.len() {
        return Err(format!("{} bytes say that they are {end}", frame.len()));
    }
    if seen.is_fragment {
        return Ok(seen);
    }
    verify_transport(&seen, &frame[seen.transport_at..], offload)?;
    if let Checksum::Partial { start, .. } = offload.checksum
        && usize::from(start) != seen.transport_at
    {
        return Err("the checksum begins elsewhere".into());
    }
    Ok(seen)
}

/// Judges transport bytes, maybe put together from fragments.
pub(crate) fn verify_transport(
    seen: &Seen,
    transport: &[u8],
    offload: Offload,
) -> Result<(), String> {
    let field = match seen.protocol {
        TCP => 16,
        UDP => 6,
        ICMP | ICMPV6 => 2,
        _ => return Ok(()),
    };
    let value = u16::from_be_bytes([transport[field], transport[field + 1]]);
    let pseudo = if seen.protocol == ICMP {
        Vec::new()
    } else {
        pseudo(seen.source, seen.destination, seen.protocol, transport.len())
    };
    if matches!(offload.checksum, Checksum::Partial { .. }) {
        let right = sum(&pseudo);
        // Both spellings of zero are the same sum.
        return if value == right || value % 0xffff == right % 0xffff {
            Ok(())
        } else {
            Err(format!("partial {value:04x}, not {right:04x}"))
        };
    }
    if seen.protocol == UDP && value == 0 {
        return Ok(());
    }
    let all = sum(&[&pseudo[..], transport].concat());
    if all == 0xffff {
        Ok(())
    } else {
        Err(format!("checksum {value:04x} of protocol {}", seen.protocol))
    }
}

/// A frame as it is on a real wire: a partial checksum is complete.
pub(crate) fn completed(frame: &[u8], offload: Offload) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Checksum::Partial { start, offset } = offload.checksum {
        let (start, field) = (usize::from(start), usize::from(start + offset));
        let value = match !sum(&frame[start..]) {
            0 if offset == 6 => 0xffff,
            value => value,
        };
        frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
    frame
}

pub(crate) fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for address in [source, destination] {
        match address {
            IpAddr::V4(v4) => out.extend(v4.octets()),
            IpAddr::V6(v6) => out.extend(v6.octets()),
        }
    }
    out.extend((len as u32).to_be_bytes());
    out.extend([0, 0, 0, protocol]);
    out
}

/// Ones'-complement sum, a word at a time. On its own, to find faults of the product's.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
