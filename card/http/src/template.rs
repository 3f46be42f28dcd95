//! Reply head templates: the server's own head, byte for byte, but for the moment in it.
//!
//! Date, if there is one, is renewed at each use, and Expires with it if it moves with Date, as far
//! as that can be told (see [`crate::ReplyHead::shareable`]). The template of a 200 serves GET and
//! HEAD alike (RFC 9110 section 9.3.2); a 304 has a template of its own, learned from the server's
//! own 304.

use crate::date::{HttpDate, IMF_FIXDATE_BYTES};
use crate::limits::TEMPLATE_BYTES_MAX;
use crate::protocol::Method;
use crate::reason::NotShared;
use crate::reply::{ReplyOutcome, parse_reply};

/// A reply head that can be written again for another moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadTemplate {
    head: Box<[u8]>,
    date_at: Option<u16>,
    expires: Option<Expires>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expires {
    at: u16,
    /// Seconds after Date.
    lifetime_s: u64,
}

impl HeadTemplate {
    /// Makes a template of `head`: a complete head and nothing behind it, at most
    /// [`TEMPLATE_BYTES_MAX`] bytes. Allocates once. Whether the reply may be shared is the
    /// caller's question to [`crate::ReplyHead::shareable`] or [`crate::ReplyHead::learnable_304`];
    /// an error here means that the head cannot be renewed.
    pub fn new(head: &[u8]) -> Result<Self, NotShared> {
        let ReplyOutcome::Complete(parsed) = parse_reply(head, Method::Get) else {
            return Err(NotShared::StatusLine);
        };
        if head.len() > TEMPLATE_BYTES_MAX || parsed.head_len != head.len() {
            return Err(NotShared::HeadTooLong);
        }
        let renewal = parsed.renewal?;
        // Below TEMPLATE_BYTES_MAX, so both offsets fit.
        let expires = renewal.expires.map(|(at, lifetime_s)| Expires { at: at as u16, lifetime_s });
        Ok(Self { head: head.into(), date_at: renewal.date_at.map(|at| at as u16), expires })
    }

    /// Writes the head as of `date` to the front of `out` and gives its length: [`Self::len`], or 0
    /// with `out` untouched if that is shorter.
    #[inline]
    pub fn render(&self, date: &HttpDate, out: &mut [u8]) -> usize {
        let Some(out) = out.get_mut(..self.head.len()) else {
            return 0;
        };
        out.copy_from_slice(&self.head);
        if let Some(at) = self.date_at {
            put_date(out, at, date);
        }
        if let Some(Expires { at, lifetime_s }) = self.expires {
            put_date(out, at, &HttpDate::from_unix_s(date.unix_s().saturating_add(lifetime_s)));
        }
        out.len()
    }

    /// Length of the head in bytes, always the same.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(&self) -> usize {
        self.head.len()
    }

    /// Does Expires move with Date?
    pub fn moves_expires(&self) -> bool {
        self.expires.is_some()
    }

    /// A template whose Expires stands still, whatever Date says: for a server that has been seen
    /// to do so.
    pub fn pinned(mut self) -> Self {
        self.expires = None;
        self
    }

    /// The head as the server sent it.
    pub fn original(&self) -> &[u8] {
        &self.head
    }
}

#[inline]
fn put_date(out: &mut [u8], at: u16, date: &HttpDate) {
    if let Some(value) = out.get_mut(usize::from(at)..usize::from(at) + IMF_FIXDATE_BYTES) {
        value.copy_from_slice(date.as_bytes());
    }
}
