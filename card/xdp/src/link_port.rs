//! A link of a forwarder's as one port: an AF_XDP socket on each queue, and a packet socket for
//! what goes to the kernel.
//!
//! [`Sieve`](crate::Sieve) leaves the frames of neighbours and of kept ports to the kernel. The
//! forwarder wants to hear neighbours, too: the packet socket sees what goes to the kernel, and
//! nothing else, so each frame comes here once. It also has the frames of a queue that has got no
//! socket, for instance because somebody has given the network card more queues.
//!
//! Everything is sent by the first queue, in the order in which it is given.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nicache_port::{Burst, Capabilities, Offload, PacketSocket, Port, SendError};
use rustix::event::epoll;

use crate::socket::XdpSocket;

/// A link of a forwarder's as one port: an AF_XDP socket on each queue, and a packet socket for
/// what goes to the kernel. The first queue sends.
#[derive(Debug)]
pub struct LinkPort {
    sockets: Vec<XdpSocket>,
    passed: PacketSocket,
    /// Who is asked first: sockets by their queues, then the packet socket.
    next: usize,
    /// Readable if one of them is.
    any: OwnedFd,
}

impl LinkPort {
    /// Makes a port of the sockets of all queues, in their order, and the packet socket of the same
    /// link.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] without a socket; else what the system says.
    pub fn new(sockets: Vec<XdpSocket>, passed: PacketSocket) -> io::Result<Self> {
        if sockets.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a link has one queue at least",
            ));
        }
        let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for file in sockets.iter().map(AsFd::as_fd).chain([passed.as_fd()]) {
            epoll::add(&any, file, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { sockets, passed, next: 0, any })
    }

    fn sender(&mut self) -> &mut XdpSocket {
        &mut self.sockets[0]
    }
}

impl Port for LinkPort {
    fn capabilities(&self) -> Capabilities {
        self.sockets[0].capabilities()
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        // Nobody's frames wait because another one has more.
        for _ in 0..=self.sockets.len() {
            let asked = self.next;
            self.next = (asked + 1) % (self.sockets.len() + 1);
            let received = match self.sockets.get_mut(asked) {
                Some(socket) => socket.receive(burst)?,
                None => self.passed.receive(burst)?,
            };
            if received > 0 {
                return Ok(received);
            }
        }
        Ok(0)
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        self.sender().send(parts, offload)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sender().flush()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.any.as_fd())
    }

    fn receive_dropped(&self) -> u64 {
        self.sockets.iter().map(Port::receive_dropped).sum::<u64>() + self.passed.receive_dropped()
    }

    fn send_dropped(&self) -> u64 {
        self.sockets[0].send_dropped()
    }
}
