//! What the kernel tells about a received frame, beside its bytes.

use crate::frame::VLAN_TAG_BYTES;

/// Bytes of `struct virtio_net_hdr` without `num_buffers`, which packet sockets carry unless told
/// otherwise.
pub(super) const HEADER_BYTES: usize = 10;

const ETHERTYPE_VLAN: u16 = 0x8100;

/// What the kernel told about a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Bytes received, header included.
    pub(super) len: usize,
    /// The frame did not fit.
    pub(super) is_truncated: bool,
    /// The tag that was in the frame.
    pub(super) vlan_tag: Option<[u8; VLAN_TAG_BYTES]>,
}

/// The tag that the kernel has taken out of a frame, from `tp_status` and the fields beside it.
pub(super) fn vlan_tag(status: u32, tci: u16, tpid: u16) -> Option<[u8; VLAN_TAG_BYTES]> {
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { ETHERTYPE_VLAN };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some([a, b, c, d])
}
