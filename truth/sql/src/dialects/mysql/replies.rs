//! Replies that are one packet.

const HEADER: usize = 4;
const MORE_RESULTS: u16 = 1 << 3;

/// One packet: an error, or OK without further results.
pub(super) fn is_reply(bytes: &[u8]) -> bool {
    let Some(([low, middle, high, sequence], payload)) = bytes.split_first_chunk::<HEADER>() else {
        return false;
    };
    let len = usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high) << 16;
    if len != payload.len() || *sequence != 1 {
        return false;
    }
    match payload.split_first() {
        Some((0xff, _)) => true,
        Some((0x00, rest)) => status_of(rest).is_some_and(|status| status & MORE_RESULTS == 0),
        _ => false,
    }
}

/// The status flags of an OK packet, behind two numbers of variable length.
fn status_of(rest: &[u8]) -> Option<u16> {
    let rest = after_number(after_number(rest)?)?;
    rest.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn after_number(bytes: &[u8]) -> Option<&[u8]> {
    let len = match bytes.first()? {
        0..=0xfa => 1,
        0xfc => 3,
        0xfd => 4,
        0xfe => 9,
        _ => return None,
    };
    bytes.get(len..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &[u8] = &[7, 0, 0, 1, 0, 1, 0, 2, 0, 0, 0];

    #[test]
    fn one_packet_is_a_reply() {
        assert!(is_reply(OK));
        let with = |at: usize, byte: u8| {
            let mut bytes = OK.to_vec();
            bytes[at] = byte;
            bytes
        };
        // More results, another packet of a list, rows, a file, a part.
        assert!(!is_reply(&with(7, 2 | 8)));
        assert!(!is_reply(&with(3, 2)));
        assert!(!is_reply(&with(4, 1)));
        assert!(!is_reply(&with(4, 0xfb)));
        assert!(!is_reply(&with(0, 8)));
        assert!(!is_reply(&[OK, OK].concat()));
        assert!(is_reply(&with(4, 0xff)));
        // Many rows: the number takes more room.
        assert!(is_reply(&[9, 0, 0, 1, 0, 0xfc, 1, 1, 0, 2, 0, 0, 0]));
        assert!(!is_reply(&[9, 0, 0, 1, 0, 0xfc, 1, 1, 0, 8, 0, 0, 0]));
        assert!(!is_reply(b""));
    }
}
