//! The bytes of a reply that people need to see.

use std::ops::Range;

/// Bytes shown on each side of a place, and of a body.
const AROUND: usize = 60;
/// Bytes shown of a head.
const HEAD: usize = 500;

/// The bytes around `place`, escaped.
pub(crate) fn excerpt(page: &[u8], place: &Range<usize>) -> String {
    let start = place.start.saturating_sub(AROUND);
    let before = if start > 0 { "..." } else { "" };
    format!("{before}{}", first(&page[start.min(page.len())..], place.end - start + AROUND))
}

/// The first bytes, escaped.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    first(bytes, AROUND)
}

/// What a reply is that lacks something: its head, and the beginning of its body.
pub(crate) fn whole(head: &[u8], body: &[u8]) -> String {
    format!("{}\n    {} bytes: {}", first(head, HEAD), body.len(), beginning(body))
}

fn first(bytes: &[u8], most: usize) -> String {
    let after = if bytes.len() > most { "..." } else { "" };
    format!("{}{after}", bytes[..most.min(bytes.len())].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_in_the_middle() {
        let page = [&[b'a'; 100][..], b"<v=7>\n", &[b'b'; 100]].concat();
        let text = excerpt(&page, &(100..105));
        assert!(
            text.starts_with("...aaa") && text.contains(r"<v=7>\n") && text.ends_with("bbb..."),
            "{text}"
        );
        assert_eq!(excerpt(b"v=7", &(0..3)), "v=7");
    }

    #[test]
    fn an_empty_body_is_seen_to_be_one() {
        let text = whole(b"HTTP/1.1 200 OK\r\nServer: nginx\r\n\r\n", b"");
        assert_eq!(text, "HTTP/1.1 200 OK\\r\\nServer: nginx\\r\\n\\r\\n\n    0 bytes: ");
    }
}
