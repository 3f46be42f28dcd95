//! Tables whose columns have names: CSV (RFC 4180), or divided by semicolons, tabs or vertical
//! bars.
//!
//! The names stand in the first line, or are given with the format. A value may be in quotes, with
//! a quote in it doubled; it does not go on in the next line. A time is a number of seconds (or
//! milli-, micro- or nanoseconds, if it would else be after the year 5000, or the column's name
//! says so), ISO 8601, or as in the common log format. A key that is a number is the object's
//! number unless there is a host, too.

use std::borrow::Cow;

use crate::bad::Defect;
use crate::calendar::Calendar;
use crate::columns::{Column, Columns};
use crate::field::{number_of, status_of};
use crate::hash::{id_of, id_of_both};
use crate::marks;
use crate::record::{Coding, Record, Verb};

/// What may stand between columns, the likelier one first.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Reads the lines of one table, in its order.
#[derive(Debug)]
pub(crate) struct Parser {
    columns: Columns,
    separator: u8,
    /// The line of names, wherever it comes again.
    header: Vec<u8>,
    calendar: Calendar,
}

/// The columns that a table's first line names, and what is between them.
pub(crate) fn header_of(line: &[u8]) -> Option<(Columns, u8)> {
    SEPARATORS.into_iter().find_map(|separator| {
        let names = || Values { rest: Some(line), separator };
        // A line of data is not a line of names.
        let is_named = names().all(|name| !name.is_empty() && number_of(&name).is_none());
        let owned: Vec<Cow<'_, [u8]>> = names().collect();
        let columns = Columns::of_header(owned.iter().map(|name| &**name)).filter(|_| is_named)?;
        Some((columns, separator))
    })
}

impl Parser {
    /// For a table with these columns; without them, with those that its first line names.
    pub(crate) fn new(columns: Option<Columns>, start: &[u8]) -> Self {
        let mut lines = start.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.find(|line| !line.is_empty() && line[0] != b'#').unwrap_or_default();
        let header = header_of(first);
        let separator = match (header, columns) {
            (Some((_, separator)), _) => separator,
            (None, _) => SEPARATORS
                .into_iter()
                .find(|separator| first.contains(separator))
                .unwrap_or(SEPARATORS[0]),
        };
        Self {
            columns: columns.or_else(|| header.map(|(columns, _)| columns)).unwrap_or_default(),
            separator,
            header: if header.is_some() { first.to_vec() } else { Vec::new() },
            calendar: Calendar::default(),
        }
    }

    /// Whether a line is the one of names.
    pub(crate) fn is_header(&self, line: &[u8]) -> bool {
        !self.header.is_empty() && line == self.header
    }

    /// A line; its key is put into `target`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(&mut self, line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
        let mut record = Record::default();
        let (mut host, mut has_key, mut left) =
            (Cow::Borrowed(&[][..]), false, self.columns.iter());
        let mut values = Values { rest: Some(line), separator: self.separator };
        while let Some(column) = left.next() {
            let Some(value) = values.next() else {
                // Columns at the end that say nothing may be left out.
                if column != Column::Nothing || left.any(|column| column != Column::Nothing) {
                    return Err(Defect::Columns);
                }
                break;
            };
            match column {
                Column::Nothing => {}
                Column::Time => {
                    record.time_us = self.calendar.any_us(&value).ok_or(Defect::Time)?;
                }
                Column::TimeMs => record.time_us = scaled_us(&value, 1000, 1)?,
                Column::TimeUs => record.time_us = scaled_us(&value, 1, 1)?,
                Column::TimeNs => record.time_us = scaled_us(&value, 1, 1000)?,
                Column::Client => {
                    record.client = number_of(&value).unwrap_or_else(|| id_of(&value));
                }
                Column::Key => {
                    has_key = !value.is_empty();
                    target.extend_from_slice(&value);
                }
                Column::Host => host = value,
                Column::Operation => record.verb = operation(&value).ok_or(Defect::Method)?,
                Column::Status => record.status = status_of(&value).ok_or(Defect::Status)?,
                Column::Size => {
                    if let Some(bytes) = size(&value)? {
                        record.object_bytes =
                            Some(record.object_bytes.unwrap_or(0).saturating_add(bytes));
                    }
                }
                Column::Sent => record.bytes = size(&value)?,
                Column::Coding => record.coding = Coding::of_header(&value),
            }
        }
        if !has_key {
            return Err(Defect::Target);
        }
        record.object = match number_of(target) {
            Some(number) if host.is_empty() => number,
            _ if host.is_empty() => id_of(target),
            _ => id_of_both(&host, target),
        };
        record.bytes = record.bytes.or(record.object_bytes);
        record.marks = marks::of_target(target);
        Ok(record)
    }
}

fn scaled_us(value: &[u8], times: u64, parts: u64) -> Result<u64, Defect> {
    let number =
        value.split(|&byte| byte == b'.').next().and_then(number_of).ok_or(Defect::Time)?;
    number.checked_mul(times).map(|us| us / parts).ok_or(Defect::Time)
}

fn size(value: &[u8]) -> Result<Option<u64>, Defect> {
    match value {
        b"" | b"-" => Ok(None),
        value => number_of(value).map(Some).ok_or(Defect::Size),
    }
}

/// What an operation does: a method, a word of a cache's or a disk's trace, or a SCSI operation in
/// hexadecimal.
fn operation(name: &[u8]) -> Option<Verb> {
    const READS: [&[u8]; 7] = [b"get", b"gets", b"read", b"r", b"0", b"28", b"88"];
    const WRITES: [&[u8]; 19] = [
        b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"incr", b"decr", b"delete",
        b"write", b"w", b"1", b"2a", b"8a", b"put", b"post", b"patch", b"update", b"insert",
    ];
    let is = |names: &[&[u8]]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
    match name {
        _ if is(&READS) => Some(Verb::Get),
        _ if is(&WRITES) => Some(Verb::Write),
        _ if name.eq_ignore_ascii_case(b"head") => Some(Verb::Head),
        _ => {
            (!name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric)).then_some(Verb::Other)
        }
    }
}

/// The values of a line.
struct Values<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for Values<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Cow<'a, [u8]>> {
        let rest = self.rest.take()?;
        let Some(quoted) = rest.strip_prefix(b"\"") else {
            let end = memchr::memchr(self.separator, rest);
            self.rest = end.map(|end| &rest[end + 1..]);
            return Some(Cow::Borrowed(rest[..end.unwrap_or(rest.len())].trim_ascii()));
        };
        let mut value = Cow::Borrowed(&[][..]);
        let mut from = quoted;
        loop {
            let end = memchr::memchr(b'"', from).unwrap_or(from.len());
            match &mut value {
                Cow::Borrowed(one) if one.is_empty() => *one = &from[..end],
                value => value.to_mut().extend_from_slice(&from[..end]),
            }
            let after = from.get(end + 1..).unwrap_or_default();
            if let Some(more) = after.strip_prefix(b"\"") {
                value.to_mut().push(b'"');
                from = more;
                continue;
            }
            self.rest = memchr::memchr(self.separator, after).map(|end| &after[end + 1..]);
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: Option<&str>, text: &[u8]) -> Vec<Result<(Record, String), Defect>> {
        let mut parser = Parser::new(columns.map(|names| names.parse().unwrap()), text);
        let lines = text
            .split(|&byte| byte == b'\n')
            .map(<[u8]>::trim_ascii)
            .filter(|line| !line.is_empty());
        let lines: Vec<&[u8]> = lines.filter(|line| !parser.is_header(line)).collect();
        let parse = |line: &&[u8]| {
            let mut target = Vec::new();
            parser
                .parse(line, &mut target)
                .map(|record| (record, String::from_utf8(target).unwrap()))
        };
        lines.iter().map(parse).collect()
    }

    #[test]
    fn names_in_the_first_line() {
        let got = table(
            None,
            b"time;client;url;status;bytes;content_encoding\n1.5;c;\"/a;\"\"b\"\"\";200;7;gzip\n2;c;/a;304;;\n",
        );
        let (record, target) = got[0].clone().unwrap();
        assert_eq!(
            (record.time_us, record.bytes, record.coding),
            (1_500_000, Some(7), Coding::Gzip)
        );
        assert_eq!((target.as_str(), record.object), ("/a;\"b\"", id_of(b"/a;\"b\"")));
        let (record, _) = got[1].clone().unwrap();
        assert_eq!((record.bytes, record.coding, record.status), (None, Coding::Identity, 304));
    }

    /// A line of Twitter's cache traces (Yang, Yue and Rashmi 2020), which have no names.
    #[test]
    fn names_that_are_given() {
        let got = table(
            Some("time,key,key_size,value_size,client,operation,-"),
            b"7,abc,3,100,12,set,0\n7,abc,3,100,12,get\n",
        );
        let (record, _) = got[0].clone().unwrap();
        assert_eq!((record.verb, record.object_bytes, record.client), (Verb::Write, Some(103), 12));
        assert_eq!((record.object, record.time_us), (id_of(b"abc"), 7_000_000));
        assert_eq!(got[1].clone().unwrap().0.verb, Verb::Get);
    }

    #[test]
    fn a_disk_as_libcachesim_ships_it() {
        let got = table(None, b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n");
        let (record, _) = got[0].clone().unwrap();
        assert_eq!(
            (record.verb, record.object, record.bytes),
            (Verb::Write, 42_932_745, Some(512))
        );
    }

    #[test]
    fn units_of_time() {
        let us = |columns: &str, value: &str| {
            table(Some(columns), format!("{value},k").as_bytes())[0]
                .clone()
                .map(|one| one.0.time_us)
        };
        assert_eq!(us("time_ms,key", "5"), Ok(5000));
        assert_eq!(us("time_us,key", "5"), Ok(5));
        assert_eq!(us("time_ns,key", "5999"), Ok(5));
        assert_eq!(us("time,key", "2025-05-17T08:05:32Z"), Ok(1_747_469_132_000_000));
        assert_eq!(us("time_ms,key", "18446744073709551615"), Err(Defect::Time));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let bad = |line: &str| {
            table(Some("time,key,size,status,operation"), line.as_bytes())[0].clone().unwrap_err()
        };
        assert_eq!(bad("1,k,5,200"), Defect::Columns);
        assert_eq!(bad("x,k,5,200,GET"), Defect::Time);
        assert_eq!(bad("1,,5,200,GET"), Defect::Target);
        assert_eq!(bad("1,k,5x,200,GET"), Defect::Size);
        assert_eq!(bad("1,k,5,2000,GET"), Defect::Status);
        assert_eq!(bad("1,k,5,200,G E"), Defect::Method);
    }

    #[test]
    fn a_line_of_data_names_nothing() {
        for line in [&b"1,2,3"[..], b"key", b"a,b,c", b"key,17", b"time,size"] {
            assert!(header_of(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
        assert_eq!(header_of(b"key|size").unwrap().1, b'|');
    }
}
