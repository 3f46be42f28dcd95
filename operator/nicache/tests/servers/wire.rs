//! A connection as a client has it, and replies without what may differ between two of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A reply as it came; chunks of the body are joined.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub head: String,
    pub body: Vec<u8>,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]).into_owned();
        write!(f, "{}{} bytes: {body:?}", self.head, self.body.len())
    }
}

impl Reply {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Without the date of the moment, what is left of a connection (Apache counts its requests),
    /// and the choice of a boundary.
    pub(crate) fn plain(mut self) -> Self {
        if let Some(boundary) =
            self.field("content-type").and_then(|kind| kind.split("boundary=").nth(1))
        {
            let boundary = boundary.trim().to_owned();
            self.head = self.head.replace(&boundary, &"b".repeat(boundary.len()));
            let mut at = 0;
            let len = boundary.len();
            while let Some(found) =
                self.body[at..].windows(len).position(|window| window == boundary.as_bytes())
            {
                at += found;
                self.body[at..at + len].fill(b'b');
            }
        }
        let blank = |line: &str| match line.split_once(": ") {
            Some((name @ ("Date" | "Keep-Alive"), _)) => format!("{name}: -\n"),
            _ => format!("{line}\n"),
        };
        self.head = self.head.lines().map(blank).collect();
        self
    }
}

/// A connection that goes on.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Reads one reply.
    pub(crate) fn reply(&mut self, is_head: bool) -> Reply {
        let mut reply = Reply { head: self.lines(), body: Vec::new() };
        let status = reply.status();
        if is_head || status < 200 || status == 204 || status == 304 {
            return reply;
        }
        if reply.field("transfer-encoding") == Some("chunked") {
            self.chunks(&mut reply.body);
            reply.head += &self.lines();
        } else if let Some(len) = reply.field("content-length") {
            reply.body = vec![0; len.parse().unwrap()];
            self.stream
                .read_exact(&mut reply.body)
                .unwrap_or_else(|error| panic!("{error} in {reply:?}"));
        } else {
            self.stream.read_to_end(&mut reply.body).unwrap();
        }
        reply
    }

    /// Lines up to an empty one.
    fn lines(&mut self) -> String {
        let mut lines = String::new();
        loop {
            let mut line = Vec::new();
            assert!(
                self.stream.read_until(b'\n', &mut line).unwrap() > 0,
                "closed after {lines:?}"
            );
            if line == b"\r\n" {
                return lines;
            }
            lines += &String::from_utf8_lossy(&line).replace('\r', "");
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>) {
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let len = usize::from_str_radix(line.trim(), 16)
                .unwrap_or_else(|_| panic!("no length of a chunk: {line:?}"));
            if len == 0 {
                return;
            }
            let mut chunk = vec![0; len + 2];
            self.stream.read_exact(&mut chunk).unwrap();
            assert!(chunk.ends_with(b"\r\n"), "a chunk is longer than it says");
            body.extend_from_slice(&chunk[..len]);
        }
    }
}
