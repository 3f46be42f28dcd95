//! A client's own parser of replies, which shares no code with the card's.

/// A reply as a client got it.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// All its bytes, interim replies included.
    pub raw: Vec<u8>,
    /// Where the head of the final reply starts and ends in `raw`.
    pub head: (usize, usize),
    /// The decoded body.
    pub body: Vec<u8>,
    /// Header fields, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The connection ends behind it.
    pub last: bool,
    /// An interim reply came before it.
    pub interim: bool,
}

impl Reply {
    /// The first field of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The serial number that the server gave it.
    pub fn serial(&self) -> Option<usize> {
        self.header("server")?.strip_prefix("sim/")?.parse().ok()
    }
}

/// What is at the front of the bytes.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Not enough.
    Partial,
    /// Not HTTP.
    Broken(String),
    /// A reply of so many bytes.
    Reply(Box<Reply>),
}

/// Parses one reply. `ended`: the peer will send nothing further.
pub(crate) fn parse(bytes: &[u8], head_request: bool, ended: bool) -> Parsed {
    let mut reply = Reply::default();
    let mut at = 0;
    loop {
        let Some(end) = bytes[at..].windows(4).position(|window| window == b"\r\n\r\n") else {
            let plausible = bytes[at..].iter().zip(b"HTTP/1.").all(|(got, wanted)| got == wanted);
            return if plausible {
                Parsed::Partial
            } else {
                Parsed::Broken("no status line".into())
            };
        };
        let Ok(head) = std::str::from_utf8(&bytes[at..at + end]) else {
            return Parsed::Broken("head is not ASCII".into());
        };
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap_or_default();
        let Some(code) =
            status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok())
        else {
            return Parsed::Broken(format!("status line {status:?}"));
        };
        reply.status = code;
        reply.headers.clear();
        for line in lines {
            let Some((name, value)) = line.split_once(": ") else {
                return Parsed::Broken(format!("line {line:?}"));
            };
            reply.headers.push((name.to_ascii_lowercase(), value.into()));
        }
        reply.head = (at, at + end + 4);
        at += end + 4;
        if code >= 200 {
            break;
        }
        reply.interim = true;
    }
    reply.last = reply.header("connection") == Some("close");
    let bodiless = head_request || reply.status == 304;
    if bodiless {
    } else if reply.header("transfer-encoding") == Some("chunked") {
        loop {
            let Some(line) = bytes[at..].windows(2).position(|window| window == b"\r\n") else {
                return Parsed::Partial;
            };
            let Some(len) = std::str::from_utf8(&bytes[at..at + line])
                .ok()
                .and_then(|text| usize::from_str_radix(text, 16).ok())
            else {
                return Parsed::Broken("chunk size".into());
            };
            at += line + 2;
            if bytes.len() < at + len + 2 {
                return Parsed::Partial;
            }
            reply.body.extend_from_slice(&bytes[at..at + len]);
            at += len + 2;
            if len == 0 {
                break;
            }
        }
    } else if let Some(len) = reply.header("content-length") {
        let Ok(len) = len.parse::<usize>() else { return Parsed::Broken("length".into()) };
        if bytes.len() < at + len {
            return Parsed::Partial;
        }
        reply.body = bytes[at..at + len].to_vec();
        at += len;
    } else if ended {
        reply.last = true;
        reply.body = bytes[at..].to_vec();
        at = bytes.len();
    } else {
        return Parsed::Partial;
    }
    reply.raw = bytes[..at].to_vec();
    Parsed::Reply(Box::new(reply))
}
