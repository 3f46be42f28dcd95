//! The 12-byte header that precedes each frame on a TAP (or AF_PACKET socket) with `VNET_HDR`.
//!
//! Read first: virtio 1.2, section 5.1.6 (struct virtio_net_hdr with num_buffers, little-endian)
//! and Linux `include/linux/virtio_net.h`, which fills and reads it on the kernel's side.
//!
//! ```text
//!  0       1          2         4          6            8             10
//!  +-------+----------+---------+----------+------------+-------------+-------------+
//!  | flags | gso_type | hdr_len | gso_size | csum_start | csum_offset | num_buffers |
//!  +-------+----------+---------+----------+------------+-------------+-------------+
//! ```
//!
//! Whoever is at the other end may be hostile: every value is checked against the frame. `hdr_len`
//! is only a hint (section 5.1.6.2; Linux puts the length of the linear part of its buffer there),
//! so it is not read: the length of the headers comes from the frame.
//!
//! Deliberately absent: UFO (removed from Linux, lives on in virtio 1.2 only), segmentation inside
//! of tunnels, receive segment coalescing information (ignored), hash reports.

use crate::frame::{Checksum, ETHERNET_HEADER_BYTES, FRAME_BYTES_MAX, Gso, GsoKind, Offload};

/// Bytes of the header.
pub const VIRTIO_NET_HEADER_BYTES: usize = 12;

/// Least payload bytes of a TCP segment: the kernel's own floor (`TCP_MIN_GSO_SIZE`). Less would
/// turn one frame into tens of thousands.
const TCP_SEGMENT_BYTES_MIN: u16 = 8;
/// Most datagrams in a UDP super-frame (Linux `UDP_MAX_SEGMENTS`).
const UDP_SEGMENTS_MAX: usize = 128;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP_CHECKSUM_OFFSET: u16 = 16;
const TCP_HEADER_BYTES_MIN: usize = 20;
const UDP_CHECKSUM_OFFSET: u16 = 6;
const UDP_HEADER_BYTES: usize = 8;

/// Why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The frame is shorter than an Ethernet header or longer than a buffer.
    #[error("frame length out of range")]
    FrameLength,
    /// The kind of super-frame is unknown, or was not agreed on.
    #[error("unknown kind of super-frame {0:#04x}")]
    UnknownGso(u8),
    /// A super-frame whose checksum is not partial (forbidden by virtio 1.2, section 5.1.6.2).
    #[error("super-frame without partial checksum")]
    GsoWithoutChecksum,
    /// The segments of a super-frame would be empty, tiny, or too many.
    #[error("super-frame with segments of {0} bytes")]
    SegmentSize(u16),
    /// The checksum field would lie in the Ethernet header, outside of the frame, or not where the
    /// protocol has it.
    #[error("checksum position outside of the frame")]
    ChecksumPosition,
    /// The headers of a super-frame would be longer than the frame, or leave no payload.
    #[error("headers longer than the frame")]
    HeaderLength,
    /// The frame goes on in another buffer, which was not agreed on.
    #[error("frame in {0} buffers")]
    SeveralBuffers(u16),
}

/// Decodes the header of a received frame.
///
/// The result is consistent with the frame: positions lie inside of it, sizes are not zero,
/// [`Gso::header_len`] is exact.
///
/// # Errors
/// See [`HeaderError`]; the frame is to be dropped.
pub fn decode_header(
    header: &[u8; VIRTIO_NET_HEADER_BYTES],
    frame: &[u8],
) -> Result<Offload, HeaderError> {
    let field = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (flags, gso_type, gso_size, start, offset, buffers) =
        (header[0], header[1], field(4), field(6), field(8), field(10));

    check_frame_length(frame.len())?;
    if buffers > 1 {
        return Err(HeaderError::SeveralBuffers(buffers));
    }
    let checksum = if flags & FLAG_NEEDS_CSUM != 0 {
        check_position(start, offset, frame.len())?;
        Checksum::Partial { start, offset }
    } else if flags & FLAG_DATA_VALID != 0 {
        Checksum::Valid
    } else {
        Checksum::Unverified
    };
    if gso_type == GSO_NONE {
        return Ok(Offload { checksum, gso: None });
    }

    let ecn = gso_type & GSO_ECN != 0;
    let kind = match gso_type & !GSO_ECN {
        GSO_TCPV4 => GsoKind::Tcp4,
        GSO_TCPV6 => GsoKind::Tcp6,
        GSO_UDP_L4 if !ecn => GsoKind::Udp,
        _ => return Err(HeaderError::UnknownGso(gso_type)),
    };
    if !matches!(checksum, Checksum::Partial { .. }) {
        return Err(HeaderError::GsoWithoutChecksum);
    }
    let transport_len = match kind {
        // The data offset, in words of 4 bytes (RFC 9293, section 3.1). `check_position` saw bytes
        // 16 and 17 of this header.
        GsoKind::Tcp4 | GsoKind::Tcp6 if offset == TCP_CHECKSUM_OFFSET => {
            let len = usize::from(frame[usize::from(start) + 12] >> 4) * 4;
            if len < TCP_HEADER_BYTES_MIN {
                return Err(HeaderError::HeaderLength);
            }
            len
        }
        GsoKind::Udp if offset == UDP_CHECKSUM_OFFSET => UDP_HEADER_BYTES,
        _ => return Err(HeaderError::ChecksumPosition),
    };
    let header_len =
        u16::try_from(usize::from(start) + transport_len).map_err(|_| HeaderError::HeaderLength)?;
    let gso = Gso { kind, size: gso_size, header_len, ecn };
    check_gso(&gso, frame.len())?;
    Ok(Offload { checksum, gso: Some(gso) })
}

/// Encodes the header of a frame of `frame_len` bytes that is to be sent.
///
/// # Errors
/// The metadata contradict themselves or the length; see [`HeaderError`].
pub fn encode_header(
    offload: &Offload,
    frame_len: usize,
) -> Result<[u8; VIRTIO_NET_HEADER_BYTES], HeaderError> {
    check_frame_length(frame_len)?;
    let mut header = [0; VIRTIO_NET_HEADER_BYTES];
    let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_le_bytes());
    let flags = match offload.checksum {
        Checksum::Partial { start, offset } => {
            check_position(start, offset, frame_len)?;
            put(6, start);
            put(8, offset);
            FLAG_NEEDS_CSUM
        }
        Checksum::Valid => FLAG_DATA_VALID,
        Checksum::Unverified => 0,
    };
    let mut gso_type = GSO_NONE;
    if let Some(gso) = offload.gso {
        let Checksum::Partial { start, offset } = offload.checksum else {
            return Err(HeaderError::GsoWithoutChecksum);
        };
        check_gso(&gso, frame_len)?;
        if u32::from(gso.header_len) < u32::from(start) + u32::from(offset) + 2 {
            return Err(HeaderError::HeaderLength);
        }
        put(2, gso.header_len);
        put(4, gso.size);
        gso_type = match gso.kind {
            GsoKind::Tcp4 => GSO_TCPV4,
            GsoKind::Tcp6 => GSO_TCPV6,
            GsoKind::Udp if gso.ecn => return Err(HeaderError::UnknownGso(GSO_UDP_L4 | GSO_ECN)),
            GsoKind::Udp => GSO_UDP_L4,
        };
        if gso.ecn {
            gso_type |= GSO_ECN;
        }
    }
    header[0] = flags;
    header[1] = gso_type;
    Ok(header)
}

fn check_frame_length(frame_len: usize) -> Result<(), HeaderError> {
    if (ETHERNET_HEADER_BYTES..=FRAME_BYTES_MAX).contains(&frame_len) {
        Ok(())
    } else {
        Err(HeaderError::FrameLength)
    }
}

fn check_position(start: u16, offset: u16, frame_len: usize) -> Result<(), HeaderError> {
    let (start, offset) = (usize::from(start), usize::from(offset));
    if start < ETHERNET_HEADER_BYTES || start + offset + 2 > frame_len {
        return Err(HeaderError::ChecksumPosition);
    }
    Ok(())
}

fn check_gso(gso: &Gso, frame_len: usize) -> Result<(), HeaderError> {
    if usize::from(gso.header_len) >= frame_len {
        return Err(HeaderError::HeaderLength);
    }
    let payload = frame_len - usize::from(gso.header_len);
    let sane = match gso.kind {
        GsoKind::Tcp4 | GsoKind::Tcp6 => gso.size >= TCP_SEGMENT_BYTES_MIN,
        GsoKind::Udp => gso.size > 0 && payload.div_ceil(usize::from(gso.size)) <= UDP_SEGMENTS_MAX,
    };
    if sane { Ok(()) } else { Err(HeaderError::SegmentSize(gso.size)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of 3000 bytes with a TCP header of 32 bytes at 34.
    fn tcp_frame() -> Vec<u8> {
        let mut frame = vec![0; 3000];
        frame[34 + 12] = 8 << 4;
        frame
    }

    const TCP: Offload = Offload {
        checksum: Checksum::Partial { start: 34, offset: 16 },
        gso: Some(Gso { kind: GsoKind::Tcp4, size: 1448, header_len: 66, ecn: false }),
    };

    fn header(edit: impl FnOnce(&mut [u8; 12])) -> [u8; 12] {
        let mut header = encode_header(&TCP, 3000).unwrap();
        edit(&mut header);
        header
    }

    #[test]
    fn layout_is_that_of_the_standard() {
        assert_eq!(header(|_| ()), [1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0, 0]);
        assert_eq!(encode_header(&Offload::default(), 60).unwrap(), [0; 12]);
        let valid = Offload { checksum: Checksum::Valid, gso: None };
        assert_eq!(encode_header(&valid, 60).unwrap()[0], 2);
    }

    #[test]
    fn hdr_len_is_a_hint_and_not_trusted() {
        let hint = header(|header| header[2..4].copy_from_slice(&2000u16.to_le_bytes()));
        assert_eq!(decode_header(&hint, &tcp_frame()), Ok(TCP));
    }

    #[test]
    fn hostile_values_are_refused() {
        let frame = tcp_frame();
        let refused = |edit: fn(&mut [u8; 12])| decode_header(&header(edit), &frame).unwrap_err();
        assert_eq!(refused(|h| h[0] = 0), HeaderError::GsoWithoutChecksum);
        assert_eq!(refused(|h| h[0] = 2), HeaderError::GsoWithoutChecksum);
        assert_eq!(refused(|h| h[1] = 3), HeaderError::UnknownGso(3));
        assert_eq!(refused(|h| h[1] = 0x80), HeaderError::UnknownGso(0x80));
        assert_eq!(refused(|h| h[1] = 0x85), HeaderError::UnknownGso(0x85));
        assert_eq!(refused(|h| h[1] = 5), HeaderError::ChecksumPosition);
        assert_eq!(refused(|h| h[4..6].fill(0)), HeaderError::SegmentSize(0));
        assert_eq!(refused(|h| h[4..6].copy_from_slice(&[7, 0])), HeaderError::SegmentSize(7));
        assert_eq!(refused(|h| h[6] = 13), HeaderError::ChecksumPosition);
        assert_eq!(refused(|h| h[6..8].fill(0xff)), HeaderError::ChecksumPosition);
        assert_eq!(refused(|h| h[8..10].fill(0xff)), HeaderError::ChecksumPosition);
        assert_eq!(refused(|h| h[10] = 2), HeaderError::SeveralBuffers(2));
        // A data offset of 0, and one that reaches past the end of the frame.
        assert_eq!(decode_header(&header(|_| ()), &vec![0; 3000]), Err(HeaderError::HeaderLength));
        assert_eq!(
            decode_header(&header(|_| ()), &tcp_frame()[..66]),
            Err(HeaderError::HeaderLength)
        );
        assert_eq!(decode_header(&[0; 12], &frame[..13]), Err(HeaderError::FrameLength));
    }

    #[test]
    fn datagrams_of_a_super_frame_are_bounded() {
        let udp = |size, frame_len| {
            let gso = Gso { kind: GsoKind::Udp, size, header_len: 42, ecn: false };
            let checksum = Checksum::Partial { start: 34, offset: 6 };
            encode_header(&Offload { checksum, gso: Some(gso) }, frame_len)
        };
        assert!(udp(10, 42 + 1280).is_ok());
        assert_eq!(udp(10, 42 + 1281), Err(HeaderError::SegmentSize(10)));
    }

    #[test]
    fn metadata_that_contradict_the_frame_are_not_encoded() {
        let mut offload = TCP;
        assert_eq!(encode_header(&offload, 66), Err(HeaderError::HeaderLength));
        offload.checksum = Checksum::Valid;
        assert_eq!(encode_header(&offload, 3000), Err(HeaderError::GsoWithoutChecksum));
        offload.checksum = Checksum::Partial { start: 60, offset: 16 };
        assert_eq!(encode_header(&offload, 3000), Err(HeaderError::HeaderLength));
        assert_eq!(encode_header(&TCP, FRAME_BYTES_MAX + 1), Err(HeaderError::FrameLength));
    }

    proptest! {
        /// Whatever the other end writes: no panic, and what is accepted survives a round trip and
        /// stays inside of the frame.
        #[test]
        fn any_header_is_refused_or_consistent(
            header: [u8; 12],
            flags in 0u8..4,
            kind in 0u8..6,
            low in any::<bool>(),
            frame in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut header = header;
            header[0] = flags;
            if low {
                header[1] = kind;
                for at in [5, 7, 9, 10, 11] {
                    header[at] = 0;
                }
            }
            if let Ok(offload) = decode_header(&header, &frame) {
                let again = encode_header(&offload, frame.len()).unwrap();
                prop_assert_eq!(decode_header(&again, &frame), Ok(offload));
                if let Checksum::Partial { start, offset } = offload.checksum {
                    prop_assert!(usize::from(start) + usize::from(offset) + 2 <= frame.len());
                }
                if let Some(gso) = offload.gso {
                    prop_assert!(usize::from(gso.header_len) < frame.len() && gso.size > 0);
                }
            }
        }
    }
}
