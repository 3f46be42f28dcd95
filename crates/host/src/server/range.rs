//! Ranges of bytes (RFC 9110 section 14).

/// Most ranges of one request that are served; a request for more gets the whole file.
pub const RANGES_MAX: usize = 16;

/// What is wanted of `bytes` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them: there is no range, it is of another unit or malformed, or it is more than is served.
    Whole,
    /// These, each from the first byte to the one behind the last, in the order in which they were asked for.
    Parts(Vec<(u64, u64)>),
    /// None of what was asked for is there.
    Nothing,
}

/// Reads a `Range`.
pub fn parse(value: &[u8], bytes: u64) -> Wanted {
    let Some(set) = value
        .get(..6)
        .filter(|unit| unit.eq_ignore_ascii_case(b"bytes="))
        .and_then(|_| std::str::from_utf8(&value[6..]).ok())
    else {
        return Wanted::Whole;
    };
    let mut parts = Vec::new();
    let mut count = 0;
    for spec in set.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty()) {
        count += 1;
        match one(spec, bytes) {
            _ if count > RANGES_MAX => return Wanted::Whole,
            None => return Wanted::Whole,
            Some(Some(part)) => parts.push(part),
            Some(None) => {}
        }
    }
    // Together more than the file: it is cheaper for everybody to send that (RFC 9110 section 14.2).
    let all: u128 = parts.iter().map(|(from, to)| u128::from(to - from)).sum();
    if count == 0 || all > u128::from(bytes.max(1)) {
        return Wanted::Whole;
    }
    if parts.is_empty() { Wanted::Nothing } else { Wanted::Parts(parts) }
}

/// One range; `None`: it is malformed, `Some(None)`: it is not there.
fn one(spec: &str, bytes: u64) -> Option<Option<(u64, u64)>> {
    let number = |text: &str| -> Option<u64> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // One that is too large for us is as good as infinite.
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    match spec.split_once('-')? {
        ("", last) => {
            let last = number(last)?;
            Some((last > 0 && bytes > 0).then(|| (bytes - last.min(bytes), bytes)))
        }
        (first, "") => {
            let first = number(first)?;
            Some((first < bytes).then_some((first, bytes)))
        }
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            Some((first < bytes).then(|| (first, last.saturating_add(1).min(bytes))))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_the_rfc_says() {
        let parts = |value: &str| parse(value.as_bytes(), 10_000);
        assert_eq!(parts("bytes=0-499"), Wanted::Parts(vec![(0, 500)]));
        assert_eq!(parts("Bytes=-500"), Wanted::Parts(vec![(9500, 10_000)]));
        assert_eq!(parts("bytes=9500-"), Wanted::Parts(vec![(9500, 10_000)]));
        assert_eq!(parts("bytes=0-0,-1"), Wanted::Parts(vec![(0, 1), (9999, 10_000)]));
        assert_eq!(parts("bytes=9999-99999999999999999999999"), Wanted::Parts(vec![(9999, 10_000)]));
        assert_eq!(parts("bytes=0-1, 20000-"), Wanted::Parts(vec![(0, 2)]));
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
        assert_eq!(parse(b"bytes=0-", 0), Wanted::Nothing);
    }

    proptest! {
        #[test]
        fn parts_lie_in_the_file(value in "bytes=[0-9, -]{0,40}", bytes in 0u64..5000) {
            if let Wanted::Parts(parts) = parse(value.as_bytes(), bytes) {
                prop_assert!(!parts.is_empty() && parts.len() <= RANGES_MAX);
                prop_assert!(parts.iter().all(|(from, to)| from < to && *to <= bytes));
            }
        }
    }
}
