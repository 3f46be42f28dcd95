//! A small HTTP client: one connection that is kept open, one request at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest line of a head.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A reply.
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
    connection: Option<BufReader<TcpStream>>,
    cookies: Vec<(String, String)>,
    keeps_cookies: bool,
}

impl Client {
    /// A visitor without cookies.
    pub fn new(server: SocketAddr) -> Self {
        let host = if server.port() == 80 { server.ip().to_string() } else { server.to_string() };
        Self { server, host, connection: None, cookies: Vec::new(), keeps_cookies: false }
    }

    /// A visitor who keeps the cookies that he is given, as one who logs in.
    pub fn with_cookies(server: SocketAddr) -> Self {
        Self { keeps_cookies: true, ..Self::new(server) }
    }

    /// The same visitor, who writes the server's name so.
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
        let reply = match self.exchange(&message) {
            Err(_) if used => self.exchange(&message),
            other => other,
        };
        let reply = reply.with_context(|| format!("{method} http://{}{path}", self.host))?;
        if self.keeps_cookies {
            self.keep_cookies(&reply);
        }
        Ok(reply)
    }

    fn exchange(&mut self, message: &[u8]) -> Result<Reply> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::new(self.connect()?),
        };
        connection.get_mut().write_all(message)?;
        let (reply, keep) = read_reply(&mut connection)?;
        if keep {
            self.connection = Some(connection);
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
fn read_reply(from: &mut impl BufRead) -> Result<(Reply, bool)> {
    let first = line(from)?;
    let mut words = first.split(' ');
    let version = words.next().unwrap_or_default();
    let status: u16 = words
        .next()
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("no status line: {first}"))?;
    let mut headers = Vec::new();
    loop {
        let text = line(from)?;
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').with_context(|| format!("no header: {text}"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut reply = Reply { status, headers, body: Vec::new() };
    let closes =
        reply.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let mut keep = version == "HTTP/1.1" && !closes;
    if matches!(status, 204 | 304) {
        return Ok((reply, keep));
    }
    if reply.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    {
        loop {
            let size = line(from)?;
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
                .context("no chunk size")?;
            take(from, size, &mut reply.body)?;
            let end = line(from)?;
            if size == 0 {
                if !end.is_empty() {
                    bail!("trailers are not understood: {end}");
                }
                break;
            }
        }
    } else if let Some(length) = reply.header("content-length") {
        let length = length.parse().context("no length")?;
        take(from, length, &mut reply.body)?;
    } else {
        from.read_to_end(&mut reply.body)?;
        keep = false;
    }
    Ok((reply, keep))
}

fn take(from: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> Result<()> {
    let taken = from.take(length).read_to_end(body)?;
    if taken as u64 != length {
        bail!("the body ended after {taken} of {length} bytes");
    }
    Ok(())
}

fn line(from: &mut impl BufRead) -> Result<String> {
    let mut text = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
    if text.pop() != Some(b'\n') {
        bail!("the connection ended in the middle of a reply");
    }
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// As in a form.
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
        read_reply(&mut text.as_bytes())
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
