//! A reply's head: what it says of the reply, and its fields.

use nicache_http::Framing;

/// A final head; interim ones (1xx) are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Whether the connection can be used again.
    pub keep_alive: bool,
    /// How the body ends.
    pub framing: Framing,
    /// What `Content-Length` says, with which the reply to a HEAD and a 304 can come, too.
    pub length: Option<u64>,
    /// The status line and the fields, with the empty line that ends them.
    pub bytes: &'a [u8],
}

impl<'a> Head<'a> {
    /// Value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        field(self.bytes, name)
    }
}

/// Value of a head's first field of this name.
pub fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    fields(head)
        .find_map(|(found, value)| found.eq_ignore_ascii_case(name.as_bytes()).then_some(value))
}

/// Names and values of a head's fields, without the space around the values.
pub fn fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    head.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_names_and_values() {
        let head = b"HTTP/1.1 200 O:K\r\nX-A:  b c \r\nx-empty:\r\nX-a: d:e\r\n\r\n";
        let expected: [(&[u8], &[u8]); 3] = [(b"X-A", b"b c"), (b"x-empty", b""), (b"X-a", b"d:e")];
        assert!(fields(head).eq(expected));
        assert_eq!(field(head, "x-a"), Some(&b"b c"[..]));
        assert_eq!(field(head, "X-Empty"), Some(&b""[..]));
        assert_eq!(field(head, "HTTP/1.1 200 O"), None);
    }
}
