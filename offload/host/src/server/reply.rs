//! Status lines and heads (RFC 9110, RFC 9112).

use std::fmt::Write;

use nicache_http::HttpDate;

use super::validator::Validators;

/// What follows the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// So many bytes of this type.
    Bytes {
        /// How many bytes.
        len: u64,
        /// Media type.
        kind: &'a str,
    },
    /// Bytes of this type until the connection ends.
    Endless {
        /// Media type.
        kind: &'a str,
    },
    /// Nothing, and no `Content-Length` either: 304.
    None,
}

/// A head, piece by piece.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// Status code.
    pub status: u16,
    /// What follows.
    pub body: Body<'a>,
    /// Of the file.
    pub validators: Option<&'a Validators>,
    /// Value of `Content-Range`.
    pub content_range: Option<String>,
    /// Value of `Location`.
    pub location: Option<&'a str>,
    /// Value of `Allow`.
    pub allow: Option<&'a str>,
    /// How it is sent.
    pub manner: Manner,
}

/// How a request wants to be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Another request may follow.
    pub keep_alive: bool,
    /// The client is one of HTTP/1.0.
    pub is_old: bool,
    /// No body is wanted.
    pub is_head: bool,
}

impl Head<'_> {
    /// A head with a status and a body, and nothing else.
    pub fn new(status: u16, body: Body<'_>, manner: Manner) -> Head<'_> {
        let (validators, content_range, location, allow) = (None, None, None, None);
        Head { status, body, validators, content_range, location, allow, manner }
    }

    /// The head's bytes.
    pub fn write(&self, date: &HttpDate) -> String {
        let mut head = String::with_capacity(320);
        let date = String::from_utf8_lossy(date.as_bytes());
        // Writing to a string cannot fail.
        let _ = write!(
            head,
            "HTTP/1.1 {} {}\r\nServer: nicache\r\nDate: {date}\r\n",
            self.status,
            reason(self.status)
        );
        if let Body::Bytes { len, kind } = &self.body {
            let _ = write!(head, "Content-Type: {kind}\r\nContent-Length: {len}\r\n");
        }
        if let Body::Endless { kind } = &self.body {
            let _ = write!(head, "Content-Type: {kind}\r\nCache-Control: no-store\r\n");
        }
        if let Some(validators) = self.validators {
            if let Some(date) = validators.date() {
                let _ =
                    write!(head, "Last-Modified: {}\r\n", String::from_utf8_lossy(date.as_bytes()));
            }
            let _ = write!(head, "ETag: {}\r\nAccept-Ranges: bytes\r\n", validators.tag);
        }
        let optional = [
            ("Content-Range", self.content_range.as_deref()),
            ("Location", self.location),
            ("Allow", self.allow),
            (
                "Connection",
                match (self.manner.keep_alive, self.manner.is_old) {
                    (false, _) => Some("close"),
                    (true, true) => Some("keep-alive"),
                    (true, false) => None,
                },
            ),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                let _ = write!(head, "{name}: {value}\r\n");
            }
        }
        head.push_str("\r\n");
        head
    }
}

/// Media type by the name.
pub fn kind_of(path: &[u8]) -> String {
    let kind = match path.ends_with(b"/") {
        true => Some("text/html"),
        false => mime_guess::from_path(String::from_utf8_lossy(path).as_ref()).first_raw(),
    };
    kind.unwrap_or("application/octet-stream").to_owned()
}

/// RFC 9110 section 15.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        _ => "Service Unavailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_one_that_parsers_read() {
        let body = Body::Bytes { len: 5, kind: "text/plain" };
        let mut head =
            Head::new(206, body, Manner { keep_alive: true, is_old: true, is_head: false });
        head.content_range = Some("bytes 0-4/10".into());
        let text = head.write(&HttpDate::from_unix_s(784_111_777));
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut reply = httparse::Response::new(&mut headers);
        assert_eq!(reply.parse(text.as_bytes()), Ok(httparse::Status::Complete(text.len())));
        assert_eq!(
            (reply.code, reply.reason, reply.headers.len()),
            (Some(206), Some("Partial Content"), 6)
        );
        let none = Head::new(304, Body::None, Manner { keep_alive: true, ..Manner::default() })
            .write(&HttpDate::from_unix_s(0));
        assert!(!none.contains("Content-Length") && !none.contains("Connection"));
    }
}
