//! The request target (RFC 9112 section 3.2): only origin form is a candidate for a hit, and it is taken as it is
//! spelled. Percent-encoding and dot segments are not normalised: another spelling is another key.

use crate::reason::BypassReason;

/// Is `target` in origin form, of allowed bytes only?
pub(crate) fn check_target(target: &[u8]) -> Result<(), BypassReason> {
    if target.first() != Some(&b'/') {
        return Err(other_form(target));
    }
    // Bitwise, not `all`: no branch per byte.
    if target.iter().fold(true, |good, byte| good & IS_TARGET_BYTE[usize::from(*byte)]) {
        Ok(())
    } else if target.contains(&b'#') {
        Err(BypassReason::TargetFragment)
    } else {
        Err(BypassReason::TargetByte)
    }
}

#[cold]
fn other_form(target: &[u8]) -> BypassReason {
    let scheme_len = target.iter().position(|b| !b.is_ascii_alphanumeric() && !b"+-.".contains(b)).unwrap_or(0);
    match target {
        b"*" => BypassReason::TargetAsterisk,
        _ if scheme_len > 0 && target[scheme_len..].starts_with(b"://") => BypassReason::TargetAbsolute,
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
