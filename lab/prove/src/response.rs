//! Reads replies from the bytes of a connection, whatever the pieces in which they come. No I/O.

use nicache_http::{Follower, Framing, Method, ReplyOutcome, parse_reply};

/// Longest body that is read, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 20;
/// Bytes that a read may bring at least.
const READ_BYTES_MIN: usize = 16 << 10;
/// A larger body buffer is not kept for the next reply.
const BODY_BYTES_KEPT: usize = 256 << 10;

/// A whole reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    /// Whether the connection can be used again.
    pub(crate) keep_alive: bool,
    /// The status line and the headers, with the empty line that ends them.
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// What is not a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResponseError {
    #[error("a reply whose end is in doubt: {0}")]
    Malformed(String),
    #[error("a body of more than {} MB", BODY_BYTES_MAX >> 20)]
    TooLong,
}

/// How a connection's end leaves the reply that was being read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AtClose<'a> {
    /// There was none.
    Nothing,
    /// It is whole.
    Whole(Response<'a>),
    /// It is not.
    Cut,
}

#[derive(Debug)]
enum State {
    Head,
    Body { status: u16, keep_alive: bool, follower: Follower },
}

/// The replies of one connection, all to GET.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    received: Vec<u8>,
    /// Bytes of it that are done with.
    used: usize,
    state: State,
    /// Of a reply whose body comes in pieces.
    head: Vec<u8>,
    body: Vec<u8>,
}

impl ResponseReader {
    pub(crate) fn new() -> Self {
        Self {
            received: Vec::new(),
            used: 0,
            state: State::Head,
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Where to append what the connection brings.
    pub(crate) fn space(&mut self) -> &mut Vec<u8> {
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
    pub(crate) fn unread(&self) -> &[u8] {
        if self.body.is_empty() { &self.received[self.used..] } else { &self.body }
    }

    /// The next reply, if it is whole.
    pub(crate) fn next(&mut self) -> Result<Option<Response<'_>>, ResponseError> {
        loop {
            let State::Body { status, keep_alive, follower } = &mut self.state else {
                let head = match parse_reply(&self.received[self.used..], Method::Get) {
                    ReplyOutcome::Partial => return Ok(None),
                    ReplyOutcome::Malformed(reason) => {
                        return Err(ResponseError::Malformed(reason.label().replace('_', " ")));
                    }
                    ReplyOutcome::Complete(head) => head,
                };
                let (status, keep_alive) = (head.status, head.keep_alive);
                let (framing, is_interim) = (head.framing, head.interim);
                let head = self.used..self.used + head.head_len;
                self.used = head.end;
                if is_interim {
                    continue;
                }
                let there = self.received.len() - self.used;
                let length = match framing {
                    Framing::None => Some(0),
                    Framing::Length(length) => usize::try_from(length).ok(),
                    Framing::Chunked | Framing::Close => None,
                };
                if let Some(length) = length
                    && length <= there
                {
                    let start = self.used;
                    self.used += length;
                    let (head, body) = (&self.received[head], &self.received[start..self.used]);
                    return Ok(Some(Response { status, keep_alive, head, body }));
                }
                self.head.clear();
                self.head.extend_from_slice(&self.received[head]);
                self.body.clear();
                self.body.shrink_to(BODY_BYTES_KEPT);
                self.state = State::Body { status, keep_alive, follower: Follower::new(framing) };
                continue;
            };
            let piece = &self.received[self.used..];
            let followed = follower.follow(piece, |bytes| self.body.extend_from_slice(bytes));
            if let Some(fault) = followed.fault {
                return Err(ResponseError::Malformed(fault.to_string()));
            }
            if self.body.len() > BODY_BYTES_MAX {
                return Err(ResponseError::TooLong);
            }
            self.used += followed.finished_at.unwrap_or(piece.len());
            if followed.finished_at.is_none() {
                return Ok(None);
            }
            let (status, keep_alive) = (*status, *keep_alive);
            self.state = State::Head;
            return Ok(Some(Response { status, keep_alive, head: &self.head, body: &self.body }));
        }
    }

    /// The connection has ended.
    pub(crate) fn handle_close(&mut self) -> AtClose<'_> {
        match &mut self.state {
            State::Head if self.used == self.received.len() => AtClose::Nothing,
            State::Head => AtClose::Cut,
            State::Body { status, follower, .. } => {
                if !follower.handle_close() {
                    return AtClose::Cut;
                }
                AtClose::Whole(Response {
                    status: *status,
                    keep_alive: false,
                    head: &self.head,
                    body: &self.body,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n\
        HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
        HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end";

    #[test]
    fn replies_come_out_whatever_the_pieces() {
        for size in [1, 2, 7, 30, 1000] {
            let mut reader = ResponseReader::new();
            let mut seen = Vec::new();
            for piece in REPLIES.chunks(size) {
                reader.space().extend_from_slice(piece);
                while let Some(response) = reader.next().unwrap() {
                    assert!(
                        response.head.starts_with(b"HTTP/1.1 ")
                            && response.head.ends_with(b"\r\n\r\n")
                    );
                    seen.push((response.status, response.keep_alive, response.body.to_vec()));
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
            let mut reader = ResponseReader::new();
            reader.space().extend_from_slice(text);
            let is_error = reader.next().is_err();
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
        let mut reader = ResponseReader::new();
        reader.space().extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
        let piece = vec![b'x'; 1 << 20];
        let mut given_up = false;
        for _ in 0..=BODY_BYTES_MAX >> 20 {
            reader.space().extend_from_slice(&piece);
            given_up |= reader.next() == Err(ResponseError::TooLong);
        }
        assert!(given_up);
    }
}
