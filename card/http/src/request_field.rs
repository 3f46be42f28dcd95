//! Which header fields of a request mean what to the card.

use crate::head::is_name;

/// A request field's meaning to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestField {
    Host,
    Connection,
    ContentLength,
    TransferEncoding,
    Upgrade,
    Expect,
    Range,
    IfRange,
    /// Authorization, Proxy-Authorization.
    Authorization,
    Cookie,
    IfMatch,
    IfUnmodifiedSince,
    CacheControl,
    IfNoneMatch,
    IfModifiedSince,
    AcceptEncoding,
    Accept,
    Origin,
    /// Known not to change a file's reply, or covered by `Vary`.
    Harmless,
    /// None that every client sends: what proxies add ([`crate::intermediary`]), or not known.
    Other,
}

/// The meaning of a field by its name. The match on the length leaves one to five comparisons.
#[inline]
pub(crate) fn classify(name: &[u8]) -> RequestField {
    use RequestField::*;
    match name.len() {
        3 if is_name(name, b"dnt") => Harmless,
        4 if is_name(name, b"host") => Host,
        5 if is_name(name, b"range") => Range,
        6 if is_name(name, b"accept") => Accept,
        6 if is_name(name, b"cookie") => Cookie,
        6 if is_name(name, b"origin") => Origin,
        6 if is_name(name, b"pragma") => Harmless,
        6 if is_name(name, b"expect") => Expect,
        7 if is_name(name, b"referer") => Harmless,
        7 if is_name(name, b"upgrade") => Upgrade,
        8 if is_name(name, b"priority") => Harmless,
        8 if is_name(name, b"if-match") => IfMatch,
        8 if is_name(name, b"if-range") => IfRange,
        10 if is_name(name, b"connection") => Connection,
        10 if is_name(name, b"user-agent") => Harmless,
        10 if is_name(name, b"keep-alive") => Harmless,
        13 if is_name(name, b"if-none-match") => IfNoneMatch,
        13 if is_name(name, b"cache-control") => CacheControl,
        13 if is_name(name, b"authorization") => Authorization,
        14 if is_name(name, b"content-length") => ContentLength,
        14 if is_name(name, b"accept-charset") => Harmless,
        15 if is_name(name, b"accept-encoding") => AcceptEncoding,
        15 if is_name(name, b"accept-language") => Harmless,
        17 if is_name(name, b"if-modified-since") => IfModifiedSince,
        17 if is_name(name, b"transfer-encoding") => TransferEncoding,
        19 if is_name(name, b"if-unmodified-since") => IfUnmodifiedSince,
        19 if is_name(name, b"proxy-authorization") => Authorization,
        25 if is_name(name, b"upgrade-insecure-requests") => Harmless,
        _ if is_security_hint(name) => Harmless,
        _ => Other,
    }
}

/// `Sec-*` (Fetch Metadata, client hints), but not the fields of a WebSocket handshake (RFC 6455
/// section 11.3).
#[inline]
fn is_security_hint(name: &[u8]) -> bool {
    let begins =
        |lower: &[u8]| name.len() > lower.len() && name[..lower.len()].eq_ignore_ascii_case(lower);
    begins(b"sec-") && !begins(b"sec-websocket-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestField::*;

    #[test]
    fn each_name_has_its_meaning() {
        let table: &[(&str, RequestField)] = &[
            ("Host", Host),
            ("Connection", Connection),
            ("Content-Length", ContentLength),
            ("Transfer-Encoding", TransferEncoding),
            ("Upgrade", Upgrade),
            ("Expect", Expect),
            ("Range", Range),
            ("If-Range", IfRange),
            ("Authorization", Authorization),
            ("Proxy-Authorization", Authorization),
            ("Cookie", Cookie),
            ("If-Match", IfMatch),
            ("If-Unmodified-Since", IfUnmodifiedSince),
            ("If-None-Match", IfNoneMatch),
            ("If-Modified-Since", IfModifiedSince),
            ("Accept-Encoding", AcceptEncoding),
            ("Accept", Accept),
            ("Origin", Origin),
            ("User-Agent", Harmless),
            ("Accept-Language", Harmless),
            ("Accept-Charset", Harmless),
            ("Referer", Harmless),
            ("DNT", Harmless),
            ("Priority", Harmless),
            ("Cache-Control", CacheControl),
            ("Pragma", Harmless),
            ("Keep-Alive", Harmless),
            ("Upgrade-Insecure-Requests", Harmless),
            ("Sec-Fetch-Mode", Harmless),
            ("sec-ch-ua", Harmless),
            ("Sec-GPC", Harmless),
            ("Sec-", Other),
            ("Sec-WebSocket-Key", Other),
            ("Save-Data", Other),
            ("X-Forwarded-For", Other),
            ("X-Forwarded-Host", Other),
            ("X-Original-URL", Other),
            ("X-HTTP-Method-Override", Other),
            ("TE", Other),
            ("Forwarded", Other),
            ("Content-Type", Other),
            ("Trailer", Other),
            ("Transfer_Encoding", Other),
            ("Content_Length", Other),
            ("Cookie2", Other),
            ("Accept-Datetime", Other),
        ];
        for (name, field) in table {
            assert_eq!(classify(name.as_bytes()), *field, "{name}");
            assert_eq!(classify(name.to_ascii_lowercase().as_bytes()), *field, "{name}");
            assert_eq!(classify(name.to_ascii_uppercase().as_bytes()), *field, "{name}");
        }
    }
}
