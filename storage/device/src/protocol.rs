//! What the server, its supervisor and the owner of a ublk device say to each other: one message a
//! packet, at most one descriptor with each.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::transport::Transport;

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 4096;

/// From the server; and from the supervisor to the owner of a ublk device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ToSupervisor {
    /// Make a device of that size, with a new file system if `mkfs`, and mount it.
    Begin { mkfs: bool, transport: Transport, capacity_bytes: u64 },
    /// The server has closed every file: unmount.
    End,
    /// To the device owner, first: make a ublk device of that size.
    Own { capacity_bytes: u64 },
    /// To the device owner: answer what the server has not answered, now and later, with errors.
    Abort,
}

/// From the supervisor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// Serve this FUSE connection (its descriptor comes along).
    Serve,
    /// Serve the requests of a ublk device (the socket to its owner comes along).
    ServeUblk,
    /// Their bytes are in this memory (its file comes along).
    Memory,
    /// The file system is mounted (its root comes along) on this device.
    Mounted { device: String },
    /// Something failed; everything that was made is gone.
    Failed { reason: String },
    /// The file system is unmounted.
    Ended,
}

/// From the owner of a ublk device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum FromOwner {
    /// By this socket the server gets requests (it comes along).
    Requests,
    /// Their bytes are in this memory (its file comes along).
    Memory,
    /// There is the disk.
    Started { device: String },
    /// Something failed; the device goes.
    Failed { reason: String },
}

pub(crate) fn send<M: Serialize>(
    socket: &impl AsFd,
    message: &M,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// The next message; None when the other side is gone.
pub(crate) fn receive<M: for<'m> Deserialize<'m>>(
    socket: &impl AsFd,
) -> io::Result<Option<(M, Option<OwnedFd>)>> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let message = postcard::from_bytes(&bytes[..received.bytes]).map_err(io::Error::other)?;
    Ok(Some((message, descriptor)))
}
