//! The host that the first request of an HTTP/1 client is for.
//!
//! Read first: RFC 9112 sections 3.2 and 5, RFC 9110 section 7.2.
//!
//! The whole head has to come: a second Host behind the first one would be read otherwise by
//! others. HTTP/2 without TLS has no such head, and is refused.

use super::name::{Look, Name};

/// Header fields of a request at most.
const FIELDS_MAX: usize = 128;

/// Looks for the host in the first bytes of a connection.
pub fn look(bytes: &[u8]) -> Look {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Err(_) => return Look::Malformed,
        Ok(httparse::Status::Partial) => return Look::More,
        Ok(httparse::Status::Complete(_)) => {}
    }
    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = match (hosts.next(), hosts.next()) {
        (host, None) => host.map(|host| host.value),
        // RFC 9112 section 3.2: a server answers with 400.
        (_, Some(_)) => return Look::Malformed,
    };
    let target = request.path.unwrap_or_default().as_bytes();
    let is_connect = request.method == Some("CONNECT");
    // RFC 9112 section 3.2.2: the target's own authority counts, and Host is ignored.
    let authority = match (is_connect, authority_of(target)) {
        (true, _) => Some(target),
        (false, Some(authority)) => Some(authority),
        (false, None) => host,
    };
    match authority {
        None if request.version == Some(0) => Look::Nameless,
        // RFC 9112 section 3.2.
        None => Look::Malformed,
        // RFC 9112 section 3.2: without an authority the value is empty.
        Some(b"") => Look::Nameless,
        Some(authority) => Name::of_authority(authority).map_or(Look::Malformed, Look::Name),
    }
}

/// The authority of a target in absolute form (RFC 3986 section 3.2), without who asks.
fn authority_of(target: &[u8]) -> Option<&[u8]> {
    let colon = target.windows(3).position(|three| three == b"://")?;
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    if colon == 0 || !target[..colon].iter().all(is_scheme) {
        return None;
    }
    let rest = &target[colon + 3..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let authority = &rest[..end];
    let host_at = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    Some(&authority[host_at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Look {
        look(text.as_bytes())
    }

    #[test]
    fn hosts_however_they_are_said() {
        for (text, host) in [
            ("GET / HTTP/1.1\r\nHost: Shop.example\r\n\r\n", "shop.example"),
            (
                "GET / HTTP/1.1\r\nA: b\r\nHOST:shop.example:8080  \r\nC: d\r\n\r\nbody",
                "shop.example",
            ),
            ("GET http://Shop.example/x?y HTTP/1.1\r\nHost: other.example\r\n\r\n", "shop.example"),
            ("GET http://me@shop.example:80 HTTP/1.1\r\nHost: x\r\n\r\n", "shop.example"),
            ("OPTIONS * HTTP/1.1\r\nHost: shop.example\r\n\r\n", "shop.example"),
            ("CONNECT shop.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", "shop.example"),
            ("GET /a?b=http://c HTTP/1.1\r\nHost: shop.example\r\n\r\n", "shop.example"),
            ("GET / HTTP/1.0\r\nHost: shop.example\r\n\r\n", "shop.example"),
            ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "::1"),
        ] {
            let name = Name::of_authority(format!("[{host}]").as_bytes())
                .or_else(|| Name::new(host.as_bytes()));
            assert_eq!(read(text), Look::Name(name.unwrap()), "{text}");
            let end = text.find("\r\n\r\n").unwrap() + 4;
            assert!((0..end).all(|len| read(&text[..len]) == Look::More), "{text}");
        }
    }

    #[test]
    fn none_or_too_many() {
        for text in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n"] {
            assert_eq!(read(text), Look::Nameless, "{text}");
        }
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\u{16}\u{3}\u{1}",
            "GET http:// HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        ] {
            assert_eq!(read(text), Look::Malformed, "{text}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(FIELDS_MAX + 1));
        assert_eq!(read(&many), Look::Malformed);
    }
}
