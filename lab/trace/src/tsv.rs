//! Columns divided by tabs: unix_time, client, method, URL, status, bytes (`-`: not told), and the
//! coding, which may be left out. Lines with `#` are comments.
//!
//! A time may have a fraction. A client that is a number is that number, another one is hashed.

use std::io::{self, Write};

use memchr::memchr;

use crate::bad::Defect;
use crate::field::{bytes_of, number_of, seconds_us, status_of};
use crate::hash::id_of;
use crate::marks;
use crate::record::{Coding, Record, Verb};

/// Columns of a line that must be there; one more may be a coding, and others are not looked at.
const COLUMNS: usize = 6;
const US_PER_SECOND: u64 = 1_000_000;
const HEADER: &[u8] = b"#unix_time\tclient\tmethod\turl\tstatus\tbytes\n";

/// A line; its URL is put into `target`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
    let mut columns = [&[][..]; COLUMNS];
    let mut rest = Some(line);
    for column in &mut columns {
        let left = rest.ok_or(Defect::Columns)?;
        let end = memchr(b'\t', left);
        *column = &left[..end.unwrap_or(left.len())];
        rest = end.map(|end| &left[end + 1..]);
    }
    let [time, client, method, url, status, bytes] = columns;
    let time_us = seconds_us(time).ok_or(Defect::Time)?;
    if client.is_empty() {
        return Err(Defect::Client);
    }
    let verb = Verb::of_method(method).ok_or(Defect::Method)?;
    if url.is_empty() {
        return Err(Defect::Target);
    }
    let status = status_of(status).ok_or(Defect::Status)?;
    let bytes = bytes_of(bytes).ok_or(Defect::Size)?;
    target.extend_from_slice(url);
    let (client, object) = (number_of(client).unwrap_or_else(|| id_of(client)), id_of(url));
    let more = rest.map_or(&[][..], |rest| &rest[..memchr(b'\t', rest).unwrap_or(rest.len())]);
    let (marks, coding) = (marks::of_target(url), Coding::named(more).unwrap_or_default());
    Ok(Record { time_us, client, object, verb, status, bytes, marks, coding, ..Record::default() })
}

/// Writes a trace as columns divided by tabs.
///
/// Kept are time, client (as a number), method, target, status, bytes and coding; a write is a PUT,
/// another operation than reads and writes an OPTIONS.
#[derive(Debug)]
pub struct TsvWriter<W> {
    output: W,
}

impl<W: Write> TsvWriter<W> {
    /// Writes the line of the columns' names.
    ///
    /// # Errors
    /// What `output` says.
    pub fn new(mut output: W) -> io::Result<Self> {
        output.write_all(HEADER)?;
        Ok(Self { output })
    }

    /// Writes a request. A target that is empty, or has a byte that a column cannot hold, is given
    /// as the object's number in hexadecimal after a `/`.
    ///
    /// # Errors
    /// What the output says.
    pub fn write(&mut self, record: &Record, target: &[u8]) -> io::Result<()> {
        let (second, us) = (record.time_us / US_PER_SECOND, record.time_us % US_PER_SECOND);
        write!(self.output, "{second}")?;
        if us != 0 {
            write!(self.output, ".{us:06}")?;
        }
        let method = match record.verb {
            Verb::Get => "GET",
            Verb::Head => "HEAD",
            Verb::Write => "PUT",
            Verb::Other => "OPTIONS",
        };
        write!(self.output, "\t{}\t{method}\t", record.client)?;
        if target.is_empty() || target.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r')) {
            write!(self.output, "/{:016x}", record.object)?;
        } else {
            self.output.write_all(target)?;
        }
        write!(self.output, "\t{:03}\t", record.status.min(999))?;
        match record.bytes {
            Some(bytes) => write!(self.output, "{bytes}")?,
            None => write!(self.output, "-")?,
        }
        match record.coding.name() {
            Some(coding) => writeln!(self.output, "\t{coding}"),
            None => writeln!(self.output),
        }
    }

    /// Gives the output back.
    pub fn into_inner(self) -> W {
        self.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Marks;

    #[test]
    fn lines() {
        let parse = |line: &[u8]| super::parse(line, &mut Vec::new());
        let record = parse(b"1455944445.25\t7\tGET\t/a?b=c\t200\t187").unwrap();
        assert_eq!(
            (record.time_us, record.status, record.bytes),
            (1_455_944_445_250_000, 200, Some(187))
        );
        assert_eq!(
            (record.object, record.client, record.marks),
            (id_of(b"/a?b=c"), 7, Marks::QUERY)
        );
        assert_eq!(
            parse(b"1\tten.example\tHEAD\t/\t200\t-").unwrap().client,
            id_of(b"ten.example")
        );
        assert_eq!(parse(b"1455944445\t7\tHEAD\t/\t200\t-").unwrap().bytes, None);
        assert_eq!(parse(b"1455944445\t7\tPOST\t/\t200\t5\tmore").unwrap().verb, Verb::Write);
        assert_eq!(
            parse(b"1455944445\t7\tGET\t/\t200\t5\tbr\tmore").unwrap().coding,
            Coding::Brotli
        );
        for (bad, defect) in [
            (&b"1455944445\t7\tGET\t/\t200"[..], Defect::Columns),
            (b"yesterday\t7\tGET\t/\t200\t1", Defect::Time),
            (b"1\t\tGET\t/\t200\t1", Defect::Client),
            (b"1\t7\tGET\t\t200\t1", Defect::Target),
            (b"1\t7\tGET\t/\t20\t1", Defect::Status),
            (b"1\t7\tget\t/\t200\t1", Defect::Method),
            (b"1\t7\tGET\t/\t200\t99999999999999999999", Defect::Size),
        ] {
            assert_eq!(parse(bad), Err(defect), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_target_that_no_column_can_hold_is_a_number() {
        let mut writer = TsvWriter::new(Vec::new()).unwrap();
        let record = Record { object: 0xab, status: 200, ..Record::default() };
        writer.write(&record, b"/a\tb").unwrap();
        writer.write(&record, b"").unwrap();
        let line = "0\t0\tGET\t/00000000000000ab\t200\t-\n";
        assert_eq!(writer.into_inner(), [HEADER, line.as_bytes(), line.as_bytes()].concat());
    }
}
