//! A unit's size, as its target tells it.

/// What a unit says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// The unit's size in bytes.
    pub bytes: u64,
    /// The target's own block.
    pub block_bytes: u32,
}

impl Capacity {
    /// Whether a unit of that size holds what one of this size held, at the same places.
    pub(crate) fn fits(self, found: Self) -> bool {
        found.block_bytes == self.block_bytes && found.bytes >= self.bytes
    }
}

/// READ CAPACITY (16)'s parameter data (SBC-3, section 5.16.2): the last block and the length of a
/// block.
pub fn parse_capacity(data: &[u8]) -> Result<Capacity, String> {
    let last = data
        .first_chunk::<8>()
        .map(|bytes| u64::from_be_bytes(*bytes))
        .ok_or("READ CAPACITY's answer is too short")?;
    let length = data
        .get(8..)
        .unwrap_or_default()
        .first_chunk::<4>()
        .map(|bytes| u32::from_be_bytes(*bytes))
        .ok_or("READ CAPACITY's answer is too short")?;
    if ![512, 1024, 2048, 4096].contains(&length) {
        return Err(format!("a unit with blocks of {length} bytes is not supported"));
    }
    let bytes = last.checked_add(1).and_then(|blocks| blocks.checked_mul(u64::from(length)));
    let bytes = bytes
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or("READ CAPACITY's answer is out of range")?;
    Ok(Capacity { bytes, block_bytes: length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_of_hostile_targets() {
        let data = |last: u64, length: u32| {
            [&last.to_be_bytes()[..], &length.to_be_bytes()[..], &[0; 20]].concat()
        };
        assert_eq!(parse_capacity(&data(7, 512)), Ok(Capacity { bytes: 4096, block_bytes: 512 }));
        assert!(parse_capacity(&data(u64::MAX, 512)).is_err());
        assert!(parse_capacity(&data(u64::MAX - 1, 4096)).is_err());
        assert!(parse_capacity(&data(7, 0)).is_err());
        assert!(parse_capacity(&data(7, 520)).is_err());
        assert!(parse_capacity(&[0; 9]).is_err());
        assert!(parse_capacity(&[]).is_err());
    }
}
