//! How many requests PHP-FPM has executed, from its status page, asked by FastCGI at its own
//! socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// What the pool's configuration gets, and where the page is.
pub(super) const STATUS_PATH: &str = "/nicache-bench-status";

const TIMEOUT: Duration = Duration::from_secs(10);
/// FastCGI 1.0, section 8: types of records.
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
/// Role of a server that answers requests, and flags: the connection ends with the reply.
const RESPONDER: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// Requests that the pool has accepted so far, this one included.
///
/// # Errors
/// No pool answers at the socket, or it has no status page.
pub(super) fn accepted(socket: &Path) -> Result<u64> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no PHP-FPM at {}", socket.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let variables = [
        ("SCRIPT_NAME", STATUS_PATH),
        ("SCRIPT_FILENAME", STATUS_PATH),
        ("REQUEST_METHOD", "GET"),
        ("QUERY_STRING", "json"),
    ];
    let parameters: Vec<u8> =
        variables.iter().flat_map(|(name, value)| pair(name, value)).collect();
    let message = [
        record(BEGIN_REQUEST, &RESPONDER),
        record(PARAMS, &parameters),
        record(PARAMS, &[]),
        record(STDIN, &[]),
    ];
    stream.write_all(&message.concat())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    count(&output(&reply)?)
}

/// Section 3.3: version, type, request 1, length, no padding, content.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("records here are short").to_be_bytes();
    [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
}

/// Section 3.4, with lengths of one byte.
fn pair(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| {
        u8::try_from(text.len()).ok().filter(|length| *length < 128).expect("short words")
    };
    [&[length(name), length(value)], name.as_bytes(), value.as_bytes()].concat()
}

/// What the script wrote to its standard output.
fn output(mut reply: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        ensure!(reply.len() >= 8, "PHP-FPM's reply has no end");
        let (head, rest) = reply.split_at(8);
        let (length, padding) =
            (usize::from(u16::from_be_bytes([head[4], head[5]])), usize::from(head[6]));
        ensure!(rest.len() >= length + padding, "PHP-FPM's reply is cut off");
        match head[1] {
            STDOUT => text.extend_from_slice(&rest[..length]),
            END_REQUEST => return Ok(text),
            _ => {}
        }
        reply = &rest[length + padding..];
    }
}

fn count(output: &[u8]) -> Result<u64> {
    let text = String::from_utf8_lossy(output);
    let (_, body) =
        text.split_once("\r\n\r\n").with_context(|| format!("an odd status page: {text}"))?;
    let status: serde_json::Value =
        serde_json::from_str(body).with_context(|| format!("an odd status page: {text}"))?;
    status["accepted conn"].as_u64().context("a status page without a count")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_in_several_records() {
        let page = "Content-type: application/json\r\n\r\n{\"accepted conn\":42}";
        let mut padded = record(STDOUT, &page.as_bytes()[..10]);
        padded[6] = 3;
        padded.extend([0; 3]);
        let reply = [
            padded,
            record(7, b"a message"),
            record(STDOUT, &page.as_bytes()[10..]),
            record(END_REQUEST, &[0; 8]),
        ];
        assert_eq!(count(&output(&reply.concat()).unwrap()).unwrap(), 42);
        let whole = reply.concat();
        assert!(output(&whole[..whole.len() - 1]).is_err());
        assert!(count(b"Status: 404 Not Found\r\n\r\nFile not found.").is_err());
    }

    #[test]
    fn pairs_and_records_have_their_lengths() {
        assert_eq!(pair("AB", "c"), [2, 1, b'A', b'B', b'c']);
        assert_eq!(record(PARAMS, b"xyz"), [1, 4, 0, 1, 0, 3, 0, 0, b'x', b'y', b'z']);
    }
}
