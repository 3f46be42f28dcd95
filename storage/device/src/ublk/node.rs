//! A ublk device as the supervisor sees it: the process that takes its requests.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use super::control::{is_used, remove};
use crate::node::BlockNode;
use crate::protocol::{FromOwner, ToServer, ToSupervisor, receive, send};

/// The device owner, and the device that it has.
pub(crate) struct UblkNode {
    socket: OwnedFd,
    owner: Child,
    /// Empty until there is one.
    device: String,
}

impl UblkNode {
    /// Starts a device owner, which is this program again, and leads the server to it.
    pub(crate) fn start(server: &OwnedFd, capacity_bytes: u64) -> io::Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let owner = Command::new("/proc/self/exe")
            .args(std::env::args_os().skip(1))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let mut node = Self { socket, owner, device: String::new() };
        send(&node.socket, &ToSupervisor::Own { capacity_bytes }, None)?;
        loop {
            match receive(&node.socket)? {
                Some((FromOwner::Requests, Some(requests))) => {
                    send(server, &ToServer::ServeUblk, Some(requests.as_fd()))?;
                }
                Some((FromOwner::Memory, Some(memory))) => {
                    send(server, &ToServer::Memory, Some(memory.as_fd()))?;
                }
                Some((FromOwner::Started { device }, _)) => {
                    node.device = device;
                    return Ok(node);
                }
                Some((FromOwner::Failed { reason }, _)) => return Err(io::Error::other(reason)),
                _ => return Err(io::Error::other("the device owner died")),
            }
        }
    }
}

impl BlockNode for UblkNode {
    fn path(&self) -> &str {
        &self.device
    }

    fn abort(&mut self) -> io::Result<()> {
        send(&self.socket, &ToSupervisor::Abort, None)
    }

    fn is_broken(&mut self) -> bool {
        !matches!(self.owner.try_wait(), Ok(None))
    }

    fn is_needed(&self) -> bool {
        is_used(&self.device)
    }
}

impl Drop for UblkNode {
    /// The device owner takes the device away when nobody uses it any longer.
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        let ended = self.owner.wait();
        let number = self.device.strip_prefix("/dev/ublkb").and_then(|number| number.parse().ok());
        if let (false, Some(number)) = (ended.is_ok_and(|status| status.success()), number)
            && let Err(error) = remove(number)
        {
            tracing::error!("{}: {error}", self.device);
        }
    }
}
