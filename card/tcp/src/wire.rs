//! TCP headers on the wire (RFC 9293 section 3.1).
//!
//! [`SegmentHead`] is a checked copy of the fields of a received header; [`HeadRepr`] is a header
//! that can always be emitted. The option bytes are walked here because rewriting needs to
//! know where they stand and because all four SACK blocks are wanted; smoltcp's parser is the
//! oracle of the tests. The checksum is not verified here (see [`crate::checksum`]).

use core::fmt;

use crate::ecn::{self, Codepoint};
pub use crate::flags::Flags;
use crate::options::{
    KIND_MSS, KIND_NOP, KIND_SACK, KIND_SACK_PERMITTED, KIND_TIMESTAMPS, KIND_WINDOW_SCALE,
    SackBlocks, SynOptions, Timestamps, WINDOW_SCALE_MAX, Walk,
};
use crate::seq::Seq;

/// Bytes of a header without options.
pub const HEADER_BYTES_MIN: usize = 20;
/// Bytes of the longest header.
pub const HEADER_BYTES_MAX: usize = 60;
/// Offset of the checksum field in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// Why bytes are not a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than a header has.
    Truncated,
    /// The data offset is less than five words or points past the bytes.
    BadOffset,
    /// An option does not fit, or one of a known kind has the wrong length.
    BadOption,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "segment shorter than a TCP header",
            Self::BadOffset => "TCP data offset out of range",
            Self::BadOption => "malformed TCP option",
        })
    }
}

impl core::error::Error for WireError {}

/// The fields of a received header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte (or of SYN).
    pub seq: Seq,
    /// Acknowledgment number; meaningful only with ACK set.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window as it stands in the header, not scaled.
    pub window: u16,
    /// Bytes of the header with options; the payload starts here.
    pub header_len: usize,
    /// Timestamps option, if there is one.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// The options of a SYN; `None` in any other segment.
    pub syn_options: Option<SynOptions>,
    /// There is an option of a kind not understood here (MD5, AO, multipath, ...). A flow whose SYN
    /// carries one should be left to the host.
    pub unknown_option: bool,
    /// The ECN field of the packet around the segment. Not in the header: whoever has the packet
    /// sets it ([`crate::frame::Packet::ecn`]).
    pub ecn: Codepoint,
}

impl SegmentHead {
    /// The window in bytes: scaled, but never in a SYN (RFC 7323 section 2.2).
    #[must_use]
    pub fn window_bytes(&self, scale: u8) -> u32 {
        if self.flags.syn() {
            u32::from(self.window)
        } else {
            u32::from(self.window) << scale.min(WINDOW_SCALE_MAX)
        }
    }

    /// Sequence space the segment occupies with `payload_len` bytes of payload: SYN and FIN count
    /// one each (RFC 9293 section 3.4).
    #[must_use]
    pub fn segment_len(&self, payload_len: u32) -> u32 {
        payload_len
            .wrapping_add(u32::from(self.flags.syn()))
            .wrapping_add(u32::from(self.flags.fin()))
    }
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Length of the header that `tcp` begins with, checked against the bytes at hand.
///
/// # Errors
/// [`WireError::Truncated`] and [`WireError::BadOffset`].
pub fn header_len(tcp: &[u8]) -> Result<usize, WireError> {
    if tcp.len() < HEADER_BYTES_MIN {
        return Err(WireError::Truncated);
    }
    let len = usize::from(tcp[12] >> 4) * 4;
    if len < HEADER_BYTES_MIN || len > tcp.len() {
        return Err(WireError::BadOffset);
    }
    Ok(len)
}

/// Parses the header at the start of `tcp` (payload may follow and is not looked at).
///
/// # Errors
/// See [`WireError`]. Linux ignores what follows a malformed option; here the whole segment is
/// refused, because a middlebox must not act on options the end might read differently.
pub fn parse(tcp: &[u8]) -> Result<SegmentHead, WireError> {
    let header_len = header_len(tcp)?;
    let flags = Flags(tcp[13]);
    let mut head = SegmentHead {
        src_port: u16_at(tcp, 0),
        dst_port: u16_at(tcp, 2),
        seq: Seq(u32_at(tcp, 4)),
        ack: Seq(u32_at(tcp, 8)),
        flags,
        window: u16_at(tcp, 14),
        header_len,
        timestamps: None,
        sack: SackBlocks::EMPTY,
        syn_options: None,
        unknown_option: false,
        ecn: Codepoint::NotCapable,
    };
    let options = &tcp[HEADER_BYTES_MIN..header_len];
    // The layout that nearly every segment of a connection with timestamps has (RFC 7323 appendix
    // A).
    if options.len() == 12
        && options[..4] == [KIND_NOP, KIND_NOP, KIND_TIMESTAMPS, 10]
        && !flags.syn()
    {
        head.timestamps = Some(Timestamps { val: u32_at(options, 4), ecr: u32_at(options, 8) });
        return Ok(head);
    }
    let mut syn = SynOptions::default();
    for option in Walk::new(options) {
        let option = option.map_err(|()| WireError::BadOption)?;
        let at = option.at;
        match (option.kind, option.len) {
            (KIND_MSS, 4) => syn.mss = Some(u16_at(options, at + 2)),
            // RFC 7323 section 2.3: a shift above 14 is used as 14.
            (KIND_WINDOW_SCALE, 3) => {
                syn.window_scale = Some(options[at + 2].min(WINDOW_SCALE_MAX));
            }
            (KIND_SACK_PERMITTED, 2) => syn.sack_permitted = true,
            (KIND_TIMESTAMPS, 10) => {
                head.timestamps =
                    Some(Timestamps { val: u32_at(options, at + 2), ecr: u32_at(options, at + 6) });
            }
            (KIND_SACK, len) if len >= 10 && (len - 2).is_multiple_of(8) => {
                for block in options[at + 2..at + len].chunks_exact(8) {
                    head.sack.push(Seq(u32_at(block, 0)), Seq(u32_at(block, 4)));
                }
            }
            (
                KIND_MSS | KIND_WINDOW_SCALE | KIND_SACK_PERMITTED | KIND_SACK | KIND_TIMESTAMPS,
                _,
            ) => {
                return Err(WireError::BadOption);
            }
            _ => head.unknown_option = true,
        }
    }
    if flags.syn() {
        syn.timestamps = head.timestamps;
        syn.ecn = if flags.ack() { ecn::is_agreed(flags) } else { ecn::is_offered(flags) };
        head.syn_options = Some(syn);
    }
    Ok(head)
}

/// A header that can be emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window as it shall stand in the header, already scaled down.
    pub window: u16,
    /// Timestamps option; ignored when `syn_options` is given (which has its own).
    pub timestamps: Option<Timestamps>,
    /// SACK blocks; as many are emitted as fit, none with `syn_options`.
    pub sack: SackBlocks,
    /// Options of a SYN or SYN-ACK.
    pub syn_options: Option<SynOptions>,
    /// The ECN field of the packet around the segment; [`HeadRepr::emit`] does not write it,
    /// [`crate::frame::write_headers`] does.
    pub ecn: Codepoint,
}

impl HeadRepr {
    /// Bytes that [`HeadRepr::emit`] writes: 20 to 60, a multiple of four.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        let options = match &self.syn_options {
            Some(syn) => {
                usize::from(syn.mss.is_some()) * 4
                    + usize::from(syn.window_scale.is_some()) * 4
                    + if syn.timestamps.is_some() {
                        12
                    } else {
                        usize::from(syn.sack_permitted) * 4
                    }
            }
            None => {
                let blocks = self.sack_blocks();
                usize::from(self.timestamps.is_some()) * 12
                    + if blocks > 0 { 4 + 8 * blocks } else { 0 }
            }
        };
        HEADER_BYTES_MIN + options
    }

    /// RFC 2018 section 3: three blocks fit beside timestamps, four without.
    fn sack_blocks(&self) -> usize {
        self.sack.len().min(if self.timestamps.is_some() { 3 } else { 4 })
    }

    /// Writes the header; checksum and urgent pointer are zero. Returns the bytes written.
    ///
    /// # Panics
    /// If `buf` is shorter than [`HeadRepr::len`].
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let len = self.len();
        let buf = &mut buf[..len];
        buf[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        buf[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        buf[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        buf[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        buf[12] = ((len / 4) as u8) << 4;
        buf[13] = match &self.syn_options {
            Some(SynOptions { ecn: true, .. }) if self.flags.ack() => self.flags | Flags::ECE,
            Some(SynOptions { ecn: true, .. }) => self.flags | Flags::ECE | Flags::CWR,
            _ => self.flags,
        }
        .0;
        buf[14..16].copy_from_slice(&self.window.to_be_bytes());
        buf[16..20].fill(0);
        let mut rest = &mut buf[HEADER_BYTES_MIN..];
        if let Some(syn) = &self.syn_options {
            if let Some(mss) = syn.mss {
                let [hi, lo] = mss.to_be_bytes();
                rest = put(rest, &[KIND_MSS, 4, hi, lo]);
            }
            if let Some(ts) = syn.timestamps {
                rest = if syn.sack_permitted {
                    put(rest, &[KIND_SACK_PERMITTED, 2])
                } else {
                    put(rest, &[KIND_NOP, KIND_NOP])
                };
                rest = put_timestamps(rest, ts);
            } else if syn.sack_permitted {
                rest = put(rest, &[KIND_NOP, KIND_NOP, KIND_SACK_PERMITTED, 2]);
            }
            if let Some(scale) = syn.window_scale {
                put(rest, &[KIND_NOP, KIND_WINDOW_SCALE, 3, scale.min(WINDOW_SCALE_MAX)]);
            }
            return len;
        }
        if let Some(ts) = self.timestamps {
            rest = put(rest, &[KIND_NOP, KIND_NOP]);
            rest = put_timestamps(rest, ts);
        }
        let blocks = self.sack_blocks();
        if blocks > 0 {
            rest = put(rest, &[KIND_NOP, KIND_NOP, KIND_SACK, (2 + 8 * blocks) as u8]);
            for (left, right) in &self.sack.as_slice()[..blocks] {
                rest = put(rest, &left.0.to_be_bytes());
                rest = put(rest, &right.0.to_be_bytes());
            }
        }
        len
    }
}

fn put<'a>(rest: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (head, tail) = rest.split_at_mut(bytes.len());
    head.copy_from_slice(bytes);
    tail
}

fn put_timestamps(rest: &mut [u8], ts: Timestamps) -> &mut [u8] {
    let rest = put(rest, &[KIND_TIMESTAMPS, 10]);
    let rest = put(rest, &ts.val.to_be_bytes());
    put(rest, &ts.ecr.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smoltcp::wire::TcpPacket;

    fn any_repr() -> impl Strategy<Value = HeadRepr> {
        let ts = proptest::option::of((any::<u32>(), any::<u32>()))
            .prop_map(|ts| ts.map(|(val, ecr)| Timestamps { val, ecr }));
        let blocks = proptest::collection::vec((any::<u32>(), any::<u32>()), 0..5);
        let syn = proptest::option::of((
            proptest::option::of(any::<u16>()),
            proptest::option::of(0u8..=14),
            any::<bool>(),
        ));
        (any::<(u16, u16, u32, u32, u8, u16)>(), ts, blocks, syn).prop_map(
            |((src_port, dst_port, seq, ack, flags, window), timestamps, blocks, syn)| {
                let mut sack = SackBlocks::EMPTY;
                let room = if timestamps.is_some() { 3 } else { 4 };
                if syn.is_none() {
                    for (l, r) in blocks.into_iter().take(room) {
                        sack.push(Seq(l), Seq(r));
                    }
                }
                let flags = if syn.is_some() { flags | 2 } else { flags & !2 };
                HeadRepr {
                    src_port,
                    dst_port,
                    seq: Seq(seq),
                    ack: Seq(ack),
                    flags: Flags(flags),
                    window,
                    timestamps,
                    sack,
                    syn_options: syn.map(|(mss, window_scale, sack_permitted)| SynOptions {
                        mss,
                        window_scale,
                        sack_permitted,
                        timestamps,
                        ecn: if flags & 0x10 != 0 {
                            ecn::is_agreed(Flags(flags))
                        } else {
                            ecn::is_offered(Flags(flags))
                        },
                    }),
                    ecn: Codepoint::NotCapable,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&bytes);
        }

        /// Random option bytes behind a valid fixed part reach the option code more often.
        #[test]
        fn any_options_never_panic(
            options in proptest::collection::vec(0u8..12, 0..40),
            flags: u8,
        ) {
            let mut bytes = vec![0u8; 20];
            bytes.extend_from_slice(&options);
            bytes[12] = ((bytes.len() / 4) as u8) << 4;
            bytes[13] = flags;
            let _ = parse(&bytes);
        }

        #[test]
        fn emit_then_parse(repr in any_repr()) {
            let mut bytes = [0xaau8; 64];
            let len = repr.emit(&mut bytes);
            prop_assert!(len == repr.len() && len <= HEADER_BYTES_MAX && len % 4 == 0);
            let head = parse(&bytes[..len]).unwrap();
            prop_assert_eq!(head.header_len, len);
            prop_assert_eq!(
                (head.src_port, head.dst_port, head.seq, head.ack),
                (repr.src_port, repr.dst_port, repr.seq, repr.ack)
            );
            prop_assert_eq!((head.flags, head.window), (repr.flags, repr.window));
            prop_assert_eq!(head.timestamps, repr.timestamps);
            prop_assert_eq!(head.syn_options, repr.syn_options);
            prop_assert_eq!(head.sack, repr.sack);
            prop_assert!(!head.unknown_option);

            let oracle = TcpPacket::new_checked(&bytes[..len]).unwrap();
            prop_assert_eq!(oracle.seq_number().0 as u32, repr.seq.0);
            prop_assert_eq!(oracle.ack_number().0 as u32, repr.ack.0);
            prop_assert_eq!(oracle.window_len(), repr.window);
            prop_assert_eq!(usize::from(oracle.header_len()), len);
            let summary = oracle.options_summary().unwrap();
            prop_assert_eq!(summary.timestamp, repr.timestamps.map(|t| (t.val, t.ecr)));
            for (ours, theirs) in repr.sack.as_slice().iter().zip(summary.sack_ranges) {
                prop_assert_eq!(Some((ours.0.0, ours.1.0)), theirs);
            }
            if let Some(syn) = repr.syn_options {
                prop_assert_eq!(summary.max_segment_size, syn.mss);
                prop_assert_eq!(summary.window_scale, syn.window_scale);
                prop_assert_eq!(summary.sack_permitted, syn.sack_permitted);
            }
        }
    }

    #[test]
    fn window_scale_above_14_counts_as_14() {
        // RFC 7323 section 2.3.
        let mut bytes = [0u8; 24];
        bytes[12] = 6 << 4;
        bytes[13] = Flags::SYN.0;
        bytes[20..].copy_from_slice(&[3, 3, 200, 0]);
        assert_eq!(parse(&bytes).unwrap().syn_options.unwrap().window_scale, Some(14));
    }

    #[test]
    fn unknown_options_are_reported() {
        let mut bytes = [0u8; 24];
        bytes[12] = 6 << 4;
        bytes[20..].copy_from_slice(&[30, 4, 0, 0]);
        assert!(parse(&bytes).unwrap().unknown_option);
    }

    #[test]
    fn the_window_of_a_syn_is_not_scaled() {
        // RFC 7323 section 2.2.
        let repr = HeadRepr { window: 100, flags: Flags::SYN, ..HeadRepr::default() };
        let mut bytes = [0u8; 20];
        repr.emit(&mut bytes);
        assert_eq!(parse(&bytes).unwrap().window_bytes(7), 100);
        HeadRepr { flags: Flags::ACK, ..repr }.emit(&mut bytes);
        assert_eq!(parse(&bytes).unwrap().window_bytes(7), 12_800);
    }
}
