//! Why a message is not served from, or not stored in, card memory. Each reason has a label for
//! metrics.

use nicache_reasons::reasons;

reasons! {
    /// Why a request is passed to the server although its reply might be in card memory.
    BypassReason {
        /// The head is longer than what every server takes by default.
        HeadTooLong => "head_too_long",
        /// The head has more than [`crate::HEADERS_MAX`] fields.
        TooManyHeaders => "too_many_headers",
        /// Empty lines before the request line (RFC 9112 section 2.2): servers differ in how many
        /// they skip.
        LeadingEmptyLine => "leading_empty_line",
        /// The request line is not `method SP target SP version` (RFC 9112 section 3).
        RequestLine => "request_line",
        /// A version other than HTTP/1.0 and HTTP/1.1 (RFC 9112 section 2.3).
        HttpVersion => "http_version",
        /// A line that ends in LF alone, or a CR that is not followed by LF (RFC 9112 section 2.2).
        BareLineBreak => "bare_line_break",
        /// A folded field line (RFC 9112 section 5.2).
        ObsFold => "obs_fold",
        /// Whitespace between a field name and its colon (RFC 9112 section 5.1).
        SpaceBeforeColon => "space_before_colon",
        /// NUL or another control byte (RFC 9110 section 5.5).
        ControlByte => "control_byte",
        /// A field line without a valid name (RFC 9110 section 5.1).
        HeaderName => "header_name",
        /// More than one space before a field value, a tab, or whitespace after the value (RFC 9110
        /// section 5.6.3).
        OddWhitespace => "odd_whitespace",
        /// A method other than GET and HEAD.
        Method => "method",
        /// CONNECT: what follows is not HTTP (RFC 9110 section 9.3.6).
        Connect => "connect",
        /// The target is in absolute form (RFC 9112 section 3.2.2).
        TargetAbsolute => "target_absolute",
        /// The target is `*` (RFC 9112 section 3.2.4).
        TargetAsterisk => "target_asterisk",
        /// The target is in authority form, or in none that is defined (RFC 9112 section 3.2.3).
        TargetAuthority => "target_authority",
        /// The target has a fragment (RFC 9110 section 7.1 leaves none).
        TargetFragment => "target_fragment",
        /// The target has a byte that RFC 3986 sections 3.3 and 3.4 do not allow.
        TargetByte => "target_byte",
        /// The path has a percent sign that encodes nothing, an encoded NUL, or leads above the
        /// root: some servers refuse it.
        TargetPath => "target_path",
        /// HTTP/1.1 without Host (RFC 9112 section 3.2).
        HostMissing => "host_missing",
        /// More than one Host (RFC 9112 section 3.2).
        HostDuplicate => "host_duplicate",
        /// Host is not `name [":" port]` (RFC 9110 section 7.2).
        HostMalformed => "host_malformed",
        /// Content-Length repeated, a list, or not plain digits (RFC 9112 section 6.3).
        ContentLength => "content_length",
        /// Any Transfer-Encoding (RFC 9112 section 6.1).
        TransferEncoding => "transfer_encoding",
        /// A GET or HEAD that announces content (RFC 9110 section 9.3.1).
        Body => "body",
        /// A Connection value other than `close` and `keep-alive` (RFC 9110 section 7.6.1).
        ConnectionOption => "connection_option",
        /// Upgrade (RFC 9110 section 7.8): what follows may not be HTTP.
        Upgrade => "upgrade",
        /// Expect (RFC 9110 section 10.1.1): whether content is sent depends on the reply.
        Expect => "expect",
        /// Authorization or Proxy-Authorization (RFC 9111 section 3.5).
        Authorization => "authorization",
        /// A cookie that is not known to be harmless.
        Cookie => "cookie",
        /// A field that may come once comes twice (RFC 9110 section 5.3).
        DuplicateHeader => "duplicate_header",
        /// A field that is not known to leave the reply unchanged.
        UnknownHeader => "unknown_header",
    }
}

reasons! {
    /// Why a reply does not become an entry.
    NotShared {
        /// The reply to a method other than GET.
        RequestMethod => "request_method",
        /// A status other than 200.
        Status => "status",
        /// A reply in HTTP/1.0 whose connection persists.
        HttpVersion => "http_version",
        /// A status line without the space before its reason (RFC 9112 section 4).
        StatusLine => "status_line",
        /// Set-Cookie.
        SetCookie => "set_cookie",
        /// `Cache-Control: private` (RFC 9111 section 5.2.2.7).
        Private => "private",
        /// `Cache-Control: no-store` (RFC 9111 section 5.2.2.5).
        NoStore => "no_store",
        /// Cache-Control that is not a list of directives, or has what looks like a misspelled one.
        CacheControlOdd => "cache_control_odd",
        /// `Vary: *` (RFC 9110 section 12.5.5).
        VaryStar => "vary_star",
        /// Vary is not a list of field names.
        VaryOdd => "vary_odd",
        /// Vary names more, or longer, fields than an entry keeps.
        VaryTooLarge => "vary_too_large",
        /// Content-Range (RFC 9110 section 14.4).
        ContentRange => "content_range",
        /// WWW-Authenticate, Authentication-Info or their proxy kin (RFC 9110 section 11).
        Authentication => "authentication",
        /// Trailer (RFC 9110 section 6.6.2).
        Trailer => "trailer",
        /// A Content-Security-Policy with a nonce, which must not be used twice (CSP level 3,
        /// section 7.1).
        Nonce => "nonce",
        /// A field that is not among the usual ones of a server of files.
        UnusualHeader => "unusual_header",
        /// A field that may come once comes twice.
        DuplicateHeader => "duplicate_header",
        /// Connection with a value other than `close` and `keep-alive`.
        ConnectionOdd => "connection_odd",
        /// A Date that is not an IMF-fixdate (RFC 9110 section 5.6.7), or an Expires without a
        /// Date.
        Date => "date",
        /// Last-Modified is not an IMF-fixdate.
        LastModifiedOdd => "last_modified_odd",
        /// Expires equals Date + max-age, but may as well hang on a time of day or on
        /// Last-Modified.
        ExpiresPinned => "expires_pinned",
        /// The head is longer than [`crate::TEMPLATE_BYTES_MAX`].
        HeadTooLong => "head_too_long",
    }
}

reasons! {
    /// Why it is not certain where a reply ends. The card stops tracking the connection.
    MalformedReply {
        /// The head is longer than [`crate::HEAD_BYTES_MAX`] or has more than
        /// [`crate::HEADERS_MAX`] fields.
        HeadTooLong => "head_too_long",
        /// Empty lines before the status line.
        LeadingEmptyLine => "leading_empty_line",
        /// No valid HTTP/1.x head (RFC 9112 section 4 and 5).
        Syntax => "syntax",
        /// A line that ends in LF alone.
        BareLineBreak => "bare_line_break",
        /// A status outside 100 to 599.
        Status => "status",
        /// 101: what follows is not HTTP (RFC 9110 section 15.2.2).
        SwitchingProtocols => "switching_protocols",
        /// Content-Length repeated, a list, or not plain digits, or on a reply that must not have
        /// it (RFC 9110 section 8.6).
        ContentLength => "content_length",
        /// A Transfer-Encoding other than one plain `chunked`, or on a reply that must not have it
        /// (RFC 9112 section 6.1).
        TransferEncoding => "transfer_encoding",
        /// Transfer-Encoding with Content-Length (RFC 9112 section 6.3).
        LengthAndEncoding => "length_and_encoding",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(labels: &[&str]) {
        let mut sorted = labels.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), labels.len(), "two reasons share a label");
        for label in labels {
            assert!(
                label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{label}"
            );
        }
    }

    #[test]
    fn labels_are_unique_snake_case_and_indices_match() {
        check(&BypassReason::ALL.iter().map(BypassReason::label).collect::<Vec<_>>());
        check(&NotShared::ALL.iter().map(NotShared::label).collect::<Vec<_>>());
        check(&MalformedReply::ALL.iter().map(MalformedReply::label).collect::<Vec<_>>());
        assert!(BypassReason::ALL.iter().enumerate().all(|(i, r)| r.index() == i));
        assert!(NotShared::ALL.iter().enumerate().all(|(i, r)| r.index() == i));
        assert!(MalformedReply::ALL.iter().enumerate().all(|(i, r)| r.index() == i));
        assert_eq!(NotShared::SetCookie.to_string(), "set_cookie");
    }
}
