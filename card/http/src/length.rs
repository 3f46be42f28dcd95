//! Content-Length (RFC 9110 section 8.6).

use crate::limits::CONTENT_LENGTH_DIGITS_MAX;

/// The value if it is plain: digits only, without a superfluous zero in front, and below 10^18.
///
/// A sign, whitespace, a list of equal values (which RFC 9112 section 6.3 lets a recipient accept)
/// and leading zeros (which some parsers read as octal) are not plain.
pub(crate) fn parse_content_length(value: &[u8]) -> Option<u64> {
    let plain = match value {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => {
            rest.len() < CONTENT_LENGTH_DIGITS_MAX && rest.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    plain.then(|| value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::parse_content_length;

    #[test]
    fn only_plain_digits() {
        assert_eq!(parse_content_length(b"0"), Some(0));
        assert_eq!(parse_content_length(b"4096"), Some(4096));
        assert_eq!(parse_content_length(b"999999999999999999"), Some(999_999_999_999_999_999));
        for odd in [
            &b""[..],
            b"+5",
            b"-1",
            b"05",
            b"00",
            b"5 ",
            b" 5",
            b"5,5",
            b"5, 5",
            b"0x5",
            b"5.0",
            b"1_000",
            b"5\x00",
            b"\xb2",
            b"1000000000000000000",
            b"18446744073709551616",
            b"5;a",
        ] {
            assert_eq!(parse_content_length(odd), None, "{}", odd.escape_ascii());
        }
    }
}
