//! One connection that never blocks.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nicache_reply::WholeReader;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with, sockopt,
};

/// Longest body that is read, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 20;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) page: usize,
    /// Before its first byte was written.
    pub(crate) sent_ns: u64,
    /// After the quiet period.
    pub(crate) last: bool,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes,
    Nothing,
    End,
}

/// A connection, perhaps not yet established.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    out: Vec<u8>,
    written: usize,
    pub(crate) established: bool,
    pub(crate) opened_ns: u64,
    pub(crate) reader: WholeReader,
    /// Requests without reply, the oldest first.
    pub(crate) asked: VecDeque<Asked>,
}

impl Connection {
    /// Begins to connect, from the address `from` if given.
    pub(crate) fn open(server: SocketAddr, from: Option<IpAddr>, now_ns: u64) -> io::Result<Self> {
        let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(
            family,
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(from) = from {
            bind(&socket, &SocketAddr::new(from, 0))?;
        }
        match connect(&socket, &server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self {
            socket,
            out: Vec::new(),
            written: 0,
            established: false,
            opened_ns: now_ns,
            reader: WholeReader::new(BODY_BYTES_MAX),
            asked: VecDeque::new(),
        })
    }

    /// Looks whether the attempt to connect, which is over, succeeded.
    pub(crate) fn establish(&mut self) -> io::Result<()> {
        sockopt::socket_error(&self.socket)??;
        self.established = true;
        Ok(())
    }

    /// Adds a request. [`Connection::write`] sends it.
    pub(crate) fn ask(&mut self, asked: Asked, text: &[u8]) {
        self.asked.push_back(asked);
        self.out.extend_from_slice(text);
    }

    /// Writes what there is as far as it goes. False: go on when the socket is writable.
    pub(crate) fn write(&mut self) -> io::Result<bool> {
        while self.written < self.out.len() {
            match send(&self.socket, &self.out[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(true)
    }

    /// Takes in what there is, up to the buffer's size.
    pub(crate) fn read(&mut self) -> io::Result<Received> {
        match recv(&self.socket, spare_capacity(self.reader.space()), RecvFlags::empty()) {
            Ok((_, 0)) => Ok(Received::End),
            Ok(_) => Ok(Received::Bytes),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
