//! File contents that prove what they are: every line of 64 bytes names its file, its version and
//! its place.
//!
//! ```text
//! 0123456789abcdef v0000000a 00000000 <29 characters that depend on the three>\n
//! └ file ────────┘ └ version └ line
//! ```
//!
//! A version is an endless text; a file holds its first `len` bytes, so truncating and appending
//! keep the version.

use nicache_trace::mix;

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// The version of every file that nothing changes.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a line's prefix that tell file, version and line.
const PREFIX_BYTES: usize = 36;

/// What a body turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// No bytes.
    Empty,
    /// The first bytes of one version.
    Whole {
        /// Which version it is.
        version: u32,
    },
    /// Every line is right for its place, but the lines are of several versions (ascending).
    Mixed {
        /// Which versions the lines are of.
        versions: Vec<u32>,
    },
    /// A line that no version of this file has at this place: torn within the line, or wrong.
    Garbled {
        /// Where that line begins.
        offset: usize,
        /// The body, to be held against the versions that are possible.
        bytes: Vec<u8>,
    },
}

/// Fills `out` with the bytes of `version` of `file` that begin at `offset`.
pub fn render(file: u64, version: u32, offset: u64, out: &mut [u8]) {
    let mut number = offset / LINE_BYTES as u64;
    let mut skip = (offset % LINE_BYTES as u64) as usize;
    let mut rest = out;
    while !rest.is_empty() {
        let text = line(file, version, number as u32);
        let take = rest.len().min(LINE_BYTES - skip);
        rest[..take].copy_from_slice(&text[skip..skip + take]);
        rest = &mut rest[take..];
        skip = 0;
        number += 1;
    }
}

/// Is every byte of `body` that of one of `versions` at this place, or 0 at or after `zeros_from`?
pub fn is_patchwork(file: u64, versions: &[u32], zeros_from: u64, body: &[u8]) -> bool {
    body.chunks(LINE_BYTES).enumerate().all(|(number, chunk)| {
        let lines: Vec<_> =
            versions.iter().map(|&version| line(file, version, number as u32)).collect();
        chunk.iter().enumerate().all(|(at, &byte)| {
            lines.iter().any(|line| line[at] == byte)
                || (byte == 0 && (number * LINE_BYTES + at) as u64 >= zeros_from)
        })
    })
}

/// Finds out what a whole body of `file` is.
pub fn inspect(file: u64, body: &[u8]) -> Body {
    let mut versions: Vec<u32> = Vec::new();
    for (number, chunk) in body.chunks(LINE_BYTES).enumerate() {
        // The newest candidate is nearly always the right one; the last line may be too short to
        // name its version.
        let named = version_of(chunk);
        let known = versions.iter().rev().copied();
        let matching = named.into_iter().chain(known).find(|&version| {
            named.is_none_or(|named| named == version)
                && line(file, version, number as u32)[..chunk.len()] == *chunk
        });
        match matching {
            Some(version) if versions.last() == Some(&version) => {}
            Some(version) => {
                if let Some(at) = versions.iter().position(|&other| other == version) {
                    versions.remove(at);
                }
                versions.push(version);
            }
            // Bytes that are the same in all versions say nothing, and a short tail may be of a
            // version that no whole line shows: only what disagrees with the file's name and line
            // is wrong for certain.
            None if named.is_none()
                && !versions.is_empty()
                && tail_is_plausible(file, number as u32, chunk) =>
            {
                versions.push(u32::MAX);
            }
            None => return Body::Garbled { offset: number * LINE_BYTES, bytes: body.to_vec() },
        }
    }
    versions.sort_unstable();
    match versions[..] {
        [] => Body::Empty,
        [version] => Body::Whole { version },
        _ => {
            versions.retain(|&version| version != u32::MAX);
            Body::Mixed { versions }
        }
    }
}

fn line(file: u64, version: u32, number: u32) -> [u8; LINE_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = [b' '; LINE_BYTES];
    let mut hex = |at: usize, digits: usize, value: u64| {
        for place in 0..digits {
            text[at + place] = DIGITS[(value >> (4 * (digits - 1 - place)) & 15) as usize];
        }
    };
    hex(0, 16, file);
    hex(18, 8, u64::from(version));
    hex(27, 8, u64::from(number));
    text[17] = b'v';
    let seed = mix(file ^ mix(u64::from(version) << 32 | u64::from(number)));
    let mut bits = u128::from(seed) << 64 | u128::from(mix(seed));
    for letter in &mut text[PREFIX_BYTES..LINE_BYTES - 1] {
        *letter = LETTERS[(bits & 31) as usize];
        bits = bits.rotate_right(5);
    }
    text[LINE_BYTES - 1] = b'\n';
    text
}

fn version_of(chunk: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(chunk.get(18..26)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

/// Could these fewer than 26 bytes begin line `number` of some version?
fn tail_is_plausible(file: u64, number: u32, chunk: &[u8]) -> bool {
    let model = line(file, 0, number);
    chunk.len() < 26
        && chunk.iter().enumerate().all(|(at, byte)| {
            if at < 18 {
                *byte == model[at]
            } else {
                byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 0x1234_5678_9abc_def0;

    fn text(version: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        render(FILE, version, 0, &mut bytes);
        bytes
    }

    fn garbled_at_of(file: u64, bytes: &[u8]) -> Option<usize> {
        match inspect(file, bytes) {
            Body::Garbled { offset, .. } => Some(offset),
            _ => None,
        }
    }

    fn garbled_at(bytes: &[u8]) -> Option<usize> {
        garbled_at_of(FILE, bytes)
    }

    #[test]
    fn a_line_torn_within_is_a_patchwork_of_the_versions_involved() {
        let mut torn = text(4, 300);
        torn[100..].copy_from_slice(&text(5, 300)[100..]);
        assert_eq!(garbled_at(&torn), Some(64));
        assert!(
            is_patchwork(FILE, &[4, 5], u64::MAX, &torn)
                && !is_patchwork(FILE, &[4, 6], u64::MAX, &torn)
        );
        torn[200] ^= 0x80;
        assert!(!is_patchwork(FILE, &[4, 5], u64::MAX, &torn));
    }

    #[test]
    fn every_length_is_recognised() {
        for len in (64..400).chain([4096, 100_001]) {
            assert_eq!(inspect(FILE, &text(7, len)), Body::Whole { version: 7 }, "{len}");
        }
        assert_eq!(inspect(FILE, b""), Body::Empty);
    }

    #[test]
    fn a_part_is_the_part_of_the_whole() {
        let whole = text(3, 500);
        for offset in [0, 1, 63, 64, 65, 300] {
            let mut part = vec![0; 500 - offset];
            render(FILE, 3, offset as u64, &mut part);
            assert_eq!(part, whole[offset..]);
        }
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let good = text(9, 64 * 3 + 40);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(!matches!(inspect(FILE, &bad), Body::Whole { .. } | Body::Empty), "byte {at}");
            if at < 64 * 3 {
                assert_eq!(garbled_at(&bad), Some(at / 64 * 64), "byte {at}");
            }
        }
    }

    #[test]
    fn lines_of_two_versions_are_mixed_and_other_files_or_places_corrupt() {
        let mut mixed = text(4, 200);
        mixed[128..].copy_from_slice(&text(5, 200)[128..]);
        assert_eq!(inspect(FILE, &mixed), Body::Mixed { versions: vec![4, 5] });
        assert_eq!(garbled_at_of(FILE ^ 1, &text(4, 200)), Some(0));
        let mut moved = text(4, 256);
        moved.copy_within(64..128, 128);
        assert_eq!(garbled_at_of(FILE, &moved), Some(128));
        assert_eq!(garbled_at(&[0; 100]), Some(0));
    }

    #[test]
    fn a_short_tail_of_an_unseen_version_is_mixed() {
        let mut bytes = text(0x10, 64 + 26);
        bytes.truncate(64 + 25);
        bytes[64..].copy_from_slice(&text(0x20, 64 + 25)[64..]);
        assert_eq!(inspect(FILE, &bytes), Body::Mixed { versions: vec![0x10] });
    }
}
