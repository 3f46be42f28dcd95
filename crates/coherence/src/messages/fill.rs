//! May this reply become an entry?

use super::refusal::RefusalReason;
use super::{BODY_HASH_BYTES, DecodeError, Kind, VERSION, split_head, word_at};
use crate::source::{SOURCES_MAX, SourceSet, SourceSlot, Stamp};

/// Bytes of a request target that are passed on, for logs only; a longer one is cut.
pub const TARGET_BYTES_MAX: usize = 512;
/// Longest encoded [`FillRequest`].
pub const FILL_REQUEST_BYTES_MAX: usize = REQUEST_HEAD_BYTES + TARGET_BYTES_MAX;
/// Longest encoded [`FillVerdict`].
pub const FILL_VERDICT_BYTES_MAX: usize = VERDICT_HEAD_BYTES + 2 * SOURCES_MAX;

/// The card asks: may the reply that it just forwarded become an entry?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillRequest<'a> {
    /// The card's own number for the fill; comes back in the verdict.
    pub id: u64,
    /// The clock right after it was advanced, before the request was forwarded.
    pub stamp: Stamp,
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

/// May the reply become an entry?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, valid while none of these sources has a stamp at or above the fill's.
    Stored {
        /// The sources, all watched by now; always with [`SourceSlot::EVERYTHING`].
        sources: SourceSet,
        /// Under what number the watcher remembers the look-ups, for a [`ReinstateRequest`](super::ReinstateRequest).
        record: RecordNumber,
    },
    /// No.
    Refused(RefusalReason),
}

const REQUEST_HEAD_BYTES: usize = 96;
const VERDICT_HEAD_BYTES: usize = 24;
const FLAG_LAST_MODIFIED: u32 = 1;

impl<'a> FillRequest<'a> {
    /// Writes the message and returns the part of `out` to send.
    pub fn encode<'b>(&self, out: &'b mut [u8; FILL_REQUEST_BYTES_MAX]) -> &'b [u8] {
        let target = &self.target[..self.target.len().min(TARGET_BYTES_MAX)];
        out[0] = Kind::FillRequest as u8;
        out[1] = VERSION;
        out[2..4].copy_from_slice(&(target.len() as u16).to_le_bytes());
        let flags = if self.last_modified.is_some() { FLAG_LAST_MODIFIED } else { 0 };
        out[4..8].copy_from_slice(&flags.to_le_bytes());
        let words = [
            self.id,
            self.stamp.0,
            self.forwarded_ns,
            self.finished_ns,
            self.lost,
            self.body_len,
            self.last_modified.unwrap_or(0),
        ];
        for (place, word) in out[8..64].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[64..96].copy_from_slice(&self.body_hash);
        let len = REQUEST_HEAD_BYTES + target.len();
        out[REQUEST_HEAD_BYTES..len].copy_from_slice(target);
        &out[..len]
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is none that [`FillRequest::encode`] could have written.
    pub fn decode(bytes: &'a [u8]) -> Result<FillRequest<'a>, DecodeError> {
        let (head, target) = split_head::<REQUEST_HEAD_BYTES>(bytes, Kind::FillRequest)?;
        let target_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        if target_len > TARGET_BYTES_MAX || target.len() != target_len {
            return Err(DecodeError::Length);
        }
        let flags = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let last_modified = match (flags, word_at(head, 56)) {
            (FLAG_LAST_MODIFIED, seconds) => Some(seconds),
            (0, 0) => None,
            _ => return Err(DecodeError::Field),
        };
        let mut body_hash = [0; BODY_HASH_BYTES];
        body_hash.copy_from_slice(&head[64..96]);
        Ok(FillRequest {
            id: word_at(head, 8),
            stamp: Stamp(word_at(head, 16)),
            forwarded_ns: word_at(head, 24),
            finished_ns: word_at(head, 32),
            lost: word_at(head, 40),
            body_len: word_at(head, 48),
            body_hash,
            last_modified,
            target,
        })
    }
}

impl FillVerdict {
    /// A verdict that refuses.
    pub const fn refused(id: u64, reason: RefusalReason) -> FillVerdict {
        FillVerdict { id, verdict: Verdict::Refused(reason) }
    }

    /// Writes the message and returns the part of `out` to send.
    pub fn encode<'b>(&self, out: &'b mut [u8; FILL_VERDICT_BYTES_MAX]) -> &'b [u8] {
        let (sources, record, refusal): (&[SourceSlot], u64, u8) = match &self.verdict {
            Verdict::Stored { sources, record } => (sources.as_slice(), record.0, 0),
            Verdict::Refused(reason) => (&[], 0, *reason as u8),
        };
        out[..8].copy_from_slice(&[Kind::FillVerdict as u8, VERSION, sources.len() as u8, refusal, 0, 0, 0, 0]);
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..24].copy_from_slice(&record.to_le_bytes());
        for (place, slot) in out[VERDICT_HEAD_BYTES..].chunks_exact_mut(2).zip(sources) {
            place.copy_from_slice(&slot.0.to_le_bytes());
        }
        &out[..VERDICT_HEAD_BYTES + 2 * sources.len()]
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is none that [`FillVerdict::encode`] could have written: among others, a stored reply whose
    /// sources lack [`SourceSlot::EVERYTHING`] or repeat one.
    pub fn decode(bytes: &[u8]) -> Result<FillVerdict, DecodeError> {
        let (head, slots) = split_head::<VERDICT_HEAD_BYTES>(bytes, Kind::FillVerdict)?;
        let count = usize::from(head[2]);
        if slots.len() != 2 * count {
            return Err(DecodeError::Length);
        }
        if head[4..8] != [0; 4] {
            return Err(DecodeError::Field);
        }
        let (id, record) = (word_at(head, 8), RecordNumber(word_at(head, 16)));
        if head[3] != 0 {
            let reason = RefusalReason::from_code(head[3]).ok_or(DecodeError::Field)?;
            return if count == 0 && record.0 == 0 {
                Ok(FillVerdict::refused(id, reason))
            } else {
                Err(DecodeError::Field)
            };
        }
        let mut slots = slots.chunks_exact(2).map(|pair| SourceSlot(u16::from_le_bytes([pair[0], pair[1]])));
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
        Ok(FillVerdict { id, verdict: Verdict::Stored { sources, record } })
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
            forwarded_ns: 3,
            finished_ns: 4,
            lost: 5,
            body_len: 6,
            body_hash: [7; BODY_HASH_BYTES],
            last_modified,
            target,
        }
    }

    proptest! {
        #[test]
        fn a_request_comes_back_as_it_was(
            words in any::<[u64; 6]>(), body_hash in any::<[u8; 32]>(), last_modified in any::<Option<u64>>(),
            target in proptest::collection::vec(any::<u8>(), 0..=TARGET_BYTES_MAX),
        ) {
            let [id, stamp, forwarded_ns, finished_ns, lost, body_len] = words;
            let stamp = Stamp(stamp);
            let request = FillRequest {
                id, stamp, forwarded_ns, finished_ns, lost, body_len, body_hash, last_modified, target: &target,
            };
            let mut out = [0xee; FILL_REQUEST_BYTES_MAX];
            prop_assert_eq!(FillRequest::decode(request.encode(&mut out)), Ok(request));
        }

        #[test]
        fn a_verdict_comes_back_as_it_was(
            id in any::<u64>(), slots in proptest::collection::vec(any::<u16>(), 0..SOURCES_MAX),
            refusal in proptest::option::of(0..RefusalReason::ALL.len()), record in any::<u64>(),
        ) {
            let mut sources = SourceSet::new();
            for slot in slots {
                sources.insert(SourceSlot(slot)).unwrap();
            }
            let verdict = match refusal {
                Some(index) => Verdict::Refused(RefusalReason::ALL[index]),
                None => Verdict::Stored { sources, record: RecordNumber(record) },
            };
            let verdict = FillVerdict { id, verdict };
            let mut out = [0xee; FILL_VERDICT_BYTES_MAX];
            prop_assert_eq!(FillVerdict::decode(verdict.encode(&mut out)), Ok(verdict));
        }

        /// Hostile bytes are an error or a message, never a panic; and a message is what its encoding says.
        #[test]
        fn hostile_bytes_do_no_harm(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX + 8), kind in 0_u8..4,
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

        /// As above, but close to a valid message, so that the checks behind the first are reached.
        #[test]
        fn a_damaged_message_does_no_harm(at in 0..200_usize, byte in any::<u8>(), cut in 0..200_usize) {
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
            let verdict = FillVerdict { id: 1, verdict: Verdict::Stored { sources, record: RecordNumber(4) } };
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
        let decoded = FillRequest::decode(request(&target, None).encode(&mut out)).unwrap().target.len();
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
        let bytes = FillVerdict { id: 1, verdict: Verdict::Stored { sources, record: RecordNumber(4) } }
            .encode(&mut out)
            .to_vec();
        let mut without = bytes.clone();
        without[VERDICT_HEAD_BYTES] = 1;
        assert_eq!(FillVerdict::decode(&without), Err(DecodeError::Field));
        let mut twice = bytes;
        twice[VERDICT_HEAD_BYTES + 2] = 0;
        assert_eq!(FillVerdict::decode(&twice), Err(DecodeError::Field));
    }
}
