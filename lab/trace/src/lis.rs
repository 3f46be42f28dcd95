//! Lists of blocks as the ARC paper's traces have them (`.lis`; Megiddo and Modha 2003, "ARC: a
//! self-tuning, low overhead replacement cache", FAST): `first_block blocks ignored request` in a
//! line, numbers divided by spaces.
//!
//! A trace is of one disk, which is its one object. A block counts as 4 KB, whatever it was: the
//! paper's caches are counted in blocks.

use crate::bad::Defect;
use crate::field::number_of;
use crate::hash::mix;
use crate::record::Record;

/// Bytes that a block counts as.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Most blocks of a request: a transfer of 4 GiB.
const BLOCKS_MAX: u64 = 1 << 20;

/// A line.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(line: &[u8]) -> Result<Record, Defect> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut number =
        || words.next().ok_or(Defect::Columns).and_then(|word| number_of(word).ok_or(Defect::Size));
    let (first, blocks, _, _) = (number()?, number()?, number()?, number()?);
    if words.next().is_some() {
        return Err(Defect::Columns);
    }
    if blocks == 0 || blocks > BLOCKS_MAX {
        return Err(Defect::Size);
    }
    let offset = first.checked_mul(BLOCK_BYTES).ok_or(Defect::Size)?;
    Ok(Record { object: mix(1), bytes: Some(blocks * BLOCK_BYTES), offset, ..Record::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let record = parse(b"42932745 8 0 17").unwrap();
        assert_eq!(
            (record.offset / BLOCK_BYTES, record.bytes, record.object),
            (42_932_745, Some(8 * 4096), mix(1))
        );
        for (bad, defect) in [
            (&b"1 2 0"[..], Defect::Columns),
            (b"1 2 0 4 5", Defect::Columns),
            (b"1 0 0 4", Defect::Size),
            (b"1 1048577 0 4", Defect::Size),
            (b"18446744073709551615 1 0 4", Defect::Size),
            (b"a 1 0 4", Defect::Size),
        ] {
            assert_eq!(parse(bad), Err(defect), "{}", String::from_utf8_lossy(bad));
        }
    }
}
