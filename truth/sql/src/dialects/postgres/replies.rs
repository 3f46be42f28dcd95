//! Replies that end when the server is ready.

/// Whole messages, of which the last one and no other is ReadyForQuery.
pub(super) fn is_reply(mut bytes: &[u8]) -> bool {
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
    use super::*;

    #[test]
    fn a_reply_ends_when_the_server_is_ready() {
        let done = b"C\0\0\0\x0dUPDATE 1\0";
        let ready = b"Z\0\0\0\x05I";
        assert!(is_reply(&[&done[..], ready].concat()));
        assert!(is_reply(&[&b"1\0\0\0\x042\0\0\0\x04n\0\0\0\x04"[..], done, ready].concat()));
        assert!(!is_reply(done));
        assert!(!is_reply(&[&ready[..], done, ready].concat()));
        assert!(!is_reply(&[&done[..], &ready[..5]].concat()));
        assert!(!is_reply(b"C\0\0\0\x03"));
    }
}
