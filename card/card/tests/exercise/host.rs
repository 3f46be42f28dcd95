//! The host's end of one connection, and the server behind it.

use std::collections::HashSet;

use nicache_http::{Preface, parse_preface};
use nicache_tcp::{Flags, HeadRepr, Seq, SynOptions, Timestamps};

use super::content::{PATHS, PRIVATE, VERSIONS, body};
use super::line::Segment;
use super::watcher::path_of;

const DATE: &str = "Date: Tue, 14 Nov 2023 22:13:20 GMT";

/// The server.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Objects and versions of which bytes were sent.
    pub made: HashSet<(u8, u8)>,
}

/// What a segment is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Nothing.
    Nothing,
    /// An acknowledgment.
    Ack,
    /// A reset: it belongs to no connection that the host knows (RFC 9293 section 3.10.7.4).
    Reset,
}

/// What a request has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed(pub u8);

/// One end of a connection.
#[derive(Debug)]
pub(super) struct HostEnd {
    /// Number of the client's address.
    pub address: u8,
    /// The client's port.
    pub port: u16,
    /// The how manieth connection it is: the version of what is the client's alone.
    pub number: u8,
    /// Number of the client's SYN.
    pub peer_first: Seq,
    first: Seq,
    options: SynOptions,
    mss: u16,
    got: Vec<u8>,
    parsed: usize,
    fin_got: bool,
    out: Vec<u8>,
    sent: usize,
    acked: usize,
    /// Nothing follows what it has to send.
    pub fin: bool,
    fin_sent: bool,
    is_open: bool,
    room: u32,
    recent: u32,
    /// The connection was reset.
    pub is_dead: bool,
    /// The header of the PROXY protocol that came first; `None`: nothing has come yet.
    pub preface: Option<Vec<u8>>,
    /// Requests, as they have come.
    pub requests: Vec<Vec<u8>>,
}

impl HostEnd {
    /// A SYN has come. `timestamps`: whether the host knows them.
    pub(super) fn new(
        address: u8,
        number: u8,
        syn: &Segment,
        first: Seq,
        timestamps: bool,
    ) -> Self {
        let theirs = syn.head.syn_options.unwrap_or_default();
        let timestamps = theirs.timestamps.filter(|_| timestamps);
        let options = SynOptions {
            mss: Some(1400),
            window_scale: theirs.window_scale.map(|_| 3),
            sack_permitted: theirs.sack_permitted,
            timestamps,
            ecn: false,
        };
        let most =
            theirs.mss.unwrap_or(536).clamp(64, 1400) - if timestamps.is_some() { 12 } else { 0 };
        Self {
            address,
            port: syn.head.src_port,
            number,
            peer_first: syn.head.seq,
            first,
            options,
            mss: most,
            got: Vec::new(),
            parsed: 0,
            fin_got: false,
            out: Vec::new(),
            sent: 0,
            acked: 0,
            fin: false,
            fin_sent: false,
            is_open: false,
            room: u32::from(syn.head.window),
            recent: theirs.timestamps.map_or(0, |theirs| theirs.val),
            is_dead: false,
            preface: None,
            requests: Vec::new(),
        }
    }

    /// Largest payload of a segment.
    pub(super) fn mss(&self) -> u16 {
        self.mss
    }

    /// The header of a segment that begins at `at` of what it sends.
    pub(super) fn head(&self, flags: Flags, at: usize, now_ms: u32) -> HeadRepr {
        let timestamps =
            self.options.timestamps.map(|_| Timestamps { val: now_ms + 77, ecr: self.recent });
        let is_syn = flags.syn();
        HeadRepr {
            src_port: 80,
            dst_port: self.port,
            seq: if is_syn { self.first } else { self.first + 1 + at as u32 },
            ack: self.peer_first + 1 + self.got.len() as u32 + u32::from(self.fin_got),
            flags,
            window: if is_syn || self.options.window_scale.is_none() {
                60_000
            } else {
                60_000 >> 3
            },
            timestamps,
            syn_options: is_syn.then_some(SynOptions { timestamps, ..self.options }),
            ..HeadRepr::default()
        }
    }

    /// A segment has come.
    pub(super) fn take(&mut self, segment: &Segment) -> Wants {
        let head = &segment.head;
        if head.flags.rst() {
            self.is_dead = true;
        }
        if self.is_dead || !head.flags.ack() {
            return Wants::Nothing;
        }
        let acked = head.ack.since(self.first + 1) as usize;
        if acked > self.sent() {
            return if self.is_open { Wants::Ack } else { Wants::Reset };
        }
        self.is_open = true;
        if let Some(theirs) = head.timestamps {
            self.recent = theirs.val;
        }
        self.acked = self.acked.max(acked);
        self.room = head.window_bytes(if self.options.window_scale.is_some() { 7 } else { 0 });
        let place = head.seq.since(self.peer_first + 1) as usize;
        let len = segment.payload.len();
        if place <= self.got.len() && place + len > self.got.len() {
            let fresh = self.got.len() - place;
            self.got.extend(&segment.payload[fresh..]);
        }
        if head.flags.fin() && place + len == self.got.len() {
            self.fin_got = true;
        }
        if len > 0 || head.flags.fin() { Wants::Ack } else { Wants::Nothing }
    }

    /// What may be sent now, at most `len` bytes: from where to where, and whether the end is with
    /// it. `again`: from the first byte that is not acknowledged.
    pub(super) fn next(&mut self, len: usize, again: bool) -> Option<(usize, usize, bool)> {
        let from = if again { self.acked.min(self.sent) } else { self.sent };
        let room = (self.acked + self.room as usize).saturating_sub(from);
        let to = (from + len.min(room)).min(self.out.len());
        let is_last = self.fin && to == self.out.len() && (again || !self.fin_sent);
        if from == to && !is_last {
            return None;
        }
        self.sent = self.sent.max(to);
        self.fin_sent |= is_last;
        Some((from, to, is_last))
    }

    /// Bytes that are sent at these places.
    pub(super) fn bytes(&self, from: usize, to: usize) -> &[u8] {
        &self.out[from..to]
    }

    /// Where what was sent ends.
    pub(super) fn sent(&self) -> usize {
        self.sent + usize::from(self.fin_sent)
    }

    /// Answers the next request that has come whole.
    pub(super) fn serve(
        &mut self,
        versions: &[u8; PATHS],
        server: &mut Server,
    ) -> Option<Option<Changed>> {
        if self.preface.is_none() {
            let len = match parse_preface(&self.got) {
                Preface::Partial => return None,
                Preface::Header(header) => header.len,
                Preface::Absent | Preface::Malformed => 0,
            };
            self.preface = Some(self.got[..len].to_vec());
            self.parsed = len;
        }
        let rest = &self.got[self.parsed..];
        let head_len = rest.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&rest[..head_len]).into_owned();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
        let len = head_len + length.unwrap_or(0).min(1 << 16);
        if rest.len() < len || self.fin {
            return None;
        }
        self.requests.push(rest[..len].to_vec());
        self.parsed += len;
        let mut words = text.split(' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let is_old = text.contains("HTTP/1.0") || text.contains("Connection: close");
        self.fin |= is_old;
        let Some(path) = path_of(target.as_bytes()) else {
            self.fin = true;
            let head = format!(
                "HTTP/1.1 400 Bad Request\r\n{DATE}\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno\n"
            );
            self.out.extend(head.as_bytes());
            return Some(None);
        };
        if method == "POST" {
            if text.contains("100-continue") {
                self.out.extend(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            self.out.extend(
                format!("HTTP/1.1 200 OK\r\n{DATE}\r\nContent-Length: 2\r\n\r\nok").as_bytes(),
            );
            return Some((path != PRIVATE).then_some(Changed(path)));
        }
        let version = if path == PRIVATE { self.number } else { versions[usize::from(path)] };
        self.reply(path, version, method == "HEAD", &text, server);
        Some(None)
    }

    /// Each object has its own way to be replied with.
    fn reply(&mut self, path: u8, version: u8, is_head: bool, request: &str, server: &mut Server) {
        let tag = format!("\"{version}\"");
        if path == 3 && request.contains(&format!("If-None-Match: {tag}")) {
            self.out.extend(
                format!("HTTP/1.1 304 Not Modified\r\n{DATE}\r\nETag: {tag}\r\n\r\n").as_bytes(),
            );
            return;
        }
        let body = body(path, version);
        let length = format!("Content-Length: {}\r\n", body.len());
        let more = match path {
            1 => "Transfer-Encoding: chunked\r\n".into(),
            2 => format!("{length}Cache-Control: no-store\r\n"),
            3 => format!(
                "{length}ETag: {tag}\r\nLast-Modified: Tue, 14 Nov 2023 22:00:00 GMT\r\nAccept-Ranges: bytes\r\n"
            ),
            4 => format!("{length}Vary: Accept-Encoding\r\n"),
            6 => "Connection: close\r\n".into(),
            PRIVATE => format!("{length}Set-Cookie: of={version}\r\n"),
            _ => length,
        };
        self.fin |= path == 6;
        self.out.extend(format!("HTTP/1.1 200 OK\r\n{DATE}\r\n{more}\r\n").as_bytes());
        if is_head {
            return;
        }
        server.made.insert((path, version));
        if path == 1 {
            for chunk in body.chunks(64) {
                self.out.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
                self.out.extend(chunk);
                self.out.extend(b"\r\n");
            }
            self.out.extend(b"0\r\n\r\n");
        } else {
            self.out.extend(body);
        }
    }
}

const _: () = assert!(PATHS < 10 && VERSIONS <= 128);
