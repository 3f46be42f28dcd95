//! Host (RFC 9110 section 7.2, RFC 3986 section 3.2.2), narrowed to what servers agree about: nginx
//! refuses names with empty labels, Apache those whose last label begins with a digit, which are
//! not addresses, and ports that are none.

use core::net::Ipv6Addr;
use core::str::FromStr;

/// Is `host` a name or an address with an optional port? Names are of letters, digits, `-`, `.` and
/// `_`; percent-encoding and sub-delims, which RFC 3986 allows, are not accepted, and so is an
/// empty value.
pub(crate) fn is_plain_host(host: &[u8]) -> bool {
    if let [b'[', rest @ ..] = host {
        let Some(end) = rest.iter().position(|b| *b == b']') else { return false };
        let address =
            core::str::from_utf8(&rest[..end]).ok().and_then(|text| Ipv6Addr::from_str(text).ok());
        return address.is_some() && is_port_suffix(&rest[end + 1..]);
    }
    let name_len = host.iter().position(|b| !IS_NAME_BYTE[usize::from(*b)]).unwrap_or(host.len());
    is_name(&host[..name_len]) && is_port_suffix(&host[name_len..])
}

/// Labels of at least one byte, with a dot at the end or without; if the last one begins with a
/// digit, all four are those of an address.
fn is_name(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let mut before = b'.';
    for &byte in name {
        if byte == b'.' && before == b'.' {
            return false;
        }
        before = byte;
    }
    let last_at = name.iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1);
    before != b'.' && (!name[last_at..].first().is_some_and(u8::is_ascii_digit) || is_address(name))
}

#[cold]
fn is_address(name: &[u8]) -> bool {
    let is_octet = |octet: &[u8]| match octet {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] if rest.len() < 3 => {
            rest.iter().all(u8::is_ascii_digit) && number(octet) <= 255
        }
        _ => false,
    };
    name.split(|byte| *byte == b'.').filter(|octet| is_octet(octet)).count() == 4
        && name.iter().filter(|byte| **byte == b'.').count() == 3
}

/// Nothing, or a colon with a number from 1 to 65535.
fn is_port_suffix(suffix: &[u8]) -> bool {
    match suffix {
        [] => true,
        [b':', port @ ..] => {
            (1..=5).contains(&port.len())
                && port.iter().all(u8::is_ascii_digit)
                && (1..=u32::from(u16::MAX)).contains(&number(port))
        }
        _ => false,
    }
}

/// The number that at most five digits stand for.
fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}

const IS_NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] =
            byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' || byte == b'_';
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::is_plain_host;

    #[test]
    fn names_addresses_and_ports() {
        for good in [
            "a",
            "example.com",
            "EXAMPLE.com:8080",
            "10.0.0.1",
            "a_b:1",
            "[::1]",
            "[fe80::1]:65535",
            "x.",
            "1.a",
            "-",
            "_",
        ] {
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
            ".",
            ".a",
            "a..b",
            "a..",
            "a:0",
            "a:65536",
            "[:]",
            "[1.2.3.4]",
            "1",
            "a.1",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.04",
            "0x7f.1",
            "a.1b",
            "1b",
        ] {
            assert!(!is_plain_host(bad.as_bytes()), "{bad}");
        }
    }
}
