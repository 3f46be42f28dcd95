//! `Forwarded` (RFC 7239), as far as it is plain: lists of `name=value` with tokens, or quoted text
//! without escapes.

use crate::head::is_token;

/// The pairs of all elements: names as spelled, values without quotes. `None` if it is not plain.
pub(crate) fn elements(value: &[u8]) -> Option<impl Iterator<Item = (&[u8], &[u8])>> {
    let pairs = |value| Pairs { rest: value };
    pairs(value)
        .all(|pair| pair.is_some())
        .then(|| pairs(value).flatten().map(|pair| (pair.name, pair.value)))
}

/// Writes a plain value of `Forwarded` to `out` with `address` in place of each value of `for`.
pub(crate) fn with_own_address(value: &[u8], address: &str, out: &mut Vec<u8>) {
    for (at, pair) in (Pairs { rest: value }).flatten().enumerate() {
        if at > 0 {
            out.push(if pair.is_next_element { b',' } else { b';' });
        }
        out.extend_from_slice(pair.name);
        out.push(b'=');
        if pair.name.eq_ignore_ascii_case(b"for") {
            out.extend_from_slice(address.as_bytes());
        } else {
            out.extend_from_slice(pair.raw);
        }
    }
}

struct Pair<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// With its quotes.
    raw: &'a [u8],
    /// A comma, not a semicolon, is in front of it.
    is_next_element: bool,
}

/// Pairs in turn; `None` for one that is not plain, which is the last.
struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    fn take(&mut self, is_next_element: bool) -> Option<Pair<'a>> {
        let rest = self.rest.trim_ascii_start();
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, rest) = (&rest[..equals], &rest[equals + 1..]);
        if !is_token(name) {
            return None;
        }
        let (raw, value, rest) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
                (quoted[end] == b'"').then_some((
                    &rest[..end + 2],
                    &quoted[..end],
                    &quoted[end + 1..],
                ))?
            }
            None => {
                let end = rest
                    .iter()
                    .position(|byte| matches!(byte, b';' | b',' | b' ' | b'\t'))
                    .unwrap_or(rest.len());
                is_token(&rest[..end]).then_some((&rest[..end], &rest[..end], &rest[end..]))?
            }
        };
        let rest = rest.trim_ascii_start();
        if !rest.is_empty() && !matches!(rest, [b';' | b',', _, ..]) {
            return None;
        }
        self.rest = rest;
        Some(Pair { name, value, raw, is_next_element })
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Option<Pair<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let separator = match self.rest.first()? {
            separator @ (b';' | b',') => {
                self.rest = &self.rest[1..];
                Some(*separator)
            }
            _ => None,
        };
        let pair = self.take(separator == Some(b','));
        if pair.is_none() {
            self.rest = &[];
        }
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(value: &str) -> Option<Vec<(String, String)>> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        elements(value.as_bytes())
            .map(|pairs| pairs.map(|(name, value)| (text(name), text(value))).collect())
    }

    #[test]
    fn plain_ones_are_read() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            pairs("for=192.0.2.60;proto=http; by=203.0.113.43 , For=\"[2001:db8::1]:4711\""),
            Some(vec![
                pair("for", "192.0.2.60"),
                pair("proto", "http"),
                pair("by", "203.0.113.43"),
                pair("For", "[2001:db8::1]:4711")
            ])
        );
        for odd in [
            "for",
            "for=",
            "=1",
            "for=\"a",
            "for=\"a\\\"b\"",
            "for=a b",
            "for=a;",
            "for=a,,for=b",
            "for=[::1]",
        ] {
            assert_eq!(pairs(odd), None, "{odd}");
        }
    }

    #[test]
    fn another_address_in_the_same_form() {
        let mut out = Vec::new();
        with_own_address(
            b"for=192.0.2.60;proto=https, for=\"[2001:db8::1]\";host=\"a:80\"",
            "198.51.100.1",
            &mut out,
        );
        assert_eq!(out, b"for=198.51.100.1;proto=https,for=198.51.100.1;host=\"a:80\"");
    }

    proptest! {
        #[test]
        fn any_bytes_are_plain_or_not(
            value in prop::collection::vec(
                prop::sample::select(b"for=\";,\\ a1[]:".to_vec()),
                0..60,
            ),
        ) {
            if let Some(pairs) = elements(&value) {
                let mut out = Vec::new();
                let count = pairs.count();
                with_own_address(&value, "198.51.100.1", &mut out);
                prop_assert_eq!(elements(&out).map_or(0, std::iter::Iterator::count), count);
            }
        }
    }
}
