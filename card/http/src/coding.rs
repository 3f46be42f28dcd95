//! Accept-Encoding (RFC 9110 section 12.5.3), as far as two spellings of it are the same to every
//! server.
//!
//! A plain list of codings, without weights, means the same in any case and with or without a space
//! behind its commas: nginx looks for `gzip` without regard to case behind a comma or a space, and
//! Apache, Node and Go take lists apart. The order stays: it may be a preference. Everything else
//! (weights, tabs, two spaces) counts as it is spelled.

/// Longest list that is looked at, in bytes.
const LIST_BYTES_MAX: usize = 64;

/// Room for a canonical list.
pub(crate) type ListRoom = [u8; LIST_BYTES_MAX];

/// The canonical spelling of a plain list of codings, or the value itself if it is none.
#[inline]
pub(crate) fn canonical<'a>(value: &'a [u8], room: &'a mut ListRoom) -> &'a [u8] {
    let Some(len) = plain_list(value, room) else { return value };
    &room[..len]
}

fn plain_list(value: &[u8], room: &mut ListRoom) -> Option<usize> {
    if value.len() > LIST_BYTES_MAX {
        return None;
    }
    let mut len = 0;
    // The separator in front of the next byte: a comma needs a coding on either side.
    let mut before = b',';
    for &byte in value {
        match (before, byte) {
            (_, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-') => {}
            (b',', b' ') if len > 0 => {
                before = b' ';
                continue;
            }
            (b',' | b' ', _) => return None,
            (_, b',') => {}
            _ => return None,
        }
        room[len] = byte.to_ascii_lowercase();
        len += 1;
        before = byte;
    }
    (!matches!(before, b',' | b' ')).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(value: &str) -> String {
        let mut room = [0; LIST_BYTES_MAX];
        String::from_utf8(canonical(value.as_bytes(), &mut room).to_vec()).unwrap()
    }

    #[test]
    fn plain_lists_lose_case_and_spaces() {
        for (value, expected) in [
            ("gzip", "gzip"),
            ("GZip, deflate,br", "gzip,deflate,br"),
            ("gzip, deflate, br, zstd", "gzip,deflate,br,zstd"),
            ("x-gzip,gzip", "x-gzip,gzip"),
        ] {
            assert_eq!(of(value), expected);
        }
        let long = format!("gzip, {}", "x".repeat(60));
        for same in [
            "",
            " gzip",
            "gzip,",
            "gzip, ",
            "gzip,  br",
            "gzip,\tbr",
            "gzip;q=1",
            "GZIP;q=0",
            "*",
            "gzip br",
            ",gzip",
            "a,,b",
            "A ,b",
            &long,
        ] {
            assert_eq!(of(same), same);
        }
    }

    proptest! {
        #[test]
        fn only_spellings_of_the_same_list_are_the_same(
            one in "[gGzZ, ;]{0,8}",
            other in "[gGzZ, ;]{0,8}",
        ) {
            let codings = |text: &str| -> Vec<String> {
                text.split(',').map(|coding| coding.trim().to_ascii_lowercase()).collect()
            };
            if of(&one) == of(&other) {
                prop_assert!(one == other || codings(&one) == codings(&other));
            }
        }
    }
}
