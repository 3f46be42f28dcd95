//! The bytes around a place in a page, for people.

use std::ops::Range;

/// Bytes shown on each side.
const AROUND: usize = 60;

/// The bytes around `place`, escaped; the beginning of `page` if there is no place.
pub(crate) fn excerpt(page: &[u8], place: Option<&Range<usize>>) -> String {
    let (start, end) = place.map_or((0, AROUND), |place| (place.start.saturating_sub(AROUND), place.end + AROUND));
    let end = end.min(page.len());
    let (before, after) = (if start > 0 { "..." } else { "" }, if end < page.len() { "..." } else { "" });
    format!("{before}{}{after}", page[start.min(end)..end].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_in_the_middle() {
        let page = [&[b'a'; 100][..], b"<v=7>\n", &[b'b'; 100]].concat();
        let text = excerpt(&page, Some(&(100..105)));
        assert!(text.starts_with("...aaa") && text.contains(r"<v=7>\n") && text.ends_with("bbb..."), "{text}");
        assert_eq!(excerpt(b"short", None), "short");
        assert_eq!(excerpt(b"", None), "");
    }
}
