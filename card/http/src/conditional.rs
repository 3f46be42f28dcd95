//! Preconditions (RFC 9110 section 13), evaluated in two ways.
//!
//! [`judge`] is section 13.2.2, for a server of our own. [`evaluate`] is what servers have in
//! common, for a card that must not be told from the server behind it: section 13.2.2 lets
//! If-None-Match override If-Modified-Since, nginx wants both to say "not modified"; it lets
//! If-Match override If-Unmodified-Since, nginx wants both to hold; some compare dates for
//! equality, some for order; Node's `fresh` never says 304 to a request with `Cache-Control:
//! no-cache`. Where that matters the verdict is [`Verdict::Ambiguous`] and the server decides.

use crate::date::parse_imf_fixdate;
use crate::head::{list, trim_ows};

/// The preconditions of a GET or HEAD request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditional<'a> {
    /// The value of If-None-Match.
    pub if_none_match: Option<&'a [u8]>,
    /// The value of If-Modified-Since.
    pub if_modified_since: Option<&'a [u8]>,
    /// The value of If-Match.
    pub if_match: Option<&'a [u8]>,
    /// The value of If-Unmodified-Since.
    pub if_unmodified_since: Option<&'a [u8]>,
    /// `Cache-Control: no-cache`.
    pub no_cache: bool,
}

impl Conditional<'_> {
    /// Has the request a condition at all?
    pub fn is_conditional(&self) -> bool {
        self.if_none_match.is_some()
            || self.if_modified_since.is_some()
            || self.if_match.is_some()
            || self.if_unmodified_since.is_some()
    }
}

/// What every server would answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What it would answer without the conditions (200).
    Full,
    /// 304.
    NotModified,
    /// 412, unless it knows no such condition.
    Failed,
    /// Servers differ: forward the request.
    Ambiguous,
}

/// What every server would answer to `condition` for an entry with this entity tag and
/// Last-Modified.
#[inline]
pub fn evaluate(
    condition: &Conditional<'_>,
    etag: Option<&[u8]>,
    last_modified: Option<&[u8]>,
) -> Verdict {
    let first = match (condition.if_match, condition.if_unmodified_since) {
        (None, None) => Verdict::Full,
        (Some(tags), None) => matches(tags, etag),
        (None, Some(date)) => unmodified_since(date, last_modified),
        (Some(tags), Some(date)) => {
            both(matches(tags, etag), unmodified_since(date, last_modified))
        }
    };
    if first != Verdict::Full {
        return first;
    }
    let second = match (condition.if_none_match, condition.if_modified_since) {
        (None, None) => Verdict::Full,
        (Some(tags), None) => none_match(tags, etag),
        (None, Some(date)) => modified_since(date, last_modified),
        (Some(tags), Some(date)) => {
            both(none_match(tags, etag), modified_since(date, last_modified))
        }
    };
    if second == Verdict::NotModified && condition.no_cache { Verdict::Ambiguous } else { second }
}

fn both(one: Verdict, other: Verdict) -> Verdict {
    if one == other { one } else { Verdict::Ambiguous }
}

/// RFC 9110 section 13.1.1, with strong comparison (section 8.8.3.2): a weak tag on either side
/// never matches by the RFC, but does at some servers.
fn matches(tags: &[u8], etag: Option<&[u8]>) -> Verdict {
    if tags == b"*" {
        return Verdict::Full;
    }
    let Some(own) = etag.filter(|own| !is_weak(own) && opaque_tag(own).is_some()) else {
        return Verdict::Ambiguous;
    };
    let mut found = false;
    for tag in list(tags) {
        if opaque_tag(tag).is_none() || is_weak(tag) {
            return Verdict::Ambiguous;
        }
        found |= tag == own;
    }
    if found { Verdict::Full } else { Verdict::Failed }
}

/// RFC 9110 section 13.1.4.
fn unmodified_since(date: &[u8], last_modified: Option<&[u8]>) -> Verdict {
    match (parse_imf_fixdate(date), last_modified.and_then(parse_imf_fixdate)) {
        (Some(date), Some(last_modified)) if last_modified <= date => Verdict::Full,
        (Some(_), Some(_)) => Verdict::Failed,
        _ => Verdict::Ambiguous,
    }
}

/// RFC 9110 section 13.1.2, with weak comparison (section 8.8.3.2).
fn none_match(tags: &[u8], etag: Option<&[u8]>) -> Verdict {
    if tags == b"*" {
        // The representation is there.
        return Verdict::NotModified;
    }
    let own = match etag.map(opaque_tag) {
        Some(Some(own)) => Some(own),
        Some(None) => return Verdict::Ambiguous,
        None => None,
    };
    // Some servers find a tag in the list by searching for commas, so a tag that holds one is not
    // certain.
    let mut found = false;
    for tag in list(tags) {
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
        [b'"', inner @ .., b'"']
            if inner.iter().all(|b| matches!(b, 0x21 | 0x23..=0x7e) && *b != b',') =>
        {
            Some(opaque)
        }
        _ => None,
    }
}

pub(crate) fn is_weak(tag: &[u8]) -> bool {
    tag.starts_with(b"W/")
}

/// RFC 9110 section 13.1.3: equal is not modified for all, earlier is modified for all, and about
/// the rest servers differ.
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

/// What the conditions of a request come to by the RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Serve the request as if it had no conditions.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// RFC 9110 section 13.2.2, for a representation with a strong entity tag. A condition that cannot
/// be read is one that does not spare the reply. Dates are seconds since 1970; what they mean is
/// the caller's: has it changed after that one, and has it not since that one?
pub fn judge(
    condition: &Conditional<'_>,
    etag: &[u8],
    has_changed_after: impl Fn(u64) -> bool,
    is_unchanged_since: impl Fn(u64) -> bool,
) -> Judgement {
    if let Some(tags) = condition.if_match {
        if !names(tags, etag, false) {
            return Judgement::Failed;
        }
    } else if condition
        .if_unmodified_since
        .and_then(parse_imf_fixdate)
        .is_some_and(has_changed_after)
    {
        return Judgement::Failed;
    }
    let is_spared = match condition.if_none_match {
        Some(tags) => names(tags, etag, true),
        None => {
            condition.if_modified_since.and_then(parse_imf_fixdate).is_some_and(is_unchanged_since)
        }
    };
    if is_spared { Judgement::NotModified } else { Judgement::Proceed }
}

/// Is `tag`, which has no comma in it, in the list? Weak comparison takes `W/"x"` for `"x"` (RFC
/// 9110 section 8.8.3.2).
fn names(tags: &[u8], tag: &[u8], weakly: bool) -> bool {
    if trim_ows(tags) == b"*" {
        return true;
    }
    list(tags).any(|listed| {
        let opaque = if weakly { listed.strip_prefix(b"W/").unwrap_or(listed) } else { listed };
        opaque == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::*;

    const LM: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn conditions_that_spare_a_reply() {
        let cases: &[(Option<&str>, Option<&str>, Verdict)] = &[
            (None, None, Full),
            (Some("\"a\""), None, NotModified),
            (Some("W/\"a\""), None, NotModified),
            (Some("\"b\", W/\"a\""), None, NotModified),
            (Some("\"b\",\t\"c\""), None, Full),
            (Some("\"A\""), None, Full),
            (Some("*"), None, NotModified),
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
            (Some("*"), Some(LM), NotModified),
        ];
        for (tags, date, verdict) in cases {
            let condition = Conditional {
                if_none_match: tags.map(str::as_bytes),
                if_modified_since: date.map(str::as_bytes),
                ..Conditional::default()
            };
            for etag in ["\"a\"", "W/\"a\""] {
                let answer = evaluate(&condition, Some(etag.as_bytes()), Some(LM.as_bytes()));
                assert_eq!(answer, *verdict, "{tags:?} {date:?} {etag}");
            }
            let forced = Conditional { no_cache: true, ..condition };
            let answer = evaluate(&forced, Some(b"\"a\""), Some(LM.as_bytes()));
            assert_eq!(
                answer,
                if *verdict == NotModified { Ambiguous } else { *verdict },
                "{tags:?} {date:?}"
            );
        }
    }

    #[test]
    fn conditions_that_forbid_a_reply() {
        let cases: &[(Option<&str>, Option<&str>, Verdict)] = &[
            (Some("\"a\""), None, Full),
            (Some("\"b\", \"a\""), None, Full),
            (Some("*"), None, Full),
            (Some("\"b\""), None, Failed),
            (Some("W/\"a\""), None, Ambiguous),
            (Some("a"), None, Ambiguous),
            (None, Some(LM), Full),
            (None, Some(LATER), Full),
            (None, Some(EARLIER), Failed),
            (None, Some("yesterday"), Ambiguous),
            (Some("\"a\""), Some(LM), Full),
            (Some("\"b\""), Some(EARLIER), Failed),
            (Some("\"a\""), Some(EARLIER), Ambiguous),
            (Some("\"b\""), Some(LM), Ambiguous),
        ];
        for (tags, date, verdict) in cases {
            let condition = Conditional {
                if_match: tags.map(str::as_bytes),
                if_unmodified_since: date.map(str::as_bytes),
                ..Conditional::default()
            };
            let answer = |condition| evaluate(condition, Some(b"\"a\""), Some(LM.as_bytes()));
            assert_eq!(answer(&condition), *verdict, "{tags:?} {date:?}");
            // RFC 9110 section 13.2.2: these come first.
            let also = Conditional { if_none_match: Some(b"\"a\""), ..condition };
            assert_eq!(
                answer(&also),
                if *verdict == Full { NotModified } else { *verdict },
                "{tags:?} {date:?}"
            );
        }
        let weak = Conditional { if_match: Some(b"W/\"a\""), ..Conditional::default() };
        assert_eq!(evaluate(&weak, Some(b"W/\"a\""), None), Ambiguous);
    }

    #[test]
    fn entries_without_validators() {
        let tag = Conditional { if_none_match: Some(b"\"a\""), ..Conditional::default() };
        assert_eq!(evaluate(&tag, None, None), Full);
        assert_eq!(evaluate(&tag, Some(b"unquoted"), None), Ambiguous);
        let date = Conditional { if_modified_since: Some(LM.as_bytes()), ..Conditional::default() };
        assert_eq!(evaluate(&date, Some(b"\"a\""), None), Ambiguous);
        assert_eq!(evaluate(&date, None, Some(b"bad")), Ambiguous);
        let unmodified =
            Conditional { if_unmodified_since: Some(LM.as_bytes()), ..Conditional::default() };
        assert_eq!(evaluate(&unmodified, None, None), Ambiguous);
        let matching = Conditional { if_match: Some(b"\"a\""), ..Conditional::default() };
        assert_eq!(evaluate(&matching, None, None), Ambiguous);
        assert!(tag.is_conditional() && !Conditional::default().is_conditional());
    }

    #[test]
    fn by_the_rfc() {
        let modified_s = parse_imf_fixdate(LM.as_bytes()).unwrap();
        let of = |condition: Conditional<'_>| {
            judge(&condition, b"\"a\"", |since| modified_s > since, |since| modified_s <= since)
        };
        let none = Conditional::default();
        assert_eq!(of(none), Judgement::Proceed);
        for (tags, judgement) in [
            ("\"a\"", Judgement::NotModified),
            ("\"x\", W/\"a\"", Judgement::NotModified),
            ("*", Judgement::NotModified),
            ("\"x\"", Judgement::Proceed),
        ] {
            // If-None-Match overrides If-Modified-Since.
            for date in [None, Some(EARLIER.as_bytes()), Some(LM.as_bytes())] {
                let asked = Conditional {
                    if_none_match: Some(tags.as_bytes()),
                    if_modified_since: date,
                    ..none
                };
                assert_eq!(of(asked), judgement, "{tags}");
            }
        }
        for (tags, judgement) in [
            ("\"a\"", Judgement::Proceed),
            ("*", Judgement::Proceed),
            ("W/\"a\"", Judgement::Failed),
            ("\"x\"", Judgement::Failed),
        ] {
            // If-Match overrides If-Unmodified-Since.
            let asked = Conditional {
                if_match: Some(tags.as_bytes()),
                if_unmodified_since: Some(EARLIER.as_bytes()),
                ..none
            };
            assert_eq!(of(asked), judgement, "{tags}");
        }
        for (date, modified, unmodified) in [
            (LM, Judgement::NotModified, Judgement::Proceed),
            (EARLIER, Judgement::Proceed, Judgement::Failed),
            (LATER, Judgement::NotModified, Judgement::Proceed),
            ("yesterday", Judgement::Proceed, Judgement::Proceed),
        ] {
            assert_eq!(
                of(Conditional { if_modified_since: Some(date.as_bytes()), ..none }),
                modified
            );
            assert_eq!(
                of(Conditional { if_unmodified_since: Some(date.as_bytes()), ..none }),
                unmodified
            );
        }
    }
}
