//! The server's name in the first message of a TLS client.
//!
//! Read first: RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3.
//!
//! The message may be cut into records, and these into segments, anywhere. Nothing is decrypted:
//! with an encrypted ClientHello (ECH) the name is the outer one.

use super::name::{Look, Name};

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_HEADER_BYTES: usize = 5;
/// RFC 8446 section 5.1.
const RECORD_BYTES_MAX: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Looks for the name in the first bytes of a connection.
pub fn look(bytes: &[u8]) -> Look {
    match gather(bytes) {
        Ok(Some(hello)) => match server_name(&hello) {
            Some(look) => look,
            None => Look::Malformed,
        },
        Ok(None) => Look::More,
        Err(NotTls) => Look::Malformed,
    }
}

struct NotTls;

/// The body of the ClientHello, put together from its records. `None`: it is not all there.
fn gather(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, NotTls> {
    let mut message = Vec::new();
    loop {
        // What is there of a record's header is judged at once: who speaks something else is not
        // waited for.
        if bytes.first().is_some_and(|kind| *kind != HANDSHAKE)
            || bytes.get(1).is_some_and(|major| *major != 3)
        {
            return Err(NotTls);
        }
        let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if len == 0 || len > RECORD_BYTES_MAX {
            return Err(NotTls);
        }
        let rest = &bytes[RECORD_HEADER_BYTES..];
        message.extend_from_slice(&rest[..len.min(rest.len())]);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(NotTls);
        }
        if let Some([_, a, b, c]) = message.first_chunk::<4>() {
            let end = 4 + usize::from(*a) * 65_536 + usize::from(*b) * 256 + usize::from(*c);
            if message.len() >= end {
                return Ok(Some(message[4..end].to_vec()));
            }
        }
        let Some(next) = rest.get(len..) else { return Ok(None) };
        bytes = next;
    }
}

/// Takes parts off the front of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|two| u16::from_be_bytes([two[0], two[1]]))
    }

    /// A part behind its length, of one byte or of two.
    fn part(&mut self, is_long: bool) -> Option<&'a [u8]> {
        let len = if is_long { self.number()?.into() } else { self.take(1)?[0].into() };
        self.take(len)
    }
}

/// `None`: the message contradicts itself.
fn server_name(hello: &[u8]) -> Option<Look> {
    let mut hello = Reader(hello);
    // Version and random number.
    hello.take(2 + 32)?;
    let session = hello.part(false)?;
    let suites = hello.part(true)?;
    let compressions = hello.part(false)?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 == 1 || compressions.is_empty() {
        return None;
    }
    if hello.0.is_empty() {
        return Some(Look::Nameless);
    }
    let mut extensions = Reader(hello.part(true)?);
    if !hello.0.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.number()?, extensions.part(true)?);
        if kind != SERVER_NAME {
            continue;
        }
        // RFC 8446 section 4.2: an extension is there once.
        if found.is_some() {
            return None;
        }
        found = Some(host_name(content)?);
    }
    Some(found.map_or(Look::Nameless, Look::Name))
}

/// RFC 6066 section 3: a list of names, of which no two have the same type. Only one type was ever
/// defined.
fn host_name(content: &[u8]) -> Option<Name> {
    let mut content = Reader(content);
    let mut list = Reader(content.part(true)?);
    if !content.0.is_empty() {
        return None;
    }
    let kind = list.take(1)?[0];
    let name = Name::new(list.part(true)?)?;
    (kind == HOST_NAME && list.0.is_empty()).then_some(name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A ClientHello with this name, as one message.
    pub(crate) fn message(name: Option<&str>) -> Vec<u8> {
        let part = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        let mut extensions = [&[0, 43][..], &part(&[2, 3, 4])].concat();
        if let Some(name) = name {
            let list = part(&[&[0][..], &part(name.as_bytes())].concat());
            extensions.extend([&[0, 0][..], &part(&list)].concat());
        }
        extensions.extend([&[0, 10][..], &part(&[0, 2, 0, 29])].concat());
        let body =
            [&[3, 3][..], &[7; 32], &[0], &part(&[0x13, 1]), &[1, 0], &part(&extensions)].concat();
        [&[1, 0][..], &part(&body)].concat()
    }

    /// A message in records of so many bytes.
    pub(crate) fn records(message: &[u8], bytes: usize) -> Vec<u8> {
        message
            .chunks(bytes)
            .flat_map(|part| [&[22, 3, 1, 0, part.len() as u8][..], part].concat())
            .collect()
    }

    #[test]
    fn a_name_however_it_is_cut() {
        let shop = Look::Name(Name::new(b"shop.example").unwrap());
        for bytes in [1, 2, 3, 7, 50, 255] {
            let all = records(&message(Some("Shop.Example")), bytes);
            assert_eq!(look(&all), shop, "records of {bytes}");
            for len in 0..all.len() {
                assert_eq!(look(&all[..len]), Look::More, "{len} bytes of records of {bytes}");
            }
            // What follows is none of our business.
            assert_eq!(look(&[&all[..], &[20, 3, 3, 0, 1, 1]].concat()), shop);
        }
        assert_eq!(look(&records(&message(None), 200)), Look::Nameless);
    }

    #[test]
    fn what_is_not_tls() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            &[22, 2],
            &[22, 3, 1, 0, 0],
            &[22, 3, 1, 0x41, 0],
            &[21],
            &[22, 3, 1, 0, 1, 2],
            &[0x80, 0x2e, 1],
        ] {
            assert_eq!(look(bytes), Look::Malformed, "{bytes:?}");
        }
        for name in ["", "a b", "a..b", &"a".repeat(100).repeat(3)] {
            assert_eq!(look(&records(&message(Some(name)), 255)), Look::Malformed, "{name}");
        }
        // Each byte changed in turn: nothing panics, and no other name comes out than one of the
        // same length.
        let whole = records(&message(Some("shop.example")), 255);
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut odd = whole.clone();
                odd[at] = value;
                if let Look::Name(name) = look(&odd) {
                    assert_eq!(name.as_bytes().len(), 12);
                }
            }
        }
        // Two names.
        let twice = {
            let one = message(Some("a.example"));
            let extension =
                [0, 0, 0, 14, 0, 12, 0, 0, 9, b'b', b'.', b'e', b'x', b'a', b'm', b'p', b'l', b'e'];
            let mut body = [&one[..], &extension].concat();
            let extensions_at = 4 + 2 + 32 + 1 + 4 + 2;
            let len = u16::from_be_bytes([body[extensions_at], body[extensions_at + 1]])
                + extension.len() as u16;
            body[extensions_at..extensions_at + 2].copy_from_slice(&len.to_be_bytes());
            let all = (body.len() - 4) as u16;
            body[2..4].copy_from_slice(&all.to_be_bytes());
            body
        };
        assert_eq!(look(&records(&twice, 255)), Look::Malformed);
    }
}
