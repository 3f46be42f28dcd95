//! The lines before the first event.

use super::cursor::{Cursor, Reason};
use super::segment::connection;
use crate::content;
use crate::script::{Method, Object, Request, Setup};

/// Bytes of the longest reply.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// Requests on a connection.
const REQUESTS_MAX: usize = 64;

/// Takes a line of set-up; false if it is none.
pub(super) fn read(setup: &mut Setup, line: &str) -> Result<bool, Reason> {
    let mut cursor = Cursor::new(line);
    match cursor.word() {
        "object" => setup.objects.push(object(&mut cursor)?),
        "stream" => {
            let number = connection(&mut cursor)?;
            if setup.streams.iter().any(|(known, _)| *known == number) {
                return Err(format!("the stream of connection {number} is known already"));
            }
            setup.streams.push((number, requests(&mut cursor)?));
        }
        "card" => match cursor.word() {
            "handshake" => {
                setup.card.passes_handshake = match cursor.word() {
                    "card" => false,
                    "pass-through" => true,
                    word => {
                        return Err(format!("`{word}` is not a handshake: card or pass-through"));
                    }
                }
            }
            "misses" => setup.card.misses = true,
            word => {
                return Err(format!("`{word}` is nothing that a card has: handshake or misses"));
            }
        },
        "linux" => linux(setup, &mut cursor)?,
        "ip" => {
            setup.ip = cursor.number("4 or 6")?;
            if setup.ip != 4 && setup.ip != 6 {
                return Err(format!("there is no IP version {}", setup.ip));
            }
        }
        "mtu" => {
            setup.mtu = cursor.number("an MTU")?;
            if !(576..=9000).contains(&setup.mtu) {
                return Err("an MTU is from 576 to 9000".into());
            }
        }
        "client" => {
            cursor.expect("isn")?;
            setup.client_isn = cursor.number("a sequence number")?;
        }
        "ignore" => {
            cursor.expect("acks")?;
            setup.ignores_acks = true;
        }
        "tolerance" => setup.tolerance = Some(cursor.duration()?),
        _ => return Ok(false),
    }
    cursor.end()?;
    Ok(true)
}

fn object(cursor: &mut Cursor<'_>) -> Result<Object, Reason> {
    let path = path(cursor)?;
    let reply_bytes = cursor.number("the bytes of the reply")?;
    let least = content::reply_bytes_min();
    if !(least..=REPLY_BYTES_MAX).contains(&reply_bytes) {
        return Err(format!("a reply has {least} to {REPLY_BYTES_MAX} bytes with its head"));
    }
    Ok(Object { path, reply_bytes })
}

fn path(cursor: &mut Cursor<'_>) -> Result<String, Reason> {
    let path = cursor.word();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if path.starts_with('/') && path.len() <= 32 && path.chars().all(plain) && !path.contains("..")
    {
        Ok(path.to_owned())
    } else {
        Err(format!("`{path}` is not a path: /, letters, digits, - _ and ., 32 at most"))
    }
}

fn requests(cursor: &mut Cursor<'_>) -> Result<Vec<Request>, Reason> {
    let mut requests = Vec::new();
    loop {
        let method = match cursor.word() {
            "GET" => Method::Get,
            "POST" => Method::Post,
            word => return Err(format!("`{word}` is not a method here: GET or POST")),
        };
        let path = path(cursor)?;
        cursor.expect("in")?;
        let head_bytes = cursor.number("the bytes of the request")?;
        let body_bytes =
            if cursor.take_word("with") { cursor.number("the bytes of the body")? } else { 0 };
        let closes = cursor.take_word("close");
        let request = Request { method, path, head_bytes, body_bytes, closes };
        let least = content::request_bytes_min(&request);
        if !(least..=8192).contains(&head_bytes) {
            return Err(format!("the head of this request has {least} to 8192 bytes"));
        }
        if (method == Method::Get && body_bytes > 0) || body_bytes > REPLY_BYTES_MAX {
            return Err(format!(
                "a POST has a body of at most {REPLY_BYTES_MAX} bytes, a GET has none"
            ));
        }
        requests.push(request);
        if cursor.is_empty() {
            return Ok(requests);
        }
        if requests.len() == REQUESTS_MAX {
            return Err(format!("{REQUESTS_MAX} requests are the most"));
        }
        cursor.expect("then")?;
    }
}

fn linux(setup: &mut Setup, cursor: &mut Cursor<'_>) -> Result<(), Reason> {
    let linux = &mut setup.linux;
    match cursor.word() {
        "sysctl" => {
            let name = cursor.word();
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(format!("`{name}` is not a name below net.ipv4"));
            }
            let value = cursor.take_while(|c| c.is_ascii_digit() || c == '-' || c == ' ').trim();
            if value.is_empty() {
                return Err(format!("`{name}` needs a value in numbers"));
            }
            linux.sysctls.push((name.to_owned(), value.to_owned()));
        }
        "congestion" => linux.congestion = plain_word(cursor)?,
        "route" => {
            while !cursor.is_empty() {
                linux.route.push(plain_word(cursor)?);
            }
        }
        "keep-alive" => {
            linux.keep_alive = Some((
                cursor.number("seconds")?,
                cursor.number("seconds")?,
                cursor.number("a number of probes")?,
            ));
        }
        "receive-buffer" => {
            let bytes: u32 = cursor.number("bytes")?;
            linux.receive_buffer = Some(bytes as usize);
        }
        "backlog" => linux.backlog = cursor.number("a number of connections")?,
        word => {
            return Err(format!(
                "`{word}` cannot be set: sysctl, congestion, route, keep-alive, receive-buffer or backlog"
            ));
        }
    }
    Ok(())
}

fn plain_word(cursor: &mut Cursor<'_>) -> Result<String, Reason> {
    let word = cursor.word();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !word.is_empty() && word.chars().all(plain) {
        Ok(word.to_owned())
    } else {
        Err(format!("a word of letters and digits is expected before `{word}{}`", cursor.rest()))
    }
}
