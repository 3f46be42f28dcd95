//! Host (RFC 9110 section 7.2, RFC 3986 section 3.2.2), narrowed to what servers agree about.

/// Is `host` a name or an address with an optional port? Names are of letters, digits, `-`, `.` and `_`;
/// percent-encoding and sub-delims, which RFC 3986 allows, are not accepted, and so is an empty value.
pub(crate) fn is_plain_host(host: &[u8]) -> bool {
    if let [b'[', rest @ ..] = host {
        return match rest.iter().position(|b| *b == b']') {
            Some(end) => {
                end > 0
                    && rest[..end].iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
                    && is_port_suffix(&rest[end + 1..])
            }
            None => false,
        };
    }
    let name_len = host.iter().position(|b| !IS_NAME_BYTE[usize::from(*b)]).unwrap_or(host.len());
    name_len > 0 && is_port_suffix(&host[name_len..])
}

/// Nothing, or a colon with one to five digits.
fn is_port_suffix(suffix: &[u8]) -> bool {
    match suffix {
        [] => true,
        [b':', port @ ..] => (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

const IS_NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' || byte == b'_';
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::is_plain_host;

    #[test]
    fn names_addresses_and_ports() {
        for good in ["a", "example.com", "EXAMPLE.com:8080", "10.0.0.1", "a_b:0", "[::1]", "[fe80::1]:80", "x."] {
            assert!(is_plain_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a:",
            "a:b",
            "a:123456",
            "a b",
            "a,b",
            "a/b",
            "user@a",
            "a?b",
            "a#b",
            "[::1",
            "[]",
            "[::1]x",
            "[::1%25eth0]",
            "a%2eb",
            "a\tb",
            "\u{e9}.org",
            "a:80:80",
            "a\\b",
            "[g]",
            "a]",
        ] {
            assert!(!is_plain_host(bad.as_bytes()), "{bad}");
        }
    }
}
