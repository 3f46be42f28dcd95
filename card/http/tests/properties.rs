//! What holds for all input: no panic, prefixes are partial, nothing behind a head changes its
//! meaning, and what is accepted is strict. The input is made of fragments that parsers are known
//! to quarrel about.

mod exercise;

use proptest::prelude::*;

const REQUEST_PIECES: &str = "(GET |HEAD |POST |/|/a|\\*|http://a/|#|%00| |\t|\r\n|\n|\r|\r\n\r\n| HTTP/1\\.1\r\n| HTTP/1\\.0\r\n| HTTP/2\\.0\r\n|\
    Host: a\r\n|Host:|Host : a\r\n|Content-Length: 5\r\n|Content-Length: |Transfer-Encoding: chunked\r\n|\
    Connection: keep-alive\r\n|Connection: close\r\n|Cookie: _ga=1\r\n|Cookie: s=1\r\n|Accept: \\*/\\*\r\n|DNT:1\r\n|X: y\r\n|\
    If-None-Match: \"a\"\r\n|:|,|;|a|\u{0}|\u{7f}|\u{e9}){0,16}";

const REPLY_PIECES: &str = "(HTTP/1\\.1 200 OK\r\n|HTTP/1\\.0 200 OK\r\n|HTTP/1\\.1 304 x\r\n|HTTP/1\\.1 |100|204|101| |\r\n|\n|\r|\r\n\r\n|\
    Date: Thu, 20 Nov 2025 23:59:03 GMT\r\n|Expires: Fri, 21 Nov 2025 00:59:03 GMT\r\n|Cache-Control: max-age=3600\r\n|\
    Content-Length: 5\r\n|Content-Length: |Transfer-Encoding: chunked\r\n|ETag: \"a\"\r\n|Vary: a, b\r\n|Vary: \\*\r\n|\
    Connection: close\r\n|Server: x\r\n|Set-Cookie: a\r\n|X: y\r\n|hello|0\r\n\r\n|:|,|\u{0}|\u{e9}){0,16}";

const PLAIN_FIELDS: &[&str] = &[
    "User-Agent: x",
    "Accept: */*",
    "Accept-Encoding: gzip",
    "Accept-Language: de",
    "Referer: http://a/",
    "Origin: http://a",
    "Sec-Fetch-Mode: cors",
    "DNT: 1",
    "Priority: u=1",
    "Cache-Control: no-cache",
    "Pragma: no-cache",
    "Upgrade-Insecure-Requests: 1",
    "Connection: keep-alive",
    "Keep-Alive: 300",
    "If-None-Match: \"a\"",
    "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
    "Cookie: _ga=1",
    "X-Harmless:",
];

const PROXY_FIELDS: &[&str] = &[
    "X-Forwarded-For",
    "X-Real-IP",
    "Forwarded",
    "X-Forwarded-Proto",
    "X-Request-Id",
    "traceparent",
    "baggage",
    "X-B3-Sampled",
    "CF-Connecting-IPv6",
    "Via",
    "From",
    "Save-Data",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn requests_of_quarrelsome_pieces(text in REQUEST_PIECES) {
        exercise::request(text.as_bytes());
    }

    #[test]
    fn replies_of_quarrelsome_pieces(text in REPLY_PIECES) {
        exercise::reply(text.as_bytes());
    }

    #[test]
    fn requests_that_proxies_have_passed_on(
        fields in proptest::collection::vec(
            (0..PROXY_FIELDS.len(), "[0-9a-f:., ;=\"-]{0,24}"),
            0..6,
        ),
    ) {
        let fields: String = fields
            .iter()
            .map(|(at, value)| format!("{}: {}\r\n", PROXY_FIELDS[*at], value.trim()))
            .collect();
        exercise::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        exercise::request(&bytes);
        exercise::reply(&bytes);
        exercise::preface(&bytes);
        exercise::conditional(&bytes);
        exercise::ranges(&bytes);
    }

    #[test]
    fn plain_requests_are_complete_and_survive_no_mutation_unnoticed(
        fields in proptest::sample::subsequence(PLAIN_FIELDS, 0..PLAIN_FIELDS.len()),
        // No `%2e`: what may be a dot segment passes.
        target in "/[a-zA-Z0-9_~/?=&-]{0,60}(%[3-7][0-9a-f]){0,2}",
        at in any::<proptest::sample::Index>(),
        byte: u8,
    ) {
        let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let text = format!("GET {target} HTTP/1.1\r\nHost: a.org\r\n{lines}\r\n");
        exercise::request(text.as_bytes());
        let complete =
            matches!(exercise::see_request(text.as_bytes()), exercise::Seen::Complete { .. });
        prop_assert!(complete, "{}", text);
        let mut mutated = text.into_bytes();
        let at = at.index(mutated.len());
        mutated[at] = byte;
        exercise::request(&mutated);
    }

    #[test]
    fn conditions_of_quarrelsome_pieces(
        text in "(\"a\"|W/|\"|a|,|, |\\*|\n|Sun, 06 Nov 1994 08:49:37 GMT| ){0,14}",
    ) {
        exercise::conditional(text.as_bytes());
    }

    #[test]
    fn ranges_of_quarrelsome_pieces(
        validators in "[0-9]{1,4}\n(\"a\"|W/\"a\"|Sun, 06 Nov 1994 08:49:37 GMT|)\n(\"a\"|W/\"a\"|)\n(Sun, 06 Nov 1994 08:49:37 GMT|)\n",
        range in "bytes=([0-9]{1,3}-[0-9]{0,3}|-[0-9]{1,2}|,| |, |-){1,8}",
    ) {
        exercise::ranges(format!("{validators}{range}").as_bytes());
    }

    #[test]
    fn ascending_ranges(
        len in 500u64..1_000_000,
        steps in proptest::collection::vec((2u64..40, 0u64..20), 1..16),
    ) {
        let mut at = 0;
        let parts: Vec<String> = steps
            .iter()
            .map(|(gap, more)| {
                let first = at + gap;
                at = first + more;
                format!("{first}-{at}")
            })
            .collect();
        exercise::ranges(format!("{len}\n\n\n\nbytes={}", parts.join(",")).as_bytes());
    }
}
