//! The request target (RFC 9112 section 3.2): only origin form is a candidate for a hit, and it is
//! taken as it is spelled. Percent-encoding and dot segments are not normalised: another spelling
//! is another key. What some servers refuse is not a candidate: percent signs that encode nothing
//! (nginx, Apache, Go), an encoded NUL, and dot segments that lead above the root (nginx, Apache).

use crate::reason::BypassReason;

/// Is `target` in origin form, of allowed bytes only?
pub(crate) fn check_target(target: &[u8]) -> Result<(), BypassReason> {
    if target.first() != Some(&b'/') {
        return Err(other_form(target));
    }
    // Bitwise, not `all`: no branch per byte.
    if target.iter().fold(true, |good, byte| good & IS_TARGET_BYTE[usize::from(*byte)]) {
        if memchr::memchr2(b'%', b'.', target).is_none() || is_plain_path(target) {
            Ok(())
        } else {
            Err(BypassReason::TargetPath)
        }
    } else if target.contains(&b'#') {
        Err(BypassReason::TargetFragment)
    } else {
        Err(BypassReason::TargetByte)
    }
}

/// Is the encoding of the path one, without a NUL, and do its dot segments stay below the root,
/// whichever dots and slashes are encoded?
fn is_plain_path(target: &[u8]) -> bool {
    let hex = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    let (mut depth, mut dots, mut bytes) = (0i32, 0, 0);
    let mut rest = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    loop {
        let (byte, after) = match rest {
            [b'%', high, low, after @ ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) if high << 4 | low != 0 => (Some(high << 4 | low), after),
                _ => return false,
            },
            [b'%', ..] => return false,
            [byte, after @ ..] => (Some(*byte), after),
            [] => (None, rest),
        };
        rest = after;
        match byte {
            Some(b'/') | None => {
                depth += match (bytes, dots) {
                    (0, _) | (1, 1) => 0,
                    (2, 2) => -1,
                    _ => 1,
                };
                if depth < 0 {
                    return false;
                }
                (dots, bytes) = (0, 0);
                if byte.is_none() {
                    return true;
                }
            }
            Some(byte) => {
                dots += i32::from(byte == b'.');
                bytes += 1;
            }
        }
    }
}

#[cold]
fn other_form(target: &[u8]) -> BypassReason {
    let scheme_len =
        target.iter().position(|b| !b.is_ascii_alphanumeric() && !b"+-.".contains(b)).unwrap_or(0);
    match target {
        b"*" => BypassReason::TargetAsterisk,
        _ if scheme_len > 0 && target[scheme_len..].starts_with(b"://") => {
            BypassReason::TargetAbsolute
        }
        _ => BypassReason::TargetAuthority,
    }
}

/// pchar, "/" and "?" (RFC 3986 sections 3.3 and 3.4).
const IS_TARGET_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~%!$&'()*+,;=:@/?";
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_bytes() {
        let table: &[(&str, Result<(), BypassReason>)] = &[
            ("/", Ok(())),
            ("/a/b.html?q=1&r=%20;x@y:z", Ok(())),
            ("//a/../b", Ok(())),
            ("/a/..", Ok(())),
            ("/a%2f..", Ok(())),
            ("/...", Ok(())),
            ("/a?..%zz%00", Ok(())),
            ("/%E4%ff", Ok(())),
            ("/..", Err(BypassReason::TargetPath)),
            ("/a/../../b", Err(BypassReason::TargetPath)),
            ("/./../b", Err(BypassReason::TargetPath)),
            ("//../b", Err(BypassReason::TargetPath)),
            ("/%2e%2E/x", Err(BypassReason::TargetPath)),
            ("/.%2e", Err(BypassReason::TargetPath)),
            ("/..%2fx", Err(BypassReason::TargetPath)),
            ("/a%", Err(BypassReason::TargetPath)),
            ("/a%4", Err(BypassReason::TargetPath)),
            ("/a%zz", Err(BypassReason::TargetPath)),
            ("/a%00b", Err(BypassReason::TargetPath)),
            ("*", Err(BypassReason::TargetAsterisk)),
            ("http://a/", Err(BypassReason::TargetAbsolute)),
            ("HTTPS://a", Err(BypassReason::TargetAbsolute)),
            ("a:443", Err(BypassReason::TargetAuthority)),
            ("?q", Err(BypassReason::TargetAuthority)),
            ("", Err(BypassReason::TargetAuthority)),
            ("/a#b", Err(BypassReason::TargetFragment)),
            ("/a\"b", Err(BypassReason::TargetByte)),
            ("/a\\b", Err(BypassReason::TargetByte)),
            ("/a|b", Err(BypassReason::TargetByte)),
            ("/\u{e9}", Err(BypassReason::TargetByte)),
            ("/a\0", Err(BypassReason::TargetByte)),
        ];
        for (target, verdict) in table {
            assert_eq!(check_target(target.as_bytes()), *verdict, "{target}");
        }
    }
}
