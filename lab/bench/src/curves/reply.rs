//! One reply out of the bytes of a connection: its status and the length of its body are checked as
//! it comes.
//!
//! Read first: RFC 9112, section 6.3. Deliberately absent: bodies without a `Content-Length`; a
//! file has a length.

use nicache_reply::{Framing, Head, Method, ReplyError, ReplyReader};

/// Why a reply is not the one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    /// What came is not a reply.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// Another status than 200.
    #[error("a reply has status {0}")]
    Status(u16),
    /// Another length than the file has, or none.
    #[error("a reply does not have the length of the file")]
    Length,
    /// Bytes that nobody asked for.
    #[error("bytes follow a reply")]
    Surplus,
}

/// Checks the replies of one connection, of which each is asked for when the one before is there.
#[derive(Debug, Default)]
pub(super) struct Checker {
    reader: ReplyReader,
}

impl Checker {
    /// Takes bytes of a reply whose body must have `body_bytes`. True: it is whole.
    ///
    /// # Errors
    /// [`Wrong`]; then the connection is of no use any longer.
    pub(super) fn take(&mut self, mut bytes: &[u8], body_bytes: u64) -> Result<bool, Wrong> {
        if !self.reader.is_in_body() {
            let Some(head) = self.reader.read_head(&mut bytes, Method::Get)? else {
                return Ok(false);
            };
            check(&head, body_bytes)?;
        }
        let is_whole = self.reader.read_body(&mut bytes, |_| ())?;
        if bytes.is_empty() { Ok(is_whole) } else { Err(Wrong::Surplus) }
    }

    /// Forgets what has come, for a new connection.
    pub(super) fn clear(&mut self) {
        self.reader.clear();
    }
}

/// Is it the head of a success with a body of so many bytes?
fn check(head: &Head<'_>, body_bytes: u64) -> Result<(), Wrong> {
    if head.status != 200 {
        Err(Wrong::Status(head.status))
    } else if head.framing != Framing::Length(body_bytes) {
        Err(Wrong::Length)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nicache_http::{HEAD_BYTES_MAX, MalformedReply};

    use super::*;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-length: 5\r\n\r\nhello";

    #[test]
    fn a_reply_is_whole_at_its_last_byte_whatever_the_pieces() {
        for piece in 1..=REPLY.len() {
            let mut checker = Checker::default();
            // A second one follows on the same connection.
            for _ in 0..2 {
                let mut pieces = REPLY.chunks(piece).peekable();
                while let Some(bytes) = pieces.next() {
                    assert_eq!(
                        checker.take(bytes, 5),
                        Ok(pieces.peek().is_none()),
                        "pieces of {piece}"
                    );
                }
            }
        }
    }

    #[test]
    fn whatever_is_wrong_is_noticed() {
        let take = |bytes: &[u8], body| Checker::default().take(bytes, body);
        assert_eq!(take(REPLY, 6), Err(Wrong::Length));
        assert_eq!(take(b"HTTP/1.1 200 OK\r\n\r\nhello", 5), Err(Wrong::Length));
        assert_eq!(
            take(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nhello", 5),
            Err(Wrong::Status(503))
        );
        assert_eq!(take(&[REPLY, b"x"].concat(), 5), Err(Wrong::Surplus));
        let head = |reason| Err(Wrong::Reply(ReplyError::Head(reason)));
        assert_eq!(take(b"SSH-2.0\r\n", 5), head(MalformedReply::Syntax));
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(take(&endless, 5), head(MalformedReply::HeadTooLong));
        let mut checker = Checker::default();
        assert_eq!(checker.take(&REPLY[..20], 5), Ok(false));
        checker.clear();
        assert_eq!(checker.take(REPLY, 5), Ok(true));
    }
}
