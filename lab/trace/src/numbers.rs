//! Keys as binary numbers of 32 or 64 bits, little-endian, one after the other. They must be named:
//! any file could be such a list.

use crate::bad::Defect;
use crate::record::Record;

/// A key of 32 bits.
///
/// # Errors
/// It is cut off.
pub(crate) fn parse_u32(bytes: &[u8]) -> Result<Record, Defect> {
    let key = bytes
        .first_chunk()
        .map(|&key| u64::from(u32::from_le_bytes(key)))
        .ok_or(Defect::Truncated)?;
    Ok(Record { object: key, ..Record::default() })
}

/// A key of 64 bits.
///
/// # Errors
/// It is cut off.
pub(crate) fn parse_u64(bytes: &[u8]) -> Result<Record, Defect> {
    let key = bytes.first_chunk().map(|&key| u64::from_le_bytes(key)).ok_or(Defect::Truncated)?;
    Ok(Record { object: key, ..Record::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        assert_eq!(parse_u32(&[1, 2, 0, 0]).map(|record| record.object), Ok(0x201));
        assert_eq!(
            parse_u64(&[1, 0, 0, 0, 0, 0, 0, 0x80]).map(|record| record.object),
            Ok((1 << 63) + 1)
        );
        assert_eq!(
            (parse_u32(&[1; 3]), parse_u64(&[1; 7])),
            (Err(Defect::Truncated), Err(Defect::Truncated))
        );
    }
}
