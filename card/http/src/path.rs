//! Which of the operator's path settings a request falls under: the first pattern that matches.
//!
//! A pattern is matched against the path of the target with its percent-encoding undone, or, if it
//! contains a `?`, against path and query. `*` stands for any bytes, any number of them, `/`
//! included; everything else for itself. Patterns without `*` are exact.
//!
//! A path that a server may take for another one (dot segments, empty segments, an encoded slash, a
//! backslash, a control byte) falls under no setting and is [`PathMatch::Odd`]: a page must not
//! escape its settings by another spelling.

use memchr::memmem;

/// Patterns that can be set up, at most.
pub const PATTERNS_MAX: usize = 64;
/// Longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 256;

/// Why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern can match no path.
    #[error("a pattern begins with `/` or `*`")]
    Start,
    /// Longer than [`PATTERN_BYTES_MAX`].
    #[error("a pattern has at most {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// A path that is never matched, because servers differ in what they take it for.
    #[error(
        "a pattern has no `//`, no `/./` or `/../`, no `\\`, no `#` and no spaces or control characters; it is written without percent-encoding"
    )]
    Odd,
    /// No host name.
    #[error("a host is a plain name or address, without a port")]
    Host,
    /// More than [`PATTERNS_MAX`].
    #[error("at most {PATTERNS_MAX} patterns")]
    TooMany,
}

/// Which paths a setting is for, with `*` for any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    host: Option<Box<[u8]>>,
    text: Box<[u8]>,
    with_query: bool,
}

impl PathPattern {
    /// Reads a pattern; with `host` it is for requests to that host alone, whatever the port.
    ///
    /// # Errors
    /// It would never match.
    pub fn new(pattern: &str, host: Option<&str>) -> Result<Self, PatternError> {
        let text = pattern.as_bytes();
        if !matches!(text.first(), Some(b'/' | b'*')) {
            return Err(PatternError::Start);
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let path = text.split(|byte| *byte == b'?').next().unwrap_or_default();
        if is_odd(path) || text.iter().any(|byte| matches!(byte, 0..=b' ' | 0x7f | b'#')) {
            return Err(PatternError::Odd);
        }
        if host.is_some_and(|host| {
            host.is_empty()
                || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }) {
            return Err(PatternError::Host);
        }
        let host = host.map(|host| host.as_bytes().into());
        Ok(Self { host, text: text.into(), with_query: text.contains(&b'?') })
    }

    fn matches(&self, host: &[u8], path: &[u8], query: &[u8]) -> bool {
        let name = host.split(|byte| *byte == b':').next().unwrap_or_default();
        if self.host.as_ref().is_some_and(|wanted| !wanted.eq_ignore_ascii_case(name)) {
            return false;
        }
        if self.with_query {
            glob(&self.text, &[path, query].concat())
        } else {
            glob(&self.text, path)
        }
    }
}

/// Under which setting a request falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Under none.
    None,
    /// Under that of the pattern with this number.
    Pattern(usize),
    /// The setting cannot be told.
    Odd,
}

/// The first of `patterns` that matches a target in origin form.
pub(crate) fn find<'p>(
    patterns: impl IntoIterator<Item = &'p PathPattern>,
    host: &[u8],
    target: &[u8],
) -> PathMatch {
    let mut patterns = patterns.into_iter().enumerate().peekable();
    if patterns.peek().is_none() {
        return PathMatch::None;
    }
    let path_len = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let (path, query) = target.split_at(path_len);
    let Some(path) = decode(path) else { return PathMatch::Odd };
    let found = patterns.find(|(_, pattern)| pattern.matches(host, &path, query));
    found.map_or(PathMatch::None, |(number, _)| PathMatch::Pattern(number))
}

/// Undoes percent-encoding. `None` if servers may differ in what the path means.
fn decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'%' {
            decoded.push(first);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let byte = (digit(0)? * 16 + digit(1)?) as u8;
        rest = &rest[2..];
        if matches!(byte, b'/' | b'%') || byte.is_ascii_control() {
            return None;
        }
        decoded.push(byte);
    }
    (!is_odd(&decoded)).then_some(decoded)
}

fn is_odd(path: &[u8]) -> bool {
    let segments = || path.split(|byte| *byte == b'/').skip(1);
    let last = segments().count().saturating_sub(1);
    path.contains(&b'\\')
        || segments().enumerate().any(|(number, segment)| {
            segment == b"." || segment == b".." || segment.is_empty() && number < last
        })
}

/// Does `text` match, with `*` for any bytes? Linear: the parts between stars are taken where they
/// first stand.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = memmem::find(rest, part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(patterns: &[&str], target: &str) -> PathMatch {
        let patterns: Vec<PathPattern> =
            patterns.iter().map(|text| PathPattern::new(text, None).unwrap()).collect();
        find(&patterns, b"a.example", target.as_bytes())
    }

    #[test]
    fn patterns() {
        for (pattern, target, matches) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/wiki/*", "/wiki/", true),
            ("/wiki/*", "/wiki/a/b?c", true),
            ("/wiki/*", "/wikia", false),
            ("*.php", "/a/b.php?c=d", true),
            ("*.php", "/a.php5", false),
            ("/a*b*c", "/abxbc", true),
            ("/a*b*c", "/acb", false),
            ("/a*a", "/a", false),
            ("/index.php?title=*", "/index.php?title=A&x=1", true),
            ("/index.php?title=*", "/index.php", false),
            ("/index.php?*action=history*", "/index.php?title=A&action=history", true),
            ("/Ärger", "/%C3%84rger", true),
            ("/admin", "/%61dmin", true),
        ] {
            let expected = if matches { PathMatch::Pattern(0) } else { PathMatch::None };
            assert_eq!(matching(&[pattern], target), expected, "{pattern} {target}");
        }
        assert_eq!(matching(&["/b", "/a*", "/*"], "/ab"), PathMatch::Pattern(1));
        assert_eq!(matching(&[], "/../a"), PathMatch::None);
    }

    #[test]
    fn other_spellings_do_not_escape() {
        for target in [
            "/a/../b",
            "/./b",
            "//b",
            "/a//b",
            "/a/..",
            "/a/%2e%2e/b",
            "/a%2fb",
            "/a%2F",
            "/a%5cb",
            "/a%00",
            "/%zz",
            "/%4",
            "/%2561",
            "/a\\b",
        ] {
            assert_eq!(matching(&["/*"], target), PathMatch::Odd, "{target}");
        }
        for target in ["/a/", "/...", "/a..b", "/a?b=/../c"] {
            assert_eq!(matching(&["/*"], target), PathMatch::Pattern(0), "{target}");
        }
    }

    #[test]
    fn hosts() {
        let pattern = [PathPattern::new("/*", Some("A.example")).unwrap()];
        assert_eq!(find(&pattern, b"a.EXAMPLE:8080", b"/"), PathMatch::Pattern(0));
        assert_eq!(find(&pattern, b"b.example", b"/"), PathMatch::None);
        for host in ["", "a b", "a:80", "a/b"] {
            assert_eq!(PathPattern::new("/", Some(host)), Err(PatternError::Host));
        }
    }

    #[test]
    fn what_is_no_pattern() {
        for (text, error) in [
            ("", PatternError::Start),
            ("wiki", PatternError::Start),
            ("/a b", PatternError::Odd),
            ("/a//b", PatternError::Odd),
            ("/../a", PatternError::Odd),
            ("/a#b", PatternError::Odd),
        ] {
            assert_eq!(PathPattern::new(text, None), Err(error), "{text}");
        }
        assert_eq!(
            PathPattern::new(&format!("/{}", "a".repeat(PATTERN_BYTES_MAX)), None),
            Err(PatternError::TooLong)
        );
    }
}
