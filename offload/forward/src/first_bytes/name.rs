//! The name that a client asks for, and what its first bytes say of it.

use arrayvec::ArrayVec;

/// Bytes of a name at most (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 255;

/// A name of a host, in lower case, without port and without a dot at the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(ArrayVec<u8, NAME_BYTES_MAX>);

impl Name {
    /// From its bytes: letters, digits, `-`, `_` and `.`, without empty labels. `None`: it is not a
    /// name.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(b".").unwrap_or(bytes);
        let is_plain =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let has_labels = bytes.split(|byte| *byte == b'.').all(|label| !label.is_empty());
        if bytes.len() > NAME_BYTES_MAX || !has_labels || !bytes.iter().all(is_plain) {
            return None;
        }
        Some(Self(bytes.iter().map(u8::to_ascii_lowercase).collect()))
    }

    /// From the authority of a request (RFC 9110 section 7.2): a name or an address, maybe with a
    /// port. `None`: it is neither.
    pub fn of_authority(authority: &[u8]) -> Option<Self> {
        let (host, port) = match authority {
            [b'[', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b']')?;
                let text = str::from_utf8(&rest[..end]).ok()?;
                let address: std::net::Ipv6Addr = text.parse().ok()?;
                let name = address.to_string().bytes().collect();
                return is_port(&rest[end + 1..]).then_some(Self(name));
            }
            _ => authority.split_at(
                authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len()),
            ),
        };
        Self::new(host).filter(|_| is_port(port))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Nothing, or a colon with a number (RFC 3986 section 3.2.3: which may be empty).
fn is_port(suffix: &[u8]) -> bool {
    match suffix {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// What the first bytes of a connection say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it is looked at at once, and not kept")]
pub enum Look {
    /// The name.
    Name(Name),
    /// The first bytes are all there, and have no name.
    Nameless,
    /// More bytes have to come.
    More,
    /// The bytes are not what the service speaks.
    Malformed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_what_is_none() {
        let read = |text: &str| {
            Name::of_authority(text.as_bytes())
                .map(|name| String::from_utf8(name.0.to_vec()).unwrap())
        };
        for (text, name) in [
            ("Shop.Example", "shop.example"),
            ("shop.example.", "shop.example"),
            ("a_b-c.example:8080", "a_b-c.example"),
            ("a:", "a"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("[2001:DB8:0::1]:443", "2001:db8::1"),
        ] {
            assert_eq!(read(text).as_deref(), Some(name), "{text}");
        }
        let long = "a".repeat(256);
        for text in [
            "", ".", ":80", "a..b", ".a", "a b", "a/b", "u@a", "a:x", "a:123456", "[::1", "[a]",
            "[::1]x", "a\0", &long,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
