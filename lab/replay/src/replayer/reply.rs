//! One reply after the other out of the bytes of a connection, each compared with what it must be
//! as it comes.
//!
//! Bodies are not kept: their bytes are compared where they were received.
//!
//! Read first: RFC 9112, section 6.3 (how long a body is). Deliberately absent: bodies without a
//! `Content-Length`. A file has a length; a server that does not tell it is not one to be measured
//! with this.

use nicache_reply::{Framing, Head, Method, ReplyError, ReplyReader};

use super::expected::Expected;
use super::plan::Asked;

/// A reply that came whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Finished {
    /// What is wrong with it, if anything.
    pub wrong: Option<Wrong>,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Whether another reply may follow on this connection.
    pub keeps_open: bool,
}

/// Why a reply that came whole is not the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Another status than 200.
    Status(u16),
    /// Another length than the file has.
    Length(u64),
    /// A wrong byte, the first one here.
    Body(u64),
}

/// Why what comes cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// No reply.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// Only bodies of a known length are compared.
    #[error(
        "a reply has no Content-Length (chunked, or ended by the connection), so it cannot be compared"
    )]
    NoLength,
}

/// Compares the replies of one connection.
#[derive(Debug, Default)]
pub(super) struct Comparer {
    reader: ReplyReader,
    /// The reply whose body is coming, and how many bytes of it have come.
    reply: Finished,
    offset: u64,
}

impl Comparer {
    /// Takes bytes of the reply to `asked` from the beginning of `input`. `None`: all are taken and
    /// more must come.
    ///
    /// # Errors
    /// [`Unreadable`]; then nothing that follows can be understood.
    pub(super) fn read(
        &mut self,
        input: &mut &[u8],
        asked: Asked,
        expected: &Expected,
    ) -> Result<Option<Finished>, Unreadable> {
        if !self.reader.is_in_body() {
            let method = if asked.head { Method::Head } else { Method::Get };
            let Some(head) = self.reader.read_head(input, method)? else { return Ok(None) };
            let Some(reply) = by_head(&head, expected.bytes(asked.object)) else {
                self.reader.clear();
                return Err(Unreadable::NoLength);
            };
            (self.reply, self.offset) = (reply, 0);
        }
        let Self { reader, reply, offset } = self;
        let is_whole = reader.read_body(input, |bytes| {
            if reply.wrong.is_none() {
                let difference = expected.difference(asked.object, *offset, bytes);
                reply.wrong = difference.map(Wrong::Body);
            }
            *offset += bytes.len() as u64;
        })?;
        Ok(is_whole.then_some(*reply))
    }

    /// Whether nothing of a reply has come since the last one.
    pub(super) fn is_between_replies(&self) -> bool {
        self.reader.is_between_replies()
    }
}

/// What the reply for a file of `right` bytes is by its head; `None` if that does not tell its
/// length.
fn by_head(head: &Head<'_>, right: u64) -> Option<Finished> {
    let body_bytes = match head.framing {
        Framing::None => 0,
        Framing::Length(length) => length,
        Framing::Chunked | Framing::Close => return None,
    };
    let wrong = if head.status != 200 {
        Some(Wrong::Status(head.status))
    } else {
        // The reply to a HEAD may leave the length out (RFC 9110, section 8.6).
        head.length.filter(|&length| length != right).map(Wrong::Length)
    };
    Some(Finished { wrong, body_bytes, keeps_open: head.keep_alive })
}

#[cfg(test)]
mod tests {
    use nicache_http::{HEAD_BYTES_MAX, MalformedReply};
    use proptest::prelude::*;

    use super::*;
    use crate::content::render;
    use nicache_trace::{Record, Verb};

    use crate::trace::Trace;

    /// Objects of 0, 100, 200, ... bytes.
    fn expected() -> Expected {
        let mut trace = Trace::default();
        for object in 0..5 {
            let bytes = Some(object * 100);
            trace
                .push(&Record { object, verb: Verb::Get, status: 200, bytes, ..Record::default() })
                .unwrap();
        }
        Expected::of(&trace)
    }

    fn reply(object: u64, fields: &str) -> Vec<u8> {
        let mut body = vec![0; object as usize * 100];
        render(object, crate::content::VERSION, 0, &mut body);
        let mut reply =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n", body.len())
                .into_bytes();
        reply.extend(body);
        reply
    }

    fn get(object: u32) -> Asked {
        Asked { object, head: false }
    }

    /// All replies of `bytes`, received in pieces of these lengths (repeated).
    fn read_all(
        bytes: &[u8],
        pieces: &[usize],
        asked: &[Asked],
    ) -> Result<Vec<Finished>, Unreadable> {
        let (expected, mut reader, mut replies) = (expected(), Comparer::default(), Vec::new());
        let (mut rest, mut pieces) = (bytes, pieces.iter().cycle());
        while !rest.is_empty() {
            let (mut piece, after) = rest.split_at((*pieces.next().unwrap()).clamp(1, rest.len()));
            rest = after;
            while replies.len() < asked.len() {
                match reader.read(&mut piece, asked[replies.len()], &expected)? {
                    Some(reply) => replies.push(reply),
                    None => break,
                }
            }
            assert!(piece.is_empty() || replies.len() == asked.len());
        }
        assert_eq!(reader.is_between_replies(), replies.len() == asked.len());
        Ok(replies)
    }

    proptest! {
        #[test]
        fn replies_are_found_whatever_the_pieces(
            objects in proptest::collection::vec((0u32..5, any::<bool>()), 1..6),
            pieces in proptest::collection::vec(1usize..300, 1..5),
        ) {
            let mut bytes = Vec::new();
            for &(object, head) in &objects {
                let reply = reply(u64::from(object), "ETag: \"x\"\r\n");
                let end = if head { reply.len() - object as usize * 100 } else { reply.len() };
                bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n\r\n");
                bytes.extend_from_slice(&reply[..end]);
            }
            let asked: Vec<Asked> =
                objects.iter().map(|&(object, head)| Asked { object, head }).collect();
            let replies = read_all(&bytes, &pieces, &asked).unwrap();
            prop_assert_eq!(replies.len(), objects.len());
            for (reply, &(object, head)) in replies.iter().zip(&objects) {
                let body_bytes = if head { 0 } else { u64::from(object) * 100 };
                prop_assert_eq!(*reply, Finished { wrong: None, body_bytes, keeps_open: true });
            }
        }

        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            piece in 1usize..50,
        ) {
            let (expected, mut reader) = (expected(), Comparer::default());
            for piece in bytes.chunks(piece) {
                let mut piece = piece;
                while let Ok(Some(_)) = reader.read(&mut piece, get(1), &expected) {}
            }
        }

        #[test]
        fn a_changed_byte_is_found_where_it_is(at in 0usize..400, piece in 1usize..500) {
            let mut bytes = reply(4, "");
            let start = bytes.len() - 400;
            bytes[start + at] ^= 4;
            let replies = read_all(&bytes, &[piece], &[get(4)]).unwrap();
            prop_assert_eq!(replies[0].wrong, Some(Wrong::Body(at as u64)));
        }
    }

    #[test]
    fn wrong_replies_have_names_and_the_next_one_is_read() {
        let mut bytes = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno".to_vec();
        bytes.extend(reply(2, ""));
        bytes.extend(b"HTTP/1.1 304 Not Modified\r\n\r\n");
        bytes.extend(reply(1, "Connection: close\r\n"));
        let asked = [get(1), get(3), get(1), get(1)];
        let replies = read_all(&bytes, &[30], &asked).unwrap();
        let wrong: Vec<_> = replies.iter().map(|reply| reply.wrong).collect();
        assert_eq!(
            wrong,
            [Some(Wrong::Status(404)), Some(Wrong::Length(200)), Some(Wrong::Status(304)), None]
        );
        assert_eq!(
            replies.iter().map(|reply| reply.keeps_open).collect::<Vec<_>>(),
            [true, true, true, false]
        );
    }

    #[test]
    fn what_cannot_be_compared_is_an_error() {
        let head = |reason| Unreadable::Reply(ReplyError::Head(reason));
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        for (bytes, error) in [
            (
                &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"[..],
                Unreadable::NoLength,
            ),
            (b"HTTP/1.1 200 OK\r\n\r\n", Unreadable::NoLength),
            (b"SSH-2.0-x\r\n\r\n", head(MalformedReply::Syntax)),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", head(MalformedReply::ContentLength)),
            (endless.as_bytes(), head(MalformedReply::HeadTooLong)),
        ] {
            assert_eq!(read_all(bytes, &[1000], &[get(1)]), Err(error));
            assert_eq!(read_all(bytes, &[100_000], &[get(1)]), Err(error));
        }
    }
}
