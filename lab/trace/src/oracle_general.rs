//! The oracleGeneral format of libCacheSim, binary, little-endian.
//!
//! ```text
//! 0      4          12     16                24
//! │second│object    │size  │next access      │
//! ```
//!
//! The next access is the number of the next request for the object, counted from 1, and −1 if
//! there is none; some tools write the largest number instead. An object's number is taken as it
//! is.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::bad::Defect;
use crate::record::Record;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 24;
const US_PER_SECOND: u64 = 1_000_000;
const NEVER: i64 = -1;

/// A record of [`RECORD_BYTES`].
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Record, Defect> {
    let (&time, rest) = bytes.split_first_chunk::<4>().ok_or(Defect::Truncated)?;
    let (&object, rest) = rest.split_first_chunk::<8>().ok_or(Defect::Truncated)?;
    let (&size, rest) = rest.split_first_chunk::<4>().ok_or(Defect::Truncated)?;
    let &next = rest.first_chunk::<8>().ok_or(Defect::Truncated)?;
    if i64::from_le_bytes(next) < NEVER {
        return Err(Defect::Kind);
    }
    let size = u64::from(u32::from_le_bytes(size));
    Ok(Record {
        time_us: u64::from(u32::from_le_bytes(time)) * US_PER_SECOND,
        object: u64::from_le_bytes(object),
        bytes: Some(size),
        object_bytes: Some(size),
        ..Record::default()
    })
}

/// The next access that a record tells.
pub(crate) fn next_access(bytes: &[u8]) -> i64 {
    bytes
        .get(16..RECORD_BYTES)
        .and_then(<[u8]>::first_chunk)
        .map_or(NEVER, |&next| i64::from_le_bytes(next))
}

/// Writes a trace as oracleGeneral, and works out the next accesses, for which all requests must be
/// there.
///
/// Kept are the second, the object and its size (of the whole object, else of the transfer, else
/// 0). Times are counted from the trace's own epoch, or from its first second if they do not fit 32
/// bits otherwise; what is too large for its field is the largest number that fits.
///
/// # Errors
/// What `output` says.
pub fn write_oracle_general(mut output: impl Write, records: &[Record]) -> io::Result<()> {
    let mut next = vec![NEVER; records.len()];
    let mut seen = HashMap::new();
    for (index, record) in records.iter().enumerate().rev() {
        if let Some(after) = seen.insert(record.object, index as i64 + 1) {
            next[index] = after;
        }
    }
    let seconds = || records.iter().map(|record| record.time_us / US_PER_SECOND);
    let fits = seconds().max().is_none_or(|last| u32::try_from(last).is_ok());
    let epoch = if fits { 0 } else { seconds().min().unwrap_or(0) };
    let limited = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    for (record, next) in records.iter().zip(next) {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&limited(record.time_us / US_PER_SECOND - epoch).to_le_bytes());
        bytes[4..12].copy_from_slice(&record.object.to_le_bytes());
        bytes[12..16].copy_from_slice(
            &limited(record.object_bytes.or(record.bytes).unwrap_or(0)).to_le_bytes(),
        );
        bytes[16..].copy_from_slice(&next.to_le_bytes());
        output.write_all(&bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(second: u64, object: u64, size: u64) -> Record {
        let (time_us, bytes) = (second * US_PER_SECOND, Some(size));
        Record { time_us, object, bytes, object_bytes: bytes, ..Record::default() }
    }

    #[test]
    fn next_accesses_are_worked_out() {
        let records = [
            record(1, 7, 10),
            record(2, 8, 20),
            record(2, 7, 10),
            record(3, 7, u64::from(u32::MAX) + 1),
        ];
        let mut bytes = Vec::new();
        write_oracle_general(&mut bytes, &records).unwrap();
        let next: Vec<_> = bytes.chunks(RECORD_BYTES).map(next_access).collect();
        assert_eq!(next, [3, -1, 4, -1]);
        let back: Vec<_> = bytes.chunks(RECORD_BYTES).map(|bytes| parse(bytes).unwrap()).collect();
        assert_eq!(back[..3], records[..3]);
        assert_eq!(back[3], record(3, 7, u64::from(u32::MAX)));
        // Little-endian, as libCacheSim's reader takes it.
        assert_eq!(
            bytes[..24],
            [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn late_epochs_are_moved() {
        let late = u64::from(u32::MAX) + 5;
        let mut bytes = Vec::new();
        write_oracle_general(&mut bytes, &[record(late, 1, 1), record(late + 9, 1, 1)]).unwrap();
        assert_eq!(parse(&bytes[24..]).unwrap().time_us, 9 * US_PER_SECOND);
    }

    #[test]
    fn a_next_access_before_the_first_is_bad() {
        let mut bytes = [0; RECORD_BYTES];
        bytes[23] = 0x80;
        assert_eq!(parse(&bytes), Err(Defect::Kind));
    }
}
