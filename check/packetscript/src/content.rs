//! The bytes of requests and replies: known to both ends, so every byte on the wire can be
//! checked.

use nicache_http::HttpDate;

use crate::script::{Method, Object, Request};

/// Where the value of `Date` begins in a reply.
const DATE_AT: usize = b"HTTP/1.1 200 OK\r\nDate: ".len();
/// Bytes of a date.
const DATE_BYTES: usize = 29;
/// Characters of `Content-Length` and what pads it, so heads have one length.
const LENGTH_AND_PADDING: usize = 9;
/// What tells the end of the connection, and what stands there otherwise.
const CLOSE: &str = "Connection: close";
const NO_CLOSE: &str = "Content-Type: a/b";

/// The bytes of a reply, the last of its connection or not.
pub(crate) fn reply(object: &Object, closes: bool, unix_s: u64) -> Vec<u8> {
    let mut date = [0; DATE_BYTES];
    date.copy_from_slice(&HttpDate::from_unix_s(unix_s).as_bytes()[..DATE_BYTES]);
    let body_bytes = object.reply_bytes.saturating_sub(reply_bytes_min());
    let mut bytes = b"HTTP/1.1 200 OK\r\nDate: ".to_vec();
    bytes.extend(date);
    let length = body_bytes.to_string();
    let padding = "x".repeat(LENGTH_AND_PADDING - length.len());
    let end = if closes { CLOSE } else { NO_CLOSE };
    bytes.extend(
        format!("\r\nContent-Length: {length}\r\nServer: {padding}\r\n{end}\r\n\r\n").bytes(),
    );
    // No two places of a body within 251 bytes are equal, and objects differ.
    let seed = object
        .path
        .bytes()
        .fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    bytes.extend((0..body_bytes).map(|at| ((at + seed) % 251) as u8));
    bytes
}

/// Bytes of a reply without a body.
pub(crate) fn reply_bytes_min() -> usize {
    DATE_AT
        + DATE_BYTES
        + b"\r\nContent-Length: \r\nServer: \r\n\r\n\r\n".len()
        + LENGTH_AND_PADDING
        + CLOSE.len()
}

/// Is the byte at this place of a reply part of its date, which the server sets?
pub(crate) fn is_date(at: usize) -> bool {
    (DATE_AT..DATE_AT + DATE_BYTES).contains(&at)
}

/// The bytes of a request.
pub(crate) fn request(request: &Request) -> Vec<u8> {
    let mut bytes = head(request, request.head_bytes.saturating_sub(request_bytes_min(request)));
    bytes.extend((0..request.body_bytes).map(|at| b'a' + (at % 23) as u8));
    bytes
}

/// Bytes of the shortest head of a request.
pub(crate) fn request_bytes_min(request: &Request) -> usize {
    head(request, 0).len()
}

fn head(request: &Request, padding: usize) -> Vec<u8> {
    let method = match request.method {
        Method::Get => "GET",
        Method::Post => "POST",
    };
    let length = match request.method {
        Method::Get => String::new(),
        Method::Post => format!("Content-Length: {}\r\n", request.body_bytes),
    };
    let close = if request.closes { "Connection: close\r\n" } else { "" };
    let agent = "0".repeat(padding);
    format!(
        "{method} {} HTTP/1.1\r\nHost: a\r\n{length}{close}User-Agent: {agent}\r\n\r\n",
        request.path
    )
    .into_bytes()
}

/// Both directions of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    /// What the client says.
    pub client: Vec<u8>,
    /// What the server answers.
    pub server: Vec<u8>,
    /// Where replies begin in `server`.
    replies: Vec<usize>,
}

impl Streams {
    /// The streams of these requests. What is not among `objects` has no reply.
    pub(crate) fn new(requests: &[Request], objects: &[Object]) -> Self {
        let mut streams = Self::default();
        for asked in requests {
            streams.client.extend(request(asked));
            if let Some(object) = objects.iter().find(|object| object.path == asked.path) {
                streams.replies.push(streams.server.len());
                streams.server.extend(reply(object, asked.closes, 0));
            }
        }
        streams
    }

    /// Why `payload` cannot be the server's at offset `at`, if so.
    pub(crate) fn contradiction(&self, at: usize, payload: &[u8]) -> Option<String> {
        for (offset, byte) in payload.iter().enumerate() {
            let place = at + offset;
            let Some(expected) = self.server.get(place) else {
                return Some(format!(
                    "byte {} is behind the last reply, which ends at {}",
                    place + 1,
                    self.server.len() + 1
                ));
            };
            let reply = self.replies.partition_point(|begin| *begin <= place);
            let in_reply = place - self.replies[reply.saturating_sub(1)];
            if expected != byte && !is_date(in_reply) {
                return Some(format!(
                    "byte {} is {byte:#04x} instead of {expected:#04x}",
                    place + 1
                ));
            }
        }
        None
    }
}

/// A server's side of one connection, whoever carries its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Responder {
    input: Vec<u8>,
    /// Body bytes of a request that are still to come.
    body_left: usize,
    /// The reply that goes out when they have.
    pending: Option<(String, bool)>,
    /// Bytes to send.
    pub output: Vec<u8>,
    /// The connection ends when they have been sent.
    pub closes: bool,
}

impl Responder {
    /// Takes bytes of the client.
    pub(crate) fn handle(&mut self, bytes: &[u8], objects: &[Object], unix_s: u64) {
        self.input.extend(bytes);
        loop {
            if self.pending.is_some() {
                let taken = self.body_left.min(self.input.len());
                self.input.drain(..taken);
                self.body_left -= taken;
                if self.body_left > 0 {
                    return;
                }
            }
            if let Some((path, closes)) = self.pending.take() {
                if let Some(object) = objects.iter().find(|object| object.path == path) {
                    self.output.extend(reply(object, closes, unix_s));
                }
                self.closes |= closes;
            }
            let Some(end) = self.input.windows(4).position(|window| window == b"\r\n\r\n") else {
                return;
            };
            let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
            self.input.drain(..end + 4);
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            self.body_left = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            self.pending = Some((path, head.contains("\r\nConnection: close")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(body_bytes: usize) -> Request {
        Request {
            method: Method::Post,
            path: "/x".into(),
            head_bytes: 120,
            body_bytes,
            closes: true,
        }
    }

    #[test]
    fn lengths_are_as_asked_for() {
        let object = Object { path: "/x".into(), reply_bytes: 1000 };
        assert_eq!(reply(&object, false, 0).len(), 1000);
        assert_eq!(reply(&object, true, 0).len(), 1000);
        let get = Request {
            method: Method::Get,
            path: "/x".into(),
            head_bytes: 100,
            body_bytes: 0,
            closes: false,
        };
        assert_eq!(request(&get).len(), 100);
        assert_eq!(request(&post(77)).len(), 197);
        assert!(is_date(DATE_AT) && !is_date(DATE_AT + DATE_BYTES));
        let text = reply(&object, true, 784_111_777);
        assert_eq!(&text[DATE_AT..DATE_AT + DATE_BYTES], b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn a_responder_answers_what_a_stream_says_however_it_is_cut() {
        let objects = [Object { path: "/x".into(), reply_bytes: 500 }];
        let get = Request {
            method: Method::Get,
            path: "/x".into(),
            head_bytes: 60,
            body_bytes: 0,
            closes: false,
        };
        let streams = Streams::new(&[get, post(33)], &objects);
        for cut in 1..streams.client.len() {
            let mut responder = Responder::default();
            for part in streams.client.chunks(cut) {
                assert!(!responder.closes);
                responder.handle(part, &objects, 0);
            }
            assert_eq!(responder.output, streams.server);
            assert!(responder.closes);
        }
    }

    #[test]
    fn every_byte_but_the_date_counts() {
        let objects = [Object { path: "/x".into(), reply_bytes: 500 }];
        let get = Request {
            method: Method::Get,
            path: "/x".into(),
            head_bytes: 60,
            body_bytes: 0,
            closes: false,
        };
        let streams = Streams::new(&[get.clone(), get], &objects);
        let dated = reply(&objects[0], false, 1_700_000_000);
        assert_eq!(streams.contradiction(0, &dated), None);
        assert_eq!(streams.contradiction(500, &dated), None);
        assert!(streams.contradiction(1, &dated).is_some());
        assert!(streams.contradiction(990, &dated[490..]).is_none());
        assert!(streams.contradiction(990, &[&dated[490..], &[0][..]].concat()).is_some());
        for at in 0..500 {
            let mut wrong = dated.clone();
            wrong[at] ^= 1;
            assert_eq!(streams.contradiction(500, &wrong).is_some(), !is_date(at), "byte {at}");
        }
    }
}
