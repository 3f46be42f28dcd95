//! The common and the combined log format.
//!
//! A line is `host ident user [time] "METHOD target HTTP/x.y" status bytes ...`. Idents are not looked at and users need
//! not be there, so logs that leave them out (the EPA log) are read, too. A time is
//! `day/month/year:hour:minute:second zone` or, in the EPA log, `day:hour:minute:second` without a month.

use memchr::{memchr, memchr_iter, memrchr, memrchr_iter};

use crate::bad::Defect;
use crate::calendar::Calendar;
use crate::field::{bytes_of, status_of};
use crate::hash::id_of;
use crate::marks;
use crate::record::{Marks, Record, Verb};

/// Reads the lines of one log, in its order.
#[derive(Debug, Default)]
pub struct Parser {
    calendar: Calendar,
}

impl Parser {
    /// A line; its target is put into `target`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(&mut self, line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
        let host_end = memchr(b' ', line).unwrap_or(line.len());
        if host_end == 0 {
            return Err(Defect::Client);
        }
        // An address of IPv6 may have brackets, too.
        let time_end = memchr_iter(b']', line).find(|&at| line[at + 1..].starts_with(b" \""));
        let time_end =
            time_end.ok_or_else(|| if memchr(b']', line).is_some() { Defect::Request } else { Defect::Time })?;
        let time_start = memrchr(b'[', &line[..time_end]).ok_or(Defect::Time)? + 1;
        let (request, status, bytes) = request_and_outcome(&line[time_end + 3..])?;
        let mut words = request.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let verb = words.next().and_then(Verb::of_method).ok_or(Defect::Method)?;
        let name = words.next().ok_or(Defect::Target)?;
        let time_us = self.calendar.common_us(&line[time_start..time_end]).ok_or(Defect::Time)?;
        target.extend_from_slice(name);
        let mut marks = marks::of_target(name);
        if line.get(host_end + 1..time_start - 1).is_some_and(has_user) {
            marks |= Marks::USER;
        }
        let (client, object) = (id_of(&line[..host_end]), id_of(name));
        Ok(Record { time_us, client, object, verb, status, bytes, marks, ..Record::default() })
    }
}

/// The request in quotes, and the status and bytes that follow it.
///
/// A target may hold quotes, since old servers did not escape them: the request ends at the last quote that a status and
/// bytes follow. One after a backslash is part of a target or, in the combined format, of what a client says of itself,
/// which must not be taken for an outcome; it ends the request only if no other does.
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
        let (record, target) = parse(b"query2 [29:23:53:36] \"HEAD /with\"quote HTTP/1.0\" 304 -").unwrap();
        assert_eq!((record.verb, record.status, record.bytes), (Verb::Head, 304, None));
        assert_eq!((record.marks, &target[..]), (Marks::empty(), &b"/with\"quote"[..]));
        assert_eq!(parse(b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /\" 200 1").unwrap().0.marks, Marks::empty());
        let (record, _) = parse(b"h - John Doe [01/Aug/1995:00:00:01 -0400] \"DELETE /\" 204 0").unwrap();
        assert_eq!((record.marks, record.verb), (Marks::USER, Verb::Write));
        let (record, _) = parse(b"[2001:db8::7] - - [01/Aug/1995:00:00:01 -0400] \"GET / HTTP/1.1\" 200 1").unwrap();
        assert_eq!((record.client, record.bytes), (id_of(b"[2001:db8::7]"), Some(1)));
        let (record, target) =
            parse(b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /a\\\" HTTP/1.1\" 404 7 \"-\" \"x\\\" 200 9000 y\"")
                .unwrap();
        assert_eq!((record.status, record.bytes, &target[..]), (404, Some(7), &b"/a\\\""[..]));
        let (record, target) = parse(b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /a\\\" 200 7").unwrap();
        assert_eq!((record.bytes, &target[..]), (Some(7), &b"/a\\"[..]));
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
