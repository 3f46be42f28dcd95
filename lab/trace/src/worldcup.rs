//! The binary log of the 1998 World Cup's site, as the Internet Traffic Archive documents it
//! (WorldCup98, "Format").
//!
//! ```text
//! 0         4         8         12        16      17      18    19
//! │timestamp│clientID │objectID │size     │method │status │type │server│     big-endian
//! ```
//!
//! The low six bits of `status` are the index of the reply's status in a list of its own, the two
//! high ones the version of HTTP; a size of all ones is not known.

use crate::bad::Defect;
use crate::hash::mix;
use crate::record::{Record, STATUS_UNNAMED, Verb};

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 20;
/// The statuses by their index; the next index stands for all others.
const STATUSES: [u16; 37] = [
    100, 101, 200, 201, 202, 203, 204, 205, 206, 300, 301, 302, 303, 304, 305, 400, 401, 402, 403,
    404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 500, 501, 502, 503, 504, 505,
];
/// The last method's number; it stands for all others.
const METHOD_OTHER: u8 = 8;
const US_PER_SECOND: u64 = 1_000_000;
const SIZE_UNKNOWN: u32 = u32::MAX;

/// A record of [`RECORD_BYTES`].
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Record, Defect> {
    let bytes: &[u8; RECORD_BYTES] = bytes.first_chunk().ok_or(Defect::Truncated)?;
    let number =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let verb = match bytes[16] {
        0 => Verb::Get,
        1 => Verb::Head,
        // POST, PUT, DELETE; then TRACE, OPTIONS, CONNECT.
        2..=4 => Verb::Write,
        5..=METHOD_OTHER => Verb::Other,
        _ => return Err(Defect::Method),
    };
    let index = usize::from(bytes[17] & 0x3f);
    let status = match STATUSES.get(index) {
        Some(&status) => status,
        None if index == STATUSES.len() => STATUS_UNNAMED,
        None => return Err(Defect::Status),
    };
    let size = number(12);
    Ok(Record {
        time_us: u64::from(number(0)) * US_PER_SECOND,
        client: u64::from(number(4)),
        object: mix(u64::from(number(8)) + 1),
        verb,
        status,
        bytes: (size != SIZE_UNKNOWN).then_some(u64::from(size)),
        ..Record::default()
    })
}

/// Parses a record of [`RECORD_BYTES`] if it is such as the documented log has: a file type of its
/// list, a time after 1990. What is not is `None`: by it alone, other files are told apart.
pub(crate) fn parse_plausible(bytes: &[u8]) -> Option<Result<Record, Defect>> {
    const TYPE_LAST: u8 = 12;
    const FIRST_S: u64 = 631_152_000;
    let is_of_list = bytes.get(18).is_some_and(|&kind| kind <= TYPE_LAST);
    let record = parse(bytes);
    let is_late = record.is_ok_and(|record| record.time_us >= FIRST_S * US_PER_SECOND);
    (is_of_list && is_late).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(second: u32, client: u32, object: u32, size: u32, method: u8, status: u8) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [second, client, object, size].iter().flat_map(|number| number.to_be_bytes()).collect();
        bytes.extend([method, status, 1, 3]);
        bytes
    }

    fn parsed(method: u8, status: u8) -> Result<Record, Defect> {
        parse(&record(894_016_802, 5, 7, 1234, method, status))
    }

    #[test]
    fn records() {
        // HTTP/1.0 in the high bits, 200.
        let got = parsed(0, 0x40 | 2).unwrap();
        assert_eq!(
            (got.time_us, got.client, got.status, got.bytes),
            (894_016_802_000_000, 5, 200, Some(1234))
        );
        assert_eq!(got.object, mix(8));
        assert_eq!(parsed(1, 13).map(|record| (record.verb, record.status)), Ok((Verb::Head, 304)));
        assert_eq!(parsed(2, 2).unwrap().verb, Verb::Write);
        assert_eq!(
            parsed(8, 36).map(|record| (record.verb, record.status)),
            Ok((Verb::Other, 505))
        );
        assert_eq!(parsed(0, 37).unwrap().status, STATUS_UNNAMED);
        assert_eq!((parsed(9, 2), parsed(0, 38)), (Err(Defect::Method), Err(Defect::Status)));
        assert_eq!(parse(&record(1, 1, 1, u32::MAX, 0, 2)).unwrap().bytes, None);
    }
}
