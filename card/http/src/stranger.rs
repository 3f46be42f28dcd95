//! Which header or cookie keeps a request from the card: its name, for an operator.

use httparse::Header;

use crate::key::KeyConfig;
use crate::request::HeaderScratch;
use crate::request_field::{RequestField, classify};
use crate::signs::ProxyFields;
use crate::uri::Resource;

/// A name that is not known to be harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stranger<'a> {
    /// Of a header.
    Header(&'a [u8]),
    /// Of a cookie.
    Cookie(&'a [u8]),
}

/// Hands each header and cookie of the request that begins `bytes` to `note` because of which it is
/// a bypass (`unknown_header`, `cookie`), with what it asks for.
#[cold]
pub fn strangers<'b>(
    bytes: &'b [u8],
    keys: &KeyConfig,
    mut note: impl FnMut(Resource<'b>, Stranger<'b>),
) {
    let mut scratch = HeaderScratch::new();
    let mut tokens = httparse::Request::new(&mut []);
    let Ok(httparse::Status::Complete(_)) =
        tokens.parse_with_uninit_headers(bytes, scratch.slots())
    else {
        return;
    };
    let target: &'b str = tokens.path.unwrap_or_default();
    let target = target.as_bytes();
    let headers: &[Header<'b>] = tokens.headers;
    let host = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("host"))
        .map_or(&b""[..], |host| host.value);
    let resource = Resource::of(host, target);
    for header in headers {
        let name: &'b str = header.name;
        match classify(name.as_bytes()) {
            RequestField::Other
                if !ProxyFields::default().take(name.as_bytes(), header.value, keys) =>
            {
                note(resource, Stranger::Header(name.as_bytes()));
            }
            RequestField::Cookie => {
                keys.strange_cookies(header.value, host, target)
                    .for_each(|name| note(resource, Stranger::Cookie(name)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_and_no_other() {
        let keys = KeyConfig::new([7; 16]).allow_cookie(crate::ANALYTICS).allow_header("X-Own-*");
        let keys = keys.separate_by("X-Country").unwrap();
        let head =
            b"GET / HTTP/1.1\r\nHost: a\r\nX-Own-1: a\r\nX-Country: DE\r\nX-Forwarded-For: 1.2.3.4\r\nX-Odd: 1\r\n\
            Cookie: _ga=1; sid=2; broken\r\nX-Original-URL: /b\r\n\r\n";
        let mut found = Vec::new();
        strangers(head, &keys, |resource, stranger| {
            assert_eq!((resource.host, resource.path), (&b"a"[..], &b"/"[..]));
            found.push(stranger);
        });
        assert_eq!(
            found,
            [
                Stranger::Header(b"X-Odd"),
                Stranger::Cookie(b"sid"),
                Stranger::Header(b"X-Original-URL")
            ]
        );
        strangers(b"GET / HT", &keys, |_, _| panic!());
    }
}
