//! Set-Cookie (RFC 6265 section 4.1): cookies that the stored reply goes without.

use crate::cookie::CookiePattern;
use crate::head::{trim_ows, without_lines};

/// Cookies by their names.
#[derive(Clone, Debug, Default)]
pub struct CookieNames {
    patterns: Vec<CookiePattern>,
}

impl CookieNames {
    /// Exact names, or the beginnings of names when written with a final `*`.
    pub fn new<T: AsRef<str>>(names: &[T]) -> Self {
        Self { patterns: names.iter().map(|name| CookiePattern::new(name.as_ref())).collect() }
    }

    /// Is there no name?
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The reply head without the Set-Cookie lines of these cookies. `None` if it has none of them.
    pub fn removed_from(&self, head: &[u8]) -> Option<Vec<u8>> {
        without_lines(head, |line| self.is_set_by(line))
    }

    fn is_set_by(&self, line: &[u8]) -> bool {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
        let name =
            line[colon + 1..].split(|byte| *byte == b'=').next().map(trim_ows).unwrap_or_default();
        line[..colon].eq_ignore_ascii_case(b"set-cookie")
            && self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_ones_go() {
        let names = CookieNames::new(&["sid", "pre_*"]);
        let head = b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=1; path=/\r\nA: b\r\nSET-COOKIE:  pre_x=2\r\nSet-Cookie: side=sid=3\r\n\r\n";
        let left = names.removed_from(head).unwrap();
        assert_eq!(left, b"HTTP/1.1 200 OK\r\nA: b\r\nSet-Cookie: side=sid=3\r\n\r\n");
        assert_eq!(names.removed_from(&left), None);
        assert_eq!(CookieNames::default().removed_from(head), None);
    }
}
