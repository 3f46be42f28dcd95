//! One HTTP/1.1 connection that reads replies whole.
//!
//! Every request has a number in its `User-Agent`, which no reply of a file depends on. A server
//! that repeats it in `X-Robots-Tag` (a header that caches keep) thereby tells whether it worked on
//! this very request; if not, the reply was kept by somebody: of another client's request, or of
//! one that the cache made of itself.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nicache_reply::{Head, Method, ReplyError, ReplyReader};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// A reply that takes longer is lost.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes received at once.
const RECEIVED_BYTES_MAX: usize = 64 * 1024;

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
    reader: ReplyReader,
    body: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub(crate) fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, REPLY_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self {
            stream,
            received: Vec::with_capacity(RECEIVED_BYTES_MAX),
            used: 0,
            reader: ReplyReader::default(),
            body: Vec::new(),
        })
    }

    /// Sends a batch of requests as they are.
    ///
    /// # Errors
    /// What the system says of the socket.
    pub(crate) fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)
    }

    /// Reads one reply whole. `head`: it answers a HEAD.
    ///
    /// # Errors
    /// What the system says of the socket; `UnexpectedEof` for a reply that is cut off,
    /// `InvalidData` for one that cannot be read.
    pub(crate) fn receive(&mut self, head: bool) -> io::Result<Reply> {
        let method = if head { Method::Head } else { Method::Get };
        let no_reply = |error: ReplyError| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut reply = None;
        self.body.clear();
        loop {
            let mut bytes = &self.received[self.used..];
            if reply.is_none() {
                let head = self.reader.read_head(&mut bytes, method).map_err(no_reply)?;
                reply = head.map(|head| by_head(&head)).transpose()?;
            }
            if let Some(reply) = reply {
                let body = &mut self.body;
                let take = |piece: &[u8]| body.extend_from_slice(piece);
                if self.reader.read_body(&mut bytes, take).map_err(no_reply)? {
                    self.used = self.received.len() - bytes.len();
                    return Ok(reply);
                }
            }
            self.read_more()?;
        }
    }

    /// The body of the last reply.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Receives, when all that was received is used.
    fn read_more(&mut self) -> io::Result<()> {
        self.used = 0;
        self.received.clear();
        loop {
            match rustix::io::read(&self.stream, spare_capacity(&mut self.received)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
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

/// What a reply is by its head.
fn by_head(head: &Head<'_>) -> io::Result<Reply> {
    let no_length = || io::Error::new(io::ErrorKind::InvalidData, "a reply without Content-Length");
    let answered = head.field("x-robots-tag").map(|value| {
        let number = str::from_utf8(value).ok().and_then(|text| text.strip_prefix("replay-"));
        number.and_then(|number| number.parse().ok()).map_or(Asker::Other, Asker::Request)
    });
    Ok(Reply {
        status: head.status,
        length: head.length.ok_or_else(no_length)?,
        answered,
        keep_alive: head.keep_alive,
    })
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
