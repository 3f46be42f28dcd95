//! Block I/O of a virtual machine's disk as VMware's vscsiStats writes it, binary, little-endian,
//! versions 1 and 2.
//!
//! ```text
//!             0      4      8      12     16       24       32        40
//! version 1:  │ sn   │ len  │ nSG  │cmd│ver│ lbn    │ time   │
//! version 2:  │cmd│ver│ sn  │ len  │ nSG  │ lbn    │ time   │ duration │
//! ```
//!
//! The high byte of `ver` is the version, `lbn` counts sectors of 512 bytes, `len` bytes, `time`
//! microseconds; `cmd` is the SCSI operation (SBC-3). The layout is that of libCacheSim's reader of
//! vscsi traces. A trace is of one disk, which is its one object.

use crate::bad::Defect;
use crate::hash::mix;
use crate::record::{Record, Verb};

const SECTOR_BYTES: u64 = 512;
/// READ(6), (10), (16), (12).
const READS: [u16; 4] = [0x08, 0x28, 0x88, 0xa8];
/// WRITE(6), (10), (16), (12), WRITE AND VERIFY (10), (16), (12), WRITE SAME (10), (16).
const WRITES: [u16; 9] = [0x0a, 0x2a, 0x8a, 0xaa, 0x2e, 0x8e, 0xae, 0x41, 0x93];
/// SCSI operations have one byte.
const OPERATION_MAX: u16 = 0xff;

/// Which layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Records of 32 bytes.
    One,
    /// Records of 40 bytes.
    Two,
}

impl Version {
    /// The version of a trace that begins so; `None`: neither, or less than a record.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        [Self::Two, Self::One].into_iter().find(|&version| {
            let mut records = start.chunks_exact(version.record_bytes()).take(8).peekable();
            records.peek().is_some() && records.all(|record| parse(record, version).is_ok())
        })
    }

    /// Bytes of a record.
    pub(crate) fn record_bytes(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }
}

/// A record of [`Version::record_bytes`].
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(bytes: &[u8], version: Version) -> Result<Record, Defect> {
    let (command, length, place) = match version {
        Version::One => (12, 4, 16),
        Version::Two => (0, 8, 16),
    };
    let bytes = bytes.get(..version.record_bytes()).ok_or(Defect::Truncated)?;
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u64_at = |at: usize| {
        bytes[at..at + 8].iter().rev().fold(0, |number: u64, &byte| number << 8 | u64::from(byte))
    };
    let length = u32::from_le_bytes([
        bytes[length],
        bytes[length + 1],
        bytes[length + 2],
        bytes[length + 3],
    ]);
    let operation = u16_at(command);
    let known = match version {
        Version::One => 1,
        Version::Two => 2,
    };
    if u16_at(command + 2) >> 8 != known || operation > OPERATION_MAX {
        return Err(Defect::Kind);
    }
    let verb = if READS.contains(&operation) {
        Verb::Get
    } else if WRITES.contains(&operation) {
        Verb::Write
    } else {
        Verb::Other
    };
    Ok(Record {
        time_us: u64_at(place + 8),
        object: mix(1),
        verb,
        bytes: Some(u64::from(length)),
        offset: u64_at(place).checked_mul(SECTOR_BYTES).ok_or(Defect::Size)?,
        ..Record::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(version: Version, operation: u16, length: u32, sector: u64, time_us: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let command = |bytes: &mut Vec<u8>, number: u16| {
            bytes.extend(operation.to_le_bytes());
            bytes.extend((number << 8 | 3).to_le_bytes());
        };
        if version == Version::Two {
            command(&mut bytes, 2);
        }
        bytes.extend([9, 0, 0, 0x80]);
        if version == Version::One {
            bytes.extend(length.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            command(&mut bytes, 1);
        } else {
            bytes.extend(length.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
        }
        bytes.extend(sector.to_le_bytes());
        bytes.extend(time_us.to_le_bytes());
        bytes.resize(version.record_bytes(), 0x11);
        bytes
    }

    #[test]
    fn records_of_both_versions() {
        for version in [Version::One, Version::Two] {
            let read = record(version, 0x28, 4096, 8, 5_000_001);
            let expected = Record {
                time_us: 5_000_001,
                object: mix(1),
                bytes: Some(4096),
                offset: 4096,
                ..Record::default()
            };
            assert_eq!(parse(&read, version), Ok(expected));
            let write = record(version, 0x8a, 512, 0, 1);
            assert_eq!(parse(&write, version).unwrap().verb, Verb::Write);
            assert_eq!(parse(&record(version, 0x35, 0, 0, 1), version).unwrap().verb, Verb::Other);
            assert_eq!(parse(&record(version, 0x128, 0, 0, 1), version), Err(Defect::Kind));
            assert_eq!(parse(&record(version, 0x28, 0, u64::MAX, 1), version), Err(Defect::Size));
            assert_eq!(Version::of(&[read.clone(), write].concat()), Some(version));
            assert_eq!(Version::of(&read), Some(version));
            assert_eq!(Version::of(&read[..20]), None);
        }
        assert_eq!(Version::of(&[0; 100]), None);
    }

    /// The first record of the CloudPhysics trace that libCacheSim ships.
    #[test]
    fn a_real_record() {
        let bytes = [
            0xf4, 0, 0, 0x80, 0, 2, 0, 0, 1, 0, 0, 0, 0x2a, 0, 0, 1, 0x09, 0x1a, 0x8f, 2, 0, 0, 0,
            0, 0x22, 0xcf, 0x82, 0xbe, 0x1f, 5, 0, 0,
        ];
        assert_eq!(Version::of(&bytes), Some(Version::One));
        let record = parse(&bytes, Version::One).unwrap();
        assert_eq!(
            (record.verb, record.bytes, record.offset),
            (Verb::Write, Some(512), 0x28f_1a09 * 512)
        );
    }
}
