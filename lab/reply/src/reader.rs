//! Finds the replies of one connection in what was received, and hands over their bodies where they
//! are.
//!
//! Order of calls, for each reply: [`ReplyReader::read_head`] until there is a head, then
//! [`ReplyReader::read_body`] until the body is whole. What is left of the input then is the next
//! reply's.

use nicache_http::{
    BodyFault, Follower, HEAD_BYTES_MAX, MalformedReply, Method, ReplyFraming, parse_framing,
};

use crate::head::Head;

/// What is not a reply. Nothing that follows on the connection can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The head leaves in doubt where the reply ends, or is not a head of HTTP.
    #[error("a reply whose end is in doubt: {}", .0.label().replace('_', " "))]
    Head(MalformedReply),
    /// The body's framing is broken.
    #[error("a reply whose end is in doubt: {0}")]
    Body(BodyFault),
    /// A body of more bytes than [`WholeReader`](crate::WholeReader) may keep.
    #[error("a body of more than {} MB", .0 >> 20)]
    TooLong(usize),
}

/// How a connection's end leaves the reply that was being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtClose<R> {
    /// There was none.
    Nothing,
    /// It is whole.
    Whole(R),
    /// It is not.
    Cut,
}

/// The replies of one connection, none of whose bytes are kept but those of a head that is not
/// whole.
#[derive(Debug, Default)]
pub struct ReplyReader {
    /// The head, if it came in pieces.
    head: Vec<u8>,
    /// Of the body that is being read.
    follower: Option<Follower>,
}

impl ReplyReader {
    /// Takes the head of the next reply, which answers a request with `method`, from the beginning
    /// of `input`. `None`: all is taken, and more must come.
    ///
    /// # Errors
    /// [`ReplyError::Head`].
    ///
    /// # Panics
    /// In debug builds, if the last reply's body is not whole.
    pub fn read_head<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
        method: Method,
    ) -> Result<Option<Head<'a>>, ReplyError> {
        debug_assert!(self.follower.is_none(), "the body comes first");
        loop {
            if input.is_empty() {
                return Ok(None);
            }
            let before = self.head.len();
            let found = if before == 0 {
                parse_framing(input, method).map_err(ReplyError::Head)?
            } else {
                let taken = input.len().min(HEAD_BYTES_MAX.saturating_sub(before));
                self.head.extend_from_slice(&input[..taken]);
                parse_framing(&self.head, method).map_err(ReplyError::Head)?
            };
            let Some(found) = found else {
                if before == 0 {
                    self.head.extend_from_slice(input);
                }
                *input = &[];
                return Ok(None);
            };
            let (bytes, rest) = input.split_at(found.head_len - before);
            *input = rest;
            if found.status < 200 {
                self.head.clear();
                continue;
            }
            let ReplyFraming { status, head_len, framing, content_length: length, keep_alive } =
                found;
            self.follower = Some(Follower::new(framing));
            let bytes = if before == 0 { bytes } else { &self.head[..head_len] };
            return Ok(Some(Head { status, keep_alive, framing, length, bytes }));
        }
    }

    /// Takes what `input` begins with of the body, and hands over its bytes, without framing. True:
    /// the reply is whole.
    ///
    /// # Errors
    /// [`ReplyError::Body`].
    pub fn read_body(
        &mut self,
        input: &mut &[u8],
        body: impl FnMut(&[u8]),
    ) -> Result<bool, ReplyError> {
        let Some(follower) = &mut self.follower else { return Ok(true) };
        let followed = follower.follow(input, body);
        if let Some(fault) = followed.fault {
            return Err(ReplyError::Body(fault));
        }
        let Some(at) = followed.finished_at else {
            *input = &[];
            return Ok(false);
        };
        *input = &input[at..];
        self.clear();
        Ok(true)
    }

    /// Whether a head has been read and the body that follows it is not whole.
    pub fn is_in_body(&self) -> bool {
        self.follower.is_some()
    }

    /// Whether nothing of a reply has come since the last one.
    pub fn is_between_replies(&self) -> bool {
        self.head.is_empty() && self.follower.is_none()
    }

    /// What has come of a head that came in pieces.
    pub fn partial_head(&self) -> &[u8] {
        &self.head
    }

    /// Takes the end of the connection.
    pub fn handle_close(&mut self) -> AtClose<()> {
        match &mut self.follower {
            None if self.head.is_empty() => AtClose::Nothing,
            None => AtClose::Cut,
            Some(follower) => {
                if follower.handle_close() {
                    AtClose::Whole(())
                } else {
                    AtClose::Cut
                }
            }
        }
    }

    /// Forgets what has come, for a new connection.
    pub fn clear(&mut self) {
        self.head.clear();
        self.follower = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REPLIES: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n\
        HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-A: b\r\n\r\n\
        HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end";
    const METHODS: [Method; 5] = [Method::Get, Method::Get, Method::Get, Method::Head, Method::Get];

    /// Status, whether the connection goes on, length, body.
    type Seen = (u16, bool, Option<u64>, Vec<u8>);

    /// Reads as far as the bytes are replies to [`METHODS`].
    fn read_all(mut bytes: &[u8], pieces: &[usize]) -> Result<(Vec<Seen>, bool), ReplyError> {
        let (mut reader, mut seen, mut is_whole) = (ReplyReader::default(), Vec::new(), true);
        let mut pieces = pieces.iter().cycle();
        while !bytes.is_empty() {
            let (mut piece, rest) = bytes.split_at((*pieces.next().unwrap()).min(bytes.len()));
            bytes = rest;
            loop {
                if !reader.is_in_body() {
                    let number = seen.len();
                    let method = METHODS[number.min(METHODS.len() - 1)];
                    let Some(head) = reader.read_head(&mut piece, method)? else { break };
                    assert!(
                        head.bytes.starts_with(b"HTTP/1.") && head.bytes.ends_with(b"\r\n\r\n")
                    );
                    seen.push((head.status, head.keep_alive, head.length, Vec::new()));
                }
                let body = &mut seen.last_mut().unwrap().3;
                is_whole = reader.read_body(&mut piece, |bytes| body.extend_from_slice(bytes))?;
                assert_eq!(reader.is_in_body(), !is_whole);
                if !is_whole {
                    break;
                }
            }
            assert!(piece.is_empty());
        }
        assert_eq!(reader.is_between_replies(), reader.handle_close() == AtClose::Nothing);
        is_whole |= reader.handle_close() != AtClose::Cut;
        Ok((seen, is_whole))
    }

    fn expected() -> Vec<Seen> {
        vec![
            (200, true, Some(5), b"hello".to_vec()),
            (200, true, None, b"abcdefg".to_vec()),
            (304, true, Some(9), b"".to_vec()),
            (200, true, Some(7), b"".to_vec()),
            (200, false, None, b"until the end".to_vec()),
        ]
    }

    proptest! {
        #[test]
        fn replies_are_found_whatever_the_pieces(
            pieces in proptest::collection::vec(1usize..200, 1..6),
        ) {
            prop_assert_eq!(read_all(REPLIES, &pieces), Ok((expected(), true)));
        }

        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0..REPLIES.len(),
            piece in 1usize..50,
        ) {
            let _ = read_all(&bytes, &[piece]);
            // Nor do bytes in the middle of replies.
            let _ = read_all(&[&REPLIES[..at], &bytes].concat(), &[piece]);
        }
    }

    #[test]
    fn replies_come_out_in_single_bytes_and_at_once() {
        for size in [1, REPLIES.len()] {
            assert_eq!(read_all(REPLIES, &[size]), Ok((expected(), true)), "pieces of {size}");
        }
    }

    #[test]
    fn a_head_without_end_is_given_up() {
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'a'; HEAD_BYTES_MAX]].concat();
        for size in [1000, HEAD_BYTES_MAX - 1, endless.len()] {
            let error = ReplyError::Head(MalformedReply::HeadTooLong);
            assert_eq!(read_all(&endless, &[size]), Err(error), "pieces of {size}");
        }
        let text = ReplyError::Head(MalformedReply::HeadTooLong).to_string();
        assert_eq!(text, "a reply whose end is in doubt: head too long");
    }

    #[test]
    fn a_close_ends_a_body_without_length_and_cuts_any_other() {
        let at_close = |text: &[u8]| {
            let mut reader = ReplyReader::default();
            let mut input = text;
            if reader.read_head(&mut input, Method::Get).unwrap().is_some() {
                reader.read_body(&mut input, |_| ()).unwrap();
            }
            reader.handle_close()
        };
        assert_eq!(at_close(b""), AtClose::Nothing);
        assert_eq!(at_close(b"HTTP/1.1 204 x\r\n\r\n"), AtClose::Nothing);
        assert_eq!(at_close(b"HTTP/1.1 200 OK\r\n"), AtClose::Cut);
        assert_eq!(at_close(b"HTTP/1.1 200 OK\r\n\r\nabc"), AtClose::Whole(()));
        assert_eq!(at_close(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), AtClose::Cut);
    }

    #[test]
    fn a_new_connection_begins_anew() {
        // In a head, and in a body.
        for at in [20, 40] {
            let mut reader = ReplyReader::default();
            let mut input = &REPLIES[..at];
            if reader.read_head(&mut input, Method::Get).unwrap().is_some() {
                assert_eq!(reader.read_body(&mut input, |_| ()), Ok(false));
            }
            assert!(!reader.is_between_replies());
            reader.clear();
            assert!(reader.is_between_replies());
        }
    }
}
