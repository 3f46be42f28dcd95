//! What requests and replies share: comparing field names, and the strict shape of head lines.
//!
//! The tokeniser accepts lines that end in LF alone (RFC 9112 section 2.2 lets a recipient do so)
//! and any optional whitespace around values. Parsers differ in both, so [`Lines`] walks over the
//! tokens once more, by position, and finds every byte between them accounted for: `name ":" [SP]
//! value CR LF` and nothing else.

use httparse::Header;

/// Where `inner`, a slice of `outer`, begins in it.
#[inline]
pub(crate) fn offset_in(outer: &[u8], inner: &[u8]) -> usize {
    (inner.as_ptr() as usize).wrapping_sub(outer.as_ptr() as usize)
}

/// The head without some of its lines, which `is_gone` is asked about with their ends. `None` if
/// all stay.
pub(crate) fn without_lines(head: &[u8], is_gone: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let mut rest = Vec::with_capacity(head.len());
    head.split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !is_gone(line))
        .for_each(|line| rest.extend_from_slice(line));
    (rest.len() < head.len()).then_some(rest)
}

/// Compares a field name or a token with `lower`, which must be of lower-case letters, digits and
/// hyphens.
///
/// A branch-free loop over a known length, which compiles to a few vector operations. `| 0x20` maps
/// nothing but upper-case letters on lower-case ones and, of the bytes that a token may have,
/// nothing on a digit or a hyphen but itself.
#[inline]
pub(crate) fn is_name<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    match name.first_chunk::<N>() {
        Some(name_bytes) if name.len() == N => {
            name_bytes.iter().zip(lower).fold(0u8, |differing, (a, b)| differing | ((a | 0x20) ^ b))
                == 0
        }
        _ => false,
    }
}

/// How the whitespace around a field value looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spacing {
    /// None or one space before, none behind.
    Plain,
    /// Legal (RFC 9112 section 5), but unusual.
    Odd,
}

/// A line did not end in CR LF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BareLineBreak;

/// Walks over the lines of a complete, tokenised head.
pub(crate) struct Lines<'h> {
    head: &'h [u8],
    at: usize,
}

impl<'h> Lines<'h> {
    /// `head` ends behind the empty line, `start_line_len` does not count the line's own break.
    #[inline]
    pub(crate) fn new(head: &'h [u8], start_line_len: usize) -> Result<Self, BareLineBreak> {
        let mut lines = Lines { head, at: start_line_len };
        lines.line_break()?;
        Ok(lines)
    }

    /// Takes the next field line, which must begin where the last one ended.
    #[inline]
    pub(crate) fn field(&mut self, header: &Header<'_>) -> Result<Spacing, BareLineBreak> {
        if offset_in(self.head, header.name.as_bytes()) != self.at {
            return Err(BareLineBreak);
        }
        let colon_at = self.at + header.name.len();
        let value_at = offset_in(self.head, header.value);
        let leading_plain = value_at == colon_at + 1
            || (value_at == colon_at + 2 && self.head.get(colon_at + 1) == Some(&b' '));
        let value_end = value_at.wrapping_add(header.value.len());
        self.at = value_end;
        while let Some(b' ' | b'\t') = self.head.get(self.at) {
            self.at += 1;
        }
        let trailing_plain = self.at == value_end;
        self.line_break()?;
        Ok(if leading_plain && trailing_plain { Spacing::Plain } else { Spacing::Odd })
    }

    /// Takes the empty line, which must end the head.
    #[inline]
    pub(crate) fn finish(mut self) -> Result<(), BareLineBreak> {
        self.line_break()?;
        if self.at == self.head.len() { Ok(()) } else { Err(BareLineBreak) }
    }

    #[inline]
    fn line_break(&mut self) -> Result<(), BareLineBreak> {
        if self.head.get(self.at..).is_some_and(|rest| rest.starts_with(b"\r\n")) {
            self.at += 2;
            Ok(())
        } else {
            Err(BareLineBreak)
        }
    }
}

/// A comma-separated list (RFC 9110 section 5.6.1): its elements without the whitespace around
/// them, empty ones left in.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(trim_ows)
}

/// A field's value without optional whitespace (RFC 9110 section 5.6.3) at both ends.
pub(crate) fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// A token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(value: &[u8]) -> bool {
    !value.is_empty()
        && value.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_without_case_and_nothing_else() {
        assert!(is_name(b"If-None-Match", b"if-none-match"));
        assert!(!is_name(b"If-None-Matc", b"if-none-match"));
        assert!(!is_name(b"If-None-Match2", b"if-none-match"));
        for byte in 0..=255u8 {
            let token = is_token(&[byte]);
            assert_eq!(token && is_name(&[byte], b"a"), byte == b'a' || byte == b'A', "{byte:#x}");
            assert_eq!(token && is_name(&[byte], b"-"), byte == b'-', "{byte:#x}");
            assert_eq!(token && is_name(&[byte], b"7"), byte == b'7', "{byte:#x}");
        }
    }

    #[test]
    fn lists_keep_empty_elements() {
        let elements: Vec<&[u8]> = list(b"a ,\tb,, c").collect();
        assert_eq!(elements, [&b"a"[..], b"b", b"", b"c"]);
    }
}
