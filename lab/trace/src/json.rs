//! A JSON object in each line, as nginx (`log_format ... escape=json`) and Caddy write access logs.
//!
//! nginx leaves the names to its user, who mostly takes those of the variables; the ones that are
//! understood:
//!
//! | what | keys, the better one first |
//! |---|---|
//! | time | `msec`, `ts`, `time_iso8601`, `@timestamp`, `timestamp`, `time`, `datetime`, `time_local` |
//! | client | `client_ip`, or the first of `http_x_forwarded_for`; `remote_addr`, `remote_ip`, `clientip`, `client`, `ip` |
//! | request line | `request`, `request_line` |
//! | method | `request_method`, `method`, `verb` |
//! | target | `request_uri`; the request line's; `uri`, `url`, `path` with `args`, `query_string` or `query` |
//! | host | `host`, `http_host`, `server_name`, `vhost` |
//! | status | `status`, `status_code`, `response_status` |
//! | bytes | `body_bytes_sent`, `size`, `bytes`, `response_size`; `bytes_sent`, which counts the header, too |
//! | user | `remote_user`, `user_id`, `user` |
//! | headers of the request | `http_cookie` |
//! | headers of the reply | `sent_http_` or `upstream_http_` and `set_cookie`, `cache_control`, `content_range`, `last_modified`, `content_encoding` |
//!
//! In Caddy's the request is an object `request` (`method`, `uri`, `host`, `client_ip`,
//! `remote_ip`, in old versions `remote_addr` with a port, `headers`), the reply's headers are
//! `resp_headers`, each with an array of values.
//!
//! A time that is a number counts seconds, or milli-, micro- or nanoseconds if it would else be
//! after the year 5000; one that is a text is such a number, ISO 8601, or as in the common log
//! format. Of two times the one with a fraction counts. Only of a reply with status 206 the offset
//! is told (by `Content-Range`); otherwise whole objects are asked for.

use crate::bad::Defect;
use crate::calendar::Calendar;
use crate::field::{number_of, status_of};
use crate::hash::{id_of, id_of_both};
use crate::marks;
use crate::record::{Coding, Marks, Record, Verb};

pub(crate) mod joined;
mod scan;

use scan::{Scalar, Scanner, Value, unescape};

const PARTIAL_CONTENT: u16 = 206;

/// Reads the lines of one log, in its order.
#[derive(Debug, Default)]
pub(crate) struct Parser {
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
    /// The client, then proxies.
    ForwardedFor,
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
    ContentEncoding,
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
    coding: Coding,
    marks: Marks,
}

impl Parser {
    /// A line; its target is put into `target`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(&mut self, text: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
        let mut line = Line::default();
        let mut scanner = Scanner::new(text);
        if scanner.value() != Some(Value::Object) {
            return Err(Defect::Json);
        }
        self.object(&mut scanner, Place::Top, &mut line).ok_or(Defect::Json)?;
        self.record(&line, target)
    }

    /// Reads the entries of an object. The depth is that of the places, which do not nest in each
    /// other for ever.
    fn object<'a>(
        &mut self,
        scanner: &mut Scanner<'a>,
        place: Place,
        line: &mut Line<'a>,
    ) -> Option<()> {
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
                (Value::Object, Field::Request) if place == Place::Top => {
                    self.object(scanner, Place::Request, line)?;
                }
                (Value::Object, Field::RequestHeaders) => {
                    self.object(scanner, Place::RequestHeaders, line)?;
                }
                (Value::Object, Field::ReplyHeaders) => {
                    // All of the reply's headers are there: without a coding it has none.
                    line.coding = Coding::Identity;
                    self.object(scanner, Place::ReplyHeaders, line)?;
                }
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
            if field == Field::ContentEncoding && line.coding == Coding::Unknown {
                line.coding = Coding::Identity;
            }
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
                    && let Some(us) = self.calendar.any_us(raw)
                {
                    line.time_us = Some((is_fine, us));
                }
            }
            Field::Client(rank) => better(&mut line.client, rank),
            Field::ForwardedFor => {
                let first = raw[..memchr::memchr(b',', raw).unwrap_or(raw.len())].trim_ascii();
                if line.client.0 < FORWARDED_RANK && !first.is_empty() {
                    line.client = (FORWARDED_RANK, first);
                }
            }
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
            Field::ContentEncoding => line.coding = Coding::of_header(raw),
            Field::RequestHeaders | Field::ReplyHeaders | Field::Nothing => {}
        }
    }

    fn record(&mut self, line: &Line<'_>, target: &mut Vec<u8>) -> Result<Record, Defect> {
        let mut method = line.method;
        if line.target.0 < TARGET_BEST && !line.request.is_empty() {
            self.unescaped.clear();
            unescape(line.request, &mut self.unescaped);
            let mut words =
                self.unescaped.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
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
        let status = status_of(line.status)
            .or_else(|| (line.status == b"0").then_some(0))
            .ok_or(Defect::Status)?;
        let bytes = match line.bytes.1 {
            b"" => None,
            text => Some(number_of(text).ok_or(Defect::Size)?),
        };
        let object =
            if line.host.1.is_empty() { id_of(target) } else { id_of_both(line.host.1, target) };
        let client = if line.client.1.is_empty() { 0 } else { id_of(line.client.1) };
        let coding = line.coding;
        let mut record =
            Record { time_us, client, object, verb, status, bytes, coding, ..Record::default() };
        record.marks = line.marks | marks::of_target(target);
        record.revision = revision_of(line.last_modified);
        if status == PARTIAL_CONTENT
            && let Some((offset, object_bytes)) = range_of(line.content_range)
        {
            (record.offset, record.object_bytes) = (offset, object_bytes);
        }
        Ok(record)
    }
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

/// Rank of a client that a proxy tells: better than the address of the proxy.
const FORWARDED_RANK: u8 = 3;
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
        Place::ReplyHeaders if key.eq_ignore_ascii_case(b"content-encoding") => {
            Field::ContentEncoding
        }
        Place::RequestHeaders | Place::ReplyHeaders => Field::Nothing,
    }
}

fn top_field(key: &[u8]) -> Field {
    match key {
        b"msec" | b"ts" | b"time_iso8601" | b"@timestamp" | b"timestamp" | b"time"
        | b"datetime" | b"time_local" => Field::Time,
        b"client_ip" => Field::Client(3),
        b"remote_addr" | b"remote_ip" => Field::Client(2),
        b"clientip" | b"client" | b"ip" => Field::Client(1),
        b"http_x_forwarded_for" | b"x_forwarded_for" => Field::ForwardedFor,
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
        b"content_encoding" => Field::ContentEncoding,
        _ => {
            match key.strip_prefix(b"sent_http_").or_else(|| key.strip_prefix(b"upstream_http_")) {
                Some(b"set_cookie") => Field::SetCookie,
                Some(b"cache_control") => Field::CacheControl,
                Some(b"content_range") => Field::ContentRange,
                Some(b"last_modified") => Field::LastModified,
                Some(b"content_encoding") => Field::ContentEncoding,
                _ => Field::Nothing,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(Record, String), Defect> {
        parse_bytes(line.as_bytes())
    }

    fn parse_bytes(line: &[u8]) -> Result<(Record, String), Defect> {
        let mut target = Vec::new();
        let record = Parser::default().parse(line, &mut target)?;
        Ok((record, String::from_utf8_lossy(&target).into_owned()))
    }

    /// The names of the variables, as most `log_format`s of nginx have them; all in quotes.
    #[test]
    fn nginx_with_the_variables_names() {
        let (record, target) = parse(
            r#"{"time_local":"17/May/2025:08:05:32 +0200","remote_addr":"93.180.71.3","remote_user":"",
            "request":"GET /downloads/product_1?x=\"1\" HTTP/1.1","status":"304","body_bytes_sent":"0",
            "request_time":"0.001","http_referer":"","http_user_agent":"Debian APT-HTTP/1.3 (0.8.16~exp12ubuntu10.21)",
            "upstream_addr":"-","upstream_status":""}"#,
        )
        .unwrap();
        let expected = Record {
            time_us: 1_747_461_932_000_000,
            client: id_of(b"93.180.71.3"),
            object: id_of(br#"/downloads/product_1?x="1""#),
            status: 304,
            bytes: Some(0),
            marks: Marks::QUERY,
            ..Record::default()
        };
        assert_eq!((record, target.as_str()), (expected, r#"/downloads/product_1?x="1""#));
    }

    /// Numbers without quotes, headers of both sides, and a variable without a value.
    #[test]
    fn nginx_with_headers() {
        let (record, target) = parse(
            r#"{"msec": 1747461932.417, "time_iso8601": "2025-05-17T08:05:32+02:00", "remote_addr": "2001:db8::7",
            "remote_user": "ann", "host": "shop.example", "request_method": "GET", "request_uri": "\/img.php?id=7",
            "uri": "/img.php", "status": 206, "bytes_sent": 1300, "body_bytes_sent": 1000, "upstream_response_time": ,
            "http_cookie": "session=1", "sent_http_set_cookie": "session=2", "sent_http_cache_control": "private, max-age=0",
            "sent_http_content_range": "bytes 5000-5999/70000", "upstream_http_last_modified": "Sun, 06 Nov 1994 08:49:37 GMT"}"#,
        )
        .unwrap();
        let expected = Record {
            time_us: 1_747_461_932_417_000,
            client: id_of(b"2001:db8::7"),
            object: id_of(b"shop.example/img.php?id=7"),
            verb: Verb::Get,
            status: 206,
            bytes: Some(1000),
            offset: 5000,
            object_bytes: Some(70_000),
            revision: Some(784_111_777_000_000_000),
            coding: Coding::Unknown,
            marks: Marks::all(),
        };
        assert_eq!((record, target.as_str()), (expected, "/img.php?id=7"));
    }

    #[test]
    fn the_client_is_the_one_before_the_proxies() {
        let client = |more: &str| {
            parse(&format!(r#"{{"ts":1,"request":"GET / HTTP/1.1","status":200,{more}}}"#))
                .unwrap()
                .0
                .client
        };
        let expected = id_of(b"203.0.113.9");
        assert_eq!(
            client(r#""remote_addr":"10.0.0.1","http_x_forwarded_for":"203.0.113.9, 10.0.0.2""#),
            expected
        );
        assert_eq!(
            client(r#""http_x_forwarded_for":"203.0.113.9","remote_addr":"10.0.0.1""#),
            expected
        );
        assert_eq!(client(r#""remote_addr":"203.0.113.9","http_x_forwarded_for":"-""#), expected);
    }

    #[test]
    fn caddy() {
        let (record, target) = parse(
            r#"{"level":"info","ts":1747461932.4171236,"logger":"http.log.access.log0","msg":"handled request","request":
            {"remote_ip":"10.0.0.1","remote_port":"42614","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"HEAD",
            "host":"a.example","uri":"/foo%20bar?x=1&y=2","headers":{"User-Agent":["curl/8.5.0"],"Accept":["*/*"],
            "Cookie":["REDACTED"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":
            "a.example"}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":
            {"Server":["Caddy"],"Content-Encoding":["gzip"],"Set-Cookie":["REDACTED"],"Cache-Control":["no-store"],
            "Last-Modified":["Sun, 06 Nov 1994 08:49:37 GMT"],"Vary":["Accept-Encoding"]}}"#,
        )
        .unwrap();
        let expected = Record {
            time_us: 1_747_461_932_417_123,
            client: id_of(b"192.0.2.7"),
            object: id_of(b"a.example/foo%20bar?x=1&y=2"),
            verb: Verb::Head,
            status: 200,
            bytes: Some(10_900),
            revision: Some(784_111_777_000_000_000),
            marks: Marks::QUERY | Marks::COOKIE | Marks::SETS_COOKIE | Marks::PRIVATE,
            coding: Coding::Gzip,
            ..Record::default()
        };
        assert_eq!((record, target.as_str()), (expected, "/foo%20bar?x=1&y=2"));
    }

    /// Versions before 2.5 log the address with its port; times may be configured to be texts.
    #[test]
    fn caddy_of_old() {
        let line = |time: &str, address: &str| {
            parse(&format!(
                r#"{{"level":"info","ts":{time},"msg":"handled request","request":{{"remote_addr":"{address}","proto":"HTTP/1.1",
                "method":"PUT","host":"a","uri":"/"}},"common_log":"x","user_id":"ann","duration":1,"size":0,"status":0}}"#
            ))
            .unwrap()
            .0
        };
        let record = line("1747461932.25", "[2001:db8::7]:4711");
        assert_eq!(
            (record.client, record.verb, record.status),
            (id_of(b"[2001:db8::7]"), Verb::Write, 0)
        );
        assert_eq!((record.time_us, record.marks), (1_747_461_932_250_000, Marks::USER));
        assert_eq!(line("1747461932250.5", "10.0.0.1:1").client, id_of(b"10.0.0.1"));
        for (time, us) in [
            ("1747461932", 0),
            ("1747461932250", 250_000),
            ("1747461932250.5", 250_500),
            ("1747461932250001", 250_001),
            ("1747461932250001999", 250_001),
            (r#""2025-05-17T06:05:32.250Z""#, 250_000),
            (r#""2025/05/17 06:05:32.25""#, 250_000),
            (r#""17/May/2025:08:05:32 +0200""#, 0),
            (r#""1747461932.007""#, 7_000),
        ] {
            assert_eq!(line(time, "a:1").time_us, 1_747_461_932_000_000 + us, "{time}");
        }
    }

    #[test]
    fn a_path_and_a_query_are_a_target() {
        let line =
            r#"{"time":1,"method":"GET","uri":"/a","args":"b=c","status":200,"server_name":"s"}"#;
        let (record, target) = parse(line).unwrap();
        assert_eq!((record.object, target.as_str()), (id_of(b"s/a?b=c"), "/a?b=c"));
        let (record, target) =
            parse(r#"{"time":1,"request":"GET /a?b HTTP/2.0","uri":"/index.php","status":200}"#)
                .unwrap();
        assert_eq!((target.as_str(), record.client, record.bytes), ("/a?b", 0, None));
        // nginx leaves bytes above 0x7f as they are.
        let (_, target) = parse_bytes(
            b"{\"time\":1,\"request\":\"GET /\xe9\\u0009\\ud83d\\ude00 HTTP/1.0\",\"status\":200}",
        )
        .unwrap();
        assert_eq!(target, "/\u{fffd}\t\u{1f600}");
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (line, defect) in [
            ("nonsense", Defect::Json),
            ("[1,2]", Defect::Json),
            (r#"{"time":1,"request":"GET / HTTP/1.0","status":200"#, Defect::Json),
            (r#"{"time":1,"request":"GET / HTT"#, Defect::Json),
            (r#"{"time" 1}"#, Defect::Json),
            (
                r#"{"level":"info","ts":1747461932.4,"msg":"serving initial configuration"}"#,
                Defect::NoRequest,
            ),
            (r#"{"time":1,"request":"","status":400}"#, Defect::Target),
            (r#"{"time":1,"request":"\u0016\u0003\u0001 x","status":400}"#, Defect::Method),
            (r#"{"request":"GET / HTTP/1.0","status":200}"#, Defect::Time),
            (r#"{"time":"soon","request":"GET / HTTP/1.0","status":200}"#, Defect::Time),
            (r#"{"time":1,"request":"GET / HTTP/1.0"}"#, Defect::Status),
            (r#"{"time":1,"request":"GET / HTTP/1.0","status":200,"size":"many"}"#, Defect::Size),
        ] {
            assert_eq!(parse(line).unwrap_err(), defect, "{line}");
        }
        let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(parse(&deep).unwrap_err(), Defect::Json);
    }
}
