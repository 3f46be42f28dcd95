//! One reply out of the bytes of a connection: its status and the length of its body are checked as
//! it comes.
//!
//! Read first: RFC 9112, section 6.3. Deliberately absent: bodies without a `Content-Length`; a
//! file has a length.

use httparse::{EMPTY_HEADER, Response, Status};

/// Longest head that is read.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most fields of a head.
const FIELDS_MAX: usize = 64;

/// Why a reply is not the one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    /// No head of HTTP, or an endless one.
    #[error("what came is not a head of HTTP")]
    Head,
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

/// Reads the replies of one connection, of which each is asked for when the one before is there.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    /// The beginning of a head whose end has not come.
    head: Vec<u8>,
    /// Bytes of the body that have not come; `None`: the head is not there.
    body_left: Option<u64>,
}

impl ReplyReader {
    /// Takes bytes of a reply whose body must have `body_bytes`. True: it is whole.
    ///
    /// # Errors
    /// [`Wrong`]; then the connection is of no use any longer.
    pub(super) fn take(&mut self, bytes: &[u8], body_bytes: u64) -> Result<bool, Wrong> {
        let (left, body) = match self.body_left {
            Some(left) => (left, bytes),
            None => match self.take_head(bytes, body_bytes)? {
                Some(body) => (body_bytes, body),
                None => return Ok(false),
            },
        };
        let left = left.checked_sub(body.len() as u64).ok_or(Wrong::Surplus)?;
        self.body_left = (left > 0).then_some(left);
        Ok(left == 0)
    }

    /// Forgets what has come, for a new connection.
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.body_left = None;
    }

    /// What follows the head, if that is whole now.
    fn take_head<'a>(
        &mut self,
        bytes: &'a [u8],
        body_bytes: u64,
    ) -> Result<Option<&'a [u8]>, Wrong> {
        if self.head.is_empty()
            && let Some(length) = head_length(bytes, body_bytes)?
        {
            return Ok(Some(&bytes[length..]));
        }
        let before = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]);
        match head_length(&self.head, body_bytes)? {
            Some(length) => {
                self.head.clear();
                Ok(Some(&bytes[length - before..]))
            }
            None if self.head.len() >= HEAD_BYTES_MAX => Err(Wrong::Head),
            None => Ok(None),
        }
    }
}

/// Length of a head, if it is whole: of a success with a body of so many bytes.
fn head_length(bytes: &[u8], body_bytes: u64) -> Result<Option<usize>, Wrong> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut reply = Response::new(&mut fields);
    let length = match reply.parse(bytes).map_err(|_| Wrong::Head)? {
        Status::Partial => return Ok(None),
        Status::Complete(length) => length,
    };
    let status = reply.code.unwrap_or(0);
    if status != 200 {
        return Err(Wrong::Status(status));
    }
    let said = reply.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let said = said.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<u64>().ok());
    if said == Some(body_bytes) { Ok(Some(length)) } else { Err(Wrong::Length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-length: 5\r\n\r\nhello";

    #[test]
    fn a_reply_is_whole_at_its_last_byte_whatever_the_pieces() {
        for piece in 1..=REPLY.len() {
            let mut reader = ReplyReader::default();
            // A second one follows on the same connection.
            for _ in 0..2 {
                let mut pieces = REPLY.chunks(piece).peekable();
                while let Some(bytes) = pieces.next() {
                    assert_eq!(
                        reader.take(bytes, 5),
                        Ok(pieces.peek().is_none()),
                        "pieces of {piece}"
                    );
                }
            }
        }
    }

    #[test]
    fn whatever_is_wrong_is_noticed() {
        let take = |bytes: &[u8], body| ReplyReader::default().take(bytes, body);
        assert_eq!(take(REPLY, 6), Err(Wrong::Length));
        assert_eq!(take(b"HTTP/1.1 200 OK\r\n\r\nhello", 5), Err(Wrong::Length));
        assert_eq!(
            take(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nhello", 5),
            Err(Wrong::Status(503))
        );
        assert_eq!(take(&[REPLY, b"x"].concat(), 5), Err(Wrong::Surplus));
        assert_eq!(take(b"SSH-2.0\r\n", 5), Err(Wrong::Head));
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(take(&endless, 5), Err(Wrong::Head));
        let mut reader = ReplyReader::default();
        assert_eq!(reader.take(&REPLY[..20], 5), Ok(false));
        reader.clear();
        assert_eq!(reader.take(REPLY, 5), Ok(true));
    }
}
