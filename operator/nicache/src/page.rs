//! A page as an operator names it: by a URL as clients have it, by a path for any host, or by the
//! beginning of either.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// Which pages are meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageName {
    /// Host as in the `Host` header; `None`: any host.
    pub host: Option<String>,
    /// Origin-form target, beginning with `/`.
    pub target: String,
    /// All pages whose target begins so.
    #[serde(default)]
    pub is_beginning: bool,
    /// Clients ask for it by https://, so a proxy in front ends TLS.
    #[serde(default)]
    pub is_https: bool,
}

impl PageName {
    /// One page: `http://HOST/PATH`, `https://HOST/PATH`, or `/PATH` for any host.
    ///
    /// # Errors
    /// It is none of these, in words for whoever typed it.
    pub fn parse(url: &str) -> Result<Self> {
        let (is_https, rest) = match scheme(url) {
            Some((is_https, rest)) => (is_https, rest),
            None if url.starts_with('/') => {
                return Ok(Self {
                    host: None,
                    target: target(url),
                    is_beginning: false,
                    is_https: false,
                });
            }
            None => bail!(
                "`{url}` is not a page: write http://HOST/PATH or https://HOST/PATH as clients do, or /PATH for any host"
            ),
        };
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(at);
        if host.contains('@') {
            bail!("`{url}` has a user name in it: requests with one always go to the server");
        }
        let default_port = if is_https { ":443" } else { ":80" };
        let host = host.strip_suffix(default_port).unwrap_or(host);
        if host.is_empty()
            || host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*')
        {
            bail!("`{url}` names no host: write http://HOST/PATH, or /PATH for any host");
        }
        Ok(Self {
            host: Some(host.to_owned()),
            target: target(path),
            is_beginning: false,
            is_https,
        })
    }

    /// A page, `http://HOST/PATH`, `https://HOST/PATH` or `/PATH` for any host, or with a final `*`
    /// all pages that begin so.
    ///
    /// # Errors
    /// It is none of these, in words for whoever typed it.
    pub fn parse_pattern(url: &str) -> Result<Self> {
        let page = Self::parse(url.strip_suffix('*').unwrap_or(url))?;
        if url.ends_with('*') && scheme(url).is_some_and(|(_, rest)| !rest.contains('/')) {
            bail!("`{url}`: the host must be whole; http://HOST/* means all pages of a host");
        }
        Ok(Self { is_beginning: url.ends_with('*'), ..page })
    }

    /// Is this the page that the name means? `request`: the head of the request that it is the
    /// answer to, as far as it is known.
    pub fn matches(&self, host: &[u8], target: &[u8], request: &[u8]) -> bool {
        let is_target = match self.is_beginning {
            true => target.starts_with(self.target.as_bytes()),
            false => target == self.target.as_bytes(),
        };
        is_target
            && self.host.as_ref().is_none_or(|wanted| {
                is_host(host, wanted.as_bytes())
                    || field(request, b"x-forwarded-host")
                        .is_some_and(|said| is_host(said, wanted.as_bytes()))
            })
    }
}

/// Whether it is https, and what follows the scheme.
fn scheme(url: &str) -> Option<(bool, &str)> {
    let of = |scheme: &str| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    of("http://").map(|rest| (false, rest)).or_else(|| of("https://").map(|rest| (true, rest)))
}

/// The target that a browser asks for: without the fragment, and with what a URL cannot have as
/// percent signs and digits.
fn target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        match byte {
            0..=b' ' | b'"' | b'<' | b'>' | 0x7f..=u8::MAX => out.push_str(&format!("%{byte:02X}")),
            _ => out.push(byte.into()),
        }
    }
    out
}

/// Are both the same host, whatever the case and the usual port?
fn is_host(one: &[u8], other: &[u8]) -> bool {
    let bare = |host: &[u8]| {
        let host = host.strip_suffix(b":80").or_else(|| host.strip_suffix(b":443")).unwrap_or(host);
        host.to_ascii_lowercase()
    };
    bare(one) == bare(other)
}

/// The value of a header field of a head.
fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(name).then(|| line[colon + 1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(host: Option<&str>, target: &str) -> PageName {
        PageName {
            host: host.map(str::to_owned),
            target: target.into(),
            is_beginning: false,
            is_https: false,
        }
    }

    #[test]
    fn urls_and_paths() {
        let parse = |url: &str| PageName::parse(url).unwrap();
        assert_eq!(parse("/a?b"), page(None, "/a?b"));
        assert_eq!(parse("http://x.example:8080/a/b?c"), page(Some("x.example:8080"), "/a/b?c"));
        assert_eq!(parse("http://x"), page(Some("x"), "/"));
        assert_eq!(parse("http://x?q"), page(Some("x"), "/?q"));
        assert_eq!(
            parse("HTTPS://x:443/ü a#b"),
            PageName { is_https: true, ..page(Some("x"), "/%C3%BC%20a") }
        );
        assert_eq!(parse("https://x:80/"), PageName { is_https: true, ..page(Some("x:80"), "/") });
        for wrong in ["x", "ftp://x/", "http:///a", "http://u@x/", "http://*/"] {
            assert!(PageName::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn beginnings() {
        let some = PageName::parse_pattern("https://x/blog/*").unwrap();
        assert!(some.matches(b"X", b"/blog/a", b"") && some.matches(b"x:443", b"/blog/", b""));
        assert!(!some.matches(b"x", b"/blo", b"") && !some.matches(b"y", b"/blog/a", b""));
        assert!(some.matches(
            b"10.0.0.2",
            b"/blog/a",
            b"GET / HTTP/1.1\r\nX-Forwarded-Host: x\r\n\r\n"
        ));
        assert!(PageName::parse_pattern("/*").unwrap().matches(b"any", b"/", b""));
        let one = PageName::parse_pattern("/a").unwrap();
        assert!(one.matches(b"x", b"/a", b"") && !one.matches(b"x", b"/ab", b""));
        assert!(PageName::parse_pattern("http://x*").is_err());
    }
}
