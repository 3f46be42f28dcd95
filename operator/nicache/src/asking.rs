//! Requests as real clients send them, to ask the card what they would meet.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::page::PageName;

/// A request but for its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRequest {
    /// Whose it is, as in "a browser's".
    pub title: String,
    /// HTTP/1.0 instead of 1.1.
    pub is_http10: bool,
    /// Header fields but for Host, each `Name: value`.
    pub fields: Vec<String>,
    /// With what a proxy in front adds that ends TLS, in the way in which pages have come so far.
    pub is_by_proxy: bool,
}

/// Bytes of all header fields of a question at most.
const FIELDS_BYTES_MAX: usize = 4096;

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36";

/// What browsers accept, by what they fetch; the beginning of `Sec-Fetch-Dest`.
const ACCEPT: [(&str, &[&str], &str); 4] = [
    ("style", &["css"], "text/css,*/*;q=0.1"),
    ("script", &["js", "mjs"], "*/*"),
    ("font", &["woff", "woff2", "ttf", "otf"], "*/*"),
    (
        "image",
        &["png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico"],
        "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
    ),
];
const ACCEPT_PAGE: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7";

impl AskedRequest {
    /// What a browser would send for the page.
    pub fn of_browser(page: &PageName) -> Self {
        let path = page.target.split('?').next().unwrap_or_default();
        let ending = path
            .rsplit('/')
            .next()
            .and_then(|name| name.rsplit_once('.'))
            .map(|(_, ending)| ending);
        let part = ending
            .and_then(|ending| ACCEPT.iter().find(|(_, endings, _)| endings.contains(&ending)));
        let mut fields = vec![format!("User-Agent: {BROWSER}")];
        match part {
            None => fields.extend([
                format!("Accept: {ACCEPT_PAGE}"),
                "Upgrade-Insecure-Requests: 1".to_owned(),
            ]),
            Some((_, _, accept)) => fields.push(format!("Accept: {accept}")),
        }
        fields.push("Accept-Language: en-US,en;q=0.9".to_owned());
        if page.is_https {
            let (destination, mode, site) = match part {
                None => ("document", "navigate", "none"),
                Some(("font", ..)) => ("font", "cors", "same-origin"),
                Some((destination, ..)) => (*destination, "no-cors", "same-origin"),
            };
            fields.push("Accept-Encoding: gzip, deflate, br, zstd".to_owned());
            fields.extend([format!("Sec-Fetch-Site: {site}"), format!("Sec-Fetch-Mode: {mode}")]);
            fields.push(format!("Sec-Fetch-Dest: {destination}"));
            if part.is_none() {
                fields.push("Sec-Fetch-User: ?1".to_owned());
            }
        } else {
            fields.extend([
                "Accept-Encoding: gzip, deflate".to_owned(),
                "Connection: keep-alive".to_owned(),
            ]);
        }
        Self { title: "a browser's".into(), is_http10: false, fields, is_by_proxy: page.is_https }
    }

    /// What `curl` sends.
    pub fn of_curl(page: &PageName) -> Self {
        let fields = vec!["User-Agent: curl/8.5.0".to_owned(), "Accept: */*".to_owned()];
        Self { title: "curl's".into(), is_http10: false, fields, is_by_proxy: page.is_https }
    }

    /// Nothing but what `fields` say.
    ///
    /// # Errors
    /// One of them is not a header field, in words.
    pub fn of_fields(page: &PageName, fields: &[String], is_http10: bool) -> Result<Self> {
        for field in fields {
            let name = field.split_once(':').map(|(name, _)| name);
            let is_name = |name: &str| {
                !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
            };
            if !name.is_some_and(is_name) || field.contains(['\r', '\n', '\0']) {
                bail!("-H '{field}': a header is written as 'Name: value'");
            }
        }
        if fields.iter().map(String::len).sum::<usize>() > FIELDS_BYTES_MAX {
            bail!("-H: all headers together may have {FIELDS_BYTES_MAX} bytes");
        }
        let fields = fields.iter().filter_map(|field| field.split_once(':'));
        let fields: Vec<String> =
            fields.map(|(name, value)| format!("{name}: {}", value.trim())).collect();
        let says_proxy = fields.iter().any(|field| is_of_proxy(field));
        Ok(Self {
            title: "this".into(),
            is_http10,
            fields,
            is_by_proxy: page.is_https && !says_proxy,
        })
    }

    /// The whole head. `known`: heads of requests for the page that have come, of which what a
    /// proxy said is taken.
    pub fn head(&self, host: &str, target: &str, known: &[&[u8]]) -> String {
        let version = if self.is_http10 { "1.0" } else { "1.1" };
        let mut head = format!("GET {target} HTTP/{version}\r\n");
        if !self.fields.iter().any(|field| name_is(field, "host")) {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        let added = if self.is_by_proxy { fields_of_proxy(host, known) } else { Vec::new() };
        for field in self.fields.iter().chain(&added) {
            head.push_str(&format!("{field}\r\n"));
        }
        head.push_str("\r\n");
        head
    }
}

/// What a proxy in front adds: what it has added so far, else what most do.
fn fields_of_proxy(host: &str, known: &[&[u8]]) -> Vec<String> {
    let said = |head: &&[u8]| {
        let text = String::from_utf8_lossy(head);
        let fields: Vec<String> =
            text.lines().skip(1).filter(|field| is_of_proxy(field)).map(str::to_owned).collect();
        fields.iter().any(|field| field.to_ascii_lowercase().contains("https")).then_some(fields)
    };
    let mut fields = known.iter().find_map(said).unwrap_or_else(|| {
        vec!["X-Forwarded-Proto: https".to_owned(), format!("X-Forwarded-Host: {host}")]
    });
    // Whose address that is does not matter; that there is one does.
    if !fields.iter().any(|field| name_is(field, "x-forwarded-for") || name_is(field, "forwarded"))
    {
        fields.push("X-Forwarded-For: 192.0.2.1".to_owned());
    }
    fields
}

fn is_of_proxy(field: &str) -> bool {
    let name = field.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let begins = ["x-forwarded-", "cf-", "x-real-", "x-scheme", "x-url-scheme", "front-end-https"];
    ["forwarded", "via", "cdn-loop"].contains(&&*name)
        || begins.iter().any(|start| name.starts_with(start))
}

fn name_is(field: &str, name: &str) -> bool {
    field.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use nicache_http::{HeaderScratch, KeyConfig, RequestOutcome, parse_request};

    use super::*;

    #[test]
    fn what_is_asked_is_a_request_that_the_card_looks_up() {
        let keys = KeyConfig::new([7; 16]);
        for url in [
            "http://a/",
            "https://a/b.css",
            "https://a/",
            "http://a/x.js?1",
            "https://a/f.woff2",
            "/p.png",
        ] {
            let page = PageName::parse(url).unwrap();
            let own = AskedRequest::of_fields(
                &page,
                &["Accept: x".into(), "connection:close".into()],
                true,
            )
            .unwrap();
            for request in [AskedRequest::of_browser(&page), AskedRequest::of_curl(&page), own] {
                let head = request.head("a", &page.target, &[]);
                let mut scratch = HeaderScratch::new();
                let outcome = parse_request(head.as_bytes(), &mut scratch, &keys);
                assert!(matches!(outcome, RequestOutcome::Complete(_)), "{head}");
                assert_eq!(head.contains("X-Forwarded-Proto: https"), page.is_https, "{head}");
            }
        }
    }

    #[test]
    fn a_proxy_is_taken_as_it_was_seen() {
        let page = PageName::parse("https://a/").unwrap();
        let seen =
            b"GET / HTTP/1.1\r\nHost: a\r\nAccept: x\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Proto: https\r\n\r\n";
        let head = AskedRequest::of_curl(&page).head(
            "a",
            "/",
            &[b"GET / HTTP/1.1\r\nVia: x\r\n\r\n", seen],
        );
        assert!(
            head.contains("Port: 443\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: "),
            "{head}"
        );
        assert!(!head.contains("Forwarded-Host") && !head.contains("Accept: x"), "{head}");
    }

    #[test]
    fn what_is_no_field_is_told() {
        let page = PageName::parse("/").unwrap();
        for wrong in ["x", ": a", "a b: c", "a: b\r\nc: d"] {
            assert!(AskedRequest::of_fields(&page, &[wrong.to_owned()], false).is_err(), "{wrong}");
        }
    }
}
