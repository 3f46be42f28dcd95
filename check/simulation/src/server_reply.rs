//! What the server answers: files with validators, and the kinds of replies that must not be
//! shared.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use crate::files::{Files, SharedFiles, Version, content, unix_s};
use crate::host_log::{HostReply, Peer, SharedLog};
use crate::mutant::Mutant;
use crate::random::Random;
use crate::range::{content_range, multipart, read};
use crate::server_counts::ServerCounts;
use crate::watcher::Lookup;

/// A request as the server reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerRequest {
    method: String,
    target: String,
    http10: bool,
    headers: Vec<(String, String)>,
}

impl ServerRequest {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What is at the front of a connection's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Parsed {
    /// Not enough.
    Partial,
    /// No request.
    Garbage,
    /// A request of so many bytes, body included.
    Request(usize, ServerRequest),
}

/// Parses one request.
pub(crate) fn parse_request(bytes: &[u8]) -> Parsed {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        let odd = bytes.first().is_some_and(|first| !first.is_ascii_uppercase());
        return if odd { Parsed::Garbage } else { Parsed::Partial };
    };
    let Ok(head) = std::str::from_utf8(&bytes[..end]) else { return Parsed::Garbage };
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Parsed::Garbage };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Parsed::Garbage;
    }
    let mut request = ServerRequest {
        method: method.into(),
        target: target.into(),
        http10: version == "HTTP/1.0",
        headers: Vec::new(),
    };
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return Parsed::Garbage };
        request.headers.push((name.to_ascii_lowercase(), value.trim().into()));
    }
    let mut len = end + 4;
    if request.header("transfer-encoding").is_some() {
        let Some(body) = bytes[len..].windows(5).position(|window| window == b"0\r\n\r\n") else {
            return Parsed::Partial;
        };
        len += body + 5;
    } else if let Some(body) = request.header("content-length") {
        len += body.parse::<usize>().unwrap_or(0);
    }
    if bytes.len() < len { Parsed::Partial } else { Parsed::Request(len, request) }
}

#[derive(Clone, Debug)]
enum Body {
    None,
    Bytes(Vec<u8>),
    File { file: usize, inode: u64 },
}

/// A reply that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Number of the reply.
    pub serial: usize,
    /// When its next piece is due.
    pub due_ns: u64,
    /// In how many pieces it goes out.
    pub pieces: u64,
    /// Pause between two.
    pub pause_ns: u64,
    /// Whether the connection is closed behind it.
    pub close_after: bool,
    head: Vec<u8>,
    body: Body,
    len: usize,
    sent: usize,
    chunked: bool,
    changes_seen: usize,
}

impl Job {
    /// Writes the next piece into `out`. False: it was the last.
    pub(crate) fn next_piece(
        &mut self,
        files: &Files,
        out: &mut Vec<u8>,
        changed: &mut u64,
    ) -> bool {
        if !self.head.is_empty() {
            out.append(&mut self.head);
            if self.pieces > 1 && self.serial.is_multiple_of(2) {
                return !matches!(self.body, Body::None);
            }
        }
        let step = (self.len as u64).div_ceil(self.pieces).max(1) as usize;
        let to = (self.sent + step).min(self.len);
        let piece = match &self.body {
            Body::None => return false,
            Body::Bytes(bytes) => bytes[self.sent..to].to_vec(),
            Body::File { file, inode } => {
                let versions = files.get(*file).versions.len();
                *changed += u64::from(self.changes_seen != 0 && self.changes_seen != versions);
                self.changes_seen = versions;
                match files.read_inode(*file, *inode) {
                    Some(bytes) if bytes.len() >= to => bytes[self.sent..to].to_vec(),
                    _ => {
                        // The file was cut off: the reply cannot be finished.
                        self.close_after = true;
                        return false;
                    }
                }
            }
        };
        self.sent = to;
        if self.chunked {
            if !piece.is_empty() {
                out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                out.extend_from_slice(&piece);
                out.extend_from_slice(b"\r\n");
            }
            if to == self.len {
                out.extend_from_slice(b"0\r\n\r\n");
            }
        } else {
            out.extend_from_slice(&piece);
        }
        to < self.len
    }
}

/// More ranges get the whole.
const RANGES_MAX: usize = 4;

/// Seconds since 1970 of a date in a header.
pub(crate) fn http_date_s(date: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// A date as in a header.
pub(crate) fn http_date(unix_s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s))
}

/// What stands behind the server's connections: it decides on replies.
pub(crate) struct Application {
    pub(crate) files: SharedFiles,
    pub(crate) log: SharedLog,
    pub(crate) random: Random,
    pub(crate) mutant: Option<Mutant>,
    /// Look-ups that nobody has taken yet.
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) counts: ServerCounts,
}

impl Application {
    pub(crate) fn new(
        files: SharedFiles,
        log: SharedLog,
        random: Random,
        mutant: Option<Mutant>,
    ) -> Self {
        Self { files, log, random, mutant, lookups: Vec::new(), counts: ServerCounts::default() }
    }

    /// Decides on a reply and logs the request.
    pub(crate) fn begin_reply(
        &mut self,
        peer: Peer,
        request: Option<ServerRequest>,
        raw: &[u8],
        last: bool,
        now_ns: u64,
    ) -> Job {
        let serial = self.note_request(peer, request.as_ref(), raw, now_ns);
        let garbage = request.is_none();
        let request = request.unwrap_or_default();
        let connection = request.header("connection").map(str::to_ascii_lowercase);
        let keep_alive = !garbage
            && !last
            && match connection.as_deref() {
                Some(value) if value.contains("close") => false,
                Some(value) if value.contains("keep-alive") => true,
                _ => !request.http10,
            };
        let mut reply =
            ReplyPlan { serial, keep_alive, http10: request.http10, ..ReplyPlan::default() };
        self.choose(&mut reply, &request, garbage, peer, now_ns);
        self.log.borrow_mut().replies[serial].private = reply.private;
        reply.into_job(&request, now_ns)
    }

    fn note_request(
        &mut self,
        peer: Peer,
        request: Option<&ServerRequest>,
        raw: &[u8],
        now_ns: u64,
    ) -> usize {
        let mut log = self.log.borrow_mut();
        let log = &mut *log;
        let serial = log.replies.len();
        let number = request
            .and_then(|request| request.header("user-agent"))
            .and_then(|agent| agent.strip_prefix('r'))
            .and_then(|number| number.parse().ok());
        log.replies.push(HostReply {
            request: number,
            peer,
            started_ns: now_ns,
            ..HostReply::default()
        });
        match number.and_then(|number| log.requests.get(&number)).cloned() {
            Some(sent) => {
                if *sent.bytes != *raw {
                    log.violation(format!(
                        "I5: request {number:?} reached the host changed at {now_ns} ns"
                    ));
                }
                if sent.peer != peer {
                    log.violation(format!(
                        "I5: request {number:?} of {:x?} came from {peer:x?}",
                        sent.peer
                    ));
                }
                if let Some(first) = log.answered.insert(number.unwrap_or(0), serial) {
                    log.violation(format!(
                        "I5: request {number:?} reached the host twice (replies {first} and {serial})"
                    ));
                }
            }
            None => {
                let known = log.garbage.get(&peer);
                if !known
                    .is_some_and(|sent| sent.windows(raw.len().max(1)).any(|window| window == raw))
                {
                    let text = String::from_utf8_lossy(&raw[..raw.len().min(120)]);
                    log.violation(format!(
                        "I5: the host got from {peer:x?} what nobody sent, at {now_ns} ns: {text:?}"
                    ));
                }
            }
        }
        serial
    }

    fn choose(
        &mut self,
        reply: &mut ReplyPlan,
        request: &ServerRequest,
        garbage: bool,
        peer: Peer,
        now_ns: u64,
    ) {
        if garbage {
            reply.status = "400 Bad Request";
            reply.body = Body::Bytes(b"what?".to_vec());
            return;
        }
        let last = self.files.borrow().len() - 1;
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            let (kind, number) = request.target[1..].split_once('/').unwrap_or(("", ""));
            if number.parse() == Ok(last)
                && matches!(kind, "f" | "change" | "refuse")
                && request.header("transfer-encoding").is_none()
            {
                self.change_by_request(reply, kind, last, now_ns);
                return;
            }
            reply.body = Body::Bytes(b"taken\n".to_vec());
            reply.fields.push_str("Cache-Control: no-store\r\n");
            return;
        }
        let (kind, number) = request.target[1..].split_once('/').unwrap_or(("", ""));
        let number: usize = number.parse().unwrap_or(usize::MAX);
        match kind {
            "private" => {
                let text = format!("only for {:08x}:{} number {}\n", peer.0, peer.1, reply.serial);
                reply.body = Body::Bytes(text.repeat(20).into_bytes());
                reply.private = true;
                self.counts.private += 1;
                if self.mutant == Some(Mutant::ChangedByGet) {
                    let etag = self.change(last, now_ns);
                    self.files.borrow_mut().return_of(last, &etag, now_ns);
                }
                if self.mutant == Some(Mutant::PrivateUnmarked) {
                    self.look_up(0, now_ns);
                    let _ = write!(reply.fields, "Last-Modified: {}\r\n", http_date(unix_s(0)));
                } else if self.random.percent(50) {
                    let _ = write!(reply.fields, "Set-Cookie: id={}\r\n", reply.serial);
                } else {
                    reply.fields.push_str("Cache-Control: private\r\n");
                }
                return;
            }
            "f" | "chunked" | "close" | "early" | "vary" if number < self.files.borrow().len() => {}
            _ => {
                self.not_found(reply);
                return;
            }
        }
        let file = if kind == "vary" {
            reply.fields.push_str("Vary: Accept-Language\r\n");
            number ^ usize::from(request.header("accept-language") == Some("de"))
        } else {
            number
        };
        let file = file.min(self.files.borrow().len() - 1);
        self.look_up(file, now_ns);
        let files = self.files.borrow();
        let version = files.current(file).clone();
        drop(files);
        let Some(bytes) = &version.bytes else {
            self.not_found(reply);
            return;
        };
        let modified = http_date(version.modified_s);
        let _ = write!(reply.fields, "Last-Modified: {modified}\r\nETag: {}\r\n", version.etag);
        reply.body = Body::File { file, inode: version.inode };
        reply.len = bytes.len();
        reply.not_modified =
            match (request.header("if-none-match"), request.header("if-modified-since")) {
                (Some(tags), _) => {
                    tags == "*" || tags.split(',').any(|tag| tag.trim() == version.etag)
                }
                (None, Some(since)) => since == modified,
                (None, None) => false,
            };
        if request.header("cookie").is_some() {
            reply.fields.push_str("Cache-Control: private\r\n");
            reply.private = true;
        }
        reply.chunked = kind == "chunked" && !request.http10;
        reply.until_close = kind == "close" || (kind == "chunked" && request.http10);
        reply.interim = kind == "early" && !request.http10;
        let changed_after =
            |date: &str| http_date_s(date).is_some_and(|date| version.modified_s > date);
        let fails =
            request.header("if-match").is_some_and(|tags| tags != "*" && tags != version.etag)
                || request.header("if-match").is_none()
                    && request.header("if-unmodified-since").is_some_and(changed_after);
        if fails {
            reply.not_modified = false;
            reply.fail("412 Precondition Failed");
            self.counts.failed += 1;
        } else if let Some(value) = request.header("range")
            && !reply.not_modified
            && !reply.chunked
            && !reply.until_close
            && request
                .header("if-range")
                .is_none_or(|value| value == version.etag || value == modified)
        {
            self.cut(reply, value, bytes, file);
        }
        self.counts.chunked += u64::from(reply.chunked);
        self.counts.close_delimited += u64::from(reply.until_close);
        self.counts.interim += u64::from(reply.interim);
    }

    /// Answers with ranges, as nginx reads them or as Go writes them.
    fn cut(&mut self, reply: &mut ReplyPlan, value: &str, bytes: &[u8], file: usize) {
        let Some(ranges) = read(value, bytes.len()).filter(|ranges| ranges.len() <= RANGES_MAX)
        else {
            return;
        };
        match ranges.as_slice() {
            [] => {
                reply.fail("416 Range Not Satisfiable");
                let _ = write!(reply.fields, "Content-Range: bytes */{}\r\n", bytes.len());
                self.counts.failed += 1;
                return;
            }
            &[range] => {
                let _ = write!(
                    reply.fields,
                    "Content-Range: {}\r\n",
                    content_range(range, bytes.len())
                );
                reply.body = Body::Bytes(bytes[range.0..=range.1].to_vec());
            }
            ranges => {
                let boundary = format!("sim{}", reply.serial);
                reply.body =
                    Body::Bytes(multipart(bytes, ranges, &boundary, file.is_multiple_of(2)));
                reply.kind = format!("multipart/byteranges; boundary={boundary}");
                self.counts.ranges.1 += 1;
            }
        }
        reply.status = "206 Partial Content";
        self.counts.ranges.0 += 1;
    }

    /// A request that changes a file, of which no witness knows; or would, if it were not refused.
    fn change_by_request(&mut self, reply: &mut ReplyPlan, kind: &str, file: usize, now_ns: u64) {
        if kind == "refuse" {
            reply.fail("409 Conflict");
            return;
        }
        let etag = self.change(file, now_ns);
        let _ = write!(reply.fields, "X-Made: {etag}\r\n");
        if kind == "change" {
            reply.status = "303 See Other";
            let origin = if reply.serial.is_multiple_of(2) { "" } else { "http://SIM.test" };
            let _ = write!(reply.fields, "Location: {origin}/f/{file}\r\n");
        }
        reply.body = Body::Bytes(b"done\n".to_vec());
        self.counts.changed_by_request += 1;
    }

    /// Changes a file at once; gives its new validator.
    fn change(&mut self, file: usize, now_ns: u64) -> String {
        let mut files = self.files.borrow_mut();
        let number = files.get(file).versions.len();
        let len = files.draw_len(file, 3000, &mut self.random);
        let old = files.current(file).clone();
        let etag = format!("\"{file}-{number}\"");
        files.get_mut(file).versions.push(Version {
            inode: old.inode,
            bytes: Some(content(file, number, len)),
            visible_ns: now_ns,
            returned_ns: u64::MAX,
            modified_s: unix_s(now_ns),
            etag: etag.clone(),
        });
        etag
    }

    fn not_found(&mut self, reply: &mut ReplyPlan) {
        reply.status = "404 Not Found";
        reply.body = Body::Bytes(b"nothing here\n".to_vec());
        self.counts.not_found += 1;
    }

    fn look_up(&mut self, file: usize, now_ns: u64) {
        let inode = self.files.borrow().current(file).inode;
        self.lookups.push(Lookup { time_ns: now_ns, file, inode });
    }
}

struct ReplyPlan {
    serial: usize,
    status: &'static str,
    fields: String,
    body: Body,
    len: usize,
    keep_alive: bool,
    http10: bool,
    not_modified: bool,
    chunked: bool,
    until_close: bool,
    interim: bool,
    private: bool,
    kind: String,
}

impl Default for ReplyPlan {
    fn default() -> Self {
        Self {
            serial: 0,
            status: "200 OK",
            fields: String::new(),
            body: Body::None,
            len: 0,
            keep_alive: true,
            http10: false,
            not_modified: false,
            chunked: false,
            until_close: false,
            interim: false,
            private: false,
            kind: "text/plain".into(),
        }
    }
}

impl ReplyPlan {
    /// An error with a page of the server's own, and no validators.
    fn fail(&mut self, status: &'static str) {
        self.status = status;
        self.fields.clear();
        self.body = Body::Bytes(b"no\n".to_vec());
        (self.chunked, self.until_close) = (false, false);
    }

    fn into_job(mut self, request: &ServerRequest, now_ns: u64) -> Job {
        if let Body::Bytes(bytes) = &self.body {
            self.len = bytes.len();
        }
        if self.not_modified {
            self.status = "304 Not Modified";
            (self.chunked, self.until_close) = (false, false);
        }
        if self.until_close {
            self.keep_alive = false;
        }
        let mut head = String::new();
        if self.interim {
            head.push_str("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
        }
        let date = http_date(unix_s(now_ns));
        let _ = write!(
            head,
            "HTTP/1.1 {}\r\nServer: sim/{}\r\nDate: {date}\r\n",
            self.status, self.serial
        );
        if !self.not_modified {
            let _ = write!(head, "Content-Type: {}\r\n", self.kind);
            if self.chunked {
                head.push_str("Transfer-Encoding: chunked\r\n");
            } else if !self.until_close {
                let _ = write!(head, "Content-Length: {}\r\n", self.len);
            }
        }
        head.push_str(&self.fields);
        if !self.keep_alive {
            head.push_str("Connection: close\r\n");
        } else if self.http10 || request.header("connection").is_some() {
            head.push_str("Connection: keep-alive\r\n");
        }
        head.push_str("Accept-Ranges: bytes\r\n\r\n");
        let bodiless = self.not_modified || request.method == "HEAD";
        Job {
            serial: self.serial,
            due_ns: now_ns,
            pieces: 1,
            pause_ns: 0,
            close_after: !self.keep_alive,
            head: head.into_bytes(),
            body: if bodiless { Body::None } else { self.body },
            len: if bodiless { 0 } else { self.len },
            sent: 0,
            chunked: self.chunked,
            changes_seen: 0,
        }
    }
}
