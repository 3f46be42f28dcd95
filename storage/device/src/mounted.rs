//! The server's side: it serves the device, and has the root of the file system.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nicache_initiator::LunError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socketpair};
use rustix::process::configure_io_flusher_behavior;
use thiserror::Error;

use crate::blocks::Blocks;
use crate::fuse_file;
use crate::isolation::isolate_descriptors;
use crate::protocol::{ToServer, ToSupervisor, receive, send};
use crate::superblock::{Superblock, Unsuitable};
use crate::transport::Transport;
use crate::ublk::server::UblkServer;

/// How a unit is mounted.
#[derive(Debug)]
pub struct MountOptions {
    /// Makes a new file system, if the unit is empty. If it is not, nothing is touched.
    pub mkfs: bool,
    /// Which device the file system is on.
    pub transport: Transport,
    /// Threads that answer the device.
    pub threads: usize,
    /// The program that calls [`supervise`](crate::supervise) and nothing else; its standard input
    /// is taken.
    pub supervisor: Command,
    /// How long an unmount may take.
    pub unmount_max: Duration,
}

/// Why a unit is not mounted.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The target failed.
    #[error(transparent)]
    Lun(#[from] LunError),
    /// What is on the unit cannot be served.
    #[error("{name}: {reason}")]
    Unsuitable {
        /// The unit.
        name: String,
        /// Why it cannot be served.
        reason: Unsuitable,
    },
    /// A new file system was asked for, and there is something on the unit.
    #[error("{name} is not empty ({found}): no file system is made on it")]
    NotEmpty {
        /// The unit.
        name: String,
        /// What is there.
        found: String,
    },
    /// The kernel or the supervisor refused.
    #[error("{name}: {reason}")]
    Refused {
        /// The unit.
        name: String,
        /// Why it was refused.
        reason: String,
    },
    /// The file system could not be unmounted.
    #[error(
        "{name} is not unmounted after {waited_s} s: a file on it is open, or the target does not answer"
    )]
    Busy {
        /// The unit.
        name: String,
        /// How long, in seconds.
        waited_s: u64,
    },
}

/// A mounted unit. Close it with [`Mounted::close`]; dropping it does the same and tells nobody
/// about errors.
#[derive(Debug)]
pub struct Mounted {
    name: String,
    device: String,
    socket: OwnedFd,
    /// The mount, which is gone when nobody has a copy of this, and its root as a folder.
    root: Option<(OwnedFd, OwnedFd)>,
    supervisor: Child,
    server: Option<JoinHandle<io::Result<()>>>,
    /// Behind a lock only so the mount can be shared between threads.
    served: Mutex<Receiver<()>>,
    unmount_max: Duration,
}

impl Mounted {
    /// Looks at the unit, makes the device, and mounts the file system on it privately.
    pub fn open(blocks: Arc<dyn Blocks>, mut options: MountOptions) -> Result<Self, DeviceError> {
        let name = blocks.name().to_owned();
        inspect(&*blocks, options.mkfs)?;
        let refused = |reason: String| DeviceError::Refused { name: name.clone(), reason };
        let io_refused = |error: io::Error| refused(error.to_string());
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|e| io_refused(e.into()))?;
        let mut supervisor = options
            .supervisor
            .stdin(Stdio::from(theirs))
            .spawn()
            .map_err(|e| refused(format!("supervisor: {e}")))?;
        // The command keeps its copy of the socket, whose end is to be noticed.
        drop(options.supervisor);
        let begin = Begin { mkfs: options.mkfs, transport: options.transport };
        let begun = begin.run(&socket, blocks, options.threads);
        let (device, mount, server, served) = begun.map_err(|reason| {
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
            let _ = supervisor.wait();
            refused(reason)
        })?;
        let root = open_folder(&mount).map_err(|error| refused(format!("root: {error}")))?;
        let (root, server, unmount_max) = (Some((mount, root)), Some(server), options.unmount_max);
        Ok(Self {
            name,
            device,
            socket,
            root,
            supervisor,
            server,
            served: Mutex::new(served),
            unmount_max,
        })
    }

    /// The root of the file system, an open folder. Copies of it, and files below, keep it mounted.
    pub fn root(&self) -> BorrowedFd<'_> {
        match &self.root {
            Some((_, root)) => root.as_fd(),
            // Only `close` takes it, and that takes `self`.
            None => self.socket.as_fd(),
        }
    }

    /// The block device's file, for messages.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The supervisor's process.
    pub fn supervisor_id(&self) -> u32 {
        self.supervisor.id()
    }

    /// Whether the supervisor is there. If it is not, the server should close the device soon:
    /// nobody would clean up after it.
    pub fn is_supervised(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        !fds[0].revents().contains(PollFlags::HUP)
    }

    /// Unmounts: everything is written and durable, or this says what is not so. The caller has
    /// closed every file before.
    pub fn close(mut self) -> Result<(), DeviceError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DeviceError> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let mut failed = None;
        if let Some((_mount, root)) = self.root.take() {
            // The last moment at which the kernel tells of data that it could not write.
            if let Err(error) = rustix::fs::syncfs(&root) {
                failed = Some(format!("the last writes failed: {error}"));
            }
        }
        let _ = send(&self.socket, &ToSupervisor::End, None);
        let served = self.served.get_mut().unwrap_or_else(PoisonError::into_inner);
        match served.recv_timeout(self.unmount_max) {
            Err(RecvTimeoutError::Timeout) => {
                // The supervisor notices, and aborts.
                let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
                let waited_s = self.unmount_max.as_secs();
                return Err(DeviceError::Busy { name: self.name.clone(), waited_s });
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
        }
        if let Ok(Err(error)) = server.join() {
            failed.get_or_insert_with(|| error.to_string());
        }
        let _ = self.supervisor.wait();
        failed
            .map_or(Ok(()), |reason| Err(DeviceError::Refused { name: self.name.clone(), reason }))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!("{error}");
        }
    }
}

/// Refuses what cannot be served, before the kernel sees it.
fn inspect(blocks: &dyn Blocks, mkfs: bool) -> Result<(), DeviceError> {
    let name = blocks.name().to_owned();
    let mut head = vec![0; (1 << 20).min(blocks.capacity_bytes() as usize)];
    blocks.read(0, &mut head)?;
    if mkfs {
        // The end, too: that is where some kinds of RAID and partition tables keep theirs.
        let mut tail = vec![0; head.len()];
        blocks.read(blocks.capacity_bytes() - tail.len() as u64, &mut tail)?;
        if head.iter().chain(&tail).all(|byte| *byte == 0) {
            return Ok(());
        }
        let found = match Superblock::parse(&head) {
            Ok(_) => "an ext4 file system".to_owned(),
            Err(reason) => {
                format!("its first or last {} KiB are not zeroes; {reason}", head.len() >> 10)
            }
        };
        return Err(DeviceError::NotEmpty { name, found });
    }
    let capacity_bytes = blocks.capacity_bytes();
    let suitable = Superblock::parse(&head).and_then(|superblock| superblock.check(capacity_bytes));
    suitable.map_err(|reason| DeviceError::Unsuitable { name, reason })
}

/// A mount's descriptor alone opens no handles (O_PATH).
fn open_folder(mount: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(mount, ".", flags, Mode::empty())?)
}

type Begun = (String, OwnedFd, JoinHandle<io::Result<()>>, Receiver<()>);

/// What the supervisor is asked for.
struct Begin {
    mkfs: bool,
    transport: Transport,
}

/// What the device's requests come by.
enum Connection {
    Fuse(OwnedFd),
    Ublk(UblkServer),
}

impl Begin {
    fn run(
        &self,
        socket: &OwnedFd,
        blocks: Arc<dyn Blocks>,
        threads: usize,
    ) -> Result<Begun, String> {
        let text = |error: io::Error| error.to_string();
        let (mkfs, transport) = (self.mkfs, self.transport);
        let capacity_bytes = blocks.capacity_bytes();
        send(socket, &ToSupervisor::Begin { mkfs, transport, capacity_bytes }, None)
            .map_err(text)?;
        let number = socket.as_raw_fd();
        let (ended, served) = channel();
        let (connected, connection) = sync_channel(1);
        let server = std::thread::Builder::new()
            .name("device".to_owned())
            .spawn(move || {
                let result = connect(number, &*blocks).and_then(|connection| {
                    let _ = connected.send(());
                    match connection {
                        Connection::Fuse(fuse) => fuse_file::serve(blocks, fuse, threads),
                        Connection::Ublk(server) => server.serve(&*blocks, threads),
                    }
                });
                drop(connected);
                let _ = ended.send(());
                result
            })
            .map_err(text)?;
        if connection.recv().is_err() {
            return Err(reason_of(server));
        }
        match receive(socket).map_err(text)? {
            Some((ToServer::Mounted { device }, Some(root))) => Ok((device, root, server, served)),
            Some((ToServer::Failed { reason }, _)) => Err(reason),
            _ if server.is_finished() => Err(reason_of(server)),
            _ => Err("the supervisor died".to_owned()),
        }
    }
}

fn reason_of(server: JoinHandle<io::Result<()>>) -> String {
    match server.join() {
        Ok(Err(error)) => error.to_string(),
        _ => "the device's thread died".to_owned(),
    }
}

/// Receives the FUSE connection, or what leads to a ublk device, into a table of descriptors that
/// only the threads of the device have.
fn connect(socket: RawFd, blocks: &dyn Blocks) -> io::Result<Connection> {
    // When memory is short, the kernel must not make these threads write to the device that they
    // answer. Threads that this one starts inherit it. Not everywhere permitted.
    if let Err(error) = configure_io_flusher_behavior(true) {
        tracing::debug!("PR_SET_IO_FLUSHER: {error}");
    }
    let mut keep = blocks.descriptors();
    keep.push(socket);
    isolate_descriptors(&keep)?;
    // SAFETY: the table that this thread has had since the last line has a copy of its own of the
    // socket, which nothing else here owns.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    match receive(&socket)? {
        Some((ToServer::Serve, Some(fuse))) => Ok(Connection::Fuse(fuse)),
        Some((ToServer::ServeUblk, Some(requests))) => match receive(&socket)? {
            Some((ToServer::Memory, Some(memory))) => {
                Ok(Connection::Ublk(UblkServer::new(requests, &memory)?))
            }
            _ => Err(io::Error::other("the supervisor died")),
        },
        Some((ToServer::Failed { reason }, _)) => Err(io::Error::other(reason)),
        _ => Err(io::Error::other("the supervisor died")),
    }
}
