//! Short replies that are whole: after them the server is done with the request, and what it
//! changed is visible.
//!
//! A statement that changes rows is answered by one OK packet of MySQL, or by a few short messages
//! of PostgreSQL of which the last says that the server is ready. Whoever sees such a reply need
//! not wait for the client to go on. Both servers make a change visible to others before they send
//! it. Not true of what a server does later in its own time (`INSERT DELAYED`): the caller knows
//! those.

use crate::dialects::Dialect;

/// Is this the whole reply to one request? `bytes` are the first ones of what the server sent at
/// once, `len` is how many that were.
pub fn is_whole_reply(dialect: Dialect, bytes: &[u8], len: usize) -> bool {
    bytes.len() == len && dialect.server().is_reply(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_of_a_reply_is_not_the_whole() {
        let ok = [7, 0, 0, 1, 0, 1, 0, 2, 0, 0, 0];
        assert!(is_whole_reply(Dialect::MySql, &ok, ok.len()));
        assert!(!is_whole_reply(Dialect::MySql, &ok, ok.len() + 1));
    }

    proptest! {
        #[test]
        fn hostile_bytes_do_no_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..70),
            more in 0..3_usize,
        ) {
            for dialect in Dialect::ALL {
                let is_whole = is_whole_reply(dialect, &bytes, bytes.len() + more);
                prop_assert!(!is_whole || more == 0);
            }
        }
    }
}
