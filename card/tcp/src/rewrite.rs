//! Rewriting a received TCP header in place (RFC 1624 for the checksum).

use crate::checksum;
use crate::options::{KIND_NOP, KIND_SACK, KIND_TIMESTAMPS, Walk};
use crate::seq::Seq;
use crate::wire::{CHECKSUM_OFFSET, HEADER_BYTES_MIN, header_len};

/// What to do with the acknowledgment number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRewrite {
    /// Replace it.
    Set(Seq),
    /// Add to it, modulo 2^32.
    Add(u32),
}

/// What to do with SACK blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SackRewrite {
    /// Move both edges of every block by `sack_delta`.
    Keep,
    /// Overwrite the option with no-operations; SACK is advisory (RFC 2018 section 8), so a sender
    /// that does not get it only recovers more slowly.
    Strip,
}

/// A change of a TCP header. Deltas are added modulo 2^32; the default changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Added to the sequence number.
    pub seq_delta: u32,
    /// Change of the acknowledgment number; not applied when ACK is not set.
    pub ack: AckRewrite,
    /// New value of the window field, as it stands in the header.
    pub window: Option<u16>,
    /// Added to TSval.
    pub tsval_delta: u32,
    /// Added to TSecr; not applied when ACK is not set (the field is then undefined).
    pub tsecr_delta: u32,
    /// Added to both edges of every SACK block.
    pub sack_delta: u32,
    /// Whether SACK blocks stay.
    pub sack: SackRewrite,
}

impl Default for Rewrite {
    fn default() -> Self {
        Self {
            seq_delta: 0,
            ack: AckRewrite::Add(0),
            window: None,
            tsval_delta: 0,
            tsecr_delta: 0,
            sack_delta: 0,
            sack: SackRewrite::Keep,
        }
    }
}

const ACK_FLAG: u8 = 0x10;

fn add_u32(bytes: &mut [u8], at: usize, delta: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        let old = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
        field.copy_from_slice(&old.wrapping_add(delta).to_be_bytes());
    }
}

/// Applies `change` to the header at the start of `tcp`, which needs to hold the header with its
/// options (payload may follow and is not touched). Bytes that are not header are left alone.
///
/// With `checksum_complete` the checksum field covers the header and is updated; otherwise it
/// holds a pseudo-header sum (virtio NEEDS_CSUM), which no field changed here enters.
pub fn rewrite(tcp: &mut [u8], change: &Rewrite, checksum_complete: bool) {
    let Ok(len) = header_len(tcp) else { return };
    let header = &mut tcp[..len];
    // Summing the header before and after costs some ten additions each and, unlike word-wise
    // updates, does not care whether an option stands at an odd offset.
    let before = if checksum_complete { checksum::sum(header) } else { 0 };
    let ack_set = header[13] & ACK_FLAG != 0;

    if change.seq_delta != 0 {
        add_u32(header, 4, change.seq_delta);
    }
    if ack_set {
        match change.ack {
            AckRewrite::Set(ack) => header[8..12].copy_from_slice(&ack.0.to_be_bytes()),
            AckRewrite::Add(delta) => add_u32(header, 8, delta),
        }
    }
    if let Some(window) = change.window {
        header[14..16].copy_from_slice(&window.to_be_bytes());
    }
    let options_change = change.tsval_delta != 0
        || change.tsecr_delta != 0
        || change.sack_delta != 0
        || change.sack == SackRewrite::Strip;
    if options_change {
        rewrite_options(&mut header[HEADER_BYTES_MIN..], change, ack_set);
    }

    if checksum_complete {
        let after = checksum::sum(header);
        let old = u16::from_be_bytes([header[CHECKSUM_OFFSET], header[CHECKSUM_OFFSET + 1]]);
        let new = checksum::update(old, before, after);
        header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&new.to_be_bytes());
    }
}

fn rewrite_options(options: &mut [u8], change: &Rewrite, ack_set: bool) {
    let mut at = 0;
    while let Some(Ok(option)) = Walk::new(&options[at..]).next() {
        let start = at + option.at;
        at = start + option.len;
        match (option.kind, option.len) {
            (KIND_TIMESTAMPS, 10) => {
                add_u32(options, start + 2, change.tsval_delta);
                if ack_set {
                    add_u32(options, start + 6, change.tsecr_delta);
                }
            }
            (KIND_SACK, len) => {
                if change.sack == SackRewrite::Strip {
                    options[start..at].fill(KIND_NOP);
                } else {
                    for edge in 0..(len - 2) / 4 {
                        add_u32(options, start + 2 + edge * 4, change.sack_delta);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{SackBlocks, Timestamps};
    use crate::wire::{Flags, HeadRepr, parse};
    use proptest::prelude::*;

    fn change() -> impl Strategy<Value = Rewrite> {
        (any::<[u32; 5]>(), any::<bool>(), any::<Option<u16>>(), any::<bool>()).prop_map(
            |(d, set, window, strip)| Rewrite {
                seq_delta: d[0],
                ack: if set { AckRewrite::Set(Seq(d[1])) } else { AckRewrite::Add(d[1]) },
                window,
                tsval_delta: d[2],
                tsecr_delta: d[3],
                sack_delta: d[4],
                sack: if strip { SackRewrite::Strip } else { SackRewrite::Keep },
            },
        )
    }

    fn packet(pad: usize) -> Vec<u8> {
        let mut sack = SackBlocks::EMPTY;
        sack.push(Seq(u32::MAX - 5), Seq(7));
        sack.push(Seq(100), Seq(200));
        let repr = HeadRepr {
            seq: Seq(u32::MAX - 3),
            ack: Seq(12),
            flags: Flags::ACK,
            window: 500,
            timestamps: Some(Timestamps { val: 9, ecr: 8 }),
            sack,
            ..HeadRepr::default()
        };
        let mut bytes = vec![0u8; repr.len()];
        repr.emit(&mut bytes);
        // An odd number of no-operations in front makes the options stand at odd offsets.
        for _ in 0..pad {
            bytes.insert(20, 1);
        }
        while !bytes.len().is_multiple_of(4) {
            bytes.push(0);
        }
        bytes[12] = ((bytes.len() / 4) as u8) << 4;
        bytes.extend_from_slice(b"some payload");
        bytes
    }

    proptest! {
        /// RFC 1624: the incremental checksum is the one a full recomputation gives.
        #[test]
        fn incremental_equals_full(change in change(), pad in 0usize..4) {
            let mut bytes = packet(pad);
            let check = checksum::finish(checksum::sum(&bytes));
            bytes[16..18].copy_from_slice(&check.to_be_bytes());
            rewrite(&mut bytes, &change, true);
            prop_assert!(checksum::same(checksum::sum(&bytes), 0xffff));
        }

        #[test]
        fn fields_change_as_asked(change in change(), pad in 0usize..4) {
            let mut bytes = packet(pad);
            bytes[16..18].copy_from_slice(&[0xab, 0xcd]);
            let old = parse(&bytes).unwrap();
            rewrite(&mut bytes, &change, false);
            let new = parse(&bytes).unwrap();
            prop_assert_eq!(new.seq, old.seq + change.seq_delta);
            prop_assert_eq!(
                new.ack,
                match change.ack {
                    AckRewrite::Set(a) => a,
                    AckRewrite::Add(d) => old.ack + d,
                }
            );
            prop_assert_eq!(new.window, change.window.unwrap_or(old.window));
            let (t, u) = (old.timestamps.unwrap(), new.timestamps.unwrap());
            prop_assert_eq!(u.val, t.val.wrapping_add(change.tsval_delta));
            prop_assert_eq!(u.ecr, t.ecr.wrapping_add(change.tsecr_delta));
            if change.sack == SackRewrite::Strip {
                prop_assert!(new.sack.is_empty());
            } else {
                for (a, b) in old.sack.as_slice().iter().zip(new.sack.as_slice()) {
                    prop_assert_eq!((a.0 + change.sack_delta, a.1 + change.sack_delta), *b);
                }
            }
            prop_assert_eq!(&bytes[16..18], &[0xab, 0xcd]);
            prop_assert_eq!(&bytes[new.header_len..], b"some payload");
        }

        #[test]
        fn any_bytes_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            change in change(),
            complete: bool,
        ) {
            rewrite(&mut bytes, &change, complete);
        }
    }

    #[test]
    fn the_default_changes_nothing() {
        let mut bytes = packet(1);
        let before = bytes.clone();
        rewrite(&mut bytes, &Rewrite::default(), false);
        assert_eq!(bytes, before);
    }
}
