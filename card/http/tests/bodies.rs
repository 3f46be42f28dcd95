//! Reply content and its end, strictly and whatever the pieces.

mod exercise;

use exercise::follow;
use nicache_http::*;
use proptest::prelude::*;

#[test]
fn content_of_known_length() {
    assert_eq!(
        follow(Framing::Length(5), &[b"hello world"]),
        (b"hello".to_vec(), Some(5), None, true)
    );
    assert_eq!(
        follow(Framing::Length(5), &[b"he", b"llo"]),
        (b"hello".to_vec(), Some(5), None, true)
    );
    assert_eq!(follow(Framing::Length(5), &[b"hell"]), (b"hell".to_vec(), None, None, true));
    assert_eq!(follow(Framing::Length(0), &[b"next"]), (vec![], Some(0), None, true));
    assert_eq!(follow(Framing::None, &[b"next"]), (vec![], Some(0), None, true));
    let huge = Framing::Length(999_999_999_999_999_999);
    assert_eq!(follow(huge, &[b"hello"]), (b"hello".to_vec(), None, None, true));
}

#[test]
fn content_until_the_connection_ends() {
    let mut follower = Follower::new(Framing::Close);
    assert_eq!(follower.follow(b"hello", |_| {}), Followed { finished_at: None, fault: None });
    assert!(!follower.is_finished());
    assert!(follower.handle_close() && follower.is_finished());
    let mut truncated = Follower::new(Framing::Length(5));
    truncated.follow(b"hell", |_| {});
    assert!(!truncated.handle_close());
    let mut chunked = Follower::new(Framing::Chunked);
    chunked.follow(b"5\r\nhello\r\n", |_| {});
    assert!(!chunked.handle_close());
}

#[test]
fn chunked() {
    let cases: &[(&str, &str, usize, bool)] = &[
        ("0\r\n\r\nnext", "", 5, true),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", 15, true),
        (
            "5\r\nhello\r\nA\r\n0123456789\r\na\r\n0123456789\r\n000\r\n\r\nHTTP",
            "hello01234567890123456789",
            47,
            true,
        ),
        ("5;name=value\r\nhello\r\n0\r\n\r\n", "hello", 26, false),
        ("5;\r\nhello\r\n0\r\n\r\n", "hello", 16, false),
        ("1\r\nx\r\n0\r\nName: value\r\n\r\n", "x", 24, false),
        ("0;last\r\n\r\n", "", 10, false),
        ("000000000000001\r\nx\r\n0\r\n\r\n", "x", 25, true),
    ];
    for (text, content, finished_at, plain) in cases {
        let expected = (content.as_bytes().to_vec(), Some(*finished_at), None, *plain);
        assert_eq!(
            follow(Framing::Chunked, &[text.as_bytes()]),
            expected,
            "{}",
            text.escape_debug()
        );
    }
}

#[test]
fn doubtful_chunks_are_broken() {
    let long_extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(CHUNK_EXTENSION_BYTES_MAX));
    let long_trailer = format!("0\r\nA: {}\r\n\r\n", "t".repeat(TRAILER_BYTES_MAX));
    let many_trailers = format!("0\r\n{}\r\n", "A: b\r\n".repeat(TRAILER_BYTES_MAX / 6 + 1));
    let cases: &[(&str, BodyFault)] = &[
        ("\r\n", BodyFault::ChunkSize),
        ("x", BodyFault::ChunkSize),
        (" 5\r\n", BodyFault::ChunkSize),
        ("5 \r\n", BodyFault::ChunkSize),
        ("5\t;a\r\n", BodyFault::ChunkSize),
        ("+5\r\n", BodyFault::ChunkSize),
        ("-5\r\n", BodyFault::ChunkSize),
        ("0x5\r\n", BodyFault::ChunkSize),
        ("5\nhello", BodyFault::ChunkSize),
        (";a\r\n", BodyFault::ChunkSize),
        ("0000000000000005\r\n", BodyFault::ChunkSize),
        ("FFFFFFFFFFFFFFFF\r\n", BodyFault::ChunkSize),
        ("10000000000000005\r\n", BodyFault::ChunkSize),
        ("5\r\rhello", BodyFault::LineBreak),
        ("5\rhello", BodyFault::LineBreak),
        ("5\r\nhello\n", BodyFault::LineBreak),
        ("5\r\nhelloX", BodyFault::LineBreak),
        ("5\r\nhello\r\r", BodyFault::LineBreak),
        ("5;a\nb\r\n", BodyFault::LineBreak),
        ("5;a\0\r\n", BodyFault::LineBreak),
        ("5;a\rb\r\n", BodyFault::LineBreak),
        ("0\r\nA: b\n\r\n", BodyFault::LineBreak),
        ("0\r\n\n", BodyFault::LineBreak),
        ("0\r\n\rX", BodyFault::LineBreak),
        ("0\r\n A: b\r\n\r\n", BodyFault::LineBreak),
        ("0\r\n: b\r\n\r\n", BodyFault::LineBreak),
        ("0\r\nA: \0\r\n\r\n", BodyFault::LineBreak),
        (&long_extension, BodyFault::TooLong),
        (&long_trailer, BodyFault::TooLong),
        (&many_trailers, BodyFault::TooLong),
    ];
    for (text, fault) in cases {
        let (_, finished_at, found, _) = follow(Framing::Chunked, &[text.as_bytes()]);
        assert_eq!((finished_at, found), (None, Some(*fault)), "{}", text.escape_debug());
    }
}

#[test]
fn a_broken_follower_stays_broken() {
    let mut follower = Follower::new(Framing::Chunked);
    assert!(follower.follow(b"zz", |_| {}).fault.is_some());
    assert!(follower.follow(b"0\r\n\r\n", |_| panic!("content of a broken body")).fault.is_some());
    assert!(!follower.is_finished() && !follower.handle_close());
}

proptest! {
    /// RFC 9112 section 7.1: an encoder's output gives the content back, however it is cut.
    #[test]
    fn chunks_in_any_pieces_give_the_content(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..8),
        cuts in proptest::collection::vec(0usize..400, 0..12),
        upper: bool,
        next in proptest::collection::vec(any::<u8>(), 0..10),
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            let size = if upper {
                format!("{:X}\r\n", chunk.len())
            } else {
                format!("{:04x}\r\n", chunk.len())
            };
            wire.extend_from_slice(size.as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        let end = wire.len();
        wire.extend_from_slice(&next);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(wire.len())).collect();
        cuts.extend([0, wire.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &wire[pair[0]..pair[1]]).collect();
        prop_assert_eq!(
            follow(Framing::Chunked, &pieces),
            (chunks.concat(), Some(end), None, true)
        );
    }

    #[test]
    fn pieces_never_matter(
        head in any::<[u8; 3]>(),
        body in "([0-9a-fA-F]{1,2}|;a|;|\r\n|\n|\r|x|hello|0\r\n\r\n|5\r\nhello\r\n|A: b\r\n){0,20}",
    ) {
        exercise::body(&[&head[..], body.as_bytes()].concat());
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        exercise::body(&bytes);
    }
}
