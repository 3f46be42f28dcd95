//! Bodies whose every four bytes say of what object and version they are, and from where in it.
//! Heads and requests are ASCII; bytes of bodies are not.

use std::collections::HashSet;

/// Objects of the server.
pub(super) const PATHS: usize = 8;
/// The object that is another one for each connection.
pub(super) const PRIVATE: u8 = 7;
/// Bytes of a group.
pub(super) const GROUP_BYTES: usize = 4;
/// Versions of an object are below this.
pub(super) const VERSIONS: u8 = 128;

/// Four bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Of what object.
    pub path: u8,
    /// Of what version; of a private object: of what connection.
    pub version: u8,
    /// The how manieth.
    pub index: u32,
}

impl Group {
    fn bytes(self) -> [u8; GROUP_BYTES] {
        let word = u32::from(self.path) << 21 | u32::from(self.version) << 14 | self.index;
        let six = |shift: u32| (word >> shift & 0x3f) as u8;
        [0xc0 | six(18), 0x80 | six(12), 0x80 | six(6), 0x80 | six(0)]
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; GROUP_BYTES] = bytes.get(..GROUP_BYTES)?.try_into().ok()?;
        if bytes[0] < 0xc0 || bytes[1..].iter().any(|byte| byte & 0xc0 != 0x80) {
            return None;
        }
        let word = bytes.iter().fold(0, |word, byte| word << 6 | u32::from(byte & 0x3f));
        Some(Self {
            path: (word >> 21) as u8,
            version: (word >> 14 & 0x7f) as u8,
            index: word & 0x3fff,
        })
    }
}

/// Groups of a body.
pub(super) fn groups_of(path: u8, version: u8) -> u32 {
    let base = [0, 1, 25, 365, 30, 4000, 300, 40][usize::from(path) % PATHS];
    if base < 2 { base } else { base + u32::from(version % 4) }
}

/// A body.
pub(super) fn body(path: u8, version: u8) -> Vec<u8> {
    (0..groups_of(path, version)).flat_map(|index| Group { path, version, index }.bytes()).collect()
}

/// The whole groups in these bytes, each with its place.
pub(super) fn groups(bytes: &[u8]) -> Vec<(usize, Group)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match Group::parse(&bytes[at..]) {
            Some(group) => {
                found.push((at, group));
                at += GROUP_BYTES;
            }
            None => at += 1,
        }
    }
    found
}

/// Every whole group in a segment is one that the server has sent, and neighbours belong together.
pub(super) fn check(payload: &[u8], made: &HashSet<(u8, u8)>, may_have: impl Fn(u8) -> bool) {
    let found = groups(payload);
    for (_, group) in &found {
        assert!(
            made.contains(&(group.path, group.version)),
            "the server never sent a byte of {group:?}"
        );
        assert!(group.index < groups_of(group.path, group.version), "{group:?} is behind the end");
        assert!(group.path != PRIVATE || may_have(group.version), "{group:?} is another client's");
    }
    for pair in found.windows(2) {
        let ((at, one), (next, other)) = (pair[0], pair[1]);
        let expected = Group { index: one.index + 1, ..one };
        assert!(next != at + GROUP_BYTES || other == expected, "{one:?} is followed by {other:?}");
    }
}
