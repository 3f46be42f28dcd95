//! What a child process is given at its start, and how.
//!
//! A child's standard input is one end of a `SOCK_SEQPACKET` pair whose other end the supervisor
//! holds. The first message on it is the child's setup: JSON, with open files attached
//! (`SCM_RIGHTS`). Afterwards the card speaks [`crate::control`] on the same socket. The end of the
//! socket means that the supervisor is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nicache_xdp::CardPort;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::options::{
    ClientLimits, HandshakeKind, LogFormat, PathOptions, PolicyKind, Rechecks, RemoteDatabase,
};

/// Longest message on a child's socket, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 128 * 1024;
/// Most open files attached to one message (the kernel's own limit is 253).
pub(crate) const FILES_MAX: usize = 200;
/// How long the server, and the programs beside it, may take to end by themselves.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Between whom the card's own requests go.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RecheckAddresses {
    /// The card's own client.
    pub own: Ipv4Addr,
    /// Where the card's own client asks what clients of a proxy on this machine ask: the address
    /// from which such a proxy connects.
    pub proxy: Ipv4Addr,
    /// The server.
    pub server: Ipv4Addr,
}

/// Setup of the card. Attached, in this order: the files of its ports ([`PortsSetup`]), the ledger
/// of connections ([`crate::engine::SharedLedger`]), and if there are any `witness_files`, a socket
/// to the watcher (`SOCK_SEQPACKET`) and so many files of the kernel witness, as the watcher
/// reported them ([`WatchReport::files`]).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CardSetup {
    /// Form of log lines.
    pub log_format: LogFormat,
    /// Between what it stands.
    pub ports: PortsSetup,
    /// Bytes of an IP packet on the wire at most.
    pub mtu: u32,
    /// Queues of either port.
    pub queues: u16,
    /// Bytes of card memory.
    pub memory_bytes: u64,
    /// Replacement policy.
    pub policy: PolicyKind,
    /// Who completes handshakes.
    pub handshake: HandshakeKind,
    /// How many clients there may be, and how long they may take their time.
    #[serde(default)]
    pub clients: ClientLimits,
    /// Service ports.
    pub http_ports: Vec<u16>,
    /// Addresses of the card's own client and of the server; `None`: the card has no way to ask the
    /// server by itself.
    pub rechecker: Option<RecheckAddresses>,
    /// How old what nobody can see may be in a reply.
    pub rechecks: Rechecks,
    /// Capture file.
    pub pcap: Option<PathBuf>,
    /// What resources are hashed with, so a request that changes one counts at each card of
    /// the server; `None`: at this card alone.
    #[serde(default)]
    pub resource_secret: Option<[u8; 16]>,
    /// Whether every request goes to the server (`nicache bypass on`).
    #[serde(default)]
    pub bypass: bool,
    /// Whether to send access records.
    pub access_log: bool,
    /// Whether small hits are answered before the card.
    pub l0: bool,
    /// Whether the card's replies carry Cache-Status.
    pub cache_status: bool,
    /// Cookies that no reply depends on.
    pub ignore_cookies: Vec<String>,
    /// Headers that no reply depends on.
    pub ignore_headers: Vec<String>,
    /// Headers that always separate replies.
    pub vary: Vec<String>,
    /// Settings for some paths.
    pub paths: Vec<PathOptions>,
    /// Number of files of the kernel witness; 0: there is none, so the lease counts as expired and
    /// nothing is cached.
    pub witness_files: usize,
}

/// The two ports of a card.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PortsSetup {
    /// TAPs. Attached: `queues` queues toward the clients, `queues` toward the server.
    Taps,
    /// Existing interfaces whose frames programs in the kernel steer. Attached: the heartbeat, the
    /// program that chooses a queue of the host's side, then for the wire and for the host a filter
    /// and a map of sockets, then the place of a program before steering, and steering itself
    /// ([`nicache_xdp::SteeringFiles`]). With `probe` also what tells probe frames from others, a
    /// filter for those that leave, what has them come in by the wire and by the host, and with
    /// `has_driver` the XDP program ([`nicache_xdp::ProbeFiles`]).
    Interfaces {
        /// Toward the clients.
        wire: String,
        /// Toward the server. The card is on it by packet sockets.
        host: String,
        /// By what the card is on the wire.
        port: CardPort,
        /// Whether there is an XDP program at the wire, before which another one can be.
        has_driver: bool,
        /// Probe frames are sent first, and what came of it is told
        /// ([`FromCard::Probed`](crate::control::FromCard::Probed)).
        #[serde(default)]
        probe: Option<ProbeSetup>,
    },
}

/// What probe frames need to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProbeSetup {
    /// The server's MAC address, if it is a station on the wire.
    pub station: Option<[u8; 6]>,
}

/// Setup of the watcher. Nothing attached; cards come later
/// ([`ToWatch::ServeCard`](crate::inquiry::ToWatch::ServeCard)).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WatchSetup {
    /// Form of log lines.
    pub log_format: LogFormat,
    /// Inode number of the server's network namespace.
    pub server_netns: u64,
    /// Service ports.
    pub http_ports: Vec<u16>,
    /// Files of sessions.
    pub session_files: Vec<PathBuf>,
    /// Folders of data.
    pub data_folders: Vec<PathBuf>,
    /// Units of systemd whose programs are the server's, with their suffixes.
    pub follow_units: Vec<String>,
    /// Databases on other machines.
    pub remote_databases: Vec<RemoteDatabase>,
    /// Folder for the memory of the preloaded witness; `None`: the kernel is the witness.
    pub preload: Option<PathBuf>,
}

/// The watcher's first message to the supervisor, once it can or cannot watch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WatchReport {
    /// Number of files attached: maps and links of the kernel witness, in an order that only
    /// watcher and card know. The supervisor keeps them open and hands them to the card.
    pub files: usize,
    /// Why nothing can be watched, and what to do about it; then `files` is 0.
    pub unavailable: Option<String>,
    /// What is not kept because this kernel lacks something, each a sentence.
    pub lacks: Vec<String>,
}

/// Setup of the server's first process. Nothing attached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServerSetup {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// The programs to start before it, in this order.
    pub with: Vec<Vec<String>>,
    /// What is added to the environment of the server and of these programs.
    pub environment: Vec<(String, String)>,
}

/// The only message of the server's first process to the supervisor, right before its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum LastWord {
    /// A program beside the server has failed.
    CompanionFailed(CompanionFailure),
    /// The server has ended, and this program beside it (program and arguments) did not when it was
    /// asked to.
    CompanionStays(Vec<String>),
}

/// How a program beside the server ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CompanionFailure {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The program's status as a shell reports it.
    pub status: u8,
}

/// Sends one message with open files attached. Never blocks: a full socket is an error.
pub(crate) fn send_message<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    files: &[BorrowedFd<'_>],
) -> Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES_MAX || files.len() > FILES_MAX {
        bail!("a message of {} bytes and {} files is too large", bytes.len(), files.len());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        bail!("{} files do not fit a message", files.len());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// Receives one message and its files. `None`: the other side is gone.
pub(crate) fn receive_message<T: DeserializeOwned>(
    socket: impl AsFd,
) -> Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(attached) = message {
            files.extend(attached);
        }
    }
    if received.bytes == 0 && files.is_empty() {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        bail!("a message was cut short");
    }
    let message = serde_json::from_slice(&bytes[..received.bytes])
        .context("a message that cannot be read")?;
    Ok(Some((message, files)))
}

/// What the guard is told, and says when it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuardSetup {
    /// Number of the server's network namespace.
    pub server_netns: u64,
}

/// First thing a child does: dies with its parent from now on, takes its setup from standard input,
/// and returns the socket for later messages.
pub(crate) fn child_start<T: DeserializeOwned>(
    name: &std::ffi::CStr,
) -> Result<(T, Vec<OwnedFd>, OwnedFd)> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_name(name)?;
    let hidden = || anyhow!("this command is started by `nicache run` only");
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    if rustix::net::sockopt::socket_type(&socket).map_err(|_| hidden())?
        != rustix::net::SocketType::SEQPACKET
    {
        return Err(hidden());
    }
    let (setup, files) = receive_message(&socket)?.context("the supervisor is gone")?;
    Ok((setup, files, socket))
}

/// Niceness of the watcher: it needs little, but in time. With a hundred busy processes beside it,
/// it would get a hundredth of a CPU, lose what it is told by the kernel, and let its lease end.
pub(crate) const WATCHER_NICENESS: i32 = -19;
/// Niceness of the card, which is to the server what the kernel's own network stack is. While it
/// leaves the server behind, it goes no longer first ([`crate::engine::precedence`]).
pub(crate) const CARD_NICENESS: i32 = -10;

/// Has the scheduler prefer this thread, and those that it starts, if that is allowed.
pub(crate) fn go_first(niceness: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::warn!(
            niceness,
            "not preferred by the scheduler: {error}; under load the card may let requests pass"
        );
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_message_carries_files() {
        let (here, there) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        let setup =
            ServerSetup { argv: vec!["x".into()], with: Vec::new(), environment: Vec::new() };
        send_message(&here, &setup, &[file.as_fd(), file.as_fd()]).unwrap();
        let (setup, files) = receive_message::<ServerSetup>(&there).unwrap().unwrap();
        assert_eq!((setup.argv.len(), files.len()), (1, 2));
        assert_eq!(
            rustix::fs::fstat(&files[1]).unwrap().st_rdev,
            rustix::fs::fstat(&file).unwrap().st_rdev
        );
        drop(here);
        assert!(receive_message::<ServerSetup>(&there).unwrap().is_none());
    }

    #[test]
    fn nonsense_is_an_error() {
        let (here, there) = pair();
        rustix::net::send(&here, b"{", SendFlags::empty()).unwrap();
        assert!(receive_message::<ServerSetup>(&there).is_err());
        let argv = vec!["x".repeat(MESSAGE_BYTES_MAX)];
        assert!(
            send_message(
                &here,
                &ServerSetup { argv, with: Vec::new(), environment: Vec::new() },
                &[]
            )
            .is_err()
        );
    }
}
