//! The common and the combined log format.
//!
//! A line is `host ident user [time] "METHOD target HTTP/x.y" status bytes ...`. Idents are not
//! looked at and users need not be there, so logs that leave them out (the EPA log) are read, too.
//! A time is `day/month/year:hour:minute:second zone` or, in the EPA log, `day:hour:minute:second`
//! without a month. A virtual host or an `X-Forwarded-For` may stand in front, and a coding or the
//! same at the end.

use memchr::{memchr, memchr_iter, memrchr, memrchr_iter};

use crate::bad::Defect;
use crate::calendar::Calendar;
use crate::field::{bytes_of, number_of, status_of};
use crate::hash::{id_of, id_of_both};
use crate::marks;
use crate::record::{Coding, Marks, Record, Verb};

/// Reads the lines of one log, in its order.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    calendar: Calendar,
}

impl Parser {
    /// A line; its target is put into `target`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(&mut self, line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
        if line.first().is_none_or(|&first| first == b' ') {
            return Err(Defect::Client);
        }
        // An address of IPv6 may have brackets, too.
        let time_end = memchr_iter(b']', line).find(|&at| line[at + 1..].starts_with(b" \""));
        let time_end = time_end.ok_or_else(|| {
            if memchr(b']', line).is_some() { Defect::Request } else { Defect::Time }
        })?;
        let time_start = memrchr(b'[', &line[..time_end]).ok_or(Defect::Time)? + 1;
        let head = Head::of(&line[..time_start - 1]);
        let (request, status, bytes) = request_and_outcome(&line[time_end + 3..])?;
        let mut words = request.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let verb = words.next().and_then(Verb::of_method).ok_or(Defect::Method)?;
        let name = words.next().ok_or(Defect::Target)?;
        let time_us = self.calendar.common_us(&line[time_start..time_end]).ok_or(Defect::Time)?;
        target.extend_from_slice(name);
        let mut marks = marks::of_target(name);
        if head.has_user {
            marks |= Marks::USER;
        }
        let object = if head.host.is_empty() { id_of(name) } else { id_of_both(head.host, name) };
        let tail = Tail::of(line);
        let (client, coding) = (id_of(tail.client.unwrap_or(head.client)), tail.coding);
        Ok(Record {
            time_us,
            client,
            object,
            verb,
            status,
            bytes,
            marks,
            coding,
            ..Record::default()
        })
    }
}

/// What stands before the time.
#[derive(Debug, PartialEq, Eq)]
struct Head<'a> {
    /// The virtual host, without its port; empty if there is none.
    host: &'a [u8],
    client: &'a [u8],
    has_user: bool,
}

impl<'a> Head<'a> {
    /// `client ident user`, of which a log may leave out all but the first; or, with what servers
    /// are often told to write in front,
    /// * `host:port client ident user` (Apache's `vhost_combined`), and `host client ident user` if
    ///   the client is an address;
    /// * `client, proxy, proxy ident user` (`X-Forwarded-For`, in quotes or not), and the same
    ///   before the address of the last proxy, or `-` there. The first address is the client.
    fn of(head: &'a [u8]) -> Self {
        let (mut first, mut rest) = word(head);
        let mut host = &[][..];
        if first.first() == Some(&b'"') {
            // A list in quotes.
            let list = &head[1..];
            let end = memchr(b'"', list).unwrap_or(list.len());
            (first, rest) =
                (&list[..end], list.get(end + 1..).unwrap_or_default().trim_ascii_start());
            let client = first_of_list(first);
            return Head::after_list(client, rest);
        }
        if let Some(comma) = memchr(b',', first) {
            let client = &first[..comma];
            let mut last = first;
            while last.ends_with(b",") {
                (last, rest) = word(rest);
                if last.is_empty() {
                    break;
                }
            }
            return Head::after_list(client, rest);
        }
        // A user's name may have spaces: four words alone say nothing.
        let (second, after) = word(rest);
        let is_host =
            host_of(first).is_some() && (is_address(second) || matches!(word(after).0, b"-"));
        if is_host && !second.is_empty() && second != b"-" && !is_address(without_port(first)) {
            host = without_port(first);
            (first, rest) = (second, after);
        } else if (is_address(first) || first == b"-") && is_address(second) {
            return Head::after_list(first, rest);
        }
        Head { host, client: first, has_user: has_user(rest) }
    }

    /// After an `X-Forwarded-For`: the address of the last proxy may follow, or be left out.
    fn after_list(client: &'a [u8], rest: &'a [u8]) -> Self {
        let (next, after) = word(rest);
        let is_told = !matches!(client, b"" | b"-" | b"unknown");
        if is_address(next) {
            return Head {
                host: &[],
                client: if is_told { client } else { next },
                has_user: has_user(after),
            };
        }
        Head { host: &[], client, has_user: has_user(rest) }
    }
}

/// The first word, and what follows it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b' ', text) {
        Some(end) => (&text[..end], text[end + 1..].trim_ascii_start()),
        None => (text, &[]),
    }
}

fn first_of_list(list: &[u8]) -> &[u8] {
    list[..memchr(b',', list).unwrap_or(list.len())].trim_ascii()
}

/// The host of `host:port`, or of a name with a dot in it.
fn host_of(word: &[u8]) -> Option<&[u8]> {
    let host = without_port(word);
    (!host.is_empty() && (host.len() < word.len() || (host.contains(&b'.') && !is_address(host))))
        .then_some(host)
}

/// `host:port` without the port.
fn without_port(word: &[u8]) -> &[u8] {
    match memrchr(b':', word) {
        Some(at) if number_of(&word[at + 1..]).is_some_and(|port| port <= 65_535) => {
            match &word[..at] {
                // An address of IPv6 has a port only if it is in brackets.
                host if memchr(b':', host).is_some() && !host.ends_with(b"]") => word,
                host => host,
            }
        }
        _ => word,
    }
}

/// Whether a word is an address of IPv4 or IPv6.
fn is_address(word: &[u8]) -> bool {
    let is_possible = |&byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':');
    let bare = word.strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]")).unwrap_or(word);
    bare.len() > 2
        && bare.iter().all(is_possible)
        && std::str::from_utf8(bare).is_ok_and(|text| text.parse::<std::net::IpAddr>().is_ok())
}

/// What a log has in quotes at the end of a line, after a request, a referrer and a client's name
/// of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tail<'a> {
    coding: Coding,
    /// The first address of `X-Forwarded-For`.
    client: Option<&'a [u8]>,
}

impl<'a> Tail<'a> {
    /// `Content-Encoding` by its name, or nginx's `$gzip_ratio`, which is there if and only if the
    /// body was packed; or addresses, as nginx's `main` format ends with. `-` may stand for
    /// anything that was not there.
    fn of(line: &'a [u8]) -> Self {
        let none = Tail::default();
        let Some(inner) = line.strip_suffix(b"\"") else { return none };
        let Some(start) = memrchr(b'"', inner).filter(|&start| inner[..start].ends_with(b"\" "))
        else {
            return none;
        };
        let name = &inner[start + 1..];
        if name
            .first()
            .is_some_and(|first| first.is_ascii_hexdigit() || matches!(first, b':' | b'['))
        {
            let first = first_of_list(name);
            if is_address(first) {
                return Tail { client: Some(first), ..none };
            }
        }
        let (whole, fraction) = name.split_at(memchr(b'.', name).unwrap_or(name.len()));
        let is_ratio = number_of(whole).is_some()
            && fraction.len() == 3
            && number_of(&fraction[1..]).is_some();
        Tail {
            coding: Coding::named(name).unwrap_or(if is_ratio {
                Coding::Gzip
            } else {
                Coding::Unknown
            }),
            ..none
        }
    }
}

/// The request in quotes, and the status and bytes that follow it.
///
/// A target may hold quotes, because old servers did not escape them: the request ends at the last
/// quote that a status and bytes follow. One after a backslash is part of a target or, in the
/// combined format, of what a client says of itself, which must not be taken for an outcome; it
/// ends the request only if no other does.
fn request_and_outcome(quoted: &[u8]) -> Result<(&[u8], u16, Option<u64>), Defect> {
    let mut found = Err(Defect::Request);
    for at in memrchr_iter(b'"', quoted) {
        let Some(rest) = quoted[at + 1..].strip_prefix(b" ") else { continue };
        let is_escaped = at > 0 && quoted[at - 1] == b'\\';
        match outcome(rest) {
            Ok((status, bytes)) if !is_escaped => return Ok((&quoted[..at], status, bytes)),
            Ok((status, bytes)) if found.is_err() => found = Ok((&quoted[..at], status, bytes)),
            Err(defect) if found.is_err() => found = Err(defect),
            _ => {}
        }
    }
    found
}

/// Status and bytes at the beginning of what follows the request.
fn outcome(rest: &[u8]) -> Result<(u16, Option<u64>), Defect> {
    let (status, rest) = rest.split_at_checked(3).ok_or(Defect::Status)?;
    let status = status_of(status).ok_or(Defect::Status)?;
    let rest = rest.strip_prefix(b" ").ok_or(Defect::Status)?;
    let bytes = &rest[..memchr(b' ', rest).unwrap_or(rest.len())];
    Ok((status, bytes_of(bytes).ok_or(Defect::Size)?))
}

/// Whether `ident user ` names the user.
fn has_user(words: &[u8]) -> bool {
    let user = memchr(b' ', words).map_or(&[][..], |ident| &words[ident + 1..]).trim_ascii();
    !matches!(user, b"" | b"-" | b"\"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[u8]) -> Result<(Record, Vec<u8>), Defect> {
        let mut target = Vec::new();
        Parser::default().parse(line, &mut target).map(|record| (record, target))
    }

    #[test]
    fn lines() {
        let (record, target) = parse(
            b"10.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /a.php?b HTTP/1.0\" 200 2326 \"http://r/\" \"A \\\"7\\\"\"",
        )
        .unwrap();
        let expected = Record {
            time_us: 971_211_336_000_000,
            client: id_of(b"10.0.0.1"),
            object: id_of(b"/a.php?b"),
            status: 200,
            bytes: Some(2326),
            marks: Marks::QUERY | Marks::DYNAMIC | Marks::USER,
            ..Record::default()
        };
        assert_eq!((record, &target[..]), (expected, &b"/a.php?b"[..]));
        let (record, target) =
            parse(b"query2 [29:23:53:36] \"HEAD /with\"quote HTTP/1.0\" 304 -").unwrap();
        assert_eq!((record.verb, record.status, record.bytes), (Verb::Head, 304, None));
        assert_eq!((record.marks, &target[..]), (Marks::empty(), &b"/with\"quote"[..]));
        assert_eq!(
            parse(b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /\" 200 1").unwrap().0.marks,
            Marks::empty()
        );
        let (record, _) =
            parse(b"h - John Doe [01/Aug/1995:00:00:01 -0400] \"DELETE /\" 204 0").unwrap();
        assert_eq!((record.marks, record.verb), (Marks::USER, Verb::Write));
        let (record, _) =
            parse(b"[2001:db8::7] - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.1\" 200 1")
                .unwrap();
        assert_eq!((record.client, record.bytes), (id_of(b"[2001:db8::7]"), Some(1)));
        let (record, target) =
            parse(b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /a\\\" HTTP/1.1\" 404 7 \"-\" \"x\\\" 200 9000 y\"")
                .unwrap();
        assert_eq!((record.status, record.bytes, &target[..]), (404, Some(7), &b"/a\\\""[..]));
        let (record, target) =
            parse(b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /a\\\" 200 7").unwrap();
        assert_eq!((record.bytes, &target[..]), (Some(7), &b"/a\\"[..]));
    }

    #[test]
    fn what_stands_in_front() {
        let head = |text: &'static str| {
            let Head { host, client, has_user } = Head::of(text.as_bytes());
            (std::str::from_utf8(host).unwrap(), std::str::from_utf8(client).unwrap(), has_user)
        };
        for (text, expected) in [
            ("203.0.113.9 - - ", ("", "203.0.113.9", false)),
            ("host.example - frank ", ("", "host.example", true)),
            ("host.example - John Doe ", ("", "host.example", true)),
            ("query2 ", ("", "query2", false)),
            ("1.2.3.4:5678 - - ", ("", "1.2.3.4:5678", false)),
            ("2001:db8::7 - - ", ("", "2001:db8::7", false)),
            // Apache's vhost_combined.
            ("example.org:443 203.0.113.9 - - ", ("example.org", "203.0.113.9", false)),
            ("example.org:80 2001:db8::7 - frank ", ("example.org", "2001:db8::7", true)),
            ("example.org:80 pc.example.net - - ", ("example.org", "pc.example.net", false)),
            ("www.example.org 203.0.113.9 - - ", ("www.example.org", "203.0.113.9", false)),
            // X-Forwarded-For.
            ("203.0.113.9, 10.0.0.1 - - ", ("", "203.0.113.9", false)),
            ("203.0.113.9, 10.0.0.1, 10.0.0.2 - frank ", ("", "203.0.113.9", true)),
            ("203.0.113.9,10.0.0.1 - - ", ("", "203.0.113.9", false)),
            ("203.0.113.9, 10.0.0.1 10.0.0.2 - - ", ("", "203.0.113.9", false)),
            ("203.0.113.9 10.0.0.2 - - ", ("", "203.0.113.9", false)),
            ("- 10.0.0.2 - - ", ("", "10.0.0.2", false)),
            ("- - - ", ("", "-", false)),
            ("unknown, 10.0.0.1 10.0.0.2 - - ", ("", "10.0.0.2", false)),
            ("\"203.0.113.9, 10.0.0.1\" - - ", ("", "203.0.113.9", false)),
            ("\"203.0.113.9, 10.0.0.1\" 10.0.0.2 - frank ", ("", "203.0.113.9", true)),
            ("\"-\" 10.0.0.2 - - ", ("", "10.0.0.2", false)),
        ] {
            assert_eq!(head(text), expected, "{text}");
        }
    }

    #[test]
    fn a_host_is_part_of_the_object() {
        let object = |head: &str| {
            parse(
                format!("{head} - - [01/Aug/1995:00:00:01 -0400] \"GET /x HTTP/1.1\" 200 1")
                    .as_bytes(),
            )
            .unwrap()
            .0
            .object
        };
        assert_eq!(object("example.org:80 203.0.113.9"), id_of_both(b"example.org", b"/x"));
        assert_ne!(object("example.org:80 203.0.113.9"), object("example.net:80 203.0.113.9"));
        assert_eq!(object("203.0.113.9, 10.0.0.1"), id_of(b"/x"));
    }

    #[test]
    fn codings_at_the_end() {
        let coding = |end: &str| {
            parse(
                format!("h - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.1\" 200 1{end}")
                    .as_bytes(),
            )
            .unwrap()
            .0
            .coding
        };
        for (end, expected) in [
            ("", Coding::Unknown),
            (" \"-\" \"Agent\"", Coding::Unknown),
            (" \"-\" \"gzip\"", Coding::Gzip),
            (" \"-\" \"Agent\" \"gzip\"", Coding::Gzip),
            (" \"-\" \"Agent\" \"br\"", Coding::Brotli),
            (" \"-\" \"Agent\" \"identity\"", Coding::Identity),
            (" \"-\" \"Agent\" \"3.42\"", Coding::Gzip),
            (" \"-\" \"Agent\" \"-\"", Coding::Unknown),
            (" \"-\" \"Agent\" \"10.0.0.1\"", Coding::Unknown),
            (" \"-\" \"deflate", Coding::Unknown),
            (" \"", Coding::Unknown),
        ] {
            assert_eq!(coding(end), expected, "{end}");
        }
        // nginx's `main` format ends with X-Forwarded-For.
        let client = |end: &str| {
            let line = format!(
                "10.0.0.1 - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.1\" 200 1 \"-\" \"Agent\"{end}"
            );
            parse(line.as_bytes()).unwrap().0.client
        };
        assert_eq!(client(" \"203.0.113.9, 10.0.0.2\""), id_of(b"203.0.113.9"));
        assert_eq!(client(" \"2001:db8::7\""), id_of(b"2001:db8::7"));
        for end in ["", " \"-\"", " \"cafe\""] {
            assert_eq!(client(end), id_of(b"10.0.0.1"), "{end}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (line, defect) in [
            (&b"nonsense"[..], Defect::Time),
            (b" [01/Aug/1995:00:00:01 -0400] \"GET /\" 200 1", Defect::Client),
            (b"h - - [soon] \"GET / HTTP/1.0\" 200 1839", Defect::Time),
            (b"h - - [01/Aug/1995:00:00:03 -0400] GET / 400 0", Defect::Request),
            (b"h - - [01/Aug/1995:00:00:03 -0400] \"GET\" 400 0", Defect::Target),
            (b"h - - [01/Aug/1995:00:00:03 -0400] \"\x16\x03 \x01\" 400 226", Defect::Method),
            (b"h - - [01/Aug/1995:00:00:03 -0400] \"GET /\" - 0", Defect::Status),
            (b"h - - [01/Aug/1995:00:00:03 -0400] \"GET /\" 200 many", Defect::Size),
        ] {
            assert_eq!(parse(line).unwrap_err(), defect, "{}", String::from_utf8_lossy(line));
        }
    }
}
