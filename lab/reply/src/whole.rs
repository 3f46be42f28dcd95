//! Keeps what a connection brings until a reply is whole.

use nicache_http::{Framing, Method};

use crate::reader::{AtClose, ReplyError, ReplyReader};

/// Bytes that a read may bring at least.
const READ_BYTES_MIN: usize = 16 << 10;
/// A larger body buffer is not kept for the next reply.
const BODY_BYTES_KEPT: usize = 256 << 10;

/// A whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeReply<'a> {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Whether the connection can be used again.
    pub keep_alive: bool,
    /// The status line and the fields, with the empty line that ends them.
    pub head: &'a [u8],
    /// The body without its framing.
    pub body: &'a [u8],
}

/// The replies of one connection, each as a whole.
#[derive(Debug)]
pub struct WholeReader {
    body_bytes_max: usize,
    received: Vec<u8>,
    /// Bytes of it that are done with.
    used: usize,
    reader: ReplyReader,
    /// Of the reply that is being read.
    status: u16,
    keep_alive: bool,
    head: Vec<u8>,
    /// If it comes in pieces.
    body: Vec<u8>,
}

impl WholeReader {
    /// A reader of replies whose bodies have at most so many bytes.
    pub fn new(body_bytes_max: usize) -> Self {
        Self {
            body_bytes_max,
            received: Vec::new(),
            used: 0,
            reader: ReplyReader::default(),
            status: 0,
            keep_alive: false,
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Where to append what the connection brings.
    pub fn space(&mut self) -> &mut Vec<u8> {
        if self.used == self.received.len() {
            self.received.clear();
            self.used = 0;
        } else if self.used >= READ_BYTES_MIN {
            self.received.drain(..self.used);
            self.used = 0;
        }
        self.received.reserve(READ_BYTES_MIN);
        &mut self.received
    }

    /// The bytes of the reply that is being read, for people.
    pub fn unread(&self) -> &[u8] {
        if self.reader.is_in_body() && !self.body.is_empty() {
            &self.body
        } else if !self.reader.is_in_body() && !self.reader.is_between_replies() {
            self.reader.partial_head()
        } else {
            &self.received[self.used..]
        }
    }

    /// The next reply, which answers a request with `method`, if it is whole.
    ///
    /// # Errors
    /// [`ReplyError`]; nothing that follows on the connection can be understood.
    pub fn next(&mut self, method: Method) -> Result<Option<WholeReply<'_>>, ReplyError> {
        let mut input = &self.received[self.used..];
        if !self.reader.is_in_body() {
            let Some(head) = self.reader.read_head(&mut input, method)? else {
                self.used = self.received.len();
                return Ok(None);
            };
            (self.status, self.keep_alive) = (head.status, head.keep_alive);
            self.head.clear();
            self.head.extend_from_slice(head.bytes);
            self.body.clear();
            self.body.shrink_to(BODY_BYTES_KEPT);
            self.used = self.received.len() - input.len();
            let length = match head.framing {
                Framing::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
                Framing::None | Framing::Chunked | Framing::Close => 0,
            };
            if length > self.body_bytes_max {
                return Err(ReplyError::TooLong(self.body_bytes_max));
            }
            if 0 < length && length <= input.len() {
                // All of it is there, and stays where it is.
                let body = &input[..length];
                self.reader.read_body(&mut input, |_| ())?;
                self.used = self.received.len() - input.len();
                return Ok(Some(whole(self.status, self.keep_alive, &self.head, body)));
            }
            self.body.reserve(length);
        }
        let body = &mut self.body;
        let is_whole = self.reader.read_body(&mut input, |piece| body.extend_from_slice(piece))?;
        if self.body.len() > self.body_bytes_max {
            return Err(ReplyError::TooLong(self.body_bytes_max));
        }
        self.used = self.received.len() - input.len();
        Ok(is_whole.then(|| whole(self.status, self.keep_alive, &self.head, &self.body)))
    }

    /// The connection has ended.
    pub fn handle_close(&mut self) -> AtClose<WholeReply<'_>> {
        match self.reader.handle_close() {
            AtClose::Nothing if self.used == self.received.len() => AtClose::Nothing,
            AtClose::Nothing | AtClose::Cut => AtClose::Cut,
            AtClose::Whole(()) => AtClose::Whole(whole(self.status, false, &self.head, &self.body)),
        }
    }
}

fn whole<'a>(status: u16, keep_alive: bool, head: &'a [u8], body: &'a [u8]) -> WholeReply<'a> {
    WholeReply { status, keep_alive, head, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY_BYTES_MAX: usize = 16 << 20;
    const REPLIES: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n\
        HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
        HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end";

    #[test]
    fn replies_come_out_whatever_the_pieces() {
        for size in [1, 2, 7, 30, 1000] {
            let mut reader = WholeReader::new(BODY_BYTES_MAX);
            let mut seen = Vec::new();
            for piece in REPLIES.chunks(size) {
                reader.space().extend_from_slice(piece);
                while let Some(reply) = reader.next(Method::Get).unwrap() {
                    assert!(
                        reply.head.starts_with(b"HTTP/1.1 ") && reply.head.ends_with(b"\r\n\r\n")
                    );
                    seen.push((reply.status, reply.keep_alive, reply.body.to_vec()));
                }
            }
            let AtClose::Whole(last) = reader.handle_close() else { panic!("not whole") };
            seen.push((last.status, last.keep_alive, last.body.to_vec()));
            let expected = [
                (200, true, "hello"),
                (200, true, "abcdefg"),
                (404, true, ""),
                (200, false, "until the end"),
            ];
            assert_eq!(
                seen,
                expected.map(|(status, keep, body)| (status, keep, body.as_bytes().to_vec()))
            );
        }
    }

    #[test]
    fn what_is_cut_off_or_no_reply() {
        let read = |text: &[u8]| {
            let mut reader = WholeReader::new(BODY_BYTES_MAX);
            reader.space().extend_from_slice(text);
            let is_error = reader.next(Method::Get).is_err();
            (is_error, reader.handle_close() == AtClose::Cut)
        };
        assert_eq!(read(b"SSH-2.0-x\r\n\r\n"), (true, true));
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz"), (true, true));
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), (false, true));
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nContent-"), (false, true));
        assert_eq!(read(b""), (false, false));
    }

    #[test]
    fn a_body_without_end_is_given_up() {
        let mut reader = WholeReader::new(BODY_BYTES_MAX);
        reader.space().extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
        let piece = vec![b'x'; 1 << 20];
        let mut given_up = false;
        for _ in 0..=BODY_BYTES_MAX >> 20 {
            reader.space().extend_from_slice(&piece);
            given_up |= reader.next(Method::Get) == Err(ReplyError::TooLong(BODY_BYTES_MAX));
        }
        assert!(given_up);
    }

    #[test]
    fn a_body_that_says_it_is_too_long_is_not_waited_for() {
        let mut reader = WholeReader::new(9);
        reader.space().extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
        // It answers a HEAD: nothing follows.
        assert_eq!(reader.next(Method::Head).unwrap().unwrap().body, b"");
        reader.space().extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
        assert_eq!(reader.next(Method::Get), Err(ReplyError::TooLong(9)));
    }

    #[test]
    fn what_was_read_is_shown_where_it_ends() {
        let unread = |pieces: &[&[u8]]| {
            let mut reader = WholeReader::new(BODY_BYTES_MAX);
            for piece in pieces {
                reader.space().extend_from_slice(piece);
                while let Ok(Some(_)) = reader.next(Method::Get) {}
            }
            String::from_utf8_lossy(reader.unread()).into_owned()
        };
        assert_eq!(unread(&[b"HTTP/1.1 2", b"00 O"]), "HTTP/1.1 200 O");
        assert_eq!(unread(&[b"HTTP/1.1 ", b"SSH\r\n"]), "HTTP/1.1 SSH\r\n");
        assert_eq!(unread(&[b"SSH-2.0\r\n"]), "SSH-2.0\r\n");
        assert_eq!(unread(&[b"HTTP/1.1 200 OK\r\n\r\nab", b"c"]), "abc");
    }
}
