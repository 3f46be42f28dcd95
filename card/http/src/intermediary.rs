//! What proxies, content delivery networks, tracing and the scripts of pages (htmx, Turbo, Next.js)
//! add to a request, and some fields that few clients send: what each is to the card.
//!
//! | kind | the card |
//! |---|---|
//! | [`Exact`], [`Route`] | the value is a part of the key |
//! | [`Address`] | says who the client is; its name is a part of the class |
//! | [`Mark`] | is another one for each request: two executions with the same one do not agree; its name is a part of the class |
//!
//! Deliberately absent, so their requests go to the server: fields that say who has logged in
//! (`X-Forwarded-User`, `X-Forwarded-Client-Cert`, `X-SSL-Client-*`, `X-Up-Subno`), fields that
//! name another target or method (`X-Original-URL`, `X-Rewrite-URL`, `X-Envoy-Original-Path`,
//! `X-HTTP-Method-Override`), and `Proxy-Connection`, which Node takes for `Connection`.

use crate::identity::identifiers;

/// What such a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// Counts by its value.
    Exact,
    /// Counts by its value, and says how the request came to a proxy: a server believes it, or not,
    /// by who sent it.
    Route,
    /// The client's address, or a list of addresses; believed by who sent it.
    Address,
    /// RFC 7239: addresses and the rest in one.
    Forwarded,
    /// Names the request, for logs and traces.
    Mark,
    /// Names the request, for logs and traces, and has members that an application may look at.
    Baggage,
    /// What kind of program asks.
    Agent,
    /// What is asked for, and for whom.
    Fetch,
}

use Added::{Address, Agent, Baggage, Exact, Fetch, Forwarded, Mark, Route};

/// In lower case.
const NAMES: &[(&[u8], Added)] = &[
    (b"a-im", Exact),
    (b"accept-datetime", Exact),
    (b"accept-features", Exact),
    (b"alt-used", Exact),
    (b"content-type", Exact),
    (b"device-memory", Exact),
    (b"downlink", Exact),
    (b"dpr", Exact),
    (b"ect", Exact),
    (b"last-event-id", Exact),
    (b"max-forwards", Exact),
    (b"next-router-prefetch", Exact),
    (b"next-router-segment-prefetch", Exact),
    (b"next-router-state-tree", Exact),
    (b"next-url", Exact),
    (b"rsc", Exact),
    (b"rtt", Exact),
    (b"save-data", Exact),
    (b"service-worker", Exact),
    (b"service-worker-navigation-preload", Exact),
    (b"te", Exact),
    (b"turbo-frame", Exact),
    (b"viewport-width", Exact),
    (b"want-content-digest", Exact),
    (b"want-digest", Exact),
    (b"want-repr-digest", Exact),
    (b"width", Exact),
    (b"x-inertia", Exact),
    (b"x-nextjs-data", Exact),
    (b"x-pjax", Exact),
    (b"x-pjax-container", Exact),
    (b"x-requested-with", Exact),
    (b"x-up-context", Exact),
    (b"x-up-fail-context", Exact),
    (b"x-up-fail-mode", Exact),
    (b"x-up-fail-target", Exact),
    (b"x-up-mode", Exact),
    (b"x-up-origin-mode", Exact),
    (b"x-up-target", Exact),
    (b"x-up-validate", Exact),
    (b"x-up-version", Exact),
    (b"x-wap-profile", Exact),
    (b"purpose", Fetch),
    (b"x-moz", Fetch),
    (b"x-purpose", Fetch),
    (b"device-stock-ua", Agent),
    (b"from", Agent),
    (b"x-device-user-agent", Agent),
    (b"x-operamini-features", Agent),
    (b"x-operamini-phone", Agent),
    (b"x-operamini-phone-ua", Agent),
    (b"x-original-user-agent", Agent),
    (b"x-ucbrowser-ua", Agent),
    (b"akamai-origin-hop", Route),
    (b"cdn-loop", Route),
    (b"cdn-requestcountrycode", Route),
    (b"cf-bot-score", Route),
    (b"cf-connecting-o2o", Route),
    (b"cf-ew-via", Route),
    (b"cf-metro-code", Route),
    (b"cf-postal-code", Route),
    (b"cf-timezone", Route),
    (b"cf-verified-bot", Route),
    (b"cf-visitor", Route),
    (b"cf-worker", Route),
    (b"ddg-connecting-country", Route),
    (b"disguised-host", Route),
    (b"fastly-client", Route),
    (b"fastly-ff", Route),
    (b"fastly-ssl", Route),
    (b"fly-forwarded-port", Route),
    (b"fly-forwarded-proto", Route),
    (b"fly-forwarded-ssl", Route),
    (b"fly-region", Route),
    (b"front-end-https", Route),
    (b"via", Route),
    (b"was-default-hostname", Route),
    (b"x-akamai-edgescape", Route),
    (b"x-amzn-tls-cipher-suite", Route),
    (b"x-amzn-tls-version", Route),
    (b"x-appservice-proto", Route),
    (b"x-arr-ssl", Route),
    (b"x-azure-fdid", Route),
    (b"x-azure-requestchain", Route),
    (b"x-envoy-attempt-count", Route),
    (b"x-envoy-decorator-operation", Route),
    (b"x-envoy-expected-rq-timeout-ms", Route),
    (b"x-envoy-internal", Route),
    (b"x-envoy-peer-metadata", Route),
    (b"x-envoy-peer-metadata-id", Route),
    (b"x-forwarded-by", Route),
    (b"x-forwarded-host", Route),
    (b"x-forwarded-path", Route),
    (b"x-forwarded-port", Route),
    (b"x-forwarded-prefix", Route),
    (b"x-forwarded-proto", Route),
    (b"x-forwarded-protocol", Route),
    (b"x-forwarded-scheme", Route),
    (b"x-forwarded-server", Route),
    (b"x-forwarded-ssl", Route),
    (b"x-forwarded-tlsversion", Route),
    (b"x-forwarded-uri", Route),
    (b"x-host", Route),
    (b"x-https", Route),
    (b"x-original-host", Route),
    (b"x-original-proto", Route),
    (b"x-proto", Route),
    (b"x-scheme", Route),
    (b"x-script-name", Route),
    (b"x-site-deployment-id", Route),
    (b"x-ssl", Route),
    (b"x-sucuri-country", Route),
    (b"x-url-scheme", Route),
    (b"forwarded", Forwarded),
    (b"ali-cdn-real-ip", Address),
    (b"cdn-src-ip", Address),
    (b"cf-connecting-ip", Address),
    (b"cf-connecting-ipv6", Address),
    (b"cf-pseudo-ipv4", Address),
    (b"client-ip", Address),
    (b"cloudfront-viewer-address", Address),
    (b"ddg-connecting-ip", Address),
    (b"do-connecting-ip", Address),
    (b"fastly-client-ip", Address),
    (b"fly-client-ip", Address),
    (b"forwarded-for", Address),
    (b"incap-client-ip", Address),
    (b"proxy-client-ip", Address),
    (b"true-client-ip", Address),
    (b"wl-proxy-client-ip", Address),
    (b"x-appengine-user-ip", Address),
    (b"x-azure-clientip", Address),
    (b"x-azure-socketip", Address),
    (b"x-client-ip", Address),
    (b"x-cluster-client-ip", Address),
    (b"x-envoy-external-address", Address),
    (b"x-forwarded", Address),
    (b"x-forwarded-for", Address),
    (b"x-nf-client-connection-ip", Address),
    (b"x-original-for", Address),
    (b"x-original-forwarded-for", Address),
    (b"x-originating-ip", Address),
    (b"x-proxyuser-ip", Address),
    (b"x-real-ip", Address),
    (b"x-remote-addr", Address),
    (b"x-remote-ip", Address),
    (b"x-sucuri-clientip", Address),
    (b"x-true-client-ip", Address),
    (b"x-vercel-forwarded-for", Address),
    (b"b3", Mark),
    (b"baggage", Baggage),
    (b"cdn-requestid", Mark),
    (b"cf-ray", Mark),
    (b"cf-warp-tag-id", Mark),
    (b"eagleeye-traceid", Mark),
    (b"elastic-apm-traceparent", Mark),
    (b"fly-request-id", Mark),
    (b"newrelic", Mark),
    (b"request-id", Mark),
    (b"rndr-id", Mark),
    (b"sentry-trace", Mark),
    (b"traceparent", Mark),
    (b"tracestate", Mark),
    (b"uber-trace-id", Mark),
    (b"x-akamai-request-id", Mark),
    (b"x-amz-cf-id", Mark),
    (b"x-amzn-requestid", Mark),
    (b"x-amzn-trace-id", Mark),
    (b"x-appengine-request-log-id", Mark),
    (b"x-appgw-trace-id", Mark),
    (b"x-arr-log-id", Mark),
    (b"x-azure-ref", Mark),
    (b"x-client-port", Mark),
    (b"x-cloud-trace-context", Mark),
    (b"x-correlation-id", Mark),
    (b"x-dynatrace", Mark),
    (b"x-newrelic-id", Mark),
    (b"x-newrelic-transaction", Mark),
    (b"x-nf-request-id", Mark),
    (b"x-ot-span-context", Mark),
    (b"x-queue-start", Mark),
    (b"x-real-port", Mark),
    (b"x-request-id", Mark),
    (b"x-request-start", Mark),
    (b"x-span-id", Mark),
    (b"x-timer", Mark),
    (b"x-trace-id", Mark),
    (b"x-transaction-id", Mark),
    (b"x-turbo-request-id", Mark),
    (b"x-unique-id", Mark),
    (b"x-varnish", Mark),
    (b"x-vercel-id", Mark),
];

/// Beginnings of names, in lower case.
const BEGINNINGS: &[(&[u8], Added)] = &[
    (b"hx-", Exact),
    (b"x-inertia-", Exact),
    (b"ot-tracer-", Mark),
    (b"x-b3-", Mark),
    (b"x-datadog-", Mark),
    (b"x-instana-", Mark),
    (b"cf-ip", Route),
    (b"cf-region", Route),
    (b"cloudfront-", Route),
    (b"x-appengine-", Route),
];

const NAME_BYTES_MAX: usize = 40;

/// [`NAMES`] in order of their lengths.
static BY_LENGTH: [(&[u8], Added); NAMES.len()] = by_length();
/// Where in [`BY_LENGTH`] the names of each length begin.
static BEGINS: [u8; NAME_BYTES_MAX + 2] = begins_of_lengths();

const fn by_length() -> [(&'static [u8], Added); NAMES.len()] {
    let mut sorted = [NAMES[0]; NAMES.len()];
    let (mut len, mut count) = (0, 0);
    while len <= NAME_BYTES_MAX {
        let mut at = 0;
        while at < NAMES.len() {
            if NAMES[at].0.len() == len {
                sorted[count] = NAMES[at];
                count += 1;
            }
            at += 1;
        }
        len += 1;
    }
    assert!(count == NAMES.len() && count < 256);
    sorted
}

const fn begins_of_lengths() -> [u8; NAME_BYTES_MAX + 2] {
    let mut begins = [0; NAME_BYTES_MAX + 2];
    let mut at = 0;
    while at < NAMES.len() {
        let mut len = NAMES[at].0.len() + 1;
        while len < begins.len() {
            begins[len] += 1;
            len += 1;
        }
        at += 1;
    }
    begins
}

/// What a field is that is none of those which every client sends; `None`: not known.
pub(crate) fn added(name: &[u8]) -> Option<Added> {
    let begins = BEGINS.get(name.len()..name.len() + 2)?;
    let same_length = &BY_LENGTH[usize::from(begins[0])..usize::from(begins[1])];
    if let Some((_, added)) = same_length.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
    {
        return Some(*added);
    }
    let starts =
        |lower: &[u8]| name.len() > lower.len() && name[..lower.len()].eq_ignore_ascii_case(lower);
    BEGINNINGS.iter().find(|(beginning, _)| starts(beginning)).map(|(_, added)| *added)
}

/// Which of two things a field is whose value decides that.
pub(crate) fn meaning(added: Added, value: &[u8]) -> Added {
    match added {
        // Too short to name a request.
        Added::Mark if identifiers(value).next().is_none() => Added::Exact,
        Added::Mark => Added::Mark,
        Added::Baggage => {
            let is_trace = |member: &[u8]| member.trim_ascii().starts_with(b"sentry-");
            let is_mark = value.split(|byte| *byte == b',').all(is_trace)
                && identifiers(value).next().is_some();
            if is_mark { Added::Mark } else { Added::Exact }
        }
        other => other,
    }
}

/// All names with what they are.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = (&'static [u8], Added)> {
    NAMES.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::is_token;

    #[test]
    fn each_name_is_found_and_nothing_else() {
        for (at, (name, kind)) in NAMES.iter().enumerate() {
            assert!(is_token(name) && name.iter().all(|byte| !byte.is_ascii_uppercase()));
            assert!(NAMES[..at].iter().all(|(other, _)| other != name), "{}", name.escape_ascii());
            assert_eq!(added(name), Some(*kind));
            assert_eq!(added(&name.to_ascii_uppercase()), Some(*kind));
        }
        for name in [
            "",
            "x-forwarded-user",
            "x-forwarded-client-cert",
            "x-ssl-client-verify",
            "x-original-url",
            "x-rewrite-url",
            "x-http-method-override",
            "x-forwarded-",
            "x_forwarded_for",
            "cf-ip",
            "x-b3-",
            "hx-",
            "x-amzn-oidc-identity",
            "x-amzn-mtls-clientcert",
            "signature-agent",
            "x-consumer-username",
            "proxy-connection",
            "x-envoy-original-path",
            "x-up-subno",
            "x-up-calling-line-id",
        ] {
            assert_eq!(added(name.as_bytes()), None, "{name}");
        }
        assert_eq!(added(&[b'x'; 200]), None);
        assert_eq!(added(b"X-B3-TraceId"), Some(Mark));
        assert_eq!(added(b"CF-IPCountry"), Some(Route));
        assert_eq!(added(b"HX-Request"), Some(Exact));
        assert_eq!(added(b"X-Inertia-Version"), Some(Exact));
        assert_eq!(added(b"X-Inertia"), Some(Exact));
    }
}
