//! FastCGI requests, as far as they say for whom they are: the bytes that an application has read
//! of a connection.
//!
//! Read first: FastCGI specification 1.0, sections 3.3 (records), 3.4 (name-value pairs) and 5
//! (records of an application).
//!
//! The bytes come as the application reads them, and some may be missing, of which only the number
//! is known. Within the content of a record that does no harm, because its length was told before:
//! what is missing of parameters leaves the request unknown. Anywhere else the stream is lost, for
//! good: what looks like the beginning of a record later may be a client's upload.

use std::net::{IpAddr, SocketAddrV4};

use nicache_coherence::fold;

const HEADER_BYTES: usize = 8;
const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const PARAMS: u8 = 4;
/// Parameters of one request that are looked at; more of them leave it unknown.
const PARAMS_BYTES_MAX: usize = 65_536;

/// What a request says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// The web server's client: `REMOTE_ADDR` and `REMOTE_PORT`. None if they are missing, there
    /// twice, or of this machine.
    pub client: Option<SocketAddrV4>,
}

/// What the bytes bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request begins.
    Begun,
    /// The request's parameters are complete.
    Known(Request),
    /// Two requests at once, or bytes that are not FastCGI. Nothing more comes of this stream.
    Lost,
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    header: Vec<u8>,
    /// Of the record under way: what is still to come.
    content: usize,
    padding: usize,
    kind: u8,
    /// Request under way.
    id: Option<u16>,
    params: Vec<u8>,
    /// Parameters are missing.
    unknown: bool,
    lost: bool,
}

impl Stream {
    /// A connection that was there before.
    pub(crate) fn lost() -> Self {
        Self { lost: true, ..Self::default() }
    }

    /// The request under way is over.
    pub(crate) fn end(&mut self) {
        self.id = None;
    }

    /// `len` bytes have been read; `bytes` is empty if they are missing.
    pub(crate) fn feed(&mut self, bytes: &[u8], len: usize, mut tell: impl FnMut(Step)) {
        if self.lost {
            return;
        }
        let fed =
            if bytes.len() == len { self.feed_bytes(bytes, &mut tell) } else { self.skip(len) };
        if fed.is_none() {
            self.lost = true;
            self.params = Vec::new();
            tell(Step::Lost);
        }
    }

    fn skip(&mut self, len: usize) -> Option<()> {
        if len > self.content + self.padding {
            return None;
        }
        self.unknown |= self.kind == PARAMS && self.content > 0;
        let content = len.min(self.content);
        self.content -= content;
        self.padding -= len - content;
        Some(())
    }

    fn feed_bytes(&mut self, mut bytes: &[u8], tell: &mut impl FnMut(Step)) -> Option<()> {
        while !bytes.is_empty() {
            if self.content > 0 {
                let (content, rest) = bytes.split_at(self.content.min(bytes.len()));
                self.content -= content.len();
                self.take_content(content);
                bytes = rest;
            } else if self.padding > 0 {
                let padding = self.padding.min(bytes.len());
                self.padding -= padding;
                bytes = &bytes[padding..];
            } else {
                let (header, rest) =
                    bytes.split_at((HEADER_BYTES - self.header.len()).min(bytes.len()));
                self.header.extend_from_slice(header);
                bytes = rest;
                if let Ok(header) = <[u8; HEADER_BYTES]>::try_from(&*self.header) {
                    self.header.clear();
                    self.take_header(header, tell)?;
                }
            }
        }
        Some(())
    }

    fn take_header(
        &mut self,
        header: [u8; HEADER_BYTES],
        tell: &mut impl FnMut(Step),
    ) -> Option<()> {
        let [version, kind, id_high, id_low, len_high, len_low, padding, _] = header;
        let (id, len) =
            (u16::from_be_bytes([id_high, id_low]), u16::from_be_bytes([len_high, len_low]));
        if version != VERSION {
            return None;
        }
        (self.kind, self.content, self.padding) = (kind, len.into(), padding.into());
        match (kind, self.id) {
            (BEGIN_REQUEST, None) => {
                (self.id, self.unknown) = (Some(id), false);
                self.params.clear();
                tell(Step::Begun);
            }
            // Two at once; or the last one was not seen to end.
            (BEGIN_REQUEST, Some(_)) => return None,
            (PARAMS, Some(current)) if current == id && len == 0 => {
                let request =
                    if self.unknown { Request::default() } else { read_params(&self.params) };
                self.params.clear();
                tell(Step::Known(request));
            }
            // Of a request that was aborted, or of the connection itself (id 0).
            (ABORT_REQUEST, _) => {}
            (_, Some(current)) if current != id && id != 0 => return None,
            _ => {}
        }
        Some(())
    }

    fn take_content(&mut self, content: &[u8]) {
        if self.kind != PARAMS {
            return;
        }
        if self.params.len() + content.len() > PARAMS_BYTES_MAX {
            self.unknown = true;
        } else {
            self.params.extend_from_slice(content);
        }
    }
}

fn read_params(params: &[u8]) -> Request {
    let (mut address, mut port, mut own) = (None, None, None);
    let mut rest = params;
    while !rest.is_empty() {
        let Some((name, value)) = next_pair(&mut rest) else { return Request::default() };
        let place = match name {
            b"REMOTE_ADDR" => &mut address,
            b"REMOTE_PORT" => &mut port,
            b"SERVER_ADDR" => &mut own,
            _ => continue,
        };
        if place.replace(value).is_some() {
            return Request::default();
        }
    }
    let client = || {
        let text = std::str::from_utf8(address?).ok()?;
        // An IPv4 client of a socket for both is one of IPv4.
        let ip = text.parse::<IpAddr>().ok()?.to_canonical();
        let port = std::str::from_utf8(port?).ok()?.parse().ok().filter(|&port| port != 0)?;
        let is_own = ip.is_loopback() || ip.is_unspecified() || own == Some(text.as_bytes());
        (!is_own).then_some(SocketAddrV4::new(fold(ip), port))
    };
    Request { client: client() }
}

fn next_pair<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (name_len, value_len) = (next_len(rest)?, next_len(rest)?);
    let (name, after) = rest.split_at_checked(name_len)?;
    let (value, after) = after.split_at_checked(value_len)?;
    *rest = after;
    Some((name, value))
}

fn next_len(rest: &mut &[u8]) -> Option<usize> {
    let (&first, after) = rest.split_first()?;
    if first < 128 {
        *rest = after;
        return Some(first.into());
    }
    let (four, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of a request without a body.
    pub(crate) fn request(params: &[(&str, &str)]) -> Vec<u8> {
        let mut pairs = Vec::new();
        for (name, value) in params {
            for len in [name.len(), value.len()] {
                match u8::try_from(len) {
                    Ok(len) if len < 128 => pairs.push(len),
                    _ => pairs.extend((len as u32 | 1 << 31).to_be_bytes()),
                }
            }
            pairs.extend(name.bytes().chain(value.bytes()));
        }
        [record(1, 1, &[0, 1, 0, 0, 0, 0, 0, 0]), record(4, 1, &pairs), record(4, 1, b"")].concat()
    }

    fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
        let padding = (8 - content.len() % 8) % 8;
        let mut bytes = vec![VERSION, kind];
        bytes.extend(id.to_be_bytes());
        bytes.extend((content.len() as u16).to_be_bytes());
        bytes.extend([padding as u8, 0]);
        bytes.extend(content);
        bytes.extend(vec![0; padding]);
        bytes
    }

    fn of_client(address: &str, port: &str) -> Vec<u8> {
        let uri = "/".repeat(300);
        request(&[
            ("REQUEST_URI", &uri),
            ("REMOTE_ADDR", address),
            ("REMOTE_PORT", port),
            ("SERVER_ADDR", "10.0.0.9"),
            ("HTTP_REMOTE_ADDR", "1.1.1.1"),
        ])
    }

    fn feed(stream: &mut Stream, bytes: &[u8]) -> Vec<Step> {
        let mut steps = Vec::new();
        stream.feed(bytes, bytes.len(), |step| steps.push(step));
        steps
    }

    fn known(client: Option<&str>) -> Step {
        Step::Known(Request { client: client.map(|client| client.parse().unwrap()) })
    }

    #[test]
    fn a_request_says_for_whom_it_is() {
        let mut stream = Stream::default();
        let bytes = of_client("10.0.0.1", "4711");
        assert_eq!(feed(&mut stream, &bytes), [Step::Begun, known(Some("10.0.0.1:4711"))]);
        assert_eq!(feed(&mut stream, &record(5, 1, b"")), []);
        stream.end();
        // On the same connection.
        assert_eq!(
            feed(&mut stream, &of_client("::ffff:10.0.0.2", "1")),
            [Step::Begun, known(Some("10.0.0.2:1"))]
        );
    }

    #[test]
    fn who_may_be_of_this_machine_is_nobody() {
        for (address, port) in [
            ("127.0.0.1", "5"),
            ("10.0.0.9", "5"),
            ("10.0.0.1", ""),
            ("10.0.0.1", "0"),
            ("", "5"),
            ("::1", "5"),
        ] {
            assert_eq!(
                feed(&mut Stream::default(), &of_client(address, port)),
                [Step::Begun, known(None)]
            );
        }
        let twice = request(&[
            ("REMOTE_ADDR", "1.2.3.4"),
            ("REMOTE_PORT", "1"),
            ("REMOTE_ADDR", "1.2.3.5"),
        ]);
        assert_eq!(feed(&mut Stream::default(), &twice), [Step::Begun, known(None)]);
    }

    #[test]
    fn a_second_request_at_once_ends_it() {
        let mut stream = Stream::default();
        feed(&mut stream, &of_client("10.0.0.1", "4711"));
        assert_eq!(feed(&mut stream, &of_client("10.0.0.2", "4711")), [Step::Lost]);
        assert_eq!(feed(&mut stream, &of_client("10.0.0.2", "4711")), []);
        assert_eq!(feed(&mut Stream::default(), b"GET / HTTP/1.1\r\n"), [Step::Lost]);
    }

    #[test]
    fn an_upload_that_looks_like_a_request_is_none() {
        let mut stream = Stream::default();
        feed(&mut stream, &of_client("10.0.0.1", "4711"));
        let fake = of_client("10.0.0.2", "1");
        let upload = record(5, 1, &fake);
        assert_eq!(feed(&mut stream, &upload[..HEADER_BYTES]), []);
        // Its bytes are missing, or not.
        let mut steps = Vec::new();
        stream.feed(b"", fake.len(), |step| steps.push(step));
        assert_eq!(steps, []);
        assert_eq!(feed(&mut stream, &upload[HEADER_BYTES + fake.len()..]), []);
        assert_eq!(feed(&mut stream, &upload), []);
        // More is missing than the upload.
        assert_eq!(feed(&mut stream, &upload[..HEADER_BYTES]), []);
        stream.feed(b"", fake.len() + 100, |step| steps.push(step));
        assert_eq!(steps, [Step::Lost]);
        assert_eq!(feed(&mut stream, &fake), []);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_are_cut(
            cuts in proptest::collection::vec(1_usize..40, 1..200),
        ) {
            let bytes = of_client("10.0.0.1", "4711");
            let (mut stream, mut rest, mut steps) = (Stream::default(), &bytes[..], Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, after) = rest.split_at((*cut).min(rest.len()));
                steps.extend(feed(&mut stream, part));
                rest = after;
            }
            prop_assert_eq!(steps, [Step::Begun, known(Some("10.0.0.1:4711"))]);
        }

        /// Whatever comes: no panic, bounded memory, and no client that is in none of the bytes.
        #[test]
        fn anything_may_come(
            noise in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300)),
                0..20,
            ),
            at in 0_usize..700,
            by: u8,
        ) {
            let mut stream = Stream::default();
            let mut bytes = of_client("10.0.0.1", "4711");
            if let Some(place) = bytes.get_mut(at) {
                *place = by;
            }
            feed(&mut stream, &bytes);
            for (is_missing, part) in noise {
                stream.feed(if is_missing { b"" } else { &part }, part.len(), |_| {});
                prop_assert!(
                    stream.params.len() <= PARAMS_BYTES_MAX && stream.header.len() < HEADER_BYTES
                );
            }
        }
    }
}
