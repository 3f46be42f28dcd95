//! One reply after the other out of the bytes of a connection, each compared with what it must be
//! as it comes.
//!
//! Bodies are not kept: their bytes are compared where they were received.
//!
//! Read first: RFC 9112, section 6.3 (how long a body is). Deliberately absent: bodies without a
//! `Content-Length`. A file has a length; a server that does not tell it is not one to be measured
//! with this.

use std::mem::MaybeUninit;

use httparse::{ParserConfig, Response, Status};

use super::expected::Expected;
use super::plan::Asked;

/// Longest head that is read.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most fields of a head.
const FIELDS_MAX: usize = 64;

/// A reply that came whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Why no reply can be found in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadError {
    /// No head of HTTP.
    #[error("what came is not a head of HTTP")]
    Syntax,
    /// A head longer than is read.
    #[error("a head has more than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    /// Only bodies of a known length are read.
    #[error(
        "a reply has no Content-Length (chunked, or ended by the connection), so it cannot be compared"
    )]
    NoLength,
}

/// Reads the replies of one connection.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    /// The beginning of a head whose end has not come.
    head: Vec<u8>,
    body: Option<Body>,
}

/// The body that is coming.
#[derive(Clone, Copy, Debug)]
struct Body {
    offset: u64,
    /// Bytes of it.
    end: u64,
    reply: Finished,
}

struct Head {
    status: u16,
    length: Option<u64>,
    keeps_open: bool,
    /// Bytes of it.
    bytes: usize,
}

impl ReplyReader {
    /// Takes bytes of the reply to `asked` from the beginning of `input`. `None`: all are taken and
    /// more must come.
    ///
    /// # Errors
    /// [`HeadError`]; then nothing that follows can be understood.
    pub(super) fn read(
        &mut self,
        input: &mut &[u8],
        asked: Asked,
        expected: &Expected,
    ) -> Result<Option<Finished>, HeadError> {
        let mut body = match self.body.take() {
            Some(body) => body,
            None => match self.read_head(input)? {
                Some(head) => body_of(&head, asked, expected)?,
                None => return Ok(None),
            },
        };
        let take = input.len().min(usize::try_from(body.end - body.offset).unwrap_or(usize::MAX));
        let (bytes, rest) = input.split_at(take);
        *input = rest;
        if body.reply.wrong.is_none() {
            let difference = expected.difference(asked.object, body.offset, bytes);
            body.reply.wrong = difference.map(Wrong::Body);
        }
        body.offset += take as u64;
        if body.offset == body.end {
            return Ok(Some(body.reply));
        }
        self.body = Some(body);
        Ok(None)
    }

    /// Whether nothing of a reply has come since the last one.
    pub(super) fn is_between_replies(&self) -> bool {
        self.head.is_empty() && self.body.is_none()
    }

    /// A final head; interim ones (1xx) are passed over.
    fn read_head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, HeadError> {
        loop {
            let head = if self.head.is_empty() {
                let Some(head) = parse(input)? else {
                    if input.len() > HEAD_BYTES_MAX {
                        return Err(HeadError::TooLong);
                    }
                    self.head.extend_from_slice(input);
                    *input = &[];
                    return Ok(None);
                };
                *input = &input[head.bytes..];
                head
            } else {
                let before = self.head.len();
                let take = input.len().min(HEAD_BYTES_MAX + 1 - before);
                self.head.extend_from_slice(&input[..take]);
                let Some(head) = parse(&self.head)? else {
                    if self.head.len() > HEAD_BYTES_MAX {
                        return Err(HeadError::TooLong);
                    }
                    *input = &[];
                    return Ok(None);
                };
                *input = &input[head.bytes - before..];
                self.head.clear();
                head
            };
            if head.status >= 200 {
                return Ok(Some(head));
            }
        }
    }
}

fn body_of(head: &Head, asked: Asked, expected: &Expected) -> Result<Body, HeadError> {
    let right = expected.bytes(asked.object);
    let has_body = !asked.head && !matches!(head.status, 204 | 304);
    let end = match head.length {
        _ if !has_body => 0,
        Some(length) => length,
        None => return Err(HeadError::NoLength),
    };
    let wrong = if head.status != 200 {
        Some(Wrong::Status(head.status))
    } else {
        // The reply to a HEAD may leave the length out (RFC 9110, section 8.6).
        head.length.filter(|&length| length != right).map(Wrong::Length)
    };
    let reply = Finished { wrong, body_bytes: end, keeps_open: head.keeps_open };
    Ok(Body { offset: 0, end, reply })
}

/// A whole head, if there is one.
fn parse(bytes: &[u8]) -> Result<Option<Head>, HeadError> {
    // Fields that a head does not have are not even set to nothing, which would cost more than
    // reading those it has.
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut fields,
    );
    let length = match parsed.map_err(|_| HeadError::Syntax)? {
        Status::Partial => return Ok(None),
        Status::Complete(length) => length,
    };
    let keeps_open = response.version == Some(1);
    let mut head =
        Head { status: response.code.unwrap_or(0), length: None, keeps_open, bytes: length };
    for field in response.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(field.value).map_err(|_| HeadError::Syntax)?;
            head.length = Some(text.trim().parse().map_err(|_| HeadError::Syntax)?);
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(HeadError::NoLength);
        } else if field.name.eq_ignore_ascii_case("connection") {
            let mut options = field.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            head.keeps_open = match head.keeps_open {
                true => !options.any(|option| option.eq_ignore_ascii_case(b"close")),
                false => options.any(|option| option.eq_ignore_ascii_case(b"keep-alive")),
            };
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
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
    ) -> Result<Vec<Finished>, HeadError> {
        let (expected, mut reader, mut replies) = (expected(), ReplyReader::default(), Vec::new());
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
            let (expected, mut reader) = (expected(), ReplyReader::default());
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
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        for (bytes, error) in [
            (
                &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"[..],
                HeadError::NoLength,
            ),
            (b"HTTP/1.1 200 OK\r\n\r\n", HeadError::NoLength),
            (b"SSH-2.0-x\r\n\r\n", HeadError::Syntax),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", HeadError::Syntax),
            (endless.as_bytes(), HeadError::TooLong),
        ] {
            assert_eq!(read_all(bytes, &[1000], &[get(1)]), Err(error));
            assert_eq!(read_all(bytes, &[100_000], &[get(1)]), Err(error));
        }
    }
}
