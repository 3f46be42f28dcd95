//! Requests made from plain ones by the changes that parsers quarrel about.

const PLAIN: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "GET /a/b.html?q=1 HTTP/1.1\r\nHost: a.example:8080\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
    "HEAD /x HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, deflate\r\n\r\n",
    "GET /x HTTP/1.0\r\nConnection: keep-alive\r\nHost: a\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n",
    "DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /x HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nIf-Range: \"a\"\r\nIf-None-Match: W/\"b\", \"c\"\r\n\r\n",
    "GET /x HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\nReferer: http://b/\r\nOrigin: http://b\r\nCache-Control: no-cache\r\n\r\n",
];

const PIECES: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    "\0",
    "\u{b}",
    "\u{c}",
    ":",
    ",",
    ";",
    "=",
    "\"",
    "%",
    "%00",
    "%2e%2e",
    "%2f",
    "%zz",
    "..",
    "/",
    "//",
    "/../",
    "/./",
    "\\",
    "?",
    "#",
    "@",
    "[",
    "]",
    "{",
    "|",
    "~",
    "'",
    "!",
    "*",
    "0",
    "1",
    "00",
    "+1",
    "-1",
    "0x1",
    "99999999999999999999",
    "chunked",
    "identity",
    "close",
    "keep-alive",
    "HTTP/1.1",
    "HTTP/1.2",
    "http://b/",
    "\u{7f}",
    "\u{e9}",
    "\u{85}",
    "a",
];

const LINES: &[&str] = &[
    "Content-Length: 0\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 05\r\n",
    "Content-Length: 5, 5\r\n",
    "Content_Length: 5\r\n",
    "content-length:5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer_Encoding: chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "TE: trailers\r\n",
    "Host: b\r\n",
    "X-Forwarded-Host: b\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: Host\r\n",
    "Expect: 100-continue\r\n",
    "X: y\r\n",
    "X:\r\n",
    " folded\r\n",
    "\tfolded\r\n",
    ": no name\r\n",
    "no colon\r\n",
    "Accept-Encoding: gzip\r\n",
    "Pragma: no-cache\r\n",
    "Sec-Fetch-Mode: cors\r\n",
    "Priority: u=1\r\n",
    "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
];

/// All that follow from a seed, without end.
pub(crate) fn mutations(seed: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        let mut below = |limit: usize| {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
        };
        let mut bytes = PLAIN[below(PLAIN.len())].as_bytes().to_vec();
        for _ in 0..=below(3) {
            mutate(&mut bytes, &mut below);
        }
        bytes
    })
}

fn mutate(bytes: &mut Vec<u8>, below: &mut impl FnMut(usize) -> usize) {
    let at = below(bytes.len() + 1);
    // Behind a line break.
    let line_starts: Vec<usize> =
        (2..bytes.len()).filter(|at| &bytes[at - 2..*at] == b"\r\n").collect();
    let line =
        |choice: usize| line_starts.get(choice % line_starts.len().max(1)).copied().unwrap_or(0);
    match below(8) {
        0 if at < bytes.len() => {
            bytes.remove(at);
        }
        1 if at < bytes.len() => bytes[at] = below(256) as u8,
        2 | 3 => {
            let piece = PIECES[below(PIECES.len())].as_bytes();
            bytes.splice(at..at, piece.iter().copied());
        }
        4 | 5 => {
            let start = line(below(64));
            let new = LINES[below(LINES.len())].as_bytes();
            bytes.splice(start..start, new.iter().copied());
        }
        6 => {
            // A line once more.
            let start = line(below(64));
            let end = bytes[start..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(bytes.len(), |end| start + end + 1);
            let copy = bytes[start..end].to_vec();
            let to = line(below(64));
            bytes.splice(to..to, copy);
        }
        _ => {
            // In another case.
            if let Some(byte) = bytes.get_mut(at) {
                *byte = if byte.is_ascii_lowercase() {
                    byte.to_ascii_uppercase()
                } else {
                    byte.to_ascii_lowercase()
                };
            }
        }
    }
}
