//! Numbers, sizes and statuses as texts give them.

/// Digits that always fit 64 bits.
const DIGITS_SAFE: usize = 19;
const US_PER_SECOND: u64 = 1_000_000;
/// Digits of a fraction that are kept: microseconds.
const FRACTION_DIGITS: usize = 6;

/// A number of digits; `None` also if it is too large.
pub(crate) fn number_of(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut number = 0u64;
    if text.len() <= DIGITS_SAFE {
        for &byte in text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + u64::from(digit);
        }
    } else {
        for &byte in text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
    }
    Some(number)
}

/// A status of three digits.
pub(crate) fn status_of(text: &[u8]) -> Option<u16> {
    let &[a, b, c] = text else { return None };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u16::from(byte - b'0'));
    Some(digit(a)? * 100 + digit(b)? * 10 + digit(c)?)
}

/// Bytes of a reply; `-`: not told.
pub(crate) fn bytes_of(text: &[u8]) -> Option<Option<u64>> {
    if text == b"-" { Some(None) } else { number_of(text).map(Some) }
}

/// Seconds, with a fraction or without, in microseconds; finer digits are dropped.
pub(crate) fn seconds_us(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &[][..]),
    };
    number_of(whole)?.checked_mul(US_PER_SECOND)?.checked_add(fraction_us(fraction)?)
}

/// The digits after a point, in microseconds.
pub(crate) fn fraction_us(digits: &[u8]) -> Option<u64> {
    let mut us = 0;
    for at in 0..FRACTION_DIGITS {
        let digit = digits.get(at).map_or(0, |byte| byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        us = us * 10 + u64::from(digit);
    }
    digits.iter().skip(FRACTION_DIGITS).all(u8::is_ascii_digit).then_some(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds() {
        assert_eq!(seconds_us(b"1455944445"), Some(1_455_944_445_000_000));
        assert_eq!(seconds_us(b"1455944445.25"), Some(1_455_944_445_250_000));
        assert_eq!(seconds_us(b"1.0000019"), Some(1_000_001));
        for bad in [&b""[..], b".5", b"1.5x", b"1.000000x", b"-1", b"99999999999999999"] {
            assert_eq!(seconds_us(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn statuses_and_bytes() {
        assert_eq!(
            (status_of(b"304"), status_of(b"20"), status_of(b"2x0"), status_of(b"2000")),
            (Some(304), None, None, None)
        );
        assert_eq!(
            (bytes_of(b"-"), bytes_of(b"17"), bytes_of(b""), bytes_of(b"+1")),
            (Some(None), Some(Some(17)), None, None)
        );
    }

    proptest::proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(text in "[0-9]{0,22}|[0-9+a-]{1,4}") {
            let expected = text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
            proptest::prop_assert_eq!(number_of(text.as_bytes()), expected);
        }
    }
}
