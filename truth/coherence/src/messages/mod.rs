//! Messages between card and watcher: may this reply become an entry, may this entry stay?
//!
//! One message per SOCK_SEQPACKET datagram, little-endian, fixed layout:
//!
//! ```text
//! FillRequest       0 kind = 1   1 version = 5   2 target_len u16
//!                   4 flags u32 (bit 0: last_modified present, bit 1: may be static, bit 2: may be dynamic,
//!                     bit 3: previous present)
//!                   8 id         16 stamp        24 asked              32 forwarded_ns   40 finished_ns
//!                  48 lost       56 body_len     64 last_modified (0 if absent)          72 body_hash [32]
//!                 104 previous record (0 if absent)                    112 its stamp (0 if absent)
//!                 120 client address u32           124 client port u16               126 zero [u8; 2]
//!                 128 target [target_len]
//! FillVerdict       0 kind = 2   1 version = 5   2 sources u8          3 refusal u8 (0 = stored)
//!                   4 class u8   5 previous_unchanged u8               6 zero [u8; 2]
//!                   8 id         16 record       24 slots [u32; sources]
//! ReinstateRequest  0 kind = 3   1 version = 5   2 zero [u8; 6]
//!                   8 id         16 record       24 since              32 stamp
//! ReinstateVerdict  0 kind = 4   1 version = 5   2 outcome u8          3 zero [u8; 5]
//!                   8 id         16 stamp
//! ```
//!
//! The other side of the socket may be anybody who inherited it, so every length, flag and
//! enumeration is checked and a datagram has exactly one valid length. The meaning of the fields is
//! checked by whoever uses them.

mod fill;
mod head;
mod refusal;
mod reinstate;

pub use fill::{
    Class, FILL_REQUEST_BYTES_MAX, FILL_VERDICT_BYTES_MAX, FillRequest, FillVerdict, RecordNumber,
    TARGET_BYTES_MAX, Verdict,
};
pub use head::{BODY_HASH_BYTES, DecodeError};
pub use refusal::RefusalReason;
pub use reinstate::{
    REINSTATE_REQUEST_BYTES, REINSTATE_VERDICT_BYTES, ReinstateRequest, ReinstateVerdict,
    Reinstatement,
};

use head::Kind;

/// A receive buffer of this size takes any message whole; make it one byte longer to notice longer
/// datagrams.
pub const MESSAGE_BYTES_MAX: usize = FILL_REQUEST_BYTES_MAX;

/// A message of the card to the watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would allocate for each fill"
)]
pub enum Question<'a> {
    /// May this reply become an entry?
    Fill(FillRequest<'a>),
    /// May this entry stay?
    Reinstate(ReinstateRequest),
}

/// A message of the watcher to the card.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would allocate for each fill"
)]
pub enum Answer {
    /// To [`Question::Fill`].
    Fill(FillVerdict),
    /// To [`Question::Reinstate`].
    Reinstate(ReinstateVerdict),
}

impl<'a> Question<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is not a question.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes.first() {
            Some(&kind) if kind == Kind::ReinstateRequest as u8 => {
                ReinstateRequest::decode(bytes).map(Question::Reinstate)
            }
            _ => FillRequest::decode(bytes).map(Question::Fill),
        }
    }
}

impl Answer {
    /// Reads a datagram.
    ///
    /// # Errors
    /// The datagram is not an answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes.first() {
            Some(&kind) if kind == Kind::ReinstateVerdict as u8 => {
                ReinstateVerdict::decode(bytes).map(Answer::Reinstate)
            }
            _ => FillVerdict::decode(bytes).map(Answer::Fill),
        }
    }

    /// The number that the card gave the question.
    pub fn id_mut(&mut self) -> &mut u64 {
        match self {
            Self::Fill(verdict) => &mut verdict.id,
            Self::Reinstate(verdict) => &mut verdict.id,
        }
    }
}

const _: () = assert!(FILL_VERDICT_BYTES_MAX <= MESSAGE_BYTES_MAX);
