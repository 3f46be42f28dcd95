//! Frames that the card itself builds: headers in a stack buffer, payload by reference.

use std::io::IoSlice;

use arrayvec::ArrayVec;
use nicache_port::{Capabilities, Checksum, Gso, GsoKind, Offload};
use nicache_tcp::{HeadRepr, checksum};
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet};

use crate::packet::{ETHERNET_BYTES, IPV4_BYTES, Mac, TCP_AT};

/// Ethernet, IPv4 and the longest TCP header.
pub const HEADERS_BYTES_MAX: usize = TCP_AT + 60;

/// Where a frame goes.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Source MAC.
    pub source_mac: Mac,
    /// Destination MAC.
    pub destination_mac: Mac,
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
}

/// The headers of a frame.
pub struct Headers {
    bytes: [u8; HEADERS_BYTES_MAX],
    len: usize,
    /// What the port has to complete.
    pub offload: Offload,
}

impl Headers {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Builds the headers of a segment with `payload_len` bytes. `payload_sum` is called only if the port cannot complete
    /// checksums; it gives the ones'-complement sum of the payload. With more than `mss` bytes the frame is a super-frame.
    pub fn new(
        addresses: &Addresses,
        tcp: &HeadRepr,
        payload_len: usize,
        mss: u16,
        ip_id: u16,
        capabilities: &Capabilities,
        payload_sum: impl FnOnce() -> u16,
    ) -> Headers {
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let mut ethernet = EthernetFrame::new_unchecked(&mut bytes[..]);
        ethernet.set_src_addr(EthernetAddress(addresses.source_mac));
        ethernet.set_dst_addr(EthernetAddress(addresses.destination_mac));
        ethernet.set_ethertype(EthernetProtocol::Ipv4);
        let tcp_len = tcp.len();
        let mut ip = Ipv4Packet::new_unchecked(&mut bytes[ETHERNET_BYTES..]);
        ip.set_version(4);
        ip.set_header_len(IPV4_BYTES as u8);
        ip.set_total_len((IPV4_BYTES + tcp_len + payload_len) as u16);
        ip.set_ident(ip_id);
        ip.set_dont_frag(true);
        ip.set_hop_limit(64);
        ip.set_next_header(IpProtocol::Tcp);
        ip.set_src_addr(addresses.source.into());
        ip.set_dst_addr(addresses.destination.into());
        ip.fill_checksum();
        tcp.emit(&mut bytes[TCP_AT..]);
        let segment_len = (tcp_len + payload_len) as u32;
        let pseudo = checksum::pseudo_header_v4(
            addresses.source.to_be_bytes(),
            addresses.destination.to_be_bytes(),
            segment_len,
        );
        let mut offload = Offload::default();
        let field = TCP_AT + nicache_tcp::wire::CHECKSUM_OFFSET;
        if capabilities.checksum {
            bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
            offload.checksum =
                Checksum::Partial { start: TCP_AT as u16, offset: nicache_tcp::wire::CHECKSUM_OFFSET as u16 };
        } else {
            let head = checksum::sum(&bytes[TCP_AT..TCP_AT + tcp_len]);
            let sum = checksum::add(checksum::add(pseudo, head), payload_sum());
            bytes[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        }
        if payload_len > usize::from(mss) {
            offload.gso =
                Some(Gso { kind: GsoKind::Tcp4, size: mss, header_len: (TCP_AT + tcp_len) as u16, ecn: false });
        }
        Headers { bytes, len: TCP_AT + tcp_len, offload }
    }
}

/// A gather list on the stack.
pub struct Gather<'a> {
    parts: ArrayVec<IoSlice<'a>, { crate::limits::GATHER_MAX }>,
    bytes: usize,
}

impl<'a> Gather<'a> {
    /// An empty list.
    pub fn new() -> Gather<'a> {
        Gather { parts: ArrayVec::new(), bytes: 0 }
    }

    /// Adds a part; false if the list is full.
    pub fn push(&mut self, part: &'a [u8]) -> bool {
        if part.is_empty() {
            return true;
        }
        let taken = self.parts.try_push(IoSlice::new(part)).is_ok();
        self.bytes += if taken { part.len() } else { 0 };
        taken
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[IoSlice<'a>] {
        &self.parts
    }

    /// Bytes in all parts.
    pub fn len(&self) -> usize {
        self.bytes
    }
}
