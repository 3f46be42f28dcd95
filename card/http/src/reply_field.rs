//! Which header fields of a reply mean what to the card.

/// A reply field's meaning to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyField {
    ContentLength,
    TransferEncoding,
    Connection,
    Date,
    Expires,
    LastModified,
    Etag,
    CacheControl,
    /// What is said to caches of one kind alone, as CDN-Cache-Control (RFC 9213).
    TargetedCacheControl,
    Vary,
    SetCookie,
    ContentType,
    ContentRange,
    AcceptRanges,
    Location,
    ContentLocation,
    /// WWW-Authenticate and kin.
    Authentication,
    Trailer,
    /// Another protocol that the server speaks on this connection.
    Upgrade,
    /// Content-Security-Policy, with or without Report-Only.
    SecurityPolicy,
    /// Has the same value in each reply of a server of files, and may come once.
    UsualOnce,
    /// Has the same value in each reply of a server of files, and may come several times: by the
    /// standard, or because a server and its application both set it, and clients live with that.
    Usual,
    /// The number of the execution, or how long it took: of no reply but the server's own.
    Execution,
    /// Not known to be the same in each reply.
    Unusual,
}

/// The meaning of a field by its name. Fields are looked up at misses only.
pub(crate) fn classify(name: &[u8]) -> ReplyField {
    let found = FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    match (found, name.len().checked_sub(TARGETED.len())) {
        (Some((_, field)), _) => *field,
        // `Cloudflare-`, `Vercel-CDN-`, `X-LiteSpeed-` and others.
        (None, Some(at)) if name[at..].eq_ignore_ascii_case(TARGETED) => {
            ReplyField::TargetedCacheControl
        }
        _ => ReplyField::Unusual,
    }
}

/// How the names of such fields end.
const TARGETED: &[u8] = b"-cache-control";

const FIELDS: &[(&[u8], ReplyField)] = &[
    (b"server", ReplyField::Usual),
    (b"date", ReplyField::Date),
    (b"content-type", ReplyField::ContentType),
    (b"content-length", ReplyField::ContentLength),
    (b"last-modified", ReplyField::LastModified),
    (b"connection", ReplyField::Connection),
    (b"etag", ReplyField::Etag),
    (b"accept-ranges", ReplyField::AcceptRanges),
    (b"keep-alive", ReplyField::UsualOnce),
    (b"vary", ReplyField::Vary),
    (b"cache-control", ReplyField::CacheControl),
    (b"surrogate-control", ReplyField::TargetedCacheControl),
    (b"edge-control", ReplyField::TargetedCacheControl),
    (b"expires", ReplyField::Expires),
    (b"content-encoding", ReplyField::UsualOnce),
    (b"content-language", ReplyField::UsualOnce),
    (b"content-disposition", ReplyField::UsualOnce),
    (b"content-location", ReplyField::ContentLocation),
    (b"pragma", ReplyField::Usual),
    (b"transfer-encoding", ReplyField::TransferEncoding),
    (b"strict-transport-security", ReplyField::Usual),
    (b"x-content-type-options", ReplyField::Usual),
    (b"x-frame-options", ReplyField::Usual),
    (b"x-xss-protection", ReplyField::Usual),
    (b"referrer-policy", ReplyField::Usual),
    (b"permissions-policy", ReplyField::Usual),
    (b"access-control-allow-origin", ReplyField::Usual),
    (b"access-control-allow-methods", ReplyField::Usual),
    (b"access-control-allow-headers", ReplyField::Usual),
    (b"access-control-expose-headers", ReplyField::Usual),
    (b"access-control-max-age", ReplyField::Usual),
    (b"cross-origin-opener-policy", ReplyField::Usual),
    (b"cross-origin-embedder-policy", ReplyField::Usual),
    (b"cross-origin-resource-policy", ReplyField::Usual),
    (b"timing-allow-origin", ReplyField::Usual),
    (b"x-robots-tag", ReplyField::Usual),
    (b"link", ReplyField::Usual),
    (b"alt-svc", ReplyField::Usual),
    (b"content-security-policy", ReplyField::SecurityPolicy),
    (b"content-security-policy-report-only", ReplyField::SecurityPolicy),
    (b"set-cookie", ReplyField::SetCookie),
    (b"set-cookie2", ReplyField::SetCookie),
    (b"content-range", ReplyField::ContentRange),
    (b"www-authenticate", ReplyField::Authentication),
    (b"authentication-info", ReplyField::Authentication),
    (b"proxy-authenticate", ReplyField::Authentication),
    (b"proxy-authentication-info", ReplyField::Authentication),
    (b"trailer", ReplyField::Trailer),
    (b"upgrade", ReplyField::Upgrade),
    (b"location", ReplyField::Location),
    (b"x-request-id", ReplyField::Execution),
    (b"request-id", ReplyField::Execution),
    (b"x-correlation-id", ReplyField::Execution),
    (b"correlation-id", ReplyField::Execution),
    (b"x-trace-id", ReplyField::Execution),
    (b"traceresponse", ReplyField::Execution),
    (b"x-amzn-requestid", ReplyField::Execution),
    (b"x-amzn-trace-id", ReplyField::Execution),
    (b"x-cloud-trace-context", ReplyField::Execution),
    (b"server-timing", ReplyField::Execution),
    (b"x-runtime", ReplyField::Execution),
    (b"x-response-time", ReplyField::Execution),
    (b"x-process-time", ReplyField::Execution),
    (b"x-execution-time", ReplyField::Execution),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_unique() {
        for (index, (name, field)) in FIELDS.iter().enumerate() {
            assert!(!name.iter().any(u8::is_ascii_uppercase));
            assert!(FIELDS[..index].iter().all(|(other, _)| other != name));
            assert_eq!(classify(&name.to_ascii_uppercase()), *field);
        }
        for targeted in ["CDN-Cache-Control", "X-LiteSpeed-Cache-Control", "Surrogate-Control"] {
            assert_eq!(classify(targeted.as_bytes()), ReplyField::TargetedCacheControl);
        }
        for unusual in
            ["Age", "Via", "X-Request-Idea", "X-Powered-By", "Set-Cookie3", "Clear-Site-Data", ""]
        {
            assert_eq!(classify(unusual.as_bytes()), ReplyField::Unusual, "{unusual}");
        }
    }
}
