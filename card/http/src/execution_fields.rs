//! Fields of a reply that number the one execution that has made it, or say how long that took (`X-Request-Id`, `X-Runtime`, `Server-Timing`). Each reply
//! has other values. A reply from the card had no execution, so it goes without them, as it goes without a `Date` of the past.

use crate::reply_field::{ReplyField, classify};

/// The reply head without the lines of these fields. `None` if it has none.
pub fn without_execution_fields(head: &[u8]) -> Option<Vec<u8>> {
    let is_of_execution = |line: &&[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        classify(&line[..colon]) == ReplyField::Execution
    };
    let lines = || head.split_inclusive(|byte| *byte == b'\n');
    lines().any(|line| is_of_execution(&line)).then(|| {
        let mut rest = Vec::with_capacity(head.len());
        lines().filter(|line| !is_of_execution(line)).for_each(|line| rest.extend_from_slice(line));
        rest
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_go() {
        let head = b"HTTP/1.1 200 OK\r\nX-Request-Id: 1\r\nA: x-runtime\r\nX-RUNTIME:0.1\r\nServer-Timing: db;dur=5\r\nX-Request-Idea: 2\r\n\r\n";
        let left = without_execution_fields(head).unwrap();
        assert_eq!(left, b"HTTP/1.1 200 OK\r\nA: x-runtime\r\nX-Request-Idea: 2\r\n\r\n");
        assert_eq!(without_execution_fields(&left), None);
        assert_eq!(without_execution_fields(b""), None);
    }
}
