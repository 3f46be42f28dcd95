//! An existing interface (veth, bridge port, network card): what arrives on it is received, what is
//! sent goes out on it, through a packet socket per queue.
//!
//! Read first: `packet(7)` and Linux `net/packet/af_packet.c`. Each frame travels behind a
//! virtio-net header ([`crate::virtio_net`]), so super-frames of up to 64 KiB cross with one system
//! call. The kernel's own stack sees the frames as well, unless a program at the interface takes
//! them away from it; frames that the machine itself sends out on the interface are not received.
//!
//! Frames go to the driver past the queueing discipline (`PACKET_QDISC_BYPASS`): programs at tc
//! egress and captures on this machine do not see them, and a queue that is full is told at once.
//! Nor does the kernel cut a super-frame on that way for a driver that takes none: it drops it. So
//! such an interface has no super-frames to be sent ([`Capabilities::tso`]).
//!
//! The kernel spreads flows over the queues of an interface by its symmetric hash
//! (`PACKET_FANOUT_HASH`), which is also how a TAP with as many queues places a flow that it does
//! not know yet. So both directions of a connection have the same queue number on either port.
//!
//! The kernel takes the outermost VLAN tag out of a received frame; it is put back. To be sent,
//! tags are part of the frame.
//!
//! Everything hangs on the file descriptors: when the last process that holds one closes it or
//! ends, the interface is as before.
//!
//! Short frames come through a ring in shared memory, long ones through the socket's queue
//! (`ring.rs`); short ones are sent several at a time (`stage.rs`).
//!
//! Deliberately absent: `TPACKET_V3`, which holds frames back until a block is full or a timer of 1
//! ms ends, and rings to send from, which take no gather lists.

mod batch;
mod config;
mod note;
mod open;
mod options;
mod ring;
mod stage;

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use arrayvec::ArrayVec;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd, writev};
use rustix::net::netdevice::index_to_name;

pub use self::config::{PacketConfig, PacketError, Reception};
pub use self::options::mtu;

use self::batch::{BATCH_FRAMES_MAX, receive_batch};
use self::config::{QUEUES_MAX, step};
use self::note::{HEADER_BYTES, Note};
use self::open::{MEMBERSHIP, become_member, join_fanout, open_idle, open_refusing};
use self::ring::{Ring, Waiting};
use self::stage::Stage;
use crate::frame::{Burst, ETHERNET_HEADER_BYTES, FRAME_BYTES_MAX, FrameBuf, Offload};
use crate::gather::{PARTS_MAX, SendError};
use crate::port::{Capabilities, Port};
use crate::virtio_net::{VIRTIO_NET_HEADER_BYTES, decode_header, encode_header};

/// Bytes of an interface name with its terminating zero (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;
/// What VLAN tags may add to a frame of the interface's MTU.
const VLAN_TAGS_BYTES: usize = 8;
// The header is in the machine's byte order here, and the codec's is little-endian.
const _: () =
    assert!(cfg!(target_endian = "little"), "packet sockets need a little-endian machine");

/// One queue of an existing interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    interface: String,
    capabilities: Capabilities,
    ring: Ring,
    stage: Stage,
    /// Calls of [`Port::receive`], modulo 2^32.
    receives: u32,
    is_gone: bool,
    /// Frames that were malformed.
    malformed: u64,
    /// Frames that found no room, as far as known.
    overflowed: u64,
    /// Frames that were staged and then not taken by the kernel.
    send_dropped: u64,
}

/// Receives between two looks at what costs a system call: errors and drops.
const RECEIVES_PER_LOOK: u32 = 256;

impl PacketSocket {
    /// Opens `queue_count` sockets on the interface, which is in the network namespace of the
    /// calling thread. No frame is received twice or on the wrong queue, from the first one on. The
    /// interface may be down.
    ///
    /// # Errors
    /// See [`PacketError`]; then nothing is left behind.
    pub fn open(
        interface: &str,
        queue_count: usize,
        config: &PacketConfig<'_>,
    ) -> Result<Vec<Self>, PacketError> {
        if !(1..NAME_BYTES).contains(&interface.len()) || interface.contains(['/', '\0']) {
            return Err(PacketError::BadName(interface.to_owned()));
        }
        if !(1..=QUEUES_MAX).contains(&queue_count) {
            return Err(PacketError::QueueCount(queue_count));
        }
        let mut sockets = Vec::with_capacity(queue_count);
        let mut fanout = None;
        for _ in 0..queue_count {
            let fd = open_refusing(interface, config)?;
            if queue_count > 1 {
                fanout = Some(join_fanout(fd.as_fd(), fanout, config.queue)?);
            }
            sockets.push(Self::from_owned_fd(fd)?);
        }
        for socket in &sockets {
            socket.set_filter(config.filter).map_err(step("setting the socket's filter"))?;
        }
        Ok(sockets)
    }

    /// A descriptor that keeps an interface receiving such frames as long as it is open, and that
    /// receives none itself.
    ///
    /// # Errors
    /// See [`PacketError`].
    pub fn listen(interface: &str, reception: Reception<'_>) -> Result<OwnedFd, PacketError> {
        let (fd, index) = open_idle(interface)?;
        become_member(fd.as_fd(), index, reception).map_err(step(MEMBERSHIP))?;
        Ok(fd)
    }

    /// Takes over an open socket, e.g. one that came over a Unix socket.
    ///
    /// # Errors
    /// [`PacketError::NotAPacketSocket`] if it is something else, [`PacketError::Gone`] if its
    /// interface is, or an error of the kernel; the file descriptor is closed.
    pub fn from_owned_fd(fd: OwnedFd) -> Result<Self, PacketError> {
        let interface = interface_of(fd.as_fd())?;
        fcntl_getfl(&fd)
            .and_then(|flags| fcntl_setfl(&fd, flags | OFlags::NONBLOCK))
            .map_err(|errno| step("making the packet socket non-blocking")(errno.into()))?;
        let ring = Ring::map(fd.as_fd()).map_err(step("mapping the socket's ring"))?;
        let mtu = options::mtu(&fd, &interface).map_err(step("asking for the interface's MTU"))?;
        // With virtio-net headers the kernel takes partial checksums whatever the driver can: it
        // completes them itself.
        let capabilities = Capabilities {
            checksum: true,
            tso: options::takes_super_frames(&fd, &interface).unwrap_or(false),
            uso: knows_uso(),
            frame_bytes_max: frame_bytes_max(mtu),
        };
        Ok(Self {
            fd,
            interface,
            capabilities,
            ring,
            stage: Stage::new(),
            receives: 0,
            is_gone: false,
            malformed: 0,
            overflowed: 0,
            send_dropped: 0,
        })
    }

    /// Takes over a socket that the parent process left open under `number`, after
    /// [`keep_across_exec`](PacketSocket::keep_across_exec). It is used through a duplicate; the
    /// number itself stays open as long as this process lives, but is not handed down to children.
    ///
    /// # Errors
    /// [`PacketError::NotAPacketSocket`] if nothing, or something else, is open there; that is left
    /// alone.
    #[allow(unsafe_code)]
    pub fn inherit(number: RawFd) -> Result<Self, PacketError> {
        if number < 0 {
            return Err(PacketError::NotAPacketSocket(number));
        }
        // SAFETY: the number is not -1, and is only used for calls that answer EBADF or ENOTSOCK if
        // it is not an open socket. Nothing is closed through it, so an owner elsewhere in the
        // process keeps what it has.
        let inherited = unsafe { BorrowedFd::borrow_raw(number) };
        interface_of(inherited)?;
        let failed = |errno: Errno| step("taking over the inherited packet socket")(errno.into());
        let fd = fcntl_dupfd_cloexec(inherited, 3).map_err(failed)?;
        fcntl_getfd(inherited)
            .and_then(|flags| fcntl_setfd(inherited, flags | FdFlags::CLOEXEC))
            .map_err(failed)?;
        Self::from_owned_fd(fd)
    }

    /// Makes the socket survive `exec` in every child that is started from now on, under the number
    /// that is returned (to be told to the child, which calls [`inherit`](PacketSocket::inherit)).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn keep_across_exec(&self) -> io::Result<RawFd> {
        let flags = fcntl_getfd(&self.fd)?;
        fcntl_setfd(&self.fd, flags - FdFlags::CLOEXEC)?;
        Ok(self.fd.as_raw_fd())
    }

    /// Replaces the filter that says which frames are received (an eBPF socket filter), or removes
    /// it. What waits already stays.
    ///
    /// # Errors
    /// What the kernel says, e.g. that this is not such a program.
    pub fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
        options::set_filter(&self.fd, program)
    }

    /// Name of the interface at the time the socket was opened.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Frames that found no room because too many waited to be received, as far as known: the
    /// kernel is asked now and then. They are part of [`Port::receive_dropped`].
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// What costs a system call, now and then.
    fn look(&mut self) -> io::Result<()> {
        self.overflowed += ring::take_drops(&self.fd)?;
        // That the interface has gone down is not an error, frames come again when it is up; but
        // the socket polls readable until it has told. It may also be gone for good.
        let _ = rustix::net::sockopt::socket_error(&self.fd)?;
        self.is_gone = options::bound(&self.fd)?.interface <= 0;
        if let Ok(mtu) = options::mtu(&self.fd, &self.interface) {
            self.capabilities.frame_bytes_max = frame_bytes_max(mtu);
        }
        if let Ok(takes) = options::takes_super_frames(&self.fd, &self.interface) {
            self.capabilities.tso = takes;
        }
        Ok(())
    }

    fn gone(&self) -> io::Error {
        io::Error::new(io::ErrorKind::NotConnected, PacketError::Gone(self.interface.clone()))
    }

    /// Receives as many frames from the socket's queue as there are buffers; tells how many are
    /// good. Those are the first ones.
    fn receive_queued(&mut self, frames: &mut [FrameBuf]) -> usize {
        let (mut notes, mut kept, mut left) = (ArrayVec::new(), 0, frames.len());
        let mut is_stale = true;
        while left > 0 {
            let free = &mut frames[kept..kept + left];
            match receive_batch(self.fd.as_fd(), free, &mut notes) {
                Ok(()) if !notes.is_empty() => {}
                // It has been read already, see `receive`.
                Ok(()) | Err(Errno::AGAIN) => break,
                // The first time this may be about an earlier moment: the socket keeps it until it
                // is told.
                Err(Errno::NETDOWN) if is_stale => is_stale = false,
                Err(Errno::INTR) => {}
                // A frame that virtio-net headers cannot describe, such as a super-frame inside of
                // a tunnel, is gone.
                Err(_) => {
                    self.malformed += 1;
                    left -= 1;
                }
            }
            let first = kept;
            for (at, note) in notes.iter().enumerate() {
                if self.accept(&mut frames[first + at], note) {
                    frames.swap(first + at, kept);
                    kept += 1;
                }
            }
            left -= notes.len();
        }
        kept
    }

    /// Makes what was read into a buffer a frame, or counts why not.
    fn accept(&mut self, frame: &mut FrameBuf, note: &Note) -> bool {
        if note.is_truncated {
            // The queue was full, or it is longer than any frame.
            self.overflowed += 1;
            return false;
        }
        let is_good = decode(frame, note).is_some();
        self.malformed += u64::from(!is_good);
        is_good
    }

    /// What a reader does that is killed at the wrong moment: gives slots back and leaves their
    /// frames in the queue.
    #[cfg(test)]
    pub(crate) fn forget_queued(&mut self) -> usize {
        match self.ring.waiting(BATCH_FRAMES_MAX) {
            Waiting::Queued(slots) => {
                self.ring.skip(slots);
                slots
            }
            _ => 0,
        }
    }

    fn send_staged(&mut self) {
        if !self.stage.is_empty() {
            self.send_dropped += self.stage.send(self.fd.as_fd()) as u64;
        }
    }
}

/// Most bytes of a frame that is not a super-frame, on an interface with this MTU.
fn frame_bytes_max(mtu: usize) -> usize {
    FRAME_BYTES_MAX.min(mtu + ETHERNET_HEADER_BYTES)
}

fn decode(frame: &mut FrameBuf, note: &Note) -> Option<()> {
    let len = note.len.checked_sub(HEADER_BYTES).filter(|len| *len <= FRAME_BYTES_MAX)?;
    frame.set_len(len);
    let mut header = [0; VIRTIO_NET_HEADER_BYTES];
    header[..HEADER_BYTES].copy_from_slice(&frame.headroom::<HEADER_BYTES>());
    frame.set_offload(decode_header(&header, frame.data()).ok()?);
    note.vlan_tag.map_or(Some(()), |tag| frame.insert_vlan_tag(tag))
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<PacketSocket> for OwnedFd {
    fn from(socket: PacketSocket) -> Self {
        socket.fd
    }
}

impl Port for PacketSocket {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        self.receives = self.receives.wrapping_add(1);
        let is_time = self.receives.is_multiple_of(RECEIVES_PER_LOOK);
        if is_time {
            self.look()?;
        }
        if self.is_gone {
            return Err(self.gone());
        }
        let capacity = burst.capacity();
        let mut kept = 0;
        // As many steps as frames are wanted, so a flood of malformed frames cannot keep us
        // here.
        for _ in 0..capacity {
            let free = &mut burst.buffers_mut()[kept..];
            match self.ring.waiting(free.len().min(BATCH_FRAMES_MAX)) {
                Waiting::Nothing => {
                    // A reader that was killed may have left frames in the queue whose slots it had
                    // given back.
                    if is_time {
                        let free = free.len().min(BATCH_FRAMES_MAX);
                        kept += self.receive_queued(&mut burst.buffers_mut()[kept..kept + free]);
                    }
                    break;
                }
                Waiting::Frame => {
                    let Some(frame) = free.first_mut() else { break };
                    let note = self.ring.take(frame);
                    kept += usize::from(self.accept(frame, &note));
                }
                Waiting::Queued(frames) => {
                    let Some(free) = free.get_mut(..frames) else { break };
                    self.ring.skip(frames);
                    kept += self.receive_queued(free);
                }
            }
        }
        burst.set_len(kept);
        Ok(kept)
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let frame_len = self.capabilities.check(parts, &offload)?;
        let header = encode_header(&offload, frame_len).map_err(|_| SendError::Invalid)?;
        let mut list = ArrayVec::<_, { 1 + PARTS_MAX }>::new();
        list.push(IoSlice::new(&header[..HEADER_BYTES]));
        list.extend(parts.iter().copied());
        if Stage::fits(HEADER_BYTES + frame_len) {
            if frame_len > self.capabilities.frame_bytes_max + VLAN_TAGS_BYTES
                && offload.gso.is_none()
            {
                return Err(SendError::TooLong);
            }
            self.stage.push(&list);
            if self.stage.is_full() {
                self.send_staged();
            }
            return Ok(());
        }
        // In the order in which they were given.
        self.send_staged();
        let mut is_stale = true;
        loop {
            return match writev(&self.fd, &list) {
                // A packet socket takes a frame whole or not at all.
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                // The first time this may be about an earlier moment: the socket keeps it until it
                // is told.
                Err(Errno::NETDOWN) if is_stale => {
                    is_stale = false;
                    continue;
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Err(SendError::Full),
                Err(Errno::MSGSIZE) => Err(SendError::TooLong),
                Err(Errno::INVAL) => Err(SendError::Invalid),
                Err(errno) => Err(SendError::Io(errno.into())),
            };
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_staged();
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn receive_dropped(&self) -> u64 {
        self.malformed + self.overflowed
    }

    fn send_dropped(&self) -> u64 {
        self.send_dropped
    }
}

/// The name of the interface that a socket is bound to.
fn interface_of(fd: BorrowedFd<'_>) -> Result<String, PacketError> {
    let refused = || PacketError::NotAPacketSocket(fd.as_raw_fd());
    let option = |level, name| options::get::<c_int>(fd, level, name).unwrap_or(-1);
    if option(libc::SOL_SOCKET, libc::SO_DOMAIN) != libc::AF_PACKET
        || option(libc::SOL_SOCKET, libc::SO_TYPE) != libc::SOCK_RAW
        || option(libc::SOL_PACKET, libc::PACKET_VNET_HDR) != 1
        || !ring::is_prepared(fd)
    {
        return Err(refused());
    }
    match options::bound(fd).map_err(|_| refused())?.interface {
        0 => Err(refused()),
        index => {
            let name = u32::try_from(index).ok().and_then(|index| index_to_name(fd, index).ok());
            name.ok_or_else(|| PacketError::Gone("that the socket was bound to".into()))
        }
    }
}

/// Whether packet sockets take UDP super-frames: Linux 6.2 and newer, which cannot be asked
/// otherwise.
fn knows_uso() -> bool {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_counts_are_checked_before_the_kernel_is_asked() {
        let open = |name: &str, count| PacketSocket::open(name, count, &PacketConfig::default());
        for name in ["", "a/b", "sixteen-bytes-xx", "nul\0"] {
            assert!(matches!(open(name, 1), Err(PacketError::BadName(_))), "{name:?}");
        }
        for count in [0, 257] {
            assert!(matches!(open("ok", count), Err(PacketError::QueueCount(_))));
        }
    }

    #[test]
    fn other_files_are_not_packet_sockets() {
        let (socket, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        for fd in [std::fs::File::open("/dev/null").unwrap().into(), OwnedFd::from(socket)] {
            let number = fd.as_raw_fd();
            assert!(matches!(PacketSocket::inherit(number), Err(PacketError::NotAPacketSocket(_))));
            assert!(fcntl_getfd(&fd).is_ok(), "inherit must not close what it refuses");
            assert!(matches!(
                PacketSocket::from_owned_fd(fd),
                Err(PacketError::NotAPacketSocket(_))
            ));
        }
        assert!(matches!(PacketSocket::inherit(-1), Err(PacketError::NotAPacketSocket(-1))));
        assert!(matches!(PacketSocket::inherit(1 << 20), Err(PacketError::NotAPacketSocket(_))));
    }
}
