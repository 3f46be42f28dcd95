//! May this reply become an entry?

use std::net::{Ipv4Addr, SocketAddrV4};

use super::head::{BODY_HASH_BYTES, DecodeError, Kind, VERSION, split_head, word_at};
use super::refusal::RefusalReason;
use crate::source::{SOURCES_MAX, SourceSet, SourceSlot, Stamp};

/// Bytes of a request target that are passed on, for logs only; a longer one is cut.
pub const TARGET_BYTES_MAX: usize = 512;
/// Longest encoded [`FillRequest`].
pub const FILL_REQUEST_BYTES_MAX: usize = REQUEST_HEAD_BYTES + TARGET_BYTES_MAX;
/// Longest encoded [`FillVerdict`].
pub const FILL_VERDICT_BYTES_MAX: usize = VERDICT_HEAD_BYTES + SLOT_BYTES * SOURCES_MAX;

/// The card asks: may the reply that it just forwarded become an entry?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillRequest<'a> {
    /// The card's own number for the fill; comes back in the verdict.
    pub id: u64,
    /// The clock right after it was advanced, before the request was forwarded.
    pub stamp: Stamp,
    /// The clock right after it was advanced to ask this question. A dynamic entry has this stamp:
    /// what changed before, the watcher has to look for by the sources that it knows.
    pub asked: Stamp,
    /// CLOCK_MONOTONIC before the first byte of the request was forwarded.
    pub forwarded_ns: u64,
    /// CLOCK_MONOTONIC after the last byte of the reply had come.
    pub finished_ns: u64,
    /// `RevisionTable::lost` before the request was forwarded.
    pub lost: u64,
    /// Length of the reply's body in bytes.
    pub body_len: u64,
    /// BLAKE3 of the reply's body.
    pub body_hash: [u8; BODY_HASH_BYTES],
    /// The reply's Last-Modified in seconds since 1970, if it had one.
    pub last_modified: Option<u64>,
    /// Does the head look like one of a server of files?
    pub may_be_static: bool,
    /// Are replies that are not a file wanted?
    pub may_be_dynamic: bool,
    /// An earlier reply to the same request, and its stamp: have its sources changed since?
    pub previous: Option<(RecordNumber, Stamp)>,
    /// For whom the request was forwarded: the address and port that the server sees, the address
    /// [folded](crate::fold).
    pub client: SocketAddrV4,
    /// Request target, for logs only; [`TARGET_BYTES_MAX`] bytes are sent.
    pub target: &'a [u8],
}

/// Names what the watcher remembers of a fill. Never used twice by one watcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordNumber(pub u64);

/// The watcher's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillVerdict {
    /// [`FillRequest::id`].
    pub id: u64,
    /// The answer.
    pub verdict: Verdict,
}

/// Why a reply may be repeated to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// The body is, byte for byte, a file that the server looked up.
    #[default]
    Static = 0,
    /// A program made it from sources that are known. Whether another client gets the same is
    /// for the card to find out.
    Dynamic = 1,
}

/// May the reply become an entry?
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would allocate for each fill"
)]
pub enum Verdict {
    /// The reply may become an entry, valid while none of these sources has a stamp at or above the
    /// fill's ([`FillRequest::stamp`] of a static one, [`FillRequest::asked`] of a dynamic one).
    Stored {
        /// What kind of reply it is.
        class: Class,
        /// The sources, all watched by now; always with [`SourceSlot::EVERYTHING`].
        sources: SourceSet,
        /// Under what number the watcher remembers the look-ups, for a
        /// [`ReinstateRequest`](super::ReinstateRequest).
        record: RecordNumber,
        /// The sources of [`FillRequest::previous`] are as they were.
        previous_unchanged: bool,
    },
    /// The reply must not become an entry, because it may be out of date by now. But it was made
    /// for anybody, so whoever had asked before its request was forwarded may have it.
    Outdated(RefusalReason),
    /// The reply must not become an entry, for this reason.
    Refused(RefusalReason),
}

const REQUEST_HEAD_BYTES: usize = 128;
const VERDICT_HEAD_BYTES: usize = 24;
const SLOT_BYTES: usize = size_of::<SourceSlot>();
const FLAG_LAST_MODIFIED: u32 = 1;
const FLAG_MAY_BE_STATIC: u32 = 2;
const FLAG_MAY_BE_DYNAMIC: u32 = 4;
const FLAG_PREVIOUS: u32 = 8;
const FLAGS: u32 = FLAG_LAST_MODIFIED | FLAG_MAY_BE_STATIC | FLAG_MAY_BE_DYNAMIC | FLAG_PREVIOUS;

impl<'a> FillRequest<'a> {
    /// Writes the message and returns the part of `out` to send.
    pub fn encode<'b>(&self, out: &'b mut [u8; FILL_REQUEST_BYTES_MAX]) -> &'b [u8] {
        let target = &self.target[..self.target.len().min(TARGET_BYTES_MAX)];
        out[0] = Kind::FillRequest as u8;
        out[1] = VERSION;
        out[2..4].copy_from_slice(&(target.len() as u16).to_le_bytes());
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.last_modified.is_some(), FLAG_LAST_MODIFIED)
            | flag(self.may_be_static, FLAG_MAY_BE_STATIC)
            | flag(self.may_be_dynamic, FLAG_MAY_BE_DYNAMIC)
            | flag(self.previous.is_some(), FLAG_PREVIOUS);
        out[4..8].copy_from_slice(&flags.to_le_bytes());
        let words = [
            self.id,
            self.stamp.0,
            self.asked.0,
            self.forwarded_ns,
            self.finished_ns,
            self.lost,
            self.body_len,
            self.last_modified.unwrap_or(0),
        ];
        for (place, word) in out[8..72].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[72..104].copy_from_slice(&self.body_hash);
        let (record, since) = self.previous.unwrap_or_default();
        out[104..112].copy_from_slice(&record.0.to_le_bytes());
        out[112..120].copy_from_slice(&since.0.to_le_bytes());
        out[120..124].copy_from_slice(&self.client.ip().to_bits().to_le_bytes());
        out[124..126].copy_from_slice(&self.client.port().to_le_bytes());
        out[126..128].copy_from_slice(&[0, 0]);
        let len = REQUEST_HEAD_BYTES + target.len();
        out[REQUEST_HEAD_BYTES..len].copy_from_slice(target);
        &out[..len]
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is none that [`FillRequest::encode`] could have written.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, target) = split_head::<REQUEST_HEAD_BYTES>(bytes, Kind::FillRequest)?;
        let target_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        if target_len > TARGET_BYTES_MAX || target.len() != target_len {
            return Err(DecodeError::Length);
        }
        let flags = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if flags & !FLAGS != 0 {
            return Err(DecodeError::Field);
        }
        let last_modified = match (flags & FLAG_LAST_MODIFIED, word_at(head, 64)) {
            (FLAG_LAST_MODIFIED, seconds) => Some(seconds),
            (0, 0) => None,
            _ => return Err(DecodeError::Field),
        };
        let previous = match (flags & FLAG_PREVIOUS, word_at(head, 104), word_at(head, 112)) {
            (FLAG_PREVIOUS, record, since) => Some((RecordNumber(record), Stamp(since))),
            (0, 0, 0) => None,
            _ => return Err(DecodeError::Field),
        };
        let [.., a, b, c, d, low, high, 0, 0] = *head else { return Err(DecodeError::Field) };
        let client = SocketAddrV4::new(
            Ipv4Addr::from_bits(u32::from_le_bytes([a, b, c, d])),
            u16::from_le_bytes([low, high]),
        );
        let mut body_hash = [0; BODY_HASH_BYTES];
        body_hash.copy_from_slice(&head[72..104]);
        Ok(FillRequest {
            id: word_at(head, 8),
            stamp: Stamp(word_at(head, 16)),
            asked: Stamp(word_at(head, 24)),
            forwarded_ns: word_at(head, 32),
            finished_ns: word_at(head, 40),
            lost: word_at(head, 48),
            body_len: word_at(head, 56),
            body_hash,
            last_modified,
            may_be_static: flags & FLAG_MAY_BE_STATIC != 0,
            may_be_dynamic: flags & FLAG_MAY_BE_DYNAMIC != 0,
            previous,
            client,
            target,
        })
    }
}

impl FillVerdict {
    /// A verdict that refuses.
    pub const fn refused(id: u64, reason: RefusalReason) -> Self {
        Self { id, verdict: Verdict::Refused(reason) }
    }

    /// Writes the message and returns the part of `out` to send.
    pub fn encode<'b>(&self, out: &'b mut [u8; FILL_VERDICT_BYTES_MAX]) -> &'b [u8] {
        let (class, sources, record, unchanged, refusal): (Class, &[SourceSlot], u64, bool, u8) =
            match &self.verdict {
                Verdict::Stored { class, sources, record, previous_unchanged } => {
                    (*class, sources.as_slice(), record.0, *previous_unchanged, 0)
                }
                Verdict::Outdated(reason) => (Class::Dynamic, &[], 0, false, reason.code()),
                Verdict::Refused(reason) => (Class::Static, &[], 0, false, reason.code()),
            };
        let (kind, count) = (Kind::FillVerdict as u8, sources.len() as u8);
        out[..8].copy_from_slice(&[
            kind,
            VERSION,
            count,
            refusal,
            class as u8,
            u8::from(unchanged),
            0,
            0,
        ]);
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..24].copy_from_slice(&record.to_le_bytes());
        for (place, slot) in out[VERDICT_HEAD_BYTES..].chunks_exact_mut(SLOT_BYTES).zip(sources) {
            place.copy_from_slice(&slot.0.to_le_bytes());
        }
        &out[..VERDICT_HEAD_BYTES + SLOT_BYTES * sources.len()]
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is none that [`FillVerdict::encode`] could have written: among others, a stored
    /// reply whose sources lack [`SourceSlot::EVERYTHING`] or repeat one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (head, slots) = split_head::<VERDICT_HEAD_BYTES>(bytes, Kind::FillVerdict)?;
        let count = usize::from(head[2]);
        if slots.len() != SLOT_BYTES * count {
            return Err(DecodeError::Length);
        }
        let (class, previous_unchanged) = match head[4..8] {
            [0, 0, 0, 0] => (Class::Static, false),
            [0, 1, 0, 0] if head[3] == 0 => (Class::Static, true),
            [1, 0, 0, 0] => (Class::Dynamic, false),
            [1, 1, 0, 0] if head[3] == 0 => (Class::Dynamic, true),
            _ => return Err(DecodeError::Field),
        };
        let (id, record) = (word_at(head, 8), RecordNumber(word_at(head, 16)));
        if head[3] != 0 {
            let reason = RefusalReason::from_code(head[3]).ok_or(DecodeError::Field)?;
            let verdict = if class == Class::Dynamic {
                Verdict::Outdated(reason)
            } else {
                Verdict::Refused(reason)
            };
            return if count == 0 && record.0 == 0 {
                Ok(Self { id, verdict })
            } else {
                Err(DecodeError::Field)
            };
        }
        let (words, _) = slots.as_chunks::<SLOT_BYTES>();
        let mut slots = words.iter().map(|word| SourceSlot(u32::from_le_bytes(*word)));
        if slots.next() != Some(SourceSlot::EVERYTHING) {
            return Err(DecodeError::Field);
        }
        let mut sources = SourceSet::new();
        for slot in slots {
            sources.insert(slot).map_err(|_| DecodeError::Field)?;
        }
        if sources.as_slice().len() != count {
            return Err(DecodeError::Field);
        }
        Ok(Self { id, verdict: Verdict::Stored { class, sources, record, previous_unchanged } })
    }
}

const _: () = assert!(TARGET_BYTES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::messages::MESSAGE_BYTES_MAX;

    fn request(target: &[u8], last_modified: Option<u64>) -> FillRequest<'_> {
        FillRequest {
            id: 1,
            stamp: Stamp(2),
            asked: Stamp(8),
            forwarded_ns: 3,
            finished_ns: 4,
            lost: 5,
            body_len: 6,
            body_hash: [7; BODY_HASH_BYTES],
            last_modified,
            may_be_static: true,
            may_be_dynamic: false,
            previous: None,
            client: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 9), 4711),
            target,
        }
    }

    proptest! {
        #[test]
        fn a_request_comes_back_as_it_was(
            words in any::<[u64; 7]>(),
            body_hash in any::<[u8; 32]>(),
            last_modified in any::<Option<u64>>(),
            may_be_static in any::<bool>(),
            may_be_dynamic in any::<bool>(),
            previous in any::<Option<(u64, u64)>>(),
            client in any::<(u32, u16)>(),
            target in proptest::collection::vec(any::<u8>(), 0..=TARGET_BYTES_MAX),
        ) {
            let [id, stamp, asked, forwarded_ns, finished_ns, lost, body_len] = words;
            let (stamp, asked) = (Stamp(stamp), Stamp(asked));
            let previous = previous.map(|(record, since)| (RecordNumber(record), Stamp(since)));
            let request = FillRequest {
                id,
                stamp,
                asked,
                forwarded_ns,
                finished_ns,
                lost,
                body_len,
                body_hash,
                last_modified,
                may_be_static,
                may_be_dynamic,
                previous,
                client: SocketAddrV4::new(client.0.into(), client.1),
                target: &target,
            };
            let mut out = [0xee; FILL_REQUEST_BYTES_MAX];
            prop_assert_eq!(FillRequest::decode(request.encode(&mut out)), Ok(request));
        }

        #[test]
        fn a_verdict_comes_back_as_it_was(
            id in any::<u64>(),
            slots in proptest::collection::vec(any::<u32>(), 0..SOURCES_MAX),
            refusal in proptest::option::of(0..RefusalReason::ALL.len()),
            record in any::<u64>(),
            dynamic in any::<bool>(),
            unchanged in any::<bool>(),
        ) {
            let mut sources = SourceSet::new();
            for slot in slots {
                sources.insert(SourceSlot(slot)).unwrap();
            }
            let verdict = match refusal {
                Some(index) if dynamic => Verdict::Outdated(RefusalReason::ALL[index]),
                Some(index) => Verdict::Refused(RefusalReason::ALL[index]),
                None => Verdict::Stored {
                    class: if dynamic { Class::Dynamic } else { Class::Static },
                    sources,
                    record: RecordNumber(record),
                    previous_unchanged: unchanged,
                },
            };
            let verdict = FillVerdict { id, verdict };
            let mut out = [0xee; FILL_VERDICT_BYTES_MAX];
            prop_assert_eq!(FillVerdict::decode(verdict.encode(&mut out)), Ok(verdict));
        }

        /// Hostile bytes are an error or a message, never a panic; and a message is what its
        /// encoding says.
        #[test]
        fn hostile_bytes_do_no_harm(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX + 8),
            kind in 0_u8..4,
        ) {
            if let [first, second, ..] = &mut bytes[..] {
                (*first, *second) = (kind, VERSION);
            }
            if let Ok(request) = FillRequest::decode(&bytes) {
                let mut again = [0; FILL_REQUEST_BYTES_MAX];
                prop_assert_eq!(request.encode(&mut again), &bytes[..]);
            }
            if let Ok(verdict) = FillVerdict::decode(&bytes) {
                let mut again = [0; FILL_VERDICT_BYTES_MAX];
                prop_assert_eq!(verdict.encode(&mut again), &bytes[..]);
            }
        }

        /// What can be decoded encodes to the same bytes, also if a valid message has one byte that
        /// is wrong: the checks behind the first are reached.
        #[test]
        fn a_damaged_message_does_no_harm(
            at in 0..200_usize,
            byte in any::<u8>(),
            cut in 0..200_usize,
        ) {
            let mut out = [0; FILL_REQUEST_BYTES_MAX];
            let mut bytes = request(b"/index.html", Some(8)).encode(&mut out).to_vec();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(cut);
            if let Ok(request) = FillRequest::decode(&bytes) {
                let mut again = [0; FILL_REQUEST_BYTES_MAX];
                prop_assert_eq!(request.encode(&mut again), &bytes[..]);
            }
            let mut out = [0; FILL_VERDICT_BYTES_MAX];
            let mut sources = SourceSet::new();
            sources.insert(SourceSlot(9)).unwrap();
            let verdict = FillVerdict {
                id: 1,
                verdict: Verdict::Stored {
                    class: Class::Dynamic,
                    sources,
                    record: RecordNumber(4),
                    previous_unchanged: true,
                },
            };
            let mut bytes = verdict.encode(&mut out).to_vec();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(cut);
            if let Ok(verdict) = FillVerdict::decode(&bytes) {
                let mut again = [0; FILL_VERDICT_BYTES_MAX];
                prop_assert_eq!(verdict.encode(&mut again), &bytes[..]);
            }
        }
    }

    #[test]
    fn a_long_target_is_cut() {
        let target = [b'x'; TARGET_BYTES_MAX + 1];
        let mut out = [0; FILL_REQUEST_BYTES_MAX];
        let decoded =
            FillRequest::decode(request(&target, None).encode(&mut out)).unwrap().target.len();
        assert_eq!(decoded, TARGET_BYTES_MAX);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let mut out = [0; FILL_REQUEST_BYTES_MAX];
        let bytes = request(b"/", None).encode(&mut out).to_vec();
        assert_eq!(FillVerdict::decode(&bytes), Err(DecodeError::Kind));
        assert_eq!(FillRequest::decode(&bytes[..bytes.len() - 1]), Err(DecodeError::Length));
        assert_eq!(FillRequest::decode(&[&bytes[..], b"x"].concat()), Err(DecodeError::Length));
        let mut newer = bytes.clone();
        newer[1] = VERSION + 1;
        assert_eq!(FillRequest::decode(&newer), Err(DecodeError::Version));
        let mut flagged = bytes;
        flagged[5] = 1;
        assert_eq!(FillRequest::decode(&flagged), Err(DecodeError::Field));
    }

    #[test]
    fn stored_without_everything_or_with_a_slot_twice_is_refused() {
        let mut out = [0; FILL_VERDICT_BYTES_MAX];
        let mut sources = SourceSet::new();
        sources.insert(SourceSlot(9)).unwrap();
        let bytes = FillVerdict {
            id: 1,
            verdict: Verdict::Stored {
                class: Class::Dynamic,
                sources,
                record: RecordNumber(4),
                previous_unchanged: true,
            },
        }
        .encode(&mut out)
        .to_vec();
        let mut without = bytes.clone();
        without[VERDICT_HEAD_BYTES] = 1;
        assert_eq!(FillVerdict::decode(&without), Err(DecodeError::Field));
        let mut twice = bytes;
        twice[VERDICT_HEAD_BYTES + SLOT_BYTES] = 0;
        assert_eq!(FillVerdict::decode(&twice), Err(DecodeError::Field));
    }
}
