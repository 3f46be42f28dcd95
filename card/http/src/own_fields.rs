//! Fields that belong to one reply of the server's own, and to no reply from the card.
//!
//! * Those that number the execution that has made it, or say how long that took (`X-Request-Id`,
//!   `X-Runtime`, `Server-Timing`). Each reply has other values, and a reply from the card had no
//!   execution, so it goes without them, as it goes without a `Date` of the past.
//! * The offer to speak another protocol on this connection (`Upgrade` and its name in
//!   `Connection`, RFC 9110 section 7.8): Apache with mod_http2 makes it in the first reply of each
//!   connection. It is for the next hop alone, and may be left out.

use crate::connection::is_upgrade;
use crate::head::{list, trim_ows, without_lines};
use crate::reply::ReplyHead;
use crate::reply_field::{ReplyField, classify};

/// The reply's head, or what was left of it, without these fields. `None` if the reply has none.
pub fn without_own_fields(reply: &ReplyHead<'_>, head: &[u8]) -> Option<Vec<u8>> {
    if !reply.has_own_fields {
        return None;
    }
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        classify(&line[..colon])
    };
    let names_only_upgrade = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        is_upgrade(trim_ows(line[colon + 1..].trim_ascii_end()))
    };
    let is_own = |line: &[u8]| match field(line) {
        ReplyField::Execution | ReplyField::Upgrade => true,
        ReplyField::Connection => names_only_upgrade(line),
        _ => false,
    };
    let left = without_lines(head, is_own)?;
    Some(
        match left
            .split_inclusive(|byte| *byte == b'\n')
            .find(|line| field(line) == ReplyField::Connection)
        {
            Some(line) if line.contains(&b',') => without_upgrade(&left, line),
            _ => left,
        },
    )
}

/// The head with another value in its Connection line: all options but `upgrade`.
fn without_upgrade(head: &[u8], line: &[u8]) -> Vec<u8> {
    let at = line.as_ptr() as usize - head.as_ptr() as usize;
    let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(0) + 1);
    let options: Vec<&[u8]> =
        list(value.trim_ascii_end()).filter(|option| !is_upgrade(option)).collect();
    [&head[..at], name, b" ", &options.join(&b", "[..]), b"\r\n", &head[at + line.len()..]].concat()
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
            ReplyOutcome::Complete(reply) => without_own_fields(&reply, head),
            other => panic!("{other:?}"),
        };
        let left = without(head).unwrap();
        assert_eq!(left, b"HTTP/1.1 200 OK\r\nA: x-runtime\r\nX-Request-Idea: 2\r\n\r\n");
        assert_eq!(without(&left), None);
    }

    #[test]
    fn an_offer_to_upgrade_goes_and_the_rest_of_connection_stays() {
        for (connection, left) in [
            ("Connection: Upgrade\r\n", ""),
            ("Connection: Upgrade, Keep-Alive\r\n", "Connection: Keep-Alive\r\n"),
            ("connection:close ,upgrade\r\n", "connection: close\r\n"),
        ] {
            let head = format!(
                "HTTP/1.1 200 OK\r\nDate: Thu, 20 Nov 2025 23:59:03 GMT\r\nUpgrade: h2,h2c\r\n{connection}Content-Length: 1\r\n\r\n"
            );
            let ReplyOutcome::Complete(reply) = parse_reply(head.as_bytes(), Method::Get) else {
                panic!("{head}");
            };
            assert_eq!(reply.shareable, Ok(()), "{head}");
            let rest = without_own_fields(&reply, head.as_bytes()).unwrap();
            let expected = head.replace(connection, left).replace("Upgrade: h2,h2c\r\n", "");
            assert_eq!(String::from_utf8(rest).unwrap(), expected);
        }
        // Without the field that it names, or with other options, it is odd.
        for fields in [
            "Connection: Upgrade\r\n",
            "Upgrade: h2c\r\nConnection: Upgrade, X\r\n",
            "Upgrade: h2c\r\nConnection: close\r\n",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 1\r\n\r\n");
            let ReplyOutcome::Complete(reply) = parse_reply(head.as_bytes(), Method::Get) else {
                panic!("{head}");
            };
            assert!(reply.shareable.is_err(), "{head}");
        }
    }
}
