//! What is in front of a segment's own header: sizes, VLAN tags (IEEE 802.1Q), from where a frame
//! goes where.

use smoltcp::wire::EthernetProtocol;

use crate::address::Address;

/// Bytes of an Ethernet II header without tags.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of a VLAN tag.
pub const TAG_BYTES: usize = 4;
/// VLAN tags of one frame at most.
pub const TAGS_MAX: usize = 2;
/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_BYTES: usize = 40;
/// Bytes of Ethernet with all tags, IPv6 and the longest TCP header.
pub const HEADERS_BYTES_MAX: usize = ETHERNET_BYTES + TAGS_MAX * TAG_BYTES + IPV6_BYTES + 60;

/// Types of VLAN tags: of customers, of providers.
const TAG_TYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

/// A MAC address.
pub type Mac = [u8; 6];

/// The VLAN tags of a frame, as they are in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    bytes: [u8; TAGS_MAX * TAG_BYTES],
    len: u8,
}

impl Tags {
    /// The tags of a frame, and what type of packet is behind them; `None` if there are more tags
    /// than [`TAGS_MAX`], or the frame ends before.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<(Self, EthernetProtocol)> {
        let mut tags = Self::default();
        loop {
            let at = ETHERNET_BYTES - 2 + tags.len();
            let kind: [u8; 2] = frame.get(at..at + 2)?.try_into().ok()?;
            if !TAG_TYPES.contains(&kind) {
                return Some((tags, EthernetProtocol::from(u16::from_be_bytes(kind))));
            }
            let from = tags.len();
            tags.bytes
                .get_mut(from..from + TAG_BYTES)?
                .copy_from_slice(frame.get(at..at + TAG_BYTES)?);
            tags.len += TAG_BYTES as u8;
        }
    }

    /// Tags by their bytes; `None` if these are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut tags = Self::default();
        let are_tags = bytes
            .chunks(TAG_BYTES)
            .all(|tag| tag.len() == TAG_BYTES && TAG_TYPES.contains(&[tag[0], tag[1]]));
        tags.bytes.get_mut(..bytes.len()).filter(|_| are_tags)?.copy_from_slice(bytes);
        tags.len = bytes.len() as u8;
        Some(tags)
    }

    /// Bytes of all tags.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the frame has no tag.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tags' bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// For [`FlowKey::vlans`](crate::frame::FlowKey::vlans). A tag that says only a priority names
    /// no VLAN.
    #[must_use]
    pub fn vlans(&self) -> u32 {
        let number = |tag: &[u8]| u32::from(u16::from_be_bytes([tag[2], tag[3]]) & 0xfff);
        self.bytes()
            .chunks_exact(TAG_BYTES)
            .map(number)
            .fold(0, |vlans, number| vlans << 16 | number)
    }
}

/// Where a frame comes from and where it goes. Both addresses are of the same version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Source MAC.
    pub source_mac: Mac,
    /// Destination MAC.
    pub destination_mac: Mac,
    /// VLAN tags.
    pub tags: Tags,
    /// Source address.
    pub source: Address,
    /// Destination address.
    pub destination: Address,
}

impl Addresses {
    /// Where the TCP header of such a frame begins.
    #[must_use]
    pub fn tcp_at(&self) -> usize {
        ETHERNET_BYTES + self.tags.len() + if self.source.is_v4() { IPV4_BYTES } else { IPV6_BYTES }
    }
}
