//! Frames between two processes: a pair of connected sockets, each frame a message behind a
//! virtio-net header ([`crate::virtio_net`]).
//!
//! Read first: `unix(7)`, SOCK_SEQPACKET. Messages arrive whole and in order. When the other end is
//! closed, sending fails and nothing more is received.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, recv,
    sendmsg, socketpair, sockopt,
};

use crate::frame::{Burst, FRAME_BYTES_MAX, Offload};
use crate::gather::{PARTS_MAX, SendError};
use crate::port::{Capabilities, Port};
use crate::virtio_net::{VIRTIO_NET_HEADER_BYTES, decode_header, encode_header};

/// Room for frames that wait, in bytes.
const BUFFER_BYTES: usize = 4 << 20;

/// One end of a pair of connected sockets, by which frames cross between two processes.
#[derive(Debug)]
pub struct PairSocket {
    fd: OwnedFd,
    dropped: u64,
}

impl PairSocket {
    /// Both ends.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        for end in [&one, &other] {
            // The kernel gives what it allows.
            sockopt::set_socket_send_buffer_size(end, BUFFER_BYTES)?;
        }
        Ok((Self::from(one), Self::from(other)))
    }
}

impl From<OwnedFd> for PairSocket {
    /// An end that another process has made.
    fn from(fd: OwnedFd) -> Self {
        Self { fd, dropped: 0 }
    }
}

impl AsFd for PairSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Port for PairSocket {
    fn capabilities(&self) -> Capabilities {
        Capabilities::FULL
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        while let Some(frame) = burst.next_free() {
            let received =
                match recv(&self.fd, frame.space_mut(VIRTIO_NET_HEADER_BYTES), RecvFlags::DONTWAIT)
                {
                    Ok((0, _)) | Err(Errno::AGAIN | Errno::CONNRESET) => break,
                    Ok((received, _)) => received,
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                };
            let Some(len) =
                received.checked_sub(VIRTIO_NET_HEADER_BYTES).filter(|&len| len <= FRAME_BYTES_MAX)
            else {
                self.dropped += 1;
                continue;
            };
            frame.set_len(len);
            match decode_header(&frame.headroom(), frame.data()) {
                Ok(offload) => {
                    frame.set_offload(offload);
                    burst.push();
                }
                Err(_) => self.dropped += 1,
            }
        }
        Ok(burst.len())
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let frame_len = Capabilities::FULL.check(parts, &offload)?;
        let header = encode_header(&offload, frame_len).map_err(|_| SendError::Invalid)?;
        let mut list = ArrayVec::<_, { 1 + PARTS_MAX }>::new();
        list.push(IoSlice::new(&header));
        list.extend(parts.iter().copied());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            return match sendmsg(&self.fd, &list, &mut SendAncillaryBuffer::default(), flags) {
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Err(SendError::Full),
                Err(errno) => Err(SendError::Io(errno.into())),
            };
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn receive_dropped(&self) -> u64 {
        self.dropped
    }
}

/// A port that receives from elsewhere once it is [diverted](Divertible::divert), and sends as
/// before.
#[derive(Debug)]
pub struct Divertible<P> {
    port: P,
    from: Option<PairSocket>,
}

impl<P> Divertible<P> {
    /// A port whose frames are not diverted yet.
    pub fn new(port: P) -> Self {
        Self { port, from: None }
    }

    /// Receives from `from` from now on.
    pub fn divert(&mut self, from: PairSocket) {
        self.from = Some(from);
    }
}

impl<P: Port> Port for Divertible<P> {
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        match &mut self.from {
            None => self.port.receive(burst),
            Some(from) => from.receive(burst),
        }
    }

    #[inline]
    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        self.port.send(parts, offload)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.port.flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.port.finish()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.from.as_ref().map_or_else(|| self.port.wait_fd(), Port::wait_fd)
    }

    fn receive_dropped(&self) -> u64 {
        self.port.receive_dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Checksum, Gso, GsoKind};
    use crate::memory_wire;

    #[test]
    fn frames_arrive_whole_with_their_metadata() {
        let (mut one, mut other) = PairSocket::pair().unwrap();
        let frame: Vec<u8> = (0..60_000).map(|at| at as u8).collect();
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        let gso = Some(Gso { kind: GsoKind::Tcp4, size: 1448, header_len: 66, ecn: false });
        let mut tcp = frame.clone();
        // What the codec looks at of a super-frame: IPv4 with TCP.
        tcp[12..15].copy_from_slice(&[8, 0, 0x45]);
        tcp[23] = 6;
        tcp[46] = 0x80;
        let offload = Offload { checksum, gso };
        one.send(&[IoSlice::new(&tcp[..100]), IoSlice::new(&tcp[100..])], offload).unwrap();
        one.send(&[IoSlice::new(&frame[..60])], Offload::default()).unwrap();
        let mut burst = Burst::new(4);
        assert_eq!(other.receive(&mut burst).unwrap(), 2);
        assert_eq!((burst.frames()[0].data(), burst.frames()[0].offload()), (&tcp[..], offload));
        assert_eq!(burst.frames()[1].data(), &frame[..60]);
        assert_eq!(other.receive(&mut burst).unwrap(), 0);
    }

    #[test]
    fn a_closed_end_is_an_error_to_send_to_and_silent_to_receive_from() {
        let (mut one, other) = PairSocket::pair().unwrap();
        drop(other);
        assert!(matches!(
            one.send(&[IoSlice::new(&[0; 60])], Offload::default()),
            Err(SendError::Io(_))
        ));
        assert_eq!(one.receive(&mut Burst::new(1)).unwrap(), 0);
    }

    #[test]
    fn a_diverted_port_sends_as_before() {
        let (wire, mut far) = memory_wire(4, Capabilities::FULL, Capabilities::FULL);
        let (mut feeder, from) = PairSocket::pair().unwrap();
        let (mut port, mut burst) = (Divertible::new(wire), Burst::new(4));
        far.send(&[IoSlice::new(&[1; 60])], Offload::default()).unwrap();
        assert_eq!(port.receive(&mut burst).unwrap(), 1);
        port.divert(from);
        far.send(&[IoSlice::new(&[2; 60])], Offload::default()).unwrap();
        assert_eq!(port.receive(&mut burst).unwrap(), 0);
        feeder.send(&[IoSlice::new(&[3; 60])], Offload::default()).unwrap();
        assert_eq!(port.receive(&mut burst).unwrap(), 1);
        assert_eq!(burst.frames()[0].data(), [3; 60]);
        port.send(&[IoSlice::new(&[4; 60])], Offload::default()).unwrap();
        assert_eq!(far.receive(&mut burst).unwrap(), 1);
    }
}
