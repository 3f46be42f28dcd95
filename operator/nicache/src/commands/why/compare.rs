//! `nicache why --compare`: where two replies to the same request differ.
//!
//! The card compares digests, so it knows that two replies differed, and not where. This asks the
//! server itself, twice.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_http::{
    Follower, MASKS_MAX, Masks, Method, PREFIX_BYTES_MIN, ReplyOutcome, parse_framing,
    parse_imf_fixdate, parse_reply, without_own_fields,
};
use serde::Serialize;

use crate::asking::AskedRequest;
use crate::control::Status;
use crate::numbers::grouped;
use crate::page::PageName;
use crate::top::text::shown;

/// Between the two requests: a second later, a clock in the page shows.
const PAUSE: Duration = Duration::from_millis(1100);
/// How long the server may take for a reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of one body at most, and replies that only say that it will come (1xx).
const BODY_BYTES_MAX: usize = 64 << 20;
const INFORMED_MAX: usize = 16;
/// Differences of the bodies that are shown, bytes of each, and of what stands before it.
const SHOWN: usize = 5;
const SHOWN_BYTES: usize = 40;
const BEFORE_BYTES: usize = 24;
/// Fields that each reply may have another value of: they say where it ends, and when it was made.
const PASSING: [&str; 4] = ["date", "age", "content-length", "transfer-encoding"];
/// Fields whose value may go with the moment of the reply.
const MOMENTS: [&str; 2] = ["expires", "last-modified"];

/// What two replies have that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Comparison {
    /// Where both were asked for.
    pub(super) server: SocketAddr,
    /// Status codes.
    pub(super) status: [u16; 2],
    /// Fields with other values.
    pub(super) headers: Vec<HeaderDifference>,
    /// Places of the bodies that differ, the first ones.
    pub(super) body: Vec<BodyDifference>,
    /// Bytes of the bodies.
    pub(super) body_bytes: [u64; 2],
    /// Masks that make both bodies equal; empty if none were found.
    pub(super) masks: Vec<String>,
}

/// A field that only one reply has, or that has another value in each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct HeaderDifference {
    name: String,
    values: [Option<String>; 2],
}

/// A place at which two bodies differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct BodyDifference {
    /// Where it is in the first body, in bytes.
    offset: usize,
    /// What stands before it in both.
    before: String,
    /// What stands there in each.
    texts: [String; 2],
}

/// A reply in full.
#[derive(Debug)]
struct Reply {
    status: u16,
    /// Lines of the head behind the first.
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

/// Asks the server twice. `server`: where; `None`: where `status` says it is, at the page's port.
///
/// # Errors
/// The server cannot be reached, or its reply is not whole or not understood.
pub(super) fn compare(
    status: &Status,
    server: Option<&str>,
    page: &PageName,
    request: &AskedRequest,
) -> Result<Comparison> {
    let server = address(status, server, page)?;
    let host = page.host.clone().unwrap_or_else(|| server.to_string());
    let head = request.head(&host, &page.target, &[]);
    let first = fetch(server, &head)?;
    std::thread::sleep(PAUSE);
    Ok(first.differences(&fetch(server, &head)?, server))
}

fn address(status: &Status, server: Option<&str>, page: &PageName) -> Result<SocketAddr> {
    const HELP: &str = "say where it is with --server ADDRESS:PORT";
    if let Some(server) = server {
        let mut found = server
            .to_socket_addrs()
            .with_context(|| format!("--server {server}: not an ADDRESS:PORT"))?;
        return found.next().with_context(|| format!("--server {server}: no such host"));
    }
    let port = page
        .host
        .as_ref()
        .and_then(|host| host.rsplit_once(':'))
        .and_then(|(_, port)| port.parse().ok())
        .filter(|port| status.http_ports.contains(port))
        .or_else(|| status.http_ports.first().copied())
        .with_context(|| format!("the server has no port for HTTP: {HELP}"))?;
    if status.server_address.is_unspecified() {
        bail!("`nicache attach` does not know the server's address: {HELP}");
    }
    Ok((status.server_address, port).into())
}

fn fetch(server: SocketAddr, head: &str) -> Result<Reply> {
    let until = Instant::now() + PATIENCE;
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).with_context(|| {
        format!(
            "the server does not answer at {server}: say where it is with --server ADDRESS:PORT"
        )
    })?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(head.as_bytes()).with_context(|| format!("asking {server}"))?;
    let mut incoming = Incoming::default();
    let mut piece = [0; 16384];
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        let len = match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            len => len.with_context(|| {
                format!("{server} has not replied in full within {} s", PATIENCE.as_secs())
            })?,
        };
        let is_whole = match len {
            0 => incoming.handle_close(),
            len => incoming.take(&piece[..len])?,
        };
        match incoming.begun {
            Some((reply, _)) if is_whole => return Ok(reply),
            _ if len == 0 => bail!("{server} ended the connection within its reply"),
            _ => {}
        }
    }
}

/// A reply on its way.
#[derive(Debug, Default)]
struct Incoming {
    /// What has come of its head.
    head: Vec<u8>,
    /// Replies that only say that it will come (1xx).
    informed: usize,
    /// What has come of the reply whose head is whole.
    begun: Option<(Reply, Follower)>,
}

impl Incoming {
    /// Takes the next bytes. Returns whether the reply is whole.
    fn take(&mut self, bytes: &[u8]) -> Result<bool> {
        if self.begun.is_some() {
            return self.follow(bytes);
        }
        self.head.extend_from_slice(bytes);
        loop {
            let framing = match parse_framing(&self.head, Method::Get) {
                Ok(Some(framing)) => framing,
                Ok(None) => return Ok(false),
                Err(reason) => bail!("the server's reply is not understood: {reason}"),
            };
            let rest = self.head.split_off(framing.head_len);
            if framing.status < 200 {
                self.head = rest;
                self.informed += 1;
                if self.informed > INFORMED_MAX {
                    bail!("the server says again and again that its reply will come (1xx)");
                }
                continue;
            }
            let own = match parse_reply(&self.head, Method::Get) {
                ReplyOutcome::Complete(reply) => without_own_fields(&reply, &self.head),
                _ => None,
            };
            let fields = fields(own.as_deref().unwrap_or(&self.head));
            let reply = Reply { status: framing.status, fields, body: Vec::new() };
            self.begun = Some((reply, Follower::new(framing.framing)));
            return self.follow(&rest);
        }
    }

    fn follow(&mut self, bytes: &[u8]) -> Result<bool> {
        let Some((reply, follower)) = &mut self.begun else { return Ok(false) };
        let followed = follower.follow(bytes, |piece| reply.body.extend_from_slice(piece));
        if followed.fault.is_some() {
            bail!("the chunks of the server's reply are not understood");
        }
        if reply.body.len() > BODY_BYTES_MAX {
            bail!("the server's reply is longer than {} bytes", grouped(BODY_BYTES_MAX as u64));
        }
        Ok(follower.is_finished())
    }

    /// The connection has ended: is the reply whole?
    fn handle_close(&mut self) -> bool {
        self.begun.as_mut().is_some_and(|(_, follower)| follower.handle_close())
    }
}

impl Reply {
    /// Where another reply, to the same request, differs from this one.
    fn differences(&self, other: &Self, server: SocketAddr) -> Comparison {
        let body = differing(&self.body, &other.body);
        Comparison {
            server,
            status: [self.status, other.status],
            headers: self.differing_fields(other),
            masks: masks(&self.body, &other.body, &body),
            body: body.iter().take(SHOWN).map(Difference::shown).collect(),
            body_bytes: [self.body.len() as u64, other.body.len() as u64],
        }
    }

    fn values(&self, name: &str) -> Option<String> {
        let values: Vec<&str> =
            self.fields.iter().filter(|(own, _)| own == name).map(|(_, value)| &**value).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    fn date(&self, name: &str) -> Option<i64> {
        parse_imf_fixdate(self.values(name)?.as_bytes())?.try_into().ok()
    }

    fn differing_fields(&self, other: &Self) -> Vec<HeaderDifference> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.fields.iter().chain(&other.fields) {
            if !names.contains(&&**name) && !PASSING.contains(&&**name) {
                names.push(name);
            }
        }
        // The same time from the moment of the reply.
        let goes_along = |name: &str| {
            let since = |reply: &Self| Some(reply.date(name)? - reply.date("date")?);
            MOMENTS.contains(&name) && since(self).is_some() && since(self) == since(other)
        };
        let difference = |name: &str| {
            let values = [self.values(name), other.values(name)];
            let differs = values[0] != values[1] && !goes_along(name);
            differs.then(|| HeaderDifference { name: name.to_owned(), values })
        };
        names.into_iter().filter_map(difference).collect()
    }
}

/// Names in small letters, and values, of a head's lines behind the first.
fn fields(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    text.lines().skip(1).filter_map(field).collect()
}

/// A place at which two texts differ: where it begins in the first, and what is there in each.
#[derive(Debug)]
struct Difference<'a> {
    offset: usize,
    before: &'a [u8],
    texts: [&'a [u8]; 2],
    /// What follows in both.
    behind: &'a [u8],
}

impl Difference<'_> {
    fn shown(&self) -> BodyDifference {
        let text = |bytes: &[u8]| {
            let cut = &bytes[..bytes.len().min(SHOWN_BYTES)];
            let dots = if cut.len() < bytes.len() { "…" } else { "" };
            format!("{}{dots}", String::from_utf8_lossy(cut))
        };
        let before = &self.before[self.before.len().saturating_sub(BEFORE_BYTES)..];
        BodyDifference {
            offset: self.offset,
            before: String::from_utf8_lossy(before).into_owned(),
            texts: self.texts.map(text),
        }
    }

    /// A mask for it, of what stands on both sides: `None` if that is not enough to tell it.
    fn mask(&self) -> Option<String> {
        let literal = |bytes: &[u8]| {
            let is_plain = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
            (is_plain && !bytes.contains(&b'*'))
                .then(|| String::from_utf8_lossy(bytes).into_owned())
        };
        let is_of_word =
            |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        // What differs is part of a word, which is another one each time.
        let begun = self.before.iter().rev().take_while(is_of_word).count();
        let before = &self.before[..self.before.len() - begun];
        let ends = self.behind.iter().take_while(is_of_word).count();
        let behind = self.behind.get(ends).filter(|byte| byte.is_ascii_graphic());
        let from = before.len().saturating_sub(BEFORE_BYTES);
        let line = before[from..].rsplit(u8::is_ascii_control).next()?;
        let word = line.rsplit(|byte| *byte == b' ').next()?;
        let prefix = if word.len() < PREFIX_BYTES_MIN { line } else { word };
        Some(format!(
            "{}*{}",
            literal(prefix)?,
            literal(behind.map_or(&[][..], std::slice::from_ref))?
        ))
    }
}

/// All places at which two texts differ: line by line if both have as many, else from the first
/// byte that differs to the last.
fn differing<'a>(one: &'a [u8], other: &'a [u8]) -> Vec<Difference<'a>> {
    let lines = |text: &'a [u8]| text.split_inclusive(|byte| *byte == b'\n');
    if lines(one).count() != lines(other).count() {
        return difference(0, one, other).into_iter().collect();
    }
    let mut offset = 0;
    let mut all = Vec::new();
    for (first, second) in lines(one).zip(lines(other)) {
        all.extend(difference(offset, first, second));
        offset += first.len();
    }
    all
}

fn difference<'a>(offset: usize, one: &'a [u8], other: &'a [u8]) -> Option<Difference<'a>> {
    let same = |(a, b): &(&u8, &u8)| a == b;
    let begin = one.iter().zip(other).take_while(same).count();
    let (left, right) = (&one[begin..], &other[begin..]);
    let end = left.iter().rev().zip(right.iter().rev()).take_while(same).count();
    let texts = [&left[..left.len() - end], &right[..right.len() - end]];
    let is_there = texts.iter().any(|text| !text.is_empty());
    let behind = &left[left.len() - end..];
    is_there.then(|| Difference { offset: offset + begin, before: &one[..begin], texts, behind })
}

/// Masks with which both texts are the same.
fn masks(one: &[u8], other: &[u8], differences: &[Difference<'_>]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for difference in differences {
        match difference.mask() {
            Some(mask) if found.contains(&mask) => {}
            Some(mask) if found.len() < MASKS_MAX => found.push(mask),
            _ => return Vec::new(),
        }
    }
    let Ok(masks) = Masks::new(&found) else { return Vec::new() };
    let left = |text| {
        let mut pieces = Vec::new();
        masks.apply(text, |piece| pieces.push(piece));
        pieces
    };
    if left(one) == left(other) { found } else { Vec::new() }
}

impl Comparison {
    /// For people.
    pub(super) fn text(&self, title: &str) -> String {
        let mut text = String::new();
        let (server, pause) = (self.server, PAUSE.as_secs_f64());
        let [first, second] = self.status;
        let is_same = first == second && self.headers.is_empty() && self.body.is_empty();
        let what = if is_same { "are the same" } else { "differ" };
        let _ =
            writeln!(text, "  two replies of {server} to {title} request, {pause} s apart, {what}");
        if is_same {
            return text;
        }
        if first != second {
            let _ = writeln!(text, "    status    {first} and {second}");
        }
        for HeaderDifference { name, values } in &self.headers {
            let value = |value: &Option<String>| {
                value.as_ref().map_or_else(|| "nothing".to_owned(), |value| quoted(value))
            };
            let _ = writeln!(
                text,
                "    header    {}: {} and {}",
                shown(name),
                value(&values[0]),
                value(&values[1])
            );
        }
        for BodyDifference { offset, before, texts } in &self.body {
            let [one, other] = texts.each_ref().map(|text| quoted(text));
            let before = if before.is_empty() {
                String::new()
            } else {
                format!(", behind {}", quoted(before))
            };
            let _ = writeln!(
                text,
                "    body      at byte {}{before}: {one} and {other}",
                grouped(*offset as u64)
            );
        }
        if !self.masks.is_empty() {
            let _ = writeln!(
                text,
                "    if nobody needs what differs in the body, as a form needs its token: masks = {} in the settings of the path",
                serde_json::to_string(&self.masks).unwrap_or_default()
            );
        }
        if !self.headers.is_empty() && first == second {
            let names: Vec<&str> = self.headers.iter().map(|header| &*header.name).collect();
            let _ = writeln!(
                text,
                "    if clients do not need these headers: mask-headers = {} in the settings of the path",
                serde_json::to_string(&names).unwrap_or_default()
            );
        }
        text
    }
}

fn quoted(text: &str) -> String {
    format!("`{}`", shown(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(first: &str, second: &str) -> Comparison {
        let reply = |text: &str| {
            let mut incoming = Incoming::default();
            // However it comes.
            let is_whole = text.as_bytes().chunks(7).map(|piece| incoming.take(piece).unwrap());
            assert!(is_whole.last().unwrap());
            incoming.begun.unwrap().0
        };
        reply(first).differences(&reply(second), ([10, 0, 0, 1], 80).into())
    }

    fn with_body(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn what_goes_with_the_moment_of_a_reply_is_the_same() {
        let at = |second: u8, body: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 10:00:0{second} GMT\r\n\
                 Expires: Mon, 30 Nov 2026 10:10:0{second} GMT\r\nX-Request-Id: {second}\r\n{body}"
            )
        };
        let (whole, chunked) = (
            "Content-Length: 3\r\n\r\nabc",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        );
        let same = compared(&at(1, whole), &at(3, chunked));
        assert!(same.headers.is_empty() && same.body.is_empty(), "{same:?}");
        assert!(same.text("curl's").contains("are the same"));
        // An end that stays is another time from then.
        let fixed = at(3, whole).replace("10:10:03", "10:10:01");
        let differs = compared(&at(1, whole), &fixed);
        assert!(differs.headers.is_empty(), "the same value");
        assert_eq!(
            compared(&at(1, whole), &at(3, whole).replace("10:10", "10:11")).headers.len(),
            1
        );
    }

    #[test]
    fn places_and_masks() {
        let page = |nonce: &str, number: &str| {
            with_body(&format!("<form>\n<input value=\"{nonce}\">\nin <b>{number}</b> s\n"))
        };
        let found = compared(&page("3fa9c1", "0.01"), &page("3fb777", "0.37"));
        assert_eq!(found.body.len(), 2);
        assert_eq!(found.body[0].texts, ["a9c1".to_owned(), "b777".to_owned()]);
        assert_eq!(found.masks, ["value=\"*\"", "in <b>*<"]);
        let text = found.text("curl's");
        assert!(
            text.contains("at byte 23, behind `<input value=\"3f`: `a9c1` and `b777`"),
            "{text}"
        );
        // Words that a mask does not cover, and replies of other lengths.
        let found = compared(&with_body("it is half past two\n"), &with_body("it is ten\nor so\n"));
        assert!(found.masks.is_empty() && found.body.len() == 1, "{found:?}");
        assert!(found.text("curl's").contains("differ"));
    }

    #[test]
    fn fields_and_status() {
        let found = compared(
            "HTTP/1.1 200 OK\r\nX-Served: a\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-Served: b\r\nX-Odd: \u{202e}x\r\nContent-Length: 0\r\n\r\n",
        );
        let text = found.text("a browser's");
        assert!(
            text.contains("x-served: `a` and `b`") && text.contains("x-odd: nothing and"),
            "{text}"
        );
        assert!(
            !text.contains('\u{202e}') && text.contains("mask-headers = [\"x-served\",\"x-odd\"]"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_reply_is_told() {
        let take = |text: &str| {
            let mut incoming = Incoming::default();
            incoming.take(text.as_bytes()).map(|is_whole| (is_whole, incoming))
        };
        let long = format!("HTTP/1.1 200 OK\r\nX-A: {}", "a".repeat(1 << 20));
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        for wrong in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx",
            &long,
            &early.repeat(INFORMED_MAX + 1),
        ] {
            assert!(take(wrong).is_err(), "{wrong:.80}");
        }
        let (is_whole, mut cut) = take("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").unwrap();
        assert!(!is_whole && !cut.handle_close());
        let (is_whole, mut open) = take("HTTP/1.1 200 OK\r\n\r\nab").unwrap();
        assert!(!is_whole && open.handle_close());
        let (is_whole, last) = take(&format!("{early}HTTP/1.1 204 No Content\r\n\r\n")).unwrap();
        assert!(is_whole && last.begun.unwrap().0.status == 204);
        let big = format!("HTTP/1.1 200 OK\r\n\r\n{}", "a".repeat(BODY_BYTES_MAX + 1));
        assert!(take(&big).is_err());
    }
}
