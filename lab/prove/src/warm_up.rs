//! What the pages show before the run: the versions that are there, and which subjects are on which
//! page.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nicache_reply::{AtClose, Method, WholeReader, WholeReply};

use crate::connection::BODY_BYTES_MAX;
use crate::marker::Marker;

/// A page as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Fetched {
    /// The largest number that the page shows.
    pub(crate) fn largest(&self, marker: &Marker) -> Option<u64> {
        let mut largest = None;
        marker.find_all(&self.body, |found| largest = largest.max(Some(found.value)));
        largest
    }
}

/// Reads one page over a connection of its own.
pub(crate) fn fetch(server: SocketAddr, request: &[u8], timeout: Duration) -> io::Result<Fetched> {
    let fetched =
        |reply: WholeReply<'_>| Fetched { status: reply.status, body: reply.body.to_vec() };
    let no_reply = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut stream = TcpStream::connect_timeout(&server, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(request)?;
    let mut reader = WholeReader::new(BODY_BYTES_MAX);
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(reply) =
            reader.next(Method::Get).map_err(|error| no_reply(error.to_string()))?
        {
            return Ok(fetched(reply));
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => reader.space().extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    match reader.handle_close() {
        AtClose::Whole(reply) => Ok(fetched(reply)),
        AtClose::Nothing | AtClose::Cut => {
            Err(no_reply("the connection ended before the reply did".to_owned()))
        }
    }
}
