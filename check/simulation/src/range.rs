//! Ranges as the server and the oracle read them, which share no code with the card.

/// First and last byte of each range that is there; `None`: the whole is to be sent. An empty list
/// is for 416.
pub(crate) fn read(value: &str, len: usize) -> Option<Vec<(usize, usize)>> {
    let mut ranges = Vec::new();
    for spec in value.strip_prefix("bytes=")?.split(',') {
        let (first, last) = spec.trim().split_once('-')?;
        let (first, last) = match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last => (first, last.min(len.wrapping_sub(1))),
            (Ok(first), Err(_)) if last.is_empty() => (first, len.wrapping_sub(1)),
            (Err(_), Ok(count)) if first.is_empty() && count > 0 => {
                (len.saturating_sub(count), len.wrapping_sub(1))
            }
            _ => return None,
        };
        if first < len {
            ranges.push((first, last));
        }
    }
    Some(ranges)
}

/// The value of Content-Range.
pub(crate) fn content_range(range: (usize, usize), len: usize) -> String {
    format!("bytes {}-{}/{len}", range.0, range.1)
}

/// A body of several ranges. Servers differ in whether there is a line break in front of it.
pub(crate) fn multipart(
    bytes: &[u8],
    ranges: &[(usize, usize)],
    boundary: &str,
    breaks_first: bool,
) -> Vec<u8> {
    let mut body = Vec::new();
    for (index, &range) in ranges.iter().enumerate() {
        if index > 0 || breaks_first {
            body.extend_from_slice(b"\r\n");
        }
        let value = content_range(range, bytes.len());
        let head =
            format!("--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: {value}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&bytes[range.0..=range.1]);
    }
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

/// Is `body`, of the media type `kind`, these ranges of `bytes`?
pub(crate) fn is_multipart_of(
    body: &[u8],
    kind: &str,
    bytes: &[u8],
    ranges: &[(usize, usize)],
) -> bool {
    let Some(boundary) = kind.strip_prefix("multipart/byteranges; boundary=") else { return false };
    [true, false]
        .into_iter()
        .any(|breaks_first| multipart(bytes, ranges, boundary, breaks_first) == body)
}
