//! If-Range (RFC 9110 section 13.1.5): is the range of the version that the client has?

use crate::conditional::{is_weak, opaque_tag};
use crate::date::parse_imf_fixdate;

/// How old a Last-Modified must be to be taken for a strong validator by everybody. RFC 7232
/// section 2.2.2 wanted a minute, and Apache still does; RFC 9110 section 8.8.2.2 wants a second.
const STRONG_AFTER_S: u64 = 60;

/// What every server would do with a range under an If-Range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfRange {
    /// Send the range.
    Applies,
    /// Send all.
    Whole,
    /// Servers differ.
    Differs,
}

/// What every server would do with a range under this If-Range for an entry with this entity tag
/// and Last-Modified, at `now_s` (seconds since 1970). A weak tag never applies by the RFC, but
/// does at some servers.
pub fn agreed_if_range(
    value: &[u8],
    etag: Option<&[u8]>,
    last_modified: Option<&[u8]>,
    now_s: u64,
) -> IfRange {
    if let Some(tag) = opaque_tag(value) {
        return match etag {
            Some(own) if !is_weak(value) && !is_weak(own) && opaque_tag(own).is_some() => {
                if tag == own { IfRange::Applies } else { IfRange::Whole }
            }
            _ => IfRange::Differs,
        };
    }
    match (parse_imf_fixdate(value), last_modified.and_then(parse_imf_fixdate)) {
        (Some(date), Some(modified))
            if date == modified && modified.saturating_add(STRONG_AFTER_S) < now_s =>
        {
            IfRange::Applies
        }
        (Some(date), Some(modified)) if date < modified => IfRange::Whole,
        // One that is later is fresh for servers that compare by order.
        _ => IfRange::Differs,
    }
}

/// Whether a range may be sent under this If-Range, by the RFC, for a representation with a strong
/// entity tag, changed at `modified_s` if that is known and a strong validator.
pub fn if_range_applies(value: &[u8], etag: &[u8], modified_s: Option<u64>) -> bool {
    if value.starts_with(b"\"") {
        return value == etag;
    }
    parse_imf_fixdate(value).is_some_and(|date| Some(date) == modified_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LM: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const LM_S: u64 = 784_111_777;

    #[test]
    fn agreed() {
        use IfRange::*;
        let table: &[(&str, &str, IfRange)] = &[
            ("\"a\"", "\"a\"", Applies),
            ("\"b\"", "\"a\"", Whole),
            ("W/\"a\"", "\"a\"", Differs),
            ("W/\"a\"", "W/\"a\"", Differs),
            ("\"a\"", "W/\"a\"", Differs),
            ("\"a,b\"", "\"a\"", Differs),
            ("\"a\", \"b\"", "\"a\"", Differs),
            ("a", "\"a\"", Differs),
            ("", "\"a\"", Differs),
            ("Sun, 06 Nov 1994 08:49:37 GMT", "\"a\"", Applies),
            ("Sun, 06 Nov 1994 08:49:36 GMT", "\"a\"", Whole),
            ("Sun, 06 Nov 1994 08:49:38 GMT", "\"a\"", Differs),
            ("Sunday, 06-Nov-94 08:49:37 GMT", "\"a\"", Differs),
        ];
        for (value, etag, expected) in table {
            let got =
                agreed_if_range(value.as_bytes(), Some(etag.as_bytes()), Some(LM), LM_S + 100_000);
            assert_eq!(got, *expected, "{value} {etag}");
        }
        assert_eq!(
            agreed_if_range(LM, None, Some(LM), LM_S + 60),
            Differs,
            "too young to be strong"
        );
        assert_eq!(agreed_if_range(LM, None, Some(LM), LM_S + 61), Applies);
        assert_eq!(agreed_if_range(LM, None, None, LM_S + 100), Differs);
        assert_eq!(agreed_if_range(b"\"a\"", None, Some(LM), LM_S), Differs);
    }

    #[test]
    fn by_the_rfc() {
        assert!(if_range_applies(b"\"a\"", b"\"a\"", None));
        assert!(!if_range_applies(b"W/\"a\"", b"\"a\"", Some(LM_S)));
        assert!(if_range_applies(LM, b"\"a\"", Some(LM_S)));
        assert!(!if_range_applies(LM, b"\"a\"", None));
        assert!(!if_range_applies(LM, b"\"a\"", Some(LM_S + 1)));
        assert!(!if_range_applies(b"x", b"\"a\"", None));
    }
}
