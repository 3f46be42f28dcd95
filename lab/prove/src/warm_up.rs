//! What the pages show before the run: the versions that are there, and which subjects are on which
//! page.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::marker::Marker;
use crate::response::{AtClose, Response, ResponseReader};

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
        |response: Response<'_>| Fetched { status: response.status, body: response.body.to_vec() };
    let no_reply = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut stream = TcpStream::connect_timeout(&server, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(request)?;
    let mut reader = ResponseReader::new();
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(response) = reader.next().map_err(|error| no_reply(error.to_string()))? {
            return Ok(fetched(response));
        }
        match stream.read(&mut piece)? {
            0 => break,
            length => reader.space().extend_from_slice(&piece[..length]),
        }
    }
    match reader.handle_close() {
        AtClose::Whole(response) => Ok(fetched(response)),
        AtClose::Nothing | AtClose::Cut => {
            Err(no_reply("the connection ended before the reply did".to_owned()))
        }
    }
}
