//! Fields of a reply that number the one execution that has made it, or say how long that took
//! (`X-Request-Id`, `X-Runtime`, `Server-Timing`). Each reply has other values. A reply from the
//! card had no execution, so it goes without them, as it goes without a `Date` of the past.

use crate::head::without_lines;
use crate::reply::ReplyHead;
use crate::reply_field::{ReplyField, classify};

/// The reply's head, or what was left of it, without the lines of these fields. `None` if the reply
/// has none.
pub fn without_execution_fields(reply: &ReplyHead<'_>, head: &[u8]) -> Option<Vec<u8>> {
    let is_of_execution = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        classify(&line[..colon]) == ReplyField::Execution
    };
    if reply.has_execution_fields { without_lines(head, is_of_execution) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Method;
    use crate::reply::{ReplyOutcome, parse_reply};

    #[test]
    fn only_these_go() {
        let head = b"HTTP/1.1 200 OK\r\nX-Request-Id: 1\r\nA: x-runtime\r\nX-RUNTIME:0.1\r\nServer-Timing: db;dur=5\r\nX-Request-Idea: 2\r\n\r\n";
        let without = |head: &[u8]| match parse_reply(head, Method::Get) {
            ReplyOutcome::Complete(reply) => without_execution_fields(&reply, head),
            other => panic!("{other:?}"),
        };
        let left = without(head).unwrap();
        assert_eq!(left, b"HTTP/1.1 200 OK\r\nA: x-runtime\r\nX-Request-Idea: 2\r\n\r\n");
        assert_eq!(without(&left), None);
    }
}
