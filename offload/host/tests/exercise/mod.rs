//! What the fuzz targets and the replay of their corpus have in common: run arbitrary bytes through
//! the public functions and check what must hold for all input.

use nicache_host::server::request::{Parsed, parse as parse_request};
use nicache_host::server::segments;
use nicache_host::stack::{Incoming, parse as parse_frame};
use nicache_http::{ByteRange, KeyConfig, RANGES_MAX, Wanted, wanted};

/// Of the host for which frames are.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ADDRESS: u32 = 0x0a4d_0002;

/// A frame from the wire, with checksums that the card has verified and that it has not.
pub(crate) fn frame(bytes: &[u8]) {
    for is_right in [true, false] {
        match parse_frame(bytes, is_right, MAC, ADDRESS) {
            Incoming::Tcp { ends, payload, head } => {
                assert!(payload.start <= payload.end && payload.end <= bytes.len());
                assert_eq!(
                    (ends.key.server, ends.server_mac),
                    (std::net::Ipv4Addr::from_bits(ADDRESS).into(), MAC)
                );
                assert_eq!(
                    (ends.key.client_port, ends.key.server_port),
                    (head.src_port, head.dst_port)
                );
            }
            Incoming::Answer(answer) => {
                assert!(answer.len() <= bytes.len().max(42));
                assert!(answer[6..12] == MAC && answer[12..14] == bytes[12..14]);
            }
            Incoming::Corrupt => {
                assert!(
                    !is_right || bytes[23] == 1,
                    "only of a ping are the host's own sums checked then"
                );
            }
            Incoming::Nothing => {}
        }
    }
}

/// Bytes of a connection.
pub(crate) fn request(bytes: &[u8]) {
    let keys = KeyConfig::new([42; 16]);
    match parse_request(bytes, &keys) {
        Parsed::Request { len, asked, is_head, .. } => {
            assert!(len <= bytes.len() && bytes[..len].ends_with(b"\n"));
            assert_eq!(
                parse_request(&bytes[..len], &keys),
                parse_request(bytes, &keys),
                "what follows makes no difference"
            );
            match asked {
                Ok(asked) => {
                    assert!(asked.path.starts_with(b"/") && asked.is_head == is_head);
                    let mut names = asked.path.split(|&byte| byte == b'/');
                    assert!(
                        !names.any(|name| name == b".." || name == b"." || name.contains(&0)),
                        "{:?}",
                        asked.path
                    );
                    if let Some(range) = asked.range {
                        check_range(range, 1000);
                    }
                }
                Err(status) => assert!((400..600).contains(&status)),
            }
        }
        Parsed::Lost { status } => assert!((400..600).contains(&status)),
        Parsed::Partial => {}
    }
}

fn check_range(value: &[u8], bytes: u64) {
    if let Wanted::Parts(parts) = wanted(value, bytes) {
        assert!(!parts.is_empty() && parts.len() <= RANGES_MAX);
        assert!(parts.iter().all(|part| part.from < part.to && part.to <= bytes));
        assert!(
            parts.iter().map(ByteRange::len).map(u128::from).sum::<u128>() <= u128::from(bytes)
        );
    }
}

/// Eight bytes of a file's size, and a `Range`.
pub(crate) fn range(bytes: &[u8]) {
    if let Some((size, value)) = bytes.split_first_chunk() {
        check_range(value, u64::from_le_bytes(*size));
    }
}

/// A playlist.
pub(crate) fn playlist(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let named = segments(b"/live/list.m3u8", &text);
    assert!(named.len() <= text.lines().count());
    assert!(named.iter().all(|path| path.starts_with(b"/") && !path.contains(&b'\n')));
}
