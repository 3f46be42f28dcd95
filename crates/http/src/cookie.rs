//! Cookie (RFC 6265 section 4.2): harmless if each cookie's name is on the operator's list.

/// One entry of the list: an exact name, or the beginning of names when written with a final `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CookiePattern {
    Exact(Box<[u8]>),
    Prefix(Box<[u8]>),
}

impl CookiePattern {
    pub(crate) fn new(pattern: &str) -> CookiePattern {
        match pattern.strip_suffix('*') {
            Some(prefix) => CookiePattern::Prefix(prefix.as_bytes().into()),
            None => CookiePattern::Exact(pattern.as_bytes().into()),
        }
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match self {
            CookiePattern::Exact(exact) => **exact == *name,
            CookiePattern::Prefix(prefix) => name.starts_with(prefix),
        }
    }
}

/// Has each cookie in `value` a name that one of the patterns, or of `more` of them, matches? Names are compared with case.
///
/// A pair without a name or without `=`, a quote, and a comma (which some servers take for a separator, RFC 2965)
/// make the field harmful.
pub(crate) fn is_harmless(value: &[u8], patterns: &[CookiePattern], more: &[CookiePattern]) -> bool {
    let has_none = patterns.is_empty() && more.is_empty();
    if has_none || value.iter().any(|b| matches!(b, b'"' | b',')) {
        return false;
    }
    value.split(|b| *b == b';').all(|pair| {
        let pair = crate::head::trim_ows(pair);
        match pair.iter().position(|b| *b == b'=') {
            Some(0) | None => false,
            Some(name_len) => {
                let name = &pair[..name_len];
                crate::head::is_token(name) && patterns.iter().chain(more).any(|pattern| pattern.matches(name))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_must_match() {
        let patterns = [CookiePattern::new("_ga"), CookiePattern::new("_pk_*")];
        for good in ["_ga=1", "_ga=1; _pk_id.7=x", "_pk_=", "_ga=a=b;_ga=2"] {
            assert!(is_harmless(good.as_bytes(), &patterns, &[]), "{good}");
        }
        for bad in [
            "",
            "_ga",
            "=1",
            "_ga=1;",
            "_ga=1; sid=2",
            "_GA=1",
            "_gat=1",
            "_ga=1, sid=2",
            "_ga=\"1; sid=2\"",
            "_ga =1",
            ";_ga=1",
            "$Version=1; _ga=1",
        ] {
            assert!(!is_harmless(bad.as_bytes(), &patterns, &[]), "{bad}");
        }
        assert!(!is_harmless(b"_ga=1", &[], &[]));
        assert!(is_harmless(b"anything=1", &[CookiePattern::new("*")], &[]));
        assert!(is_harmless(b"_ga=1; a=2", &patterns, &[CookiePattern::new("a")]));
        assert!(is_harmless(b"a=2", &[], &[CookiePattern::new("a")]));
    }
}
