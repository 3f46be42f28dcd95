//! A non-blocking TCP connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// A non-blocking TCP connection.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Begins to connect, from `source` if there is one.
    pub(super) fn connect(target: SocketAddr, source: Option<IpAddr>) -> io::Result<Self> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // The rest of a long batch must not wait for an acknowledgement of its first part.
        sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(source) = source {
            rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
        }
        match rustix::net::connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Self(socket)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends what there is room for; `None`: nothing now.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives what there is; 0: the end. `None`: nothing now.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((received, _)) => return Ok(Some(received)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Closes it with a reset, so its port is free at once.
    pub(super) fn reset(self) {
        // If it cannot be set, it is closed as always.
        let _ = sockopt::set_socket_linger(&self.0, Some(Duration::ZERO));
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
