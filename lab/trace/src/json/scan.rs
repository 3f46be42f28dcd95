//! Walks over JSON (RFC 8259) without making anything of it.
//!
//! Taken is more than JSON: strings need not be UTF-8, because nginx writes bytes above 0x7f as
//! they came; and a value without quotes may be anything up to the next delimiter, because a
//! variable of nginx without a value is `-` or nothing.

use memchr::memchr2;

/// Containers in containers that are walked over.
const DEPTH_MAX: u32 = 64;

/// Something that is not a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar<'a> {
    /// What is between quotes, with its escapes.
    Text(&'a [u8]),
    /// A number, a literal, or whatever stands there.
    Bare(&'a [u8]),
}

impl<'a> Scalar<'a> {
    /// Its bytes; escapes are left in.
    pub(super) fn raw(self) -> &'a [u8] {
        match self {
            Scalar::Text(raw) | Scalar::Bare(raw) => raw,
        }
    }
}

/// What begins at a place where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// An object; its entries follow.
    Object,
    /// An array; its values follow.
    Array,
    /// Neither.
    Scalar(Scalar<'a>),
}

/// A place in a text.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// At the beginning.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Scanner { bytes, at: 0 }
    }

    /// The value here; a container is entered.
    pub(super) fn value(&mut self) -> Option<Value<'a>> {
        match self.peek()? {
            b'{' => {
                self.at += 1;
                Some(Value::Object)
            }
            b'[' => {
                self.at += 1;
                Some(Value::Array)
            }
            b'"' => self.text().map(|text| Value::Scalar(Scalar::Text(text))),
            _ => {
                let rest = &self.bytes[self.at..];
                let end = rest
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'}' | b']'))
                    .unwrap_or(rest.len());
                self.at += end;
                Some(Value::Scalar(Scalar::Bare(rest[..end].trim_ascii_end())))
            }
        }
    }

    /// The key of the next entry of the object that was entered, as it stands; `Some(None)` at its
    /// end, after which the object is left. `is_first`: nothing of the object was read yet.
    pub(super) fn key(&mut self, is_first: bool) -> Option<Option<&'a [u8]>> {
        if !self.goes_on(b'}', is_first)? {
            return Some(None);
        }
        if self.peek()? != b'"' {
            return None;
        }
        let key = self.text()?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(Some(key))
    }

    /// Whether another value of the array that was entered follows; if not, the array is left.
    pub(super) fn has_element(&mut self, is_first: bool) -> Option<bool> {
        self.goes_on(b']', is_first)
    }

    /// Passes over the value here.
    pub(super) fn skip(&mut self) -> Option<()> {
        match self.value()? {
            Value::Scalar(_) => Some(()),
            Value::Object | Value::Array => self.leave(),
        }
    }

    /// Passes over the rest of the container that was entered.
    pub(super) fn leave(&mut self) -> Option<()> {
        let mut depth = 1u32;
        loop {
            let rest = &self.bytes[self.at..];
            self.at +=
                rest.iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))?;
            match self.bytes[self.at] {
                b'"' => {
                    self.text()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => depth -= 1,
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
            if depth > DEPTH_MAX {
                return None;
            }
        }
    }

    fn goes_on(&mut self, end: u8, is_first: bool) -> Option<bool> {
        let byte = self.peek()?;
        if byte == end {
            self.at += 1;
            return Some(false);
        }
        if !is_first {
            if byte != b',' {
                return None;
            }
            self.at += 1;
        }
        Some(true)
    }

    /// The text whose quote is here.
    fn text(&mut self) -> Option<&'a [u8]> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            at += memchr2(b'"', b'\\', self.bytes.get(at..)?)?;
            if self.bytes[at] == b'"' {
                self.at = at + 1;
                return Some(&self.bytes[start..at]);
            }
            at += 2;
        }
    }

    /// The next byte that is not space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
    }
}

/// Appends a string without its escapes. An escape that is none stays as it is; half a surrogate
/// pair becomes U+FFFD.
pub(super) fn unescape(raw: &[u8], text: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let simple = match rest.get(1) {
            Some(&byte @ (b'"' | b'\\' | b'/')) => Some(byte),
            Some(b'b') => Some(8),
            Some(b'f') => Some(12),
            Some(b'n') => Some(b'\n'),
            Some(b'r') => Some(b'\r'),
            Some(b't') => Some(b'\t'),
            _ => None,
        };
        if let Some(byte) = simple {
            text.push(byte);
            rest = &rest[2..];
        } else if let Some((character, length)) = unicode(rest) {
            text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[length..];
        } else {
            text.push(b'\\');
            rest = &rest[1..];
        }
    }
    text.extend_from_slice(rest);
}

/// The character of `\uxxxx`, or of two that are a surrogate pair, and their length.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |text: &[u8]| {
        let digits = text
            .strip_prefix(b"\\u")?
            .get(..4)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(text)?;
    if let (0xd800..0xdc00, Some(second @ 0xdc00..0xe000)) = (first, unit(&text[6..])) {
        return Some((
            char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))?,
            12,
        ));
    }
    Some((char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value as Json};

    use super::*;

    fn text(raw: &[u8]) -> String {
        let mut text = Vec::new();
        unescape(raw, &mut text);
        String::from_utf8(text).unwrap()
    }

    /// What the scanner walks over, as serde_json would make it.
    fn rebuilt(scanner: &mut Scanner<'_>) -> Option<Json> {
        Some(match scanner.value()? {
            Value::Scalar(Scalar::Text(raw)) => Json::String(text(raw)),
            Value::Scalar(Scalar::Bare(raw)) => serde_json::from_slice(raw).ok()?,
            Value::Object => {
                let mut map = Map::new();
                let mut is_first = true;
                while let Some(key) = scanner.key(is_first)? {
                    is_first = false;
                    map.insert(text(key), rebuilt(scanner)?);
                }
                Json::Object(map)
            }
            Value::Array => {
                let mut array = Vec::new();
                while scanner.has_element(array.is_empty())? {
                    array.push(rebuilt(scanner)?);
                }
                Json::Array(array)
            }
        })
    }

    fn json() -> impl Strategy<Value = Json> {
        let scalar = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            (-1000i32..1000).prop_map(|number| Json::from(f64::from(number) / 8.0)),
            any::<String>().prop_map(Json::from),
            "[\"\\\\{}\\[\\]:, a]{0,9}".prop_map(Json::from),
        ];
        scalar.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                proptest::collection::hash_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_walked_over(value in json(), is_pretty in any::<bool>()) {
            let written = if is_pretty {
                serde_json::to_vec_pretty(&value)
            } else {
                serde_json::to_vec(&value)
            }
            .unwrap();
            prop_assert_eq!(rebuilt(&mut Scanner::new(&written)), Some(value));
            let both = [&written[..], b",7"].concat();
            let mut scanner = Scanner::new(&both);
            prop_assert_eq!(scanner.skip(), Some(()));
            prop_assert_eq!(&both[scanner.at..], b",7");
        }

        #[test]
        fn escapes_are_those_of_serde_json(
            text in "[ -~é\u{1f600}\u{7}\n]{0,9}|(\\\\u[0-9a-f]{4}|\\\\[bfnrt/]){0,4}",
        ) {
            let quoted = if text.starts_with('\\') {
                format!("\"{text}\"")
            } else {
                serde_json::to_string(&text).unwrap()
            };
            let raw = &quoted[1..quoted.len() - 1];
            let mut unescaped = Vec::new();
            unescape(raw.as_bytes(), &mut unescaped);
            // It refuses halves of surrogate pairs.
            if let Ok(expected) = serde_json::from_str::<String>(&quoted) {
                prop_assert_eq!(String::from_utf8(unescaped).unwrap(), expected);
            }
        }

        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(),
                    "[{}\\[\\]\",:\\\\u0]".prop_map(|text| text.as_bytes()[0])],
                0..60,
            ),
        ) {
            let _ = Scanner::new(&bytes).skip();
            unescape(&bytes, &mut Vec::new());
        }
    }

    #[test]
    fn halves_of_pairs_and_what_is_no_escape() {
        for (raw, expected) in [
            ("\\ud83d", "\u{fffd}"),
            ("\\ud83dx", "\u{fffd}x"),
            ("\\ude00", "\u{fffd}"),
            ("\\x41\\", "\\x41\\"),
            ("\\u12", "\\u12"),
        ] {
            assert_eq!(text(raw.as_bytes()), expected, "{raw}");
        }
    }
}
