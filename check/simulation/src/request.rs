//! Requests of clients: what is asked, and in which of the many ways of asking.

use std::rc::Rc;

use crate::files::{Files, UNIX_START_S};
use crate::random::Random;
use crate::server_reply::http_date;

/// What a right answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A file.
    File(usize),
    /// A file in one of two languages: the file of this client's.
    Vary(usize),
    /// Something for this client alone.
    Private,
    /// A request that changes a file without anybody's knowing, if the server says so.
    Change(usize),
    /// Whatever the server says.
    Anything,
}

/// A request and when it was sent.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its number, which it also carries.
    pub number: u64,
    /// Its bytes.
    pub bytes: Rc<[u8]>,
    /// No body is expected.
    pub head: bool,
    /// What is expected.
    pub expect: Expect,
    /// `If-None-Match`.
    pub tag: Option<String>,
    /// `If-Modified-Since`.
    pub since: Option<String>,
    /// `If-Match`.
    pub if_match: Option<String>,
    /// `If-Unmodified-Since`.
    pub unmodified: Option<String>,
    /// `Range`.
    pub range: Option<String>,
    /// `If-Range`.
    pub if_range: Option<String>,
    /// Bytes at its end that are sent only when the server says so.
    pub late: usize,
    /// HTTP/1.0.
    pub http10: bool,
    /// The connection ends behind the reply, by what the request says.
    pub last: bool,
    /// Nothing that a server would take for a request.
    pub garbage: bool,
    /// When its last byte was given to TCP.
    pub sent_ns: u64,
    /// When its first byte was given to TCP.
    pub begun_ns: u64,
    /// In how many portions it was given to TCP.
    pub portions: u32,
    /// Other requests of the connection were unanswered when it was sent.
    pub behind: usize,
}

/// How a client asks in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestPlan {
    /// Files that are asked for most.
    pub popular: u64,
    /// Percent of requests that are neither GET nor HEAD of a file without conditions.
    pub odd_percent: u64,
    /// Of which kinds: from, to. A run that has few of them has each more often, so what is
    /// learned from one is used for another.
    pub odd_kinds: (u64, u64),
}

/// Draws the next request.
pub(crate) fn draw(
    number: u64,
    plan: &RequestPlan,
    files: &Files,
    last: bool,
    random: &mut Random,
) -> Asked {
    let count = files.len() as u64;
    let file = if random.percent(80) {
        random.below(plan.popular.min(count))
    } else {
        random.below(count)
    } as usize;
    let mut asked = Asked {
        number,
        bytes: Rc::from([]),
        head: random.percent(8),
        expect: Expect::File(file),
        tag: None,
        since: None,
        if_match: None,
        unmodified: None,
        range: None,
        if_range: None,
        late: 0,
        http10: random.percent(10),
        last: false,
        garbage: false,
        sent_ns: 0,
        begun_ns: 0,
        portions: 0,
        behind: 0,
    };
    let mut path = format!("/f/{file}");
    let mut fields = String::new();
    let mut method = if asked.head { "HEAD" } else { "GET" };
    let mut body = String::new();
    if random.percent(10) {
        fields.push_str("Accept-Encoding: gzip\r\n");
    }
    if random.percent(plan.odd_percent) {
        match random.range(plan.odd_kinds.0, plan.odd_kinds.1) {
            0..4 => condition(&mut asked, files, file, &mut fields, random),
            4 | 5 => {
                // Few of them, so they are asked for again.
                let file = file % 2;
                asked.expect = Expect::File(file);
                path = format!("/{}/{file}", if random.percent(50) { "chunked" } else { "close" });
            }
            6 => path = format!("/early/{file}"),
            7 | 16 | 17 => {
                asked.expect = Expect::Private;
                path = "/private/0".into();
            }
            8..10 => {
                let german = random.percent(50);
                fields.push_str(if german {
                    "Accept-Language: de\r\n"
                } else {
                    "Accept-Language: en\r\n"
                });
                let base = file & !1;
                asked.expect = Expect::Vary((base ^ usize::from(german)).min(files.len() - 1));
                path = format!("/vary/{base}");
            }
            10 => fields.push_str("Cookie: session=1\r\n"),
            11 => {
                method = "POST";
                asked.head = false;
                asked.expect = Expect::Anything;
                body = "x".repeat(random.range(0, 3000) as usize);
                fields.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            12 if !asked.http10 => {
                method = "POST";
                asked.head = false;
                asked.expect = Expect::Anything;
                fields.push_str("Transfer-Encoding: chunked\r\n");
                body = "5\r\nhello\r\n0\r\n\r\n".into();
            }
            13 => fields.push_str("X-Unknown: 1\r\n"),
            14 => {
                path = "/nowhere".into();
                asked.expect = Expect::Anything;
            }
            15 if random.percent(40) => asked.garbage = true,
            18..24 => {
                let file = file % 2;
                asked.expect = Expect::File(file);
                path = format!("/f/{file}");
                range(&mut asked, files, file, &mut fields, random);
                method = if asked.head { "HEAD" } else { "GET" };
            }
            24 | 25 => precondition(&mut asked, files, file, &mut fields, random),
            26..29 => {
                // What is changed without anybody's knowing.
                asked.expect = Expect::File(files.len() - 1);
                path = format!("/f/{}", files.len() - 1);
            }
            29..32 => {
                asked.head = false;
                let file = files.len() - 1;
                asked.expect = Expect::Change(file);
                method = random.pick(&["PUT", "POST", "PATCH", "DELETE"]);
                path = format!("/{}/{file}", random.pick(&["f", "change", "refuse"]));
                if random.percent(60) {
                    body = "x".repeat(random.range(1, 3000) as usize);
                    fields.push_str(&format!("Content-Length: {}\r\n", body.len()));
                    if !asked.http10 && random.percent(40) {
                        fields.push_str("Expect: 100-continue\r\n");
                        asked.late = body.len();
                    }
                }
            }
            _ => {}
        }
    }
    let keep = match (asked.http10, last, random.below(8)) {
        (false, false, 0) => "Connection: keep-alive\r\n",
        (false, true, 0..6) => "Connection: close\r\n",
        (true, false, _) => "Connection: keep-alive\r\n",
        _ => "",
    };
    asked.last = asked.garbage
        || keep.contains("close")
        || (asked.http10 && keep.is_empty())
        || path.starts_with("/close");
    asked.last |= asked.http10 && path.starts_with("/chunked");
    let version = if asked.http10 { "HTTP/1.0" } else { "HTTP/1.1" };
    let text = if asked.garbage {
        asked.expect = Expect::Anything;
        asked.head = false;
        String::from("\u{1}this is not a request\r\n\r\n")
    } else {
        format!(
            "{method} {path} {version}\r\nHost: sim.test\r\nUser-Agent: r{number}\r\n{keep}{fields}\r\n{body}"
        )
    };
    asked.bytes = text.into_bytes().into();
    asked
}

/// One range, several, or something on which servers differ.
fn range(asked: &mut Asked, files: &Files, file: usize, fields: &mut String, random: &mut Random) {
    let Some(version) = files.get(file).versions.last() else { return };
    let len = version.bytes.as_ref().map_or(1, |bytes| bytes.len()) as u64;
    let one = |random: &mut Random| {
        let first = random.below(len);
        match random.below(4) {
            0 => format!("{first}-"),
            1 => format!("-{}", random.range(1, len.max(2))),
            _ => format!("{first}-{}", first + random.below(3000)),
        }
    };
    let value = match random.below(10) {
        0..5 => one(random),
        5..8 => {
            let (mut at, mut parts) = (0, Vec::new());
            for _ in 0..random.range(2, 5) {
                let first = at + random.below(len / 4 + 1);
                at = first + random.below(len / 4 + 1);
                parts.push(format!("{first}-{at}"));
                at += 2;
            }
            parts.join(",")
        }
        8 => random
            .pick(&["-0", "5-2", "x", "", "0-1,,3-4", "0-1, 5-6", "999999999-", "0-,1-2"])
            .into(),
        _ => format!("{},{}", one(random), one(random)),
    };
    let value = format!("bytes={value}");
    fields.push_str(&format!("Range: {value}\r\n"));
    asked.range = Some(value);
    asked.head &= random.percent(20);
    if random.percent(30) {
        let value = match random.below(4) {
            0 => http_date(version.modified_s),
            1 => "\"other\"".into(),
            2 => format!("W/{}", version.etag),
            _ => version.etag.clone(),
        };
        fields.push_str(&format!("If-Range: {value}\r\n"));
        asked.if_range = Some(value);
    }
}

fn precondition(
    asked: &mut Asked,
    files: &Files,
    file: usize,
    fields: &mut String,
    random: &mut Random,
) {
    let Some(version) = files.get(file).versions.last() else { return };
    if random.percent(60) {
        let tag = match random.below(4) {
            0 => "*".into(),
            1 => "\"other\"".into(),
            _ => version.etag.clone(),
        };
        fields.push_str(&format!("If-Match: {tag}\r\n"));
        asked.if_match = Some(tag);
    } else {
        let date = http_date(version.modified_s + random.below(3) * 1000 - 1000);
        fields.push_str(&format!("If-Unmodified-Since: {date}\r\n"));
        asked.unmodified = Some(date);
    }
}

fn condition(
    asked: &mut Asked,
    files: &Files,
    file: usize,
    fields: &mut String,
    random: &mut Random,
) {
    let versions = &files.get(file).versions;
    let version = if random.percent(80) { versions.last() } else { versions.first() };
    let Some(version) = version else { return };
    let with_tag = random.percent(70);
    if with_tag {
        let tag = if random.percent(10) { "*".into() } else { version.etag.clone() };
        fields.push_str(&format!("If-None-Match: {tag}\r\n"));
        asked.tag = Some(tag);
    }
    if !with_tag || random.percent(50) {
        let since = match random.below(10) {
            0 => http_date(UNIX_START_S - 100_000),
            1 => http_date(UNIX_START_S + 100_000),
            _ => http_date(version.modified_s),
        };
        fields.push_str(&format!("If-Modified-Since: {since}\r\n"));
        asked.since = Some(since);
    }
}
