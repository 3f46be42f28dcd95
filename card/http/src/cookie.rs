//! Cookie (RFC 6265 section 4.2): harmless if each cookie's name is on the operator's list.

/// The name of a list of cookies that scripts of analytics and advertising set for themselves in
/// the browser: no server reads them. It cannot be a cookie's.
pub const ANALYTICS: &str = "@analytics";

/// The cookies of the list [`ANALYTICS`] (docs/tls.md): names, and beginnings of names with a final
/// `*`.
pub const ANALYTICS_COOKIES: &[&str] = &[
    // Google Analytics, Tag Manager, Ads
    "_ga",
    "_ga_*",
    "_gid",
    "_gat*",
    "_gac_*",
    "_gcl_*",
    "_dc_gtm_*",
    "__utm*",
    "__gads",
    "__gpi",
    "__eoi",
    // Meta
    "_fbp",
    "_fbc",
    // Matomo
    "_pk_id*",
    "_pk_ses*",
    "_pk_ref*",
    "_pk_cvar*",
    "_pk_hsr*",
    "_pk_testcookie*",
    // Hotjar
    "_hj*",
    // Microsoft Clarity, Advertising
    "_clck",
    "_clsk",
    "_uet*",
    // Yandex Metrica
    "_ym_*",
    // Amplitude
    "amplitude_*",
    "AMP_*",
    // Adobe
    "AMCV_*",
    "AMCVS_*",
    "s_cc",
    "s_sq",
    // TikTok, Snap, Pinterest, Reddit, LinkedIn
    "_ttp",
    "_tt_enable_cookie",
    "_scid*",
    "_pin_unauth",
    "_rdt_uuid",
    "li_fat_id",
    // HubSpot, Snowplow, Segment, Quantcast, Chartbeat, Parse.ly, Marketo, Datadog
    "__hstc",
    "__hssc",
    "__hssrc",
    "_sp_id*",
    "_sp_ses*",
    "ajs_anonymous_id",
    "__qca",
    "_cb",
    "_chartbeat2",
    "_parsely_*",
    "_mkto_trk",
    "_dd_s",
    // Cloudflare, which reads them itself
    "__cf_bm",
    "_cfuvid",
];

/// Is a cookie of that name on the list?
pub fn is_analytics_cookie(name: &[u8]) -> bool {
    ANALYTICS_COOKIES.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == pattern.as_bytes(),
    })
}

/// Is any of the cookies one that a server might read?
#[cold]
pub(crate) fn may_be_read(value: &[u8]) -> bool {
    !names(value).all(|name| name.is_some_and(is_analytics_cookie))
}

/// One entry of the list: an exact name, or the beginning of names when written with a final `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CookiePattern {
    Exact(Box<[u8]>),
    Prefix(Box<[u8]>),
}

impl CookiePattern {
    /// One, or those of the list that has this name.
    pub(crate) fn list(pattern: &str) -> Vec<Self> {
        let one = [pattern];
        let patterns: &[&str] = if pattern == ANALYTICS { ANALYTICS_COOKIES } else { &one };
        patterns.iter().map(|pattern| Self::new(pattern)).collect()
    }

    pub(crate) fn new(pattern: &str) -> Self {
        match pattern.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix.as_bytes().into()),
            None => Self::Exact(pattern.as_bytes().into()),
        }
    }

    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => **exact == *name,
            Self::Prefix(prefix) => name.starts_with(prefix),
        }
    }
}

/// Has each cookie in `value` a name that one of the patterns, or of `more` of them, matches? Names
/// are compared with case.
///
/// A pair without a name or without `=`, a quote, and a comma (which some servers take for a
/// separator, RFC 2965) make the field harmful.
pub(crate) fn is_harmless(
    value: &[u8],
    patterns: &[CookiePattern],
    more: &[CookiePattern],
) -> bool {
    let has_none = patterns.is_empty() && more.is_empty();
    if has_none || value.iter().any(|b| matches!(b, b'"' | b',')) {
        return false;
    }
    names(value).all(|name| {
        name.is_some_and(|name| patterns.iter().chain(more).any(|pattern| pattern.matches(name)))
    })
}

/// The names of the cookies; `None` for a pair that has none.
pub(crate) fn names(value: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    value.split(|b| *b == b';').map(|pair| {
        let pair = crate::head::trim_ows(pair);
        let name_len = pair.iter().position(|b| *b == b'=')?;
        Some(&pair[..name_len]).filter(|name| crate::head::is_token(name))
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

    #[test]
    fn a_list_has_a_name_that_no_cookie_has() {
        let patterns = CookiePattern::list(ANALYTICS);
        let visit = b"_ga=GA1.1.1; _ga_X1=GS1.1; _gid=GA1.2; _fbp=fb.1.2; _pk_id.1.1fff=a.b; _hjSession_3=x; __utma=1";
        assert!(is_harmless(visit, &patterns, &[]));
        for bad in [
            "_gang=1",
            "PHPSESSID=1",
            "_ga=1; wordpress_logged_in=2",
            "amplitude=1",
            "@analytics=1",
        ] {
            assert!(!is_harmless(bad.as_bytes(), &patterns, &[]), "{bad}");
        }
        assert!(!crate::head::is_token(ANALYTICS.as_bytes()));
    }
}
