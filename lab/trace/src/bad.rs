//! What cannot be understood of a trace.

use std::fmt::Write;

/// Why a line or a record is none of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The line is longer than 64 KiB.
    #[error("longer than 64 KiB")]
    TooLong,
    /// The last record of a binary trace is cut off.
    #[error("cut off")]
    Truncated,
    /// Fewer columns than the format has.
    #[error("too few columns")]
    Columns,
    /// The time is missing or none.
    #[error("no time")]
    Time,
    /// The client is missing.
    #[error("no client")]
    Client,
    /// The request line is missing or not in quotes.
    #[error("no request")]
    Request,
    /// The method or operation is missing or none.
    #[error("no method")]
    Method,
    /// The target, file handle or key is missing.
    #[error("no target")]
    Target,
    /// The status is missing or none.
    #[error("no status")]
    Status,
    /// A size or an offset is not a number.
    #[error("a size or offset that is not a number")]
    Size,
    /// No JSON, or no object.
    #[error("no JSON object")]
    Json,
    /// JSON, but not of a request: a server writes other lines there, too.
    #[error("JSON, but no request")]
    NoRequest,
    /// A record of another version or kind than the trace's first ones.
    #[error("an unknown kind of record")]
    Kind,
}

/// A line or record that was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Which line (or record, of a binary trace), from 1.
    pub number: u64,
    /// Its beginning, at most 120 bytes; what cannot be printed is escaped as `\x..`, records are
    /// in hexadecimal.
    pub text: String,
    /// Why it was skipped.
    pub defect: Defect,
}

/// The lines or records that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadRecords {
    /// How many were skipped.
    pub count: u64,
    /// Skipped lines that a server writes there, too, and that are not requests
    /// ([`Defect::NoRequest`]).
    pub no_requests: u64,
    /// The first of them, at most [`BadRecords::FIRST_MAX`].
    pub first: Vec<BadRecord>,
}

impl BadRecords {
    /// Bad lines or records that are kept.
    pub const FIRST_MAX: usize = 8;
    /// Bytes of one that are kept.
    pub const TEXT_BYTES_MAX: usize = 120;

    /// Counts a line; its beginning is enough.
    pub(crate) fn push_line(&mut self, number: u64, line: &[u8], defect: Defect) {
        self.push(number, defect, || sanitised(line));
    }

    /// Counts a binary record.
    pub(crate) fn push_record(&mut self, number: u64, record: &[u8], defect: Defect) {
        self.push(number, defect, || {
            record.iter().take(Self::TEXT_BYTES_MAX / 2).fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        });
    }

    fn push(&mut self, number: u64, defect: Defect, text: impl FnOnce() -> String) {
        self.count += 1;
        self.no_requests += u64::from(defect == Defect::NoRequest);
        if self.first.len() < Self::FIRST_MAX {
            self.first.push(BadRecord { number, text: text(), defect });
        }
    }
}

/// The beginning of a line in printable ASCII, so it can neither garble a terminal nor forge a
/// line of a log.
fn sanitised(line: &[u8]) -> String {
    let mut text = String::new();
    for &byte in line {
        let is_plain = matches!(byte, b' '..=b'~') && byte != b'\\';
        let length = if is_plain { 1 } else { 4 };
        if text.len() + length > BadRecords::TEXT_BYTES_MAX {
            break;
        }
        if is_plain {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_kept_and_can_be_printed() {
        let mut bad = BadRecords::default();
        for number in 1..=20 {
            bad.push_line(number, b"a\x1b[31m\\\xff\tb", Defect::Time);
        }
        assert_eq!((bad.count, bad.first.len()), (20, BadRecords::FIRST_MAX));
        assert_eq!(bad.first[1].text, "a\\x1b[31m\\x5c\\xff\\x09b");
        assert_eq!((bad.first[1].number, bad.first[1].defect.to_string().as_str()), (2, "no time"));
    }

    #[test]
    fn texts_are_bounded() {
        let mut bad = BadRecords::default();
        bad.push_line(1, &[b'x'; 500], Defect::TooLong);
        bad.push_line(2, &[0; 500], Defect::TooLong);
        bad.push_record(3, &[0xab; 500], Defect::Truncated);
        assert!(bad.first.iter().all(|bad| bad.text.len() == BadRecords::TEXT_BYTES_MAX));
        assert!(bad.first[2].text.starts_with("abab"));
    }
}
