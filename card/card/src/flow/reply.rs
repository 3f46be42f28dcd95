//! Replies from card memory that a client has yet to acknowledge, by reference.

use nicache_cache::{CacheStatus, EntryId};
use nicache_http::ByteRange;
use nicache_tcp::Seq;

use super::parts::PartsId;
use crate::limits::REPLIES_MAX;

/// Which form of an entry is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyKind {
    /// Head and body.
    #[default]
    Full,
    /// The head alone (HEAD).
    HeadOnly,
    /// The server's own 304 head.
    NotModified,
    /// A 206 head and a range of the body.
    Range,
    /// A 206 head and several ranges of the body, each with a text in front.
    Parts,
}

/// One reply in the client-facing sequence space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reply {
    /// First byte of the head.
    pub start: Seq,
    /// Bytes of the head.
    pub head_len: u32,
    /// Bytes behind the head.
    pub body_len: u32,
    /// The first byte of the body that is sent.
    pub from: u64,
    /// The ranges of [`ReplyKind::Parts`].
    pub parts: PartsId,
    /// What it says of itself.
    pub status: CacheStatus,
    /// Whose bytes.
    pub entry: EntryId,
    /// Which of them.
    pub kind: ReplyKind,
    /// The `Date` of the head, in seconds since 1970: a retransmission must carry the same bytes.
    pub date: u64,
}

impl Reply {
    /// Bytes of head and body.
    pub(crate) fn len(&self) -> u32 {
        self.head_len + self.body_len
    }

    /// The bytes of the body that are sent, if they are in one piece.
    pub(crate) fn range(&self) -> ByteRange {
        ByteRange { from: self.from, to: self.from + u64::from(self.body_len) }
    }

    /// First byte behind the reply.
    pub(crate) fn end(&self) -> Seq {
        self.start + self.len()
    }
}

/// Replies in the order in which they are sent.
#[derive(Default)]
pub(crate) struct ReplyQueue {
    replies: [Reply; REPLIES_MAX],
    first: u8,
    len: u8,
}

impl ReplyQueue {
    /// Is there no room?
    pub(crate) fn is_full(&self) -> bool {
        self.len as usize == REPLIES_MAX
    }

    /// Is none outstanding?
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a reply; false if there is no room.
    pub(crate) fn push(&mut self, reply: Reply) -> bool {
        if self.is_full() {
            return false;
        }
        self.replies[(self.first as usize + self.len as usize) % REPLIES_MAX] = reply;
        self.len += 1;
        true
    }

    /// Takes the oldest reply if it is acknowledged to its end.
    pub(crate) fn pop_acknowledged(&mut self, una: Seq) -> Option<Reply> {
        let reply = self.replies[self.first as usize];
        (self.len > 0 && reply.end().le(una)).then(|| self.pop_first())
    }

    /// Takes the oldest reply, acknowledged or not.
    pub(crate) fn pop(&mut self) -> Option<Reply> {
        (self.len > 0).then(|| self.pop_first())
    }

    fn pop_first(&mut self) -> Reply {
        let reply = self.replies[self.first as usize];
        self.first = (self.first + 1) % REPLIES_MAX as u8;
        self.len -= 1;
        reply
    }

    /// The reply, if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Reply> {
        (self.len == 1).then(|| &self.replies[self.first as usize % REPLIES_MAX])
    }

    /// The replies, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reply> {
        (0..self.len as usize)
            .map(|index| &self.replies[(self.first as usize + index) % REPLIES_MAX])
    }
}
