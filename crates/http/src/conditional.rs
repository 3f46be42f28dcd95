//! If-None-Match and If-Modified-Since (RFC 9110 section 13), answered only where all servers agree.
//!
//! Servers differ: RFC 9110 section 13.2.2 lets If-None-Match override If-Modified-Since, nginx wants both to say
//! "not modified"; some compare dates for equality, some for order. Where that matters the verdict is
//! [`Verdict::Ambiguous`] and the server decides.

use crate::date::parse_imf_fixdate;

/// The condition of a GET or HEAD request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditional<'a> {
    /// The value of If-None-Match.
    pub if_none_match: Option<&'a [u8]>,
    /// The value of If-Modified-Since.
    pub if_modified_since: Option<&'a [u8]>,
}

impl Conditional<'_> {
    /// Has the request a condition at all?
    pub fn is_conditional(&self) -> bool {
        self.if_none_match.is_some() || self.if_modified_since.is_some()
    }
}

/// What every server would answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole reply (200).
    Full,
    /// 304.
    NotModified,
    /// Servers differ: forward the request.
    Ambiguous,
}

/// What every server would answer to `condition` for an entry with this entity tag and Last-Modified.
#[inline]
pub fn evaluate(condition: &Conditional<'_>, etag: Option<&[u8]>, last_modified: Option<&[u8]>) -> Verdict {
    match (condition.if_none_match, condition.if_modified_since) {
        (None, None) => Verdict::Full,
        (Some(tags), None) => none_match(tags, etag),
        (None, Some(date)) => modified_since(date, last_modified),
        (Some(tags), Some(date)) => {
            let (by_tag, by_date) = (none_match(tags, etag), modified_since(date, last_modified));
            if by_tag == by_date { by_tag } else { Verdict::Ambiguous }
        }
    }
}

/// RFC 9110 section 13.1.2, with weak comparison (section 8.8.3.2).
fn none_match(tags: &[u8], etag: Option<&[u8]>) -> Verdict {
    let own = match etag.map(opaque_tag) {
        Some(Some(own)) => Some(own),
        Some(None) => return Verdict::Ambiguous,
        None => None,
    };
    // Some servers find a tag in the list by searching for commas, so a tag that holds one is not certain.
    let mut found = false;
    for tag in crate::head::list(tags) {
        match opaque_tag(tag) {
            Some(tag) => found |= Some(tag) == own,
            None => return Verdict::Ambiguous,
        }
    }
    if found { Verdict::NotModified } else { Verdict::Full }
}

/// The opaque part of an entity tag (RFC 9110 section 8.8.3), with its quotes, without `W/`.
pub(crate) fn opaque_tag(tag: &[u8]) -> Option<&[u8]> {
    let opaque = tag.strip_prefix(b"W/").unwrap_or(tag);
    match opaque {
        [b'"', inner @ .., b'"'] if inner.iter().all(|b| matches!(b, 0x21 | 0x23..=0x7e) && *b != b',') => Some(opaque),
        _ => None,
    }
}

/// RFC 9110 section 13.1.3: equal is not modified for all, earlier is modified for all, and about the rest servers differ.
fn modified_since(date: &[u8], last_modified: Option<&[u8]>) -> Verdict {
    match last_modified {
        // An entry's Last-Modified is an IMF-fixdate, or the reply would not have been shareable.
        Some(last_modified) if date == last_modified => Verdict::NotModified,
        Some(last_modified) => match (parse_imf_fixdate(date), parse_imf_fixdate(last_modified)) {
            (Some(date), Some(last_modified)) if date == last_modified => Verdict::NotModified,
            (Some(date), Some(last_modified)) if date < last_modified => Verdict::Full,
            _ => Verdict::Ambiguous,
        },
        // A server may know a date that it does not send.
        None => Verdict::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::*;

    const LM: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn table() {
        let cases: &[(Option<&str>, Option<&str>, Verdict)] = &[
            (None, None, Full),
            (Some("\"a\""), None, NotModified),
            (Some("W/\"a\""), None, NotModified),
            (Some("\"b\", W/\"a\""), None, NotModified),
            (Some("\"b\",\t\"c\""), None, Full),
            (Some("\"A\""), None, Full),
            (Some("*"), None, Ambiguous),
            (Some("*, \"a\""), None, Ambiguous),
            (Some("a"), None, Ambiguous),
            (Some("w/\"a\""), None, Ambiguous),
            (Some("\"a"), None, Ambiguous),
            (Some("\"\"a\"\""), None, Ambiguous),
            (Some("\"a\" \"b\""), None, Ambiguous),
            (Some("\"x,\"a\""), None, Ambiguous),
            (Some("\"x,y\", \"a\""), None, Ambiguous),
            (Some("\"x y\", \"a\""), None, Ambiguous),
            (Some("\"a\","), None, Ambiguous),
            (Some(""), None, Ambiguous),
            (Some("\""), None, Ambiguous),
            (None, Some(LM), NotModified),
            (None, Some(EARLIER), Full),
            (None, Some(LATER), Ambiguous),
            (None, Some("yesterday"), Ambiguous),
            (None, Some(""), Ambiguous),
            (None, Some("Sunday, 06-Nov-94 08:49:37 GMT"), Ambiguous),
            (Some("\"a\""), Some(LM), NotModified),
            (Some("\"b\""), Some(EARLIER), Full),
            (Some("\"a\""), Some(EARLIER), Ambiguous),
            (Some("\"b\""), Some(LM), Ambiguous),
            (Some("\"a\""), Some(LATER), Ambiguous),
            (Some("*"), Some(LM), Ambiguous),
        ];
        for (tags, date, verdict) in cases {
            let condition =
                Conditional { if_none_match: tags.map(str::as_bytes), if_modified_since: date.map(str::as_bytes) };
            for etag in ["\"a\"", "W/\"a\""] {
                let answer = evaluate(&condition, Some(etag.as_bytes()), Some(LM.as_bytes()));
                assert_eq!(answer, *verdict, "{tags:?} {date:?} {etag}");
            }
        }
    }

    #[test]
    fn entries_without_validators() {
        let tag = Conditional { if_none_match: Some(b"\"a\""), if_modified_since: None };
        assert_eq!(evaluate(&tag, None, None), Full);
        assert_eq!(evaluate(&tag, Some(b"unquoted"), None), Ambiguous);
        let date = Conditional { if_none_match: None, if_modified_since: Some(LM.as_bytes()) };
        assert_eq!(evaluate(&date, Some(b"\"a\""), None), Ambiguous);
        assert_eq!(evaluate(&date, None, Some(b"bad")), Ambiguous);
        assert!(tag.is_conditional() && !Conditional::default().is_conditional());
    }
}
