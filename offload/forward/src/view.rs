//! What the headers of a packet say: a checked copy of the fields that a forwarder looks at.
//!
//! Read first: RFC 791 section 3.1, RFC 8200 sections 3 and 4, RFC 9293 section 3.1, RFC 768, RFC
//! 792, RFC 4443.
//!
//! The bytes that are looked at may be only the first ones of a frame, because the payload stays on
//! the card. Options of IPv4 and extension headers of IPv6 are skipped; source routes are refused,
//! because the address that they name is not the one in the header (RFC 7126 section 4.3, RFC
//! 5095).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nicache_tcp::Seq;
use nicache_tcp::frame::ETHERNET_BYTES;
use nicache_tcp::wire::Flags;

use crate::tuple::{Endpoint, Protocol, Tuple};

/// Protocol number of TCP (IANA).
pub const TCP: u8 = 6;
/// Protocol number of UDP (IANA).
pub const UDP: u8 = 17;
/// Protocol number of ICMP for IPv4 (IANA).
pub const ICMP: u8 = 1;
/// Protocol number of ICMP for IPv6 (IANA).
pub const ICMPV6: u8 = 58;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// Ethernet type of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// Ethernet type of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Ethernet type of address resolution (ARP).
pub const ETHERTYPE_ARP: u16 = 0x0806;

/// Extension headers that are walked through at most.
const EXTENSIONS_MAX: usize = 8;
/// Options of IPv4 that name another way (RFC 791 section 3.1): loose and strict source routes.
const SOURCE_ROUTES: [u8; 2] = [131, 137];

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ICMP_BYTES: usize = 8;

/// Why a packet is not looked at further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// It ends before its headers do.
    #[error("the packet ends in its headers")]
    Truncated,
    /// Its version or a length contradicts the rest.
    #[error("a header contradicts itself")]
    Malformed,
    /// It is to take a way that its sender chose.
    #[error("the packet has a source route")]
    SourceRoute,
    /// It has more extension headers than anybody sends.
    #[error("the packet has too many extension headers")]
    Extensions,
}

/// A fragment's place in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Number of the packet, among those between the same addresses.
    pub id: u32,
    /// Its first byte's place behind the IP header, in bytes.
    pub offset: u16,
    /// Others follow.
    pub more: bool,
}

/// Fields of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpView {
    /// Number of the first byte, or of SYN.
    pub seq: Seq,
    /// The next number that is expected, with ACK.
    pub ack: Seq,
    /// The flags.
    pub flags: Flags,
    /// The window, not scaled.
    pub window: u16,
    /// The window scale that a SYN offers.
    pub scale: Option<u8>,
    /// Bytes of payload.
    pub payload_len: u32,
}

impl TcpView {
    /// Numbers that the segment takes: its bytes, SYN and FIN.
    pub fn numbers(&self) -> u32 {
        self.payload_len + u32::from(self.flags.syn()) + u32::from(self.flags.fin())
    }
}

/// What is behind the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A TCP segment, or the first fragment of one.
    Tcp(TcpView),
    /// A UDP datagram, or the first fragment of one.
    Udp {
        /// It has a checksum.
        has_checksum: bool,
    },
    /// An echo request or reply.
    Query {
        /// It asks.
        is_request: bool,
    },
    /// An error about another packet, which begins 8 bytes further.
    Error(IcmpError),
    /// Something that belongs to no connection.
    Other,
    /// A fragment that is not the first.
    Later,
}

/// What an ICMP error says (RFC 792, RFC 4443).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet was longer than a link takes.
    TooBig {
        /// Bytes of the longest IP packet that the link takes; 0 if it does not say.
        mtu: u32,
    },
    /// Anything else about the packet: unreachable, time exceeded, parameter problem.
    Other {
        /// Type of the message.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// What the headers of a packet say: a checked copy of the fields that a forwarder looks at.
/// Positions are in bytes from the beginning of what was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Where the IP header begins.
    pub network_at: usize,
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// Routers that may still pass it on.
    pub hops: u8,
    /// The protocol behind the IP header and its extensions.
    pub protocol: u8,
    /// Where the transport header begins, or the bytes of a later fragment.
    pub transport_at: usize,
    /// Where the transport header ends, as far as a forwarder changes it.
    pub headers_end: usize,
    /// Where the packet ends by its own account; Ethernet padding is behind it.
    pub end: usize,
    /// Its place, if it is not whole.
    pub fragment: Option<Fragment>,
    /// A router may cut it (IPv4 without DF).
    pub may_be_cut: bool,
    /// Source and destination port; for a query the identifier on the side of who asks, 0 on the
    /// other.
    pub ports: (u16, u16),
    /// See [`Transport`].
    pub transport: Transport,
}

impl View {
    /// Looks at a frame of `frame_len` bytes, of which `bytes` are the first ones. `network_at`:
    /// where the IP header begins.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn parse(bytes: &[u8], network_at: usize, frame_len: usize) -> Result<Self, ViewError> {
        let mut view = Self::network(bytes, network_at)?;
        if view.end > frame_len {
            return Err(ViewError::Truncated);
        }
        view.look_at_transport(bytes, false)?;
        Ok(view)
    }

    /// Looks at a packet that an ICMP error quotes, of which at least 8 bytes behind the IP header
    /// are there (RFC 792). `network_at`: where that header begins.
    ///
    /// # Errors
    /// See [`ViewError`].
    pub fn parse_quoted(bytes: &[u8], network_at: usize) -> Result<Self, ViewError> {
        let mut view = Self::network(bytes, network_at)?;
        view.look_at_transport(bytes, true)?;
        Ok(view)
    }

    /// What the connection that it belongs to is known by, if it belongs to one.
    pub fn tuple(&self) -> Option<Tuple> {
        let protocol = match self.transport {
            Transport::Tcp(_) => Protocol::Tcp,
            Transport::Udp { .. } => Protocol::Udp,
            Transport::Query { .. } => Protocol::Query,
            Transport::Error(_) | Transport::Other | Transport::Later => return None,
        };
        let (source, destination) = (
            Endpoint::new(self.source, self.ports.0),
            Endpoint::new(self.destination, self.ports.1),
        );
        Some(Tuple { protocol, source, destination })
    }

    /// What is known of this packet if its IP header begins at `network_at`, as in a copy of it.
    #[must_use]
    pub fn moved(&self, network_at: usize) -> Self {
        let move_to = |at: usize| at - self.network_at + network_at;
        Self {
            network_at,
            transport_at: move_to(self.transport_at),
            headers_end: move_to(self.headers_end),
            end: move_to(self.end),
            ..*self
        }
    }

    /// Bytes of the IP packet.
    pub fn packet_len(&self) -> usize {
        self.end - self.network_at
    }

    fn network(bytes: &[u8], network_at: usize) -> Result<Self, ViewError> {
        let ip = bytes.get(network_at..).ok_or(ViewError::Truncated)?;
        match ip.first().ok_or(ViewError::Truncated)? >> 4 {
            4 => Self::ipv4(ip, network_at),
            6 => Self::ipv6(ip, network_at),
            _ => Err(ViewError::Malformed),
        }
    }

    fn ipv4(ip: &[u8], network_at: usize) -> Result<Self, ViewError> {
        let header_len = usize::from(ip[0] & 15) * 4;
        if header_len < IPV4_BYTES {
            return Err(ViewError::Malformed);
        }
        let header = ip.get(..header_len).ok_or(ViewError::Truncated)?;
        let total_len = usize::from(u16_at(header, 2));
        if total_len < header_len {
            return Err(ViewError::Malformed);
        }
        check_options(&header[IPV4_BYTES..])?;
        let place = u16_at(header, 6);
        let (offset, more) = ((place & 0x1fff) * 8, place & 0x2000 != 0);
        if usize::from(offset) + total_len - header_len > 65_535 {
            return Err(ViewError::Malformed);
        }
        let fragment = (offset != 0 || more).then(|| Fragment {
            id: u32::from(u16_at(header, 4)),
            offset,
            more,
        });
        let address = |at: usize| IpAddr::V4(Ipv4Addr::from(array::<4>(header, at)));
        let transport_at = network_at + header_len;
        Ok(Self {
            network_at,
            source: address(12),
            destination: address(16),
            hops: header[8],
            protocol: header[9],
            transport_at,
            headers_end: transport_at,
            end: network_at + total_len,
            fragment,
            may_be_cut: place & 0x4000 == 0,
            ports: (0, 0),
            transport: Transport::Other,
        })
    }

    fn ipv6(ip: &[u8], network_at: usize) -> Result<Self, ViewError> {
        let header = ip.get(..IPV6_BYTES).ok_or(ViewError::Truncated)?;
        let address = |at: usize| IpAddr::V6(Ipv6Addr::from(array::<16>(header, at)));
        let end = IPV6_BYTES + usize::from(u16_at(header, 4));
        let view = |protocol, at, fragment, transport| {
            if at > end {
                return Err(ViewError::Malformed);
            }
            let transport_at = network_at + at;
            Ok(Self {
                network_at,
                source: address(8),
                destination: address(24),
                hops: header[7],
                protocol,
                transport_at,
                headers_end: transport_at,
                end: network_at + end,
                fragment,
                may_be_cut: false,
                ports: (0, 0),
                transport,
            })
        };
        let (mut protocol, mut at, mut fragment) = (header[6], IPV6_BYTES, None);
        for _ in 0..=EXTENSIONS_MAX {
            let len = match protocol {
                HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => {
                    usize::from(*ip.get(at + 1).ok_or(ViewError::Truncated)?) * 8 + 8
                }
                AUTHENTICATION => usize::from(*ip.get(at + 1).ok_or(ViewError::Truncated)?) * 4 + 8,
                FRAGMENT => 8,
                _ => return view(protocol, at, fragment, Transport::Other),
            };
            let extension = ip.get(at..at + len).ok_or(ViewError::Truncated)?;
            match protocol {
                // Segments are left: the destination is a place on the way.
                ROUTING if extension[3] > 0 => return Err(ViewError::SourceRoute),
                FRAGMENT => {
                    let place = u16_at(extension, 2);
                    let id = u32::from_be_bytes(array(extension, 4));
                    // An atomic fragment is a whole packet (RFC 6946).
                    if place & !6 != 0 {
                        fragment = Some(Fragment { id, offset: place & !7, more: place & 1 != 0 });
                    }
                    if usize::from(place & !7) + end.saturating_sub(at + len) > 65_535 {
                        return Err(ViewError::Malformed);
                    }
                }
                _ => {}
            }
            protocol = extension[0];
            at += len;
            // What follows in a later fragment is none of these headers, whatever its number says.
            if fragment.is_some_and(|fragment: Fragment| fragment.offset > 0) {
                return view(protocol, at, fragment, Transport::Later);
            }
        }
        Err(ViewError::Extensions)
    }

    /// `is_quoted`: 8 bytes are enough.
    fn look_at_transport(&mut self, bytes: &[u8], is_quoted: bool) -> Result<(), ViewError> {
        if self.fragment.is_some_and(|fragment| fragment.offset > 0) {
            self.transport = Transport::Later;
            return Ok(());
        }
        let transport = bytes.get(self.transport_at..).ok_or(ViewError::Truncated)?;
        let least = match self.protocol {
            TCP if !is_quoted => TCP_BYTES,
            TCP | UDP => UDP_BYTES,
            ICMP | ICMPV6 => ICMP_BYTES,
            _ => return Ok(()),
        };
        // By its own account, too: bytes behind the packet are not its header.
        if transport.len() < least || self.end < self.transport_at + least {
            return Err(ViewError::Truncated);
        }
        match self.protocol {
            TCP => self.look_at_tcp(transport, is_quoted)?,
            UDP => {
                self.ports = (u16_at(transport, 0), u16_at(transport, 2));
                self.headers_end += UDP_BYTES;
                self.transport = Transport::Udp { has_checksum: u16_at(transport, 6) != 0 };
            }
            protocol => self.look_at_icmp(transport, protocol == ICMPV6)?,
        }
        Ok(())
    }

    fn look_at_tcp(&mut self, tcp: &[u8], is_quoted: bool) -> Result<(), ViewError> {
        self.ports = (u16_at(tcp, 0), u16_at(tcp, 2));
        let seq = Seq(u32::from_be_bytes(array(tcp, 4)));
        if is_quoted && tcp.len() < TCP_BYTES {
            // All that is there: the checksum may be.
            self.headers_end += tcp.len();
            let flags = Flags::default();
            self.transport = Transport::Tcp(TcpView {
                seq,
                ack: Seq(0),
                flags,
                window: 0,
                scale: None,
                payload_len: 0,
            });
            return Ok(());
        }
        let header_len = usize::from(tcp[12] >> 4) * 4;
        let is_inside = header_len >= TCP_BYTES && self.transport_at + header_len <= self.end;
        if !is_inside && !is_quoted {
            return Err(ViewError::Malformed);
        }
        if tcp.len() < header_len && !is_quoted {
            return Err(ViewError::Truncated);
        }
        let flags = Flags(tcp[13]);
        let options = tcp.get(TCP_BYTES..header_len).unwrap_or_default();
        self.headers_end += header_len.clamp(TCP_BYTES, tcp.len());
        self.transport = Transport::Tcp(TcpView {
            seq,
            ack: Seq(u32::from_be_bytes(array(tcp, 8))),
            flags,
            window: u16_at(tcp, 14),
            scale: if flags.syn() { window_scale(options) } else { None },
            payload_len: (self.end - self.transport_at).saturating_sub(header_len) as u32,
        });
        Ok(())
    }

    fn look_at_icmp(&mut self, icmp: &[u8], is_v6: bool) -> Result<(), ViewError> {
        if is_v6 != self.source.is_ipv6() {
            return Ok(());
        }
        let (kind, code) = (icmp[0], icmp[1]);
        self.headers_end += ICMP_BYTES;
        let (request, reply) = if is_v6 { (128, 129) } else { (8, 0) };
        let is_error = if is_v6 { (1..=4).contains(&kind) } else { matches!(kind, 3 | 11 | 12) };
        if kind == request || kind == reply {
            let identifier = u16_at(icmp, 4);
            self.ports = if kind == request { (identifier, 0) } else { (0, identifier) };
            self.transport = Transport::Query { is_request: kind == request };
        } else if is_error {
            // A fragment of an error could not be summed or judged.
            if self.fragment.is_some() {
                return Err(ViewError::Malformed);
            }
            self.transport = Transport::Error(match (is_v6, kind, code) {
                (true, 2, _) => IcmpError::TooBig { mtu: u32::from_be_bytes(array(icmp, 4)) },
                (false, 3, 4) => IcmpError::TooBig { mtu: u32::from(u16_at(icmp, 6)) },
                _ => IcmpError::Other { kind, code },
            });
        }
        Ok(())
    }
}

/// The type of what a frame carries, and where that begins, behind at most two VLAN tags.
pub fn network_of(frame: &[u8]) -> Option<(u16, usize)> {
    let (tags, kind) = nicache_tcp::frame::Tags::parse(frame)?;
    Some((u16::from(kind), ETHERNET_BYTES + tags.len()))
}

/// IPv4 options, looked through for those that name another way.
fn check_options(mut options: &[u8]) -> Result<(), ViewError> {
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => break,
            1 => options = rest,
            kind if SOURCE_ROUTES.contains(&kind) => return Err(ViewError::SourceRoute),
            _ => {
                let len = usize::from(*rest.first().ok_or(ViewError::Malformed)?);
                if len < 2 {
                    return Err(ViewError::Malformed);
                }
                options = options.get(len..).ok_or(ViewError::Malformed)?;
            }
        }
    }
    Ok(())
}

/// The window scale among the options of a SYN (RFC 7323 section 2.2), at most 14. Options behind
/// one that is malformed are not looked at.
fn window_scale(mut options: &[u8]) -> Option<u8> {
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => break,
            1 => options = rest,
            _ => {
                let len = usize::from(*rest.first()?);
                if kind == 3 && len == 3 {
                    return rest.get(1).map(|scale| (*scale).min(14));
                }
                options = options.get(len.max(2)..)?;
            }
        }
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
