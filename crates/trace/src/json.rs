//! A JSON object in each line, as nginx (`log_format ... escape=json`) and Caddy write access logs.
//!
//! nginx leaves the names to its user, who mostly takes those of the variables; the ones that are understood:
//!
//! | what | keys, the better one first |
//! |---|---|
//! | time | `msec`, `ts`, `time_iso8601`, `@timestamp`, `timestamp`, `time`, `datetime`, `time_local` |
//! | client | `client_ip`, `remote_addr`, `remote_ip`, `clientip`, `client`, `ip` |
//! | request line | `request`, `request_line` |
//! | method | `request_method`, `method`, `verb` |
//! | target | `request_uri`; the request line's; `uri`, `url`, `path` with `args`, `query_string` or `query` |
//! | host | `host`, `http_host`, `server_name`, `vhost` |
//! | status | `status`, `status_code`, `response_status` |
//! | bytes | `body_bytes_sent`, `size`, `bytes`, `response_size`; `bytes_sent`, which counts the header, too |
//! | user | `remote_user`, `user_id`, `user` |
//! | headers of the request | `http_cookie` |
//! | headers of the reply | `sent_http_` or `upstream_http_` and `set_cookie`, `cache_control`, `content_range`, `last_modified` |
//!
//! In Caddy's the request is an object `request` (`method`, `uri`, `host`, `client_ip`, `remote_ip`, in old versions
//! `remote_addr` with a port, `headers`), the reply's headers are `resp_headers`, each with an array of values.
//!
//! A time that is a number counts seconds, or milli-, micro- or nanoseconds if it would else be after the year 5000; one
//! that is a text is such a number, ISO 8601, or as in the common log format. Of two times the one with a fraction counts.
//! Only of a reply with status 206 the offset is told (by `Content-Range`); otherwise whole objects are asked for.

use crate::bad::Defect;
use crate::calendar::{Calendar, iso_us};
use crate::field::{number_of, seconds_us, status_of};
use crate::hash::{id_of, id_of_both};
use crate::marks;
use crate::record::{Marks, Record, Verb};

mod scan;

use scan::{Scalar, Scanner, Value, unescape};

const PARTIAL_CONTENT: u16 = 206;

/// Reads the lines of one log, in its order.
#[derive(Debug, Default)]
pub struct Parser {
    calendar: Calendar,
    /// A host, or a request line, without its escapes.
    unescaped: Vec<u8>,
}

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Time,
    Client(u8),
    /// With a port after the last colon.
    ClientPort,
    Request,
    Method,
    Target(u8),
    Query,
    Host(u8),
    Status,
    Bytes(u8),
    User,
    RequestHeaders,
    ReplyHeaders,
    Cookie,
    SetCookie,
    CacheControl,
    ContentRange,
    LastModified,
    Nothing,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Top,
    Request,
    RequestHeaders,
    ReplyHeaders,
}

/// What a line has told until now; of each field the better source, with its rank.
#[derive(Debug, Default)]
struct Line<'a> {
    time_us: Option<(bool, u64)>,
    client: (u8, &'a [u8]),
    request: &'a [u8],
    method: &'a [u8],
    target: (u8, &'a [u8]),
    query: &'a [u8],
    host: (u8, &'a [u8]),
    status: &'a [u8],
    bytes: (u8, &'a [u8]),
    content_range: &'a [u8],
    last_modified: &'a [u8],
    marks: Marks,
}

impl Parser {
    /// A line; its target is put into `target`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(&mut self, text: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
        let mut line = Line::default();
        let mut scanner = Scanner::new(text);
        if scanner.value() != Some(Value::Object) {
            return Err(Defect::Json);
        }
        self.object(&mut scanner, Place::Top, &mut line).ok_or(Defect::Json)?;
        self.record(&line, target)
    }

    /// Reads the entries of an object. The depth is that of the places, which do not nest in each other for ever.
    fn object<'a>(&mut self, scanner: &mut Scanner<'a>, place: Place, line: &mut Line<'a>) -> Option<()> {
        let mut is_first = true;
        while let Some(key) = scanner.key(is_first)? {
            is_first = false;
            let field = field_of(place, key);
            if field == Field::Nothing {
                scanner.skip()?;
                continue;
            }
            match (scanner.value()?, field) {
                (Value::Scalar(scalar), field) => self.scalar(field, scalar, line),
                (Value::Object, Field::Request) if place == Place::Top => self.object(scanner, Place::Request, line)?,
                (Value::Object, Field::RequestHeaders) => self.object(scanner, Place::RequestHeaders, line)?,
                (Value::Object, Field::ReplyHeaders) => self.object(scanner, Place::ReplyHeaders, line)?,
                (Value::Array, field) => {
                    let mut is_first = true;
                    while scanner.has_element(is_first)? {
                        is_first = false;
                        match scanner.value()? {
                            Value::Scalar(scalar) => self.scalar(field, scalar, line),
                            Value::Object | Value::Array => scanner.leave()?,
                        }
                    }
                }
                (Value::Object, _) => scanner.leave()?,
            }
        }
        Some(())
    }

    fn scalar<'a>(&mut self, field: Field, scalar: Scalar<'a>, line: &mut Line<'a>) {
        let raw = scalar.raw();
        if matches!(raw, b"" | b"-") || scalar == Scalar::Bare(b"null") {
            return;
        }
        let better = |old: &mut (u8, &'a [u8]), rank: u8| {
            if rank > old.0 {
                *old = (rank, raw);
            }
        };
        match field {
            Field::Time => {
                let is_fine = raw.contains(&b'.');
                if line.time_us.is_none_or(|(was_fine, _)| is_fine && !was_fine)
                    && let Some(us) = self.time_us(raw)
                {
                    line.time_us = Some((is_fine, us));
                }
            }
            Field::Client(rank) => better(&mut line.client, rank),
            Field::ClientPort => {
                let end = memchr::memrchr(b':', raw).unwrap_or(raw.len());
                if line.client.0 == 0 {
                    line.client = (1, &raw[..end]);
                }
            }
            Field::Request => line.request = raw,
            Field::Method => line.method = raw,
            Field::Target(rank) => better(&mut line.target, rank),
            Field::Query => line.query = raw,
            Field::Host(rank) => better(&mut line.host, rank),
            Field::Status => line.status = raw,
            Field::Bytes(rank) => better(&mut line.bytes, rank),
            Field::User => line.marks |= Marks::USER,
            Field::Cookie => line.marks |= Marks::COOKIE,
            Field::SetCookie => line.marks |= Marks::SETS_COOKIE,
            Field::CacheControl => line.marks |= marks::of_cache_control(raw),
            Field::ContentRange => line.content_range = raw,
            Field::LastModified => line.last_modified = raw,
            Field::RequestHeaders | Field::ReplyHeaders | Field::Nothing => {}
        }
    }

    fn record(&mut self, line: &Line<'_>, target: &mut Vec<u8>) -> Result<Record, Defect> {
        let mut method = line.method;
        if line.target.0 < TARGET_BEST && !line.request.is_empty() {
            self.unescaped.clear();
            unescape(line.request, &mut self.unescaped);
            let mut words = self.unescaped.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
            let first = words.next().unwrap_or_default();
            target.extend_from_slice(words.next().ok_or(Defect::Target)?);
            if method.is_empty() {
                // The line outlives the buffer.
                method = line.request.trim_ascii_start().get(..first.len()).unwrap_or_default();
            }
        } else if line.target.0 > 0 {
            unescape(line.target.1, target);
            if line.target.0 < TARGET_BEST && !line.query.is_empty() && !target.contains(&b'?') {
                target.push(b'?');
                unescape(line.query.strip_prefix(b"?").unwrap_or(line.query), target);
            }
            if method.is_empty() {
                method = line.request.split(|&byte| byte == b' ').next().unwrap_or_default();
            }
        } else {
            return Err(if line.method.is_empty() && line.status.is_empty() {
                Defect::NoRequest
            } else {
                Defect::Target
            });
        }
        let (_, time_us) = line.time_us.ok_or(Defect::Time)?;
        let verb = Verb::of_method(method).ok_or(Defect::Method)?;
        let status = status_of(line.status).or((line.status == b"0").then_some(0)).ok_or(Defect::Status)?;
        let bytes = match line.bytes.1 {
            b"" => None,
            text => Some(number_of(text).ok_or(Defect::Size)?),
        };
        let object = if line.host.1.is_empty() { id_of(target) } else { id_of_both(line.host.1, target) };
        let client = if line.client.1.is_empty() { 0 } else { id_of(line.client.1) };
        let mut record = Record { time_us, client, object, verb, status, bytes, ..Record::default() };
        record.marks = line.marks | marks::of_target(target);
        record.revision = revision_of(line.last_modified);
        if status == PARTIAL_CONTENT
            && let Some((offset, object_bytes)) = range_of(line.content_range)
        {
            (record.offset, record.object_bytes) = (offset, object_bytes);
        }
        Ok(record)
    }

    fn time_us(&mut self, text: &[u8]) -> Option<u64> {
        match text {
            [_, _, _, _, b'-' | b'/', ..] => iso_us(text),
            [_, _, b'/', ..] => self.calendar.common_us(text),
            _ => number_us(text),
        }
    }
}

/// A time that counts from 1970.
fn number_us(text: &[u8]) -> Option<u64> {
    let point = memchr::memchr(b'.', text).unwrap_or(text.len());
    let number = number_of(&text[..point])?;
    Some(match number {
        // The unit shows by the size: a second count of 10^11 is after the year 5000.
        0..100_000_000_000 => seconds_us(text)?,
        100_000_000_000..100_000_000_000_000 => number * 1000 + text.get(point + 1..).map_or(0, thousandths),
        100_000_000_000_000..100_000_000_000_000_000 => number,
        _ => number / 1000,
    })
}

/// The first three digits of a fraction.
fn thousandths(digits: &[u8]) -> u64 {
    crate::field::fraction_us(digits).unwrap_or(0) / 1000
}

/// `Last-Modified`, in nanoseconds since 1970.
fn revision_of(date: &[u8]) -> Option<u64> {
    if date.is_empty() {
        return None;
    }
    let time = httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// First byte and whole length of `bytes first-last/length` (RFC 9110, 14.4).
fn range_of(text: &[u8]) -> Option<(u64, Option<u64>)> {
    let range = text.strip_prefix(b"bytes ")?;
    let (first, rest) = range.split_at(memchr::memchr(b'-', range)?);
    let (_, whole) = rest.split_at(memchr::memchr(b'/', rest)?);
    Some((number_of(first)?, number_of(&whole[1..])))
}

/// Rank of a target that is better than the one in the request line.
const TARGET_BEST: u8 = 2;

fn field_of(place: Place, key: &[u8]) -> Field {
    match place {
        Place::Top => top_field(key),
        Place::Request => match key {
            b"method" => Field::Method,
            b"uri" => Field::Target(TARGET_BEST),
            b"host" => Field::Host(2),
            b"client_ip" => Field::Client(3),
            b"remote_ip" => Field::Client(2),
            b"remote_addr" => Field::ClientPort,
            b"headers" => Field::RequestHeaders,
            _ => Field::Nothing,
        },
        Place::RequestHeaders if key.eq_ignore_ascii_case(b"cookie") => Field::Cookie,
        Place::ReplyHeaders if key.eq_ignore_ascii_case(b"set-cookie") => Field::SetCookie,
        Place::ReplyHeaders if key.eq_ignore_ascii_case(b"cache-control") => Field::CacheControl,
        Place::ReplyHeaders if key.eq_ignore_ascii_case(b"content-range") => Field::ContentRange,
        Place::ReplyHeaders if key.eq_ignore_ascii_case(b"last-modified") => Field::LastModified,
        Place::RequestHeaders | Place::ReplyHeaders => Field::Nothing,
    }
}

fn top_field(key: &[u8]) -> Field {
    match key {
        b"msec" | b"ts" | b"time_iso8601" | b"@timestamp" | b"timestamp" | b"time" | b"datetime" | b"time_local" => {
            Field::Time
        }
        b"client_ip" => Field::Client(3),
        b"remote_addr" | b"remote_ip" => Field::Client(2),
        b"clientip" | b"client" | b"ip" => Field::Client(1),
        b"request" | b"request_line" => Field::Request,
        b"request_method" | b"method" | b"verb" => Field::Method,
        b"request_uri" => Field::Target(TARGET_BEST),
        b"uri" | b"url" | b"path" => Field::Target(1),
        b"args" | b"query_string" | b"query" => Field::Query,
        b"host" | b"http_host" => Field::Host(2),
        b"server_name" | b"vhost" => Field::Host(1),
        b"status" | b"status_code" | b"response_status" => Field::Status,
        b"body_bytes_sent" | b"size" | b"bytes" | b"response_size" => Field::Bytes(2),
        b"bytes_sent" => Field::Bytes(1),
        b"remote_user" | b"user_id" | b"user" => Field::User,
        b"resp_headers" => Field::ReplyHeaders,
        b"http_cookie" => Field::Cookie,
        _ => match key.strip_prefix(b"sent_http_").or_else(|| key.strip_prefix(b"upstream_http_")) {
            Some(b"set_cookie") => Field::SetCookie,
            Some(b"cache_control") => Field::CacheControl,
            Some(b"content_range") => Field::ContentRange,
            Some(b"last_modified") => Field::LastModified,
            _ => Field::Nothing,
        },
    }
}
