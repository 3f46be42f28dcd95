//! May an entry stay although directories among its sources have changed?
//!
//! A file that is made, renamed or removed changes its directory, and so voids every entry whose
//! look-ups went through that directory, though nearly always nothing changed for them. The card
//! asks; the watcher, which remembers the look-ups, does them again and compares.

use super::fill::RecordNumber;
use super::head::{DecodeError, Kind, VERSION, split_head, word_at};
use crate::source::Stamp;

/// Length of an encoded [`ReinstateRequest`].
pub const REINSTATE_REQUEST_BYTES: usize = 40;
/// Length of an encoded [`ReinstateVerdict`].
pub const REINSTATE_VERDICT_BYTES: usize = 24;

/// The card asks: may the entry be served again?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReinstateRequest {
    /// The card's own number for the entry; comes back in the verdict.
    pub id: u64,
    /// What the watcher remembers about it.
    pub record: RecordNumber,
    /// The entry's stamp: it was right as long as no source had a stamp at or above it.
    pub since: Stamp,
    /// The clock right after it was advanced for this question: the entry's stamp from now on, if
    /// it stays.
    pub stamp: Stamp,
}

/// The watcher's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReinstateVerdict {
    /// [`ReinstateRequest::id`].
    pub id: u64,
    /// [`ReinstateRequest::stamp`], which tells to which of several questions about the entry this
    /// is the answer.
    pub stamp: Stamp,
    /// The answer.
    pub outcome: Reinstatement,
}

/// May the entry be served again?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reinstatement {
    /// The entry may be served again: every look-up leads where it led, and none of the sources has
    /// a stamp at or above the question's.
    Stays = 0,
    /// A directory changed again meanwhile; the card may ask again.
    Again = 1,
    /// The entry must be dropped.
    Gone = 2,
}

impl ReinstateRequest {
    /// Writes the message.
    pub fn encode(&self) -> [u8; REINSTATE_REQUEST_BYTES] {
        let mut out = [0; REINSTATE_REQUEST_BYTES];
        out[..2].copy_from_slice(&[Kind::ReinstateRequest as u8, VERSION]);
        for (place, word) in
            out[8..].chunks_exact_mut(8).zip([self.id, self.record.0, self.since.0, self.stamp.0])
        {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is none that [`ReinstateRequest::encode`] could have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (head, rest) = split_head::<REINSTATE_REQUEST_BYTES>(bytes, Kind::ReinstateRequest)?;
        if !rest.is_empty() {
            return Err(DecodeError::Length);
        }
        if head[2..8] != [0; 6] {
            return Err(DecodeError::Field);
        }
        Ok(Self {
            id: word_at(head, 8),
            record: RecordNumber(word_at(head, 16)),
            since: Stamp(word_at(head, 24)),
            stamp: Stamp(word_at(head, 32)),
        })
    }
}

impl ReinstateVerdict {
    /// Writes the message.
    pub fn encode(&self) -> [u8; REINSTATE_VERDICT_BYTES] {
        let mut out = [0; REINSTATE_VERDICT_BYTES];
        out[..3].copy_from_slice(&[Kind::ReinstateVerdict as u8, VERSION, self.outcome as u8]);
        out[8..16].copy_from_slice(&self.id.to_le_bytes());
        out[16..].copy_from_slice(&self.stamp.0.to_le_bytes());
        out
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is none that [`ReinstateVerdict::encode`] could have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (head, rest) = split_head::<REINSTATE_VERDICT_BYTES>(bytes, Kind::ReinstateVerdict)?;
        if !rest.is_empty() {
            return Err(DecodeError::Length);
        }
        let outcome = match head[2] {
            0 => Reinstatement::Stays,
            1 => Reinstatement::Again,
            2 => Reinstatement::Gone,
            _ => return Err(DecodeError::Field),
        };
        if head[3..8] != [0; 5] {
            return Err(DecodeError::Field);
        }
        Ok(Self { id: word_at(head, 8), stamp: Stamp(word_at(head, 16)), outcome })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcomes() -> impl Strategy<Value = Reinstatement> {
        prop_oneof![
            Just(Reinstatement::Stays),
            Just(Reinstatement::Again),
            Just(Reinstatement::Gone)
        ]
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(words in any::<[u64; 4]>(), outcome in outcomes()) {
            let [id, record, since, stamp] = words;
            let request = ReinstateRequest {
                id,
                record: RecordNumber(record),
                since: Stamp(since),
                stamp: Stamp(stamp),
            };
            prop_assert_eq!(ReinstateRequest::decode(&request.encode()), Ok(request));
            let verdict = ReinstateVerdict { id, stamp: Stamp(stamp), outcome };
            prop_assert_eq!(ReinstateVerdict::decode(&verdict.encode()), Ok(verdict));
        }

        /// Hostile bytes are an error or a message, never a panic; and a message is what its
        /// encoding says.
        #[test]
        fn hostile_bytes_do_no_harm(
            at in 0..40_usize,
            byte in any::<u8>(),
            len in 0..44_usize,
            outcome in outcomes(),
            id in any::<u64>(),
        ) {
            let request =
                ReinstateRequest { id, record: RecordNumber(1), since: Stamp(2), stamp: Stamp(3) };
            let verdict = ReinstateVerdict { id, stamp: Stamp(4), outcome };
            for valid in [&request.encode()[..], &verdict.encode()[..]] {
                let mut bytes = valid.to_vec();
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
                bytes.resize(len, byte);
                if let Ok(request) = ReinstateRequest::decode(&bytes) {
                    prop_assert_eq!(&request.encode()[..], &bytes[..]);
                }
                if let Ok(verdict) = ReinstateVerdict::decode(&bytes) {
                    prop_assert_eq!(&verdict.encode()[..], &bytes[..]);
                }
            }
        }
    }
}
