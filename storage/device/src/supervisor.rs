//! The process that owns device and mount, and outlives the server.
//!
//! It holds no keys and no data. When the server ends in order, it unmounts while the server still
//! answers; when the server dies, it aborts the connection first, so nothing waits for an
//! answer that never comes.
//!
//! A killed server may never end: a thread of it that waits for a page, in the kernel, waits for
//! the server itself. It holds every descriptor, so neither the socket nor the FUSE connection
//! closes. So the supervisor also looks whether its parent is being killed.

use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::detached;
use crate::node::{BlockNode, LoopOverFuse};
use crate::protocol::{FromOwner, ToServer, ToSupervisor, receive, send};
use crate::superblock::Superblock;
use crate::transport::Transport;
use crate::ublk::control::is_usable;
use crate::ublk::node::UblkNode;
use crate::ublk::owner::own;

/// How often it is looked whether a file system is unmounted.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Is the supervisor: standard input is the socket to the server. Returns when device and mount are
/// gone. A supervisor may start this program again, with the same arguments, as the owner of a ublk
/// device.
pub fn supervise() -> io::Result<()> {
    // The server decides when it is time: a signal from the terminal goes to both.
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    let _ = rustix::process::setsid();
    let server = rustix::process::getppid();
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let (mkfs, transport, capacity_bytes) = match receive(&socket)? {
        Some((ToSupervisor::Begin { mkfs, transport, capacity_bytes }, _)) => {
            (mkfs, transport, capacity_bytes)
        }
        Some((ToSupervisor::Own { capacity_bytes }, _)) => {
            return own(&socket, capacity_bytes).inspect_err(|error| {
                let _ = send(&socket, &FromOwner::Failed { reason: error.to_string() }, None);
            });
        }
        _ => return Ok(()),
    };
    let (mut node, root) = match begin(&socket, mkfs, transport, capacity_bytes) {
        Ok(begun) => begun,
        Err(reason) => {
            let _ = send(&socket, &ToServer::Failed { reason }, None);
            return Ok(());
        }
    };
    let device = node.path().to_owned();
    let is_told =
        send(&socket, &ToServer::Mounted { device: device.clone() }, Some(root.as_fd())).is_ok();
    let in_order = is_told && wait_for_end(&socket, server, &mut *node);
    if !in_order {
        tracing::error!("the server of {device} died: its device is taken away");
        if let Err(error) = node.abort() {
            tracing::error!("{device}: abort: {error}");
        }
    }
    // Unmounts before it returns, while the server or the abort answers.
    drop(root);
    while in_order && node.is_needed() {
        if is_alone(&socket, server, LOOK_AGAIN) {
            let _ = node.abort();
            break;
        }
    }
    drop(node);
    if in_order {
        let _ = send(&socket, &ToServer::Ended, None);
    }
    Ok(())
}

/// Whether within that time nobody is at the other end any longer, or somebody says something
/// before it is time.
fn is_alone(socket: &OwnedFd, server: Option<Pid>, within: Duration) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let within = Timespec::try_from(within).unwrap_or_default();
    !matches!(poll(&mut fds, Some(&within)), Ok(0) | Err(rustix::io::Errno::INTR))
        || is_dying(server)
}

/// Waits for the server's word (true) or its death, or that of what is in between (false).
fn wait_for_end(socket: &OwnedFd, server: Option<Pid>, node: &mut dyn BlockNode) -> bool {
    let pause = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, Some(&pause)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            _ => return matches!(receive(socket), Ok(Some((ToSupervisor::End, _)))),
        }
        if is_dying(server) || node.is_broken() {
            return false;
        }
    }
}

/// Whether the parent is not the server any longer, its first thread has ended, or that was told to
/// end at once.
fn is_dying(server: Option<Pid>) -> bool {
    let parent = rustix::process::getppid();
    let Some(parent) = parent.filter(|_| parent == server) else { return true };
    let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", parent.as_raw_nonzero()))
    else {
        return true;
    };
    is_dying_status(&status)
}

/// `/proc/PID/status`: a zombie, or SIGKILL pending (proc(5)).
fn is_dying_status(status: &str) -> bool {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default()
    };
    let has_kill = |name: &str| {
        u64::from_str_radix(field(name), 16).is_ok_and(|set| set & (1 << (libc::SIGKILL - 1)) != 0)
    };
    field("State:").starts_with(['Z', 'X']) || has_kill("SigPnd:") || has_kill("ShdPnd:")
}

type Begun = (Box<dyn BlockNode>, OwnedFd);

fn begin(
    socket: &OwnedFd,
    mkfs: bool,
    transport: Transport,
    capacity_bytes: u64,
) -> Result<Begun, String> {
    let mut node = make_node(socket, transport, capacity_bytes)?;
    let mounted = make_and_mount(node.path(), mkfs);
    let root = mounted.inspect_err(|_| {
        let _ = node.abort();
    })?;
    Ok((node, root))
}

fn make_node(
    socket: &OwnedFd,
    transport: Transport,
    capacity_bytes: u64,
) -> Result<Box<dyn BlockNode>, String> {
    let is_ublk = match transport {
        Transport::Loop => false,
        // If it cannot be had, there is an error that says why.
        Transport::Ublk => true,
        Transport::Auto => is_usable()
            .inspect_err(|error| tracing::debug!("no ublk device, so a loop device: {error}"))
            .is_ok(),
    };
    if is_ublk {
        let node = UblkNode::start(socket, capacity_bytes);
        return Ok(Box::new(node.map_err(|error| format!("ublk device: {error}"))?));
    }
    let (connection, unserved) =
        LoopOverFuse::prepare().map_err(|error| format!("FUSE: {error}"))?;
    send(socket, &ToServer::Serve, Some(connection.as_fd())).map_err(|error| error.to_string())?;
    // If this process kept it, the server's death would not end the connection.
    drop(connection);
    Ok(Box::new(unserved.attach().map_err(|error| format!("loop device: {error}"))?))
}

fn make_and_mount(device: &str, mkfs: bool) -> Result<OwnedFd, String> {
    if mkfs {
        let output = Command::new("mkfs.ext4")
            .args([
                "-q",
                "-F",
                "-b",
                "4096",
                "-E",
                "nodiscard",
                "-O",
                "has_journal,^inline_data,^encrypt,^verity",
                device,
            ])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("mkfs.ext4: {error}"))?;
        if !output.status.success() {
            return Err(format!("mkfs.ext4: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        check(device)?;
    }
    detached::ext4(device).map_err(|error| format!("mount: {error}"))
}

/// What mkfs.ext4 makes depends on the unit's size and on mke2fs.conf, too.
fn check(device: &str) -> Result<(), String> {
    let text = |error: io::Error| format!("{device}: {error}");
    let mut device = std::fs::File::open(device).map_err(text)?;
    let mut head = [0; 2048];
    device.read_exact(&mut head).map_err(text)?;
    let capacity_bytes = device.seek(io::SeekFrom::End(0)).map_err(text)?;
    let suitable = Superblock::parse(&head).and_then(|superblock| superblock.check(capacity_bytes));
    suitable.map_err(|reason| format!("mkfs.ext4 made what cannot be served: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::is_dying_status;

    #[test]
    fn the_dying_are_known_by_their_status() {
        let status = |state: &str, own: &str, shared: &str| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t{own}\nShdPnd:\t{shared}\n")
        };
        assert!(!is_dying_status(&status("S (sleeping)", "0000000000000000", "0000000000000000")));
        assert!(!is_dying_status(&status(
            "D (disk sleep)",
            "0000000000000000",
            "0000000000004002"
        )));
        assert!(is_dying_status(&status("D (disk sleep)", "0000000000000100", "0000000000000000")));
        assert!(is_dying_status(&status("S (sleeping)", "0000000000000000", "0000000000000100")));
        assert!(is_dying_status(&status("Z (zombie)", "0000000000000000", "0000000000000000")));
        assert!(!is_dying_status(&std::fs::read_to_string("/proc/self/status").unwrap()));
    }
}
