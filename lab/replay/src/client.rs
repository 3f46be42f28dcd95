//! One HTTP/1.1 connection that reads replies whole.
//!
//! Every request has a number in its `User-Agent`, which no reply of a file depends on. A server
//! that repeats it in `X-Robots-Tag` (a header that caches keep) thereby tells whether it worked on
//! this very request; if not, the reply was kept by somebody: of another client's request, or of
//! one that the cache made of itself.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply that takes longer is lost.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest head that is read.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most fields of a head.
const FIELDS_MAX: usize = 64;

/// Whose request a reply says that it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Ours, of this number.
    Request(u64),
    /// One that is not ours.
    Other,
}

/// A reply's head; the body is in [`Connection::body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub status: u16,
    /// What `Content-Length` says.
    pub length: u64,
    /// What the server worked on, if it tells.
    pub answered: Option<Asker>,
    /// Whether the connection can be used again.
    pub keep_alive: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes received and not yet used; those before `used` are.
    received: Vec<u8>,
    used: usize,
    body: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, REPLY_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream, received: Vec::with_capacity(64 * 1024), used: 0, body: Vec::new() })
    }

    /// Sends a batch of requests as they are.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// Reads one reply whole. `head`: it answers a HEAD.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` for a reply that is cut off, `InvalidData` for one that
    /// cannot be read.
    pub(crate) fn receive(&mut self, head: bool) -> io::Result<Reply> {
        let reply = loop {
            match parse(&self.received[self.used..])? {
                Some((reply, length)) => {
                    self.used += length;
                    break reply;
                }
                None if self.received.len() - self.used > HEAD_BYTES_MAX => {
                    return Err(broken("an endless head"));
                }
                None => self.read_more()?,
            }
        };
        self.body.clear();
        if !head {
            let length = usize::try_from(reply.length).map_err(|_| broken("an endless body"))?;
            let here = length.min(self.received.len() - self.used);
            self.body.extend_from_slice(&self.received[self.used..self.used + here]);
            self.used += here;
            self.body.resize(length, 0);
            self.stream.read_exact(&mut self.body[here..])?;
        }
        if self.used == self.received.len() {
            self.received.clear();
            self.used = 0;
        }
        Ok(reply)
    }

    /// The body of the last reply.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    fn read_more(&mut self) -> io::Result<()> {
        self.received.drain(..self.used);
        self.used = 0;
        let before = self.received.len();
        self.received.resize(before + 16 * 1024, 0);
        let read = self.stream.read(&mut self.received[before..]);
        self.received.truncate(before + *read.as_ref().unwrap_or(&0));
        if read? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// Appends a request with this number.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    server: SocketAddr,
    target: &str,
    head: bool,
    number: u64,
) {
    let method = if head { "HEAD" } else { "GET" };
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        "{method} {target} HTTP/1.1\r\nHost: {server}\r\nUser-Agent: replay-{number}\r\n\r\n"
    );
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A whole head and its bytes, if there is one.
fn parse(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(bytes).map_err(|_| broken("a head that is none"))? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(length) => length,
    };
    let mut reply = Reply {
        status: head.code.unwrap_or(0),
        length: u64::MAX,
        answered: None,
        keep_alive: head.version == Some(1),
    };
    for field in head.headers.iter() {
        let text = std::str::from_utf8(field.value).unwrap_or_default();
        if field.name.eq_ignore_ascii_case("content-length") {
            reply.length = text.parse().map_err(|_| broken("a length that is none"))?;
        } else if field.name.eq_ignore_ascii_case("x-robots-tag") {
            let number = text.strip_prefix("replay-").and_then(|number| number.parse().ok());
            reply.answered = Some(number.map_or(Asker::Other, Asker::Request));
        } else if field.name.eq_ignore_ascii_case("connection") {
            reply.keep_alive = !text.eq_ignore_ascii_case("close");
        }
    }
    if reply.length == u64::MAX {
        Err(broken("a reply without Content-Length"))
    } else {
        Ok(Some((reply, length)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A connection whose other end sends `text` in pieces of `piece` bytes.
    fn fed(text: &'static [u8], piece: usize) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            text.chunks(piece).for_each(|piece| stream.write_all(piece).unwrap());
        });
        connection
    }

    const REPLIES: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Robots-Tag: replay-77\r\n\r\nhello\
        HTTP/1.1 200 OK\r\ncontent-length: 900\r\nx-robots-tag: Mozilla/5.0\r\n\r\n\
        HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";

    #[test]
    fn pipelined_replies_come_out_whatever_the_pieces() {
        for piece in [1, 7, 1000] {
            let mut connection = fed(REPLIES, piece);
            let first = connection.receive(false).unwrap();
            assert_eq!(
                first,
                Reply {
                    status: 200,
                    length: 5,
                    answered: Some(Asker::Request(77)),
                    keep_alive: true
                }
            );
            assert_eq!(connection.body(), b"hello");
            let second = connection.receive(true).unwrap();
            assert_eq!((second.length, second.answered), (900, Some(Asker::Other)));
            let last = connection.receive(false).unwrap();
            assert_eq!(last.answered, None);
            assert_eq!((last.status, last.keep_alive, connection.body()), (404, false, &b"no"[..]));
            assert_eq!(connection.receive(false).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn what_is_cut_off_or_no_reply_is_an_error() {
        let cut = fed(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", 100).receive(false);
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for wrong in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        ] {
            assert_eq!(
                fed(wrong, 100).receive(false).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
    }
}
