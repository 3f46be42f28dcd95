//! Ranges of bytes (RFC 9110 section 14), read in two ways.
//!
//! [`wanted`] is what the RFC says, for a server of our own. [`agreed`] is what servers have in
//! common, for a card that must not be told from the server behind it. As measured with nginx 1.22
//! and Apache 2.4.71, and read in Go's `net/http` and Node's `send`:
//!
//! | `Range` | nginx | Apache | others |
//! |---|---|---|---|
//! | malformed, `5-2`, a number beyond 2^63 | 416 | 200 | |
//! | whitespace in the list | read | 200 | |
//! | `-0` | 416 | 200 | |
//! | empty elements | 416 | read | |
//! | another unit, `Bytes=` | 200, read | 200, read | Go: 416 |
//! | ranges that touch or overlap | as they are | merged | |
//! | `0-` among others | 200 | 206 of all | |
//! | `-N` with more than there is | 206 of all | 206 of all | Node: 416 |
//!
//! None of these is [`Agreed::Parts`].

use arrayvec::ArrayVec;

use crate::head::trim_ows;
use crate::length::parse_content_length;

/// Most ranges of one request that are served. For more a server of our own sends the whole, and a
/// card asks the server.
pub const RANGES_MAX: usize = 16;

/// Bytes of a representation: from the first to the one behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub from: u64,
    /// The byte behind the last.
    pub to: u64,
}

impl ByteRange {
    /// Number of bytes; never 0 in what this module gives.
    pub fn len(&self) -> u64 {
        self.to - self.from
    }

    /// Is there no byte in it?
    pub fn is_empty(&self) -> bool {
        self.to <= self.from
    }
}

/// Ranges in the order in which they were asked for.
pub type Ranges = ArrayVec<ByteRange, RANGES_MAX>;

/// What is wanted of a representation, by the RFC.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for a moment; a box would allocate per request"
)]
pub enum Wanted {
    /// All of it: there is no range, it is of another unit or malformed, or it is more than is
    /// served.
    Whole,
    /// Byte ranges of it, in the order of the request.
    Parts(Ranges),
    /// None of what was asked for is there (416).
    Nothing,
}

/// What every server that serves ranges would send.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for a moment; a box would allocate per request"
)]
pub enum Agreed {
    /// One or more ranges, ascending, with gaps between them.
    Parts(Ranges),
    /// Nothing of what was asked for is there: 416, with a page of the server's own.
    Nothing,
    /// Servers differ.
    Differs,
}

/// Reads the value of `Range` for a representation of `len` bytes as RFC 9110 section 14.2 says.
pub fn wanted(value: &[u8], len: u64) -> Wanted {
    let Some((unit, set)) = value.split_at_checked(UNIT.len()) else { return Wanted::Whole };
    if !unit.eq_ignore_ascii_case(UNIT) {
        return Wanted::Whole;
    }
    let mut parts = Ranges::new();
    let mut count = 0;
    for text in set.split(|byte| *byte == b',').map(trim_ows).filter(|text| !text.is_empty()) {
        count += 1;
        match Spec::read(text, any_number) {
            _ if count > RANGES_MAX => return Wanted::Whole,
            None => return Wanted::Whole,
            Some(spec) => parts.extend(spec.of(len)),
        }
    }
    // Together more than there is: it is cheaper for everybody to send that.
    let all: u128 = parts.iter().map(|part| u128::from(part.len())).sum();
    if count == 0 || all > u128::from(len.max(1)) {
        return Wanted::Whole;
    }
    if parts.is_empty() { Wanted::Nothing } else { Wanted::Parts(parts) }
}

/// Reads the value of `Range` for a representation of `len` bytes as far as servers agree.
pub fn agreed(value: &[u8], len: u64) -> Agreed {
    let Some(set) = value.strip_prefix(UNIT).filter(|_| len > 0) else { return Agreed::Differs };
    let mut parts = Ranges::new();
    let is_alone = !set.contains(&b',');
    for (index, text) in set.split(|byte| *byte == b',').enumerate() {
        let Some(spec) = Spec::read(text, parse_content_length).filter(|_| index < RANGES_MAX)
        else {
            return Agreed::Differs;
        };
        if matches!(spec, Spec::Last(last) if last == 0 || last > len)
            || spec == Spec::From(0) && !is_alone
        {
            return Agreed::Differs;
        }
        let Some(part) = spec.of(len) else { continue };
        if parts.last().is_some_and(|before| part.from <= before.to) {
            return Agreed::Differs;
        }
        parts.push(part);
    }
    if parts.is_empty() { Agreed::Nothing } else { Agreed::Parts(parts) }
}

const UNIT: &[u8] = b"bytes=";

/// One element of a range set (RFC 9110 section 14.1.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spec {
    /// `first-last`.
    Closed(u64, u64),
    /// `first-`.
    From(u64),
    /// `-count`.
    Last(u64),
}

impl Spec {
    fn read(text: &[u8], number: impl Fn(&[u8]) -> Option<u64>) -> Option<Self> {
        let dash = text.iter().position(|byte| *byte == b'-')?;
        match (&text[..dash], &text[dash + 1..]) {
            (b"", last) => number(last).map(Spec::Last),
            (first, b"") => number(first).map(Spec::From),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Closed(first, last))
            }
        }
    }

    /// What there is of it in `len` bytes.
    fn of(self, len: u64) -> Option<ByteRange> {
        let (from, to) = match self {
            Self::Closed(first, last) => (first, last.saturating_add(1).min(len)),
            Self::From(first) => (first, len),
            Self::Last(count) => (len - count.min(len), len),
        };
        (from < to).then_some(ByteRange { from, to })
    }
}

/// One that is too large for a u64 is as good as infinite.
fn any_number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let value = |number: u64, digit: &u8| {
        number.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0')))
    };
    is_number.then(|| digits.iter().try_fold(0, value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(parts: &[(u64, u64)]) -> Ranges {
        parts.iter().map(|&(from, to)| ByteRange { from, to }).collect()
    }

    #[test]
    fn as_the_rfc_says() {
        let parts = |value: &str| wanted(value.as_bytes(), 10_000);
        let some = |list: &[(u64, u64)]| Wanted::Parts(ranges(list));
        assert_eq!(parts("bytes=0-499"), some(&[(0, 500)]));
        assert_eq!(parts("Bytes=-500"), some(&[(9500, 10_000)]));
        assert_eq!(parts("bytes=9500-"), some(&[(9500, 10_000)]));
        assert_eq!(parts("bytes=0-0,-1"), some(&[(0, 1), (9999, 10_000)]));
        assert_eq!(parts("bytes=9999-99999999999999999999999"), some(&[(9999, 10_000)]));
        assert_eq!(parts("bytes=0-1, 20000-"), some(&[(0, 2)]));
        assert_eq!(parts("bytes=10000-"), Wanted::Nothing);
        assert_eq!(parts("bytes=-0"), Wanted::Nothing);
        for whole in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "lines=1-2",
            "bytes=2-1",
            "bytes=a-",
            "bytes=-",
            "bytes=1",
            "bytes=0-,0-",
        ] {
            assert_eq!(parts(whole), Wanted::Whole, "{whole}");
        }
        assert_eq!(parts(&format!("bytes={}", "1-1,".repeat(17))), Wanted::Whole);
        assert_eq!(wanted(b"bytes=0-", 0), Wanted::Nothing);
    }

    #[test]
    fn as_servers_agree() {
        let of = |value: &str| agreed(value.as_bytes(), 1000);
        let some = |list: &[(u64, u64)]| Agreed::Parts(ranges(list));
        assert_eq!(of("bytes=0-0"), some(&[(0, 1)]));
        assert_eq!(of("bytes=0-"), some(&[(0, 1000)]));
        assert_eq!(of("bytes=0-999999"), some(&[(0, 1000)]));
        assert_eq!(of("bytes=-1000"), some(&[(0, 1000)]));
        assert_eq!(of("bytes=-5"), some(&[(995, 1000)]));
        assert_eq!(of("bytes=0-1,3-4,-2"), some(&[(0, 2), (3, 5), (998, 1000)]));
        assert_eq!(of("bytes=0-1,5000-"), some(&[(0, 2)]));
        assert_eq!(of("bytes=1000-"), Agreed::Nothing);
        assert_eq!(of("bytes=1000-1005,2000-"), Agreed::Nothing);
        for differs in [
            "",
            "bytes=",
            "bytes",
            "Bytes=0-1",
            "lines=0-1",
            "bytes=abc",
            "bytes= 0-1",
            "bytes=0 - 1",
            "bytes=0-1, 5-6",
            "bytes=0-1,,5-6",
            "bytes=0-1,5-6,",
            "bytes=5-2",
            "bytes=-0",
            "bytes=-1001",
            "bytes=00-01",
            "bytes=99999999999999999999-",
            "bytes=0-99999999999999999999",
            "bytes=0-1,2-3",
            "bytes=0-5,3-8",
            "bytes=5-6,0-1",
            "bytes=0-,5-6",
            "bytes=-1,5-6",
            "bytes=-",
        ] {
            assert_eq!(of(differs), Agreed::Differs, "{differs}");
        }
        let many = |count: u64| {
            (0..count).map(|at| format!("{}-{}", at * 3, at * 3)).collect::<Vec<_>>().join(",")
        };
        assert!(
            matches!(of(&format!("bytes={}", many(16))), Agreed::Parts(parts) if parts.len() == 16)
        );
        assert_eq!(of(&format!("bytes={}", many(17))), Agreed::Differs);
        assert_eq!(agreed(b"bytes=0-", 0), Agreed::Differs);
    }

    /// The bytes that a list of plain ranges names, one by one.
    fn naive(list: &[(Option<u64>, Option<u64>)], len: u64) -> Vec<Vec<u64>> {
        let bytes = |&(first, last): &(Option<u64>, Option<u64>)| -> Vec<u64> {
            (0..len)
                .filter(|at| match (first, last) {
                    (Some(first), last) => *at >= first && last.is_none_or(|last| *at <= last),
                    (None, last) => *at + last.unwrap_or(0) >= len,
                })
                .collect()
        };
        list.iter().map(bytes).filter(|part| !part.is_empty()).collect()
    }

    proptest! {
        #[test]
        fn what_is_agreed_on_is_what_the_rfc_says(
            value in "bytes=[0-9]{0,3}-[0-9]{0,3}(,[0-9, -]{0,12}){0,4}",
            len in 0u64..500,
        ) {
            match agreed(value.as_bytes(), len) {
                Agreed::Parts(parts) => {
                    prop_assert!(parts.windows(2).all(|two| two[0].to < two[1].from));
                    prop_assert!(parts.iter().all(|part| part.from < part.to && part.to <= len));
                    prop_assert_eq!(wanted(value.as_bytes(), len), Wanted::Parts(parts));
                }
                Agreed::Nothing => prop_assert_eq!(wanted(value.as_bytes(), len), Wanted::Nothing),
                Agreed::Differs => {}
            }
        }

        #[test]
        fn both_name_the_bytes_that_were_asked_for(
            list in proptest::collection::vec((0u64..60, 0u64..20, 0u8..4), 1..6),
            len in 1u64..64,
        ) {
            let list: Vec<(Option<u64>, Option<u64>)> = list
                .into_iter()
                .map(|(first, more, form)| match form {
                    0 => (Some(first), None),
                    1 => (None, Some(more)),
                    _ => (Some(first), Some(first + more)),
                })
                .collect();
            let number =
                |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            let texts: Vec<String> = list
                .iter()
                .map(|&(first, last)| format!("{}-{}", number(first), number(last)))
                .collect();
            let value = format!("bytes={}", texts.join(","));
            let expected = naive(&list, len);
            let bytes = |parts: &Ranges| {
                parts.iter().map(|part| (part.from..part.to).collect()).collect::<Vec<Vec<u64>>>()
            };
            if let Wanted::Parts(parts) = wanted(value.as_bytes(), len) {
                prop_assert_eq!(bytes(&parts), expected.clone());
            }
            if let Agreed::Parts(parts) = agreed(value.as_bytes(), len) {
                prop_assert_eq!(bytes(&parts), expected);
            }
        }

        #[test]
        fn any_bytes(value in proptest::collection::vec(any::<u8>(), 0..60), len: u64) {
            if let Wanted::Parts(parts) = wanted(&value, len) {
                prop_assert!(
                    !parts.is_empty()
                        && parts.iter().all(|part| part.from < part.to && part.to <= len)
                );
            }
            if let Agreed::Parts(parts) = agreed(&value, len) {
                prop_assert!(
                    !parts.is_empty()
                        && parts.iter().all(|part| part.from < part.to && part.to <= len)
                );
            }
        }
    }
}
