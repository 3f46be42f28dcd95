//! Short replies that are whole: after them the server is done with the request, and what it
//! changed is visible.
//!
//! A statement that changes rows is answered by one OK packet of MySQL, or by a few short messages
//! of PostgreSQL of which the last says that the server is ready. Whoever sees such a reply need
//! not wait for the client to go on. Both servers make a change visible to others before they send
//! it. Not true of what a server does later in its own time (`INSERT DELAYED`): the caller knows
//! those.

use crate::target::Dialect;

const MYSQL_HEADER: usize = 4;
const MYSQL_MORE_RESULTS: u16 = 1 << 3;

/// Is this the whole reply to one request? `bytes` are the first ones of what the server sent at
/// once, `len` is how many that were.
pub fn is_whole_reply(dialect: Dialect, bytes: &[u8], len: usize) -> bool {
    bytes.len() == len
        && match dialect {
            Dialect::MySql => is_mysql_end(bytes),
            Dialect::Postgres => is_postgres_end(bytes),
        }
}

/// One packet: an error, or OK without further results.
fn is_mysql_end(bytes: &[u8]) -> bool {
    let Some(([low, middle, high, sequence], payload)) = bytes.split_first_chunk::<MYSQL_HEADER>()
    else {
        return false;
    };
    let len = usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high) << 16;
    if len != payload.len() || *sequence != 1 {
        return false;
    }
    match payload.split_first() {
        Some((0xff, _)) => true,
        Some((0x00, rest)) => {
            status_of(rest).is_some_and(|status| status & MYSQL_MORE_RESULTS == 0)
        }
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

/// Whole messages, of which the last one and no other is ReadyForQuery.
fn is_postgres_end(mut bytes: &[u8]) -> bool {
    loop {
        let Some((head, _)) = bytes.split_first_chunk::<5>() else { return false };
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some(rest) = bytes.get(1 + len..).filter(|_| len >= 4) else { return false };
        if head[0] == b'Z' {
            return rest.is_empty() && len == 5;
        }
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OK: &[u8] = &[7, 0, 0, 1, 0, 1, 0, 2, 0, 0, 0];

    fn is_whole(dialect: Dialect, bytes: &[u8]) -> bool {
        is_whole_reply(dialect, bytes, bytes.len())
    }

    #[test]
    fn mysql() {
        assert!(is_whole(Dialect::MySql, OK));
        assert!(!is_whole_reply(Dialect::MySql, OK, OK.len() + 1));
        let with = |at: usize, byte: u8| {
            let mut bytes = OK.to_vec();
            bytes[at] = byte;
            bytes
        };
        // More results, another packet of a list, rows, a file, a part.
        assert!(!is_whole(Dialect::MySql, &with(7, 2 | 8)));
        assert!(!is_whole(Dialect::MySql, &with(3, 2)));
        assert!(!is_whole(Dialect::MySql, &with(4, 1)));
        assert!(!is_whole(Dialect::MySql, &with(4, 0xfb)));
        assert!(!is_whole(Dialect::MySql, &with(0, 8)));
        assert!(!is_whole(Dialect::MySql, &[OK, OK].concat()));
        assert!(is_whole(Dialect::MySql, &with(4, 0xff)));
        // Many rows: the number takes more room.
        assert!(is_whole(Dialect::MySql, &[9, 0, 0, 1, 0, 0xfc, 1, 1, 0, 2, 0, 0, 0]));
        assert!(!is_whole(Dialect::MySql, &[9, 0, 0, 1, 0, 0xfc, 1, 1, 0, 8, 0, 0, 0]));
        assert!(!is_whole(Dialect::MySql, b""));
    }

    #[test]
    fn postgres() {
        let done = b"C\0\0\0\x0dUPDATE 1\0";
        let ready = b"Z\0\0\0\x05I";
        assert!(is_whole(Dialect::Postgres, &[&done[..], ready].concat()));
        assert!(is_whole(
            Dialect::Postgres,
            &[&b"1\0\0\0\x042\0\0\0\x04n\0\0\0\x04"[..], done, ready].concat()
        ));
        assert!(!is_whole(Dialect::Postgres, done));
        assert!(!is_whole(Dialect::Postgres, &[&ready[..], done, ready].concat()));
        assert!(!is_whole(Dialect::Postgres, &[&done[..], &ready[..5]].concat()));
        assert!(!is_whole(Dialect::Postgres, b"C\0\0\0\x03"));
    }

    proptest! {
        #[test]
        fn hostile_bytes_do_no_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..70),
            more in 0..3_usize,
        ) {
            for dialect in [Dialect::MySql, Dialect::Postgres] {
                let is_whole = is_whole_reply(dialect, &bytes, bytes.len() + more);
                prop_assert!(!is_whole || more == 0);
            }
        }
    }
}
