//! A small HTTP client: one connection that is kept open, one request at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache_reply::{AtClose, Method, WholeReader, WholeReply, fields};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a body.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A reply with its body whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl Reply {
    fn of(reply: &WholeReply<'_>) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let headers = fields(reply.head);
        Self {
            status: reply.status,
            headers: headers
                .map(|(name, value)| (text(name).to_ascii_lowercase(), text(value)))
                .collect(),
            body: reply.body.to_vec(),
        }
    }

    /// The body as text, with what is not UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Value of the first header of this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(present, _)| present == name).map(|(_, value)| value.as_str())
    }
}

/// A connection, opened at the first request and again when the server has closed it.
#[derive(Debug)]
pub struct Client {
    server: SocketAddr,
    host: String,
    connection: Option<(TcpStream, WholeReader)>,
    cookies: Vec<(String, String)>,
    keeps_cookies: bool,
}

impl Client {
    /// A visitor without cookies.
    pub fn new(server: SocketAddr) -> Self {
        let host = if server.port() == 80 { server.ip().to_string() } else { server.to_string() };
        Self { server, host, connection: None, cookies: Vec::new(), keeps_cookies: false }
    }

    /// A visitor who keeps the cookies that the server gives, as one who logs in does.
    pub fn with_cookies(server: SocketAddr) -> Self {
        Self { keeps_cookies: true, ..Self::new(server) }
    }

    /// A visitor who writes the server's name as `host` in requests.
    pub fn naming(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    /// Fetches a page.
    pub fn get(&mut self, path: &str) -> Result<Reply> {
        self.request("GET", path, &[], &[])
    }

    /// Sends a form.
    pub fn post_form(&mut self, path: &str, fields: &[(&str, &str)]) -> Result<Reply> {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        self.request("POST", path, &headers, pairs.join("&").as_bytes())
    }

    /// Any request. One that fails on a connection that was used before is tried once more on a new
    /// one.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Reply> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !self.cookies.is_empty() {
            let pairs: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            head += &format!("Cookie: {}\r\n", pairs.join("; "));
        }
        if method != "GET" {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        let message = [head.as_bytes(), body].concat();
        let used = self.connection.is_some();
        let kind = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        };
        let reply = match self.exchange(kind, &message) {
            Err(_) if used => self.exchange(kind, &message),
            other => other,
        };
        let reply = reply.with_context(|| format!("{method} http://{}{path}", self.host))?;
        if self.keeps_cookies {
            self.keep_cookies(&reply);
        }
        Ok(reply)
    }

    fn exchange(&mut self, method: Method, message: &[u8]) -> Result<Reply> {
        let (mut stream, mut reader) = match self.connection.take() {
            Some(connection) => connection,
            None => (self.connect()?, WholeReader::new(BODY_BYTES_MAX)),
        };
        stream.write_all(message)?;
        let (reply, keep) = read_reply(&mut stream, &mut reader, method)?;
        if keep {
            self.connection = Some((stream, reader));
        }
        Ok(reply)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.server, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn keep_cookies(&mut self, reply: &Reply) {
        for (_, value) in reply.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let pair = value.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.cookies.retain(|(present, _)| present != name);
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }
}

/// A reply, and whether another may follow.
fn read_reply(
    from: &mut impl Read,
    reader: &mut WholeReader,
    method: Method,
) -> Result<(Reply, bool)> {
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(reply) = reader.next(method)? {
            return Ok((Reply::of(&reply), reply.keep_alive));
        }
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => reader.space().extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    match reader.handle_close() {
        AtClose::Whole(reply) => Ok((Reply::of(&reply), false)),
        AtClose::Nothing | AtClose::Cut => {
            bail!("the connection ended in the middle of a reply")
        }
    }
}

/// A name or a value as it is written in the body of a form (`application/x-www-form-urlencoded`).
fn encode(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        b' ' => "+".to_owned(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Reply, bool)> {
        read_reply(&mut text.as_bytes(), &mut WholeReader::new(100), Method::Get)
    }

    #[test]
    fn framing() {
        let (reply, keep) =
            read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A:  b \r\n\r\nabcdef").unwrap();
        assert_eq!(
            (reply.status, reply.text().as_str(), reply.header("x-a"), keep),
            (200, "abc", Some("b"), true)
        );
        let (reply, keep) = read(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nrest",
        )
        .unwrap();
        assert_eq!((reply.text().as_str(), keep), ("abc0123456789", true));
        let (reply, keep) = read("HTTP/1.1 200 OK\r\n\r\nto the end").unwrap();
        assert_eq!((reply.text().as_str(), keep), ("to the end", false));
        assert!(!read("HTTP/1.1 204 x\r\nConnection: close\r\n\r\n").unwrap().1);
        assert!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_err());
        assert!(read("HTTP/1.1 200 OK\r\nContent-Le").is_err());
    }

    #[test]
    fn forms() {
        assert_eq!(encode("a b&=é"), "a+b%26%3D%C3%A9");
    }

    #[test]
    fn cookies() {
        let mut client = Client::with_cookies("127.0.0.1:1".parse().unwrap());
        let reply = |value: &str| Reply {
            status: 200,
            headers: vec![("set-cookie".into(), value.into())],
            body: vec![],
        };
        client.keep_cookies(&reply("a=1; path=/"));
        client.keep_cookies(&reply("b=x=y"));
        client.keep_cookies(&reply("a=2"));
        assert_eq!(client.cookies, [("b".into(), "x=y".into()), ("a".into(), "2".into())]);
    }
}
