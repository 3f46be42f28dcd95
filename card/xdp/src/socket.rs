//! One queue of an interface by AF_XDP: frames go between the driver and memory that is shared with
//! the kernel, past the kernel's stack.
//!
//! Read first: Linux `Documentation/networking/af_xdp.rst`. Which frames arrive is decided by the
//! program at the interface, see [`Steering`](crate::Steering).
//!
//! Best on network cards whose driver has zero-copy, and for small frames. There are no
//! super-frames and no checksums by the hardware: the software fallback
//! ([`nicache_port::send_with_fallback`]) cuts and sums. A frame is copied once on our side, as
//! card memory is not part of the socket's.
//!
//! VLAN tags must be part of the frames: a driver that strips them (`ethtool -k`, rx-vlan-offload)
//! loses them for AF_XDP.

mod ethtool;
mod memory;
mod partial;
mod ring;
mod setup;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;
use libc::{XDP_PKT_CONTD, xdp_desc};
use nicache_port::{
    Burst, Capabilities, ETHERNET_HEADER_BYTES, FRAME_BYTES_MAX, Offload, Port, SendError,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

pub use self::ethtool::Settings;
pub(crate) use self::ethtool::driver;
use self::memory::{CHUNK_BYTES, Chunks, chunk_of};
use self::ring::{FromKernel, ToKernel};
use self::setup::{Opened, dropped, kick, pending_error, wake_receiver};
use crate::maps;

/// Most chunks of a frame: what the kernel takes for one to be sent (`MAX_SKB_FRAGS`).
const FRAME_CHUNKS_MAX: usize = 17;
/// Chunks that the kernel sends with one system call in copy mode (Linux `TX_BATCH_SIZE`).
const KICK_CHUNKS: u32 = 32;
/// Receives between two looks at what costs a system call: errors and drops.
const RECEIVES_PER_LOOK: u32 = 256;

/// How a socket is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpConfig {
    /// Frames that may wait in each direction: a power of two from 64 to 65,536. Default: 2048.
    /// Costs 8 KiB of locked memory each.
    pub frames: u32,
    /// Copy between the driver and the shared memory even if the driver can do without. Default:
    /// no.
    pub copy_only: bool,
    /// Whether frames come from a kernel on this machine that may have left checksums partial.
    /// Default: as the driver's name tells (veth, tun, virtio). Costs a few ns for each frame.
    pub partial_checksums: Option<bool>,
}

impl Default for XdpConfig {
    fn default() -> Self {
        Self { frames: 2048, copy_only: false, partial_checksums: None }
    }
}

/// Why an AF_XDP socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// Not a power of two from 64 to 65,536.
    #[error("{0} frames: a power of two from 64 to 65536 is needed")]
    BadFrames(u32),
    /// There is none of that name in the calling thread's network namespace.
    #[error("there is no interface `{0}` in this network namespace: `ip link` lists them")]
    NoInterface(String),
    /// Neither root nor `CAP_NET_RAW`.
    #[error("not permitted to open AF_XDP sockets: CAP_NET_RAW is needed; or use a packet socket")]
    NotPermitted,
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS): use a packet socket")]
    Unsupported,
    /// Another socket is on the queue.
    #[error(
        "queue {queue} of interface `{interface}` has an AF_XDP socket already: end the program that has it"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface has fewer queues, or the map of sockets has.
    #[error(
        "interface `{interface}` has no queue {queue} for AF_XDP: `ethtool -l {interface}` tells how many there are"
    )]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface was there and has been removed; what [`Port::receive`] tells, inside of an
    /// [`io::Error`].
    #[error("interface `{0}` is gone: start again when it is back")]
    Gone(String),
    /// Anything else, with what was being done.
    #[error("{step}: {error}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

/// One queue of an interface by AF_XDP.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
    interface: String,
    queue: u32,
    capabilities: Capabilities,
    chunks: Chunks,
    fill: ToKernel<u64>,
    completion: FromKernel<u64>,
    receive: FromKernel<xdp_desc>,
    transmit: ToKernel<xdp_desc>,
    /// Chunks that nothing is being sent from.
    free: Vec<u64>,
    /// Chunks written since the kernel was last told.
    unsent: u32,
    is_zero_copy: bool,
    has_many_chunks: bool,
    partial_checksums: bool,
    receives: u32,
    malformed: u64,
    /// The kernel's count of drops when last asked.
    overflowed: u64,
}

impl XdpSocket {
    /// Opens a socket on queue `queue` of the interface, which is in the network namespace of the
    /// calling thread, and enters it into the map of sockets
    /// ([`SideFiles::sockets`](crate::SideFiles)), from which it vanishes when it is closed.
    ///
    /// # Errors
    /// See [`XdpError`]; then nothing is left behind.
    pub fn open(
        interface: &str,
        queue: u32,
        sockets: BorrowedFd<'_>,
        config: &XdpConfig,
    ) -> Result<Self, XdpError> {
        if !config.frames.is_power_of_two() || !(64..=65_536).contains(&config.frames) {
            return Err(XdpError::BadFrames(config.frames));
        }
        let io = |step: &'static str| move |error: io::Error| XdpError::Io { step, error };
        let ask = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| io("opening a socket to ask for interfaces")(errno.into()))?;
        let index = rustix::net::netdevice::name_to_index(&ask, interface)
            .map_err(|_| XdpError::NoInterface(interface.to_owned()))?;
        let mtu = nicache_port::mtu(ask.as_fd(), interface)
            .map_err(io("asking for the interface's MTU"))?;
        let partial_checksums = match config.partial_checksums {
            Some(partial) => partial,
            None => {
                let driver = driver(interface).map_err(io("asking for the interface's driver"))?;
                ["veth", "tun", "virtio_net"].contains(&driver.as_str())
            }
        };
        let place = || (interface.to_owned(), queue);
        let opened = setup::open(index, queue, config.frames, config.copy_only).map_err(
            |(step, error)| {
                let (interface, queue) = place();
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => XdpError::NotPermitted,
                    Some(libc::EAFNOSUPPORT) => XdpError::Unsupported,
                    Some(libc::EBUSY) => XdpError::Busy { interface, queue },
                    Some(libc::EINVAL) if step.starts_with("binding") => {
                        XdpError::NoQueue { interface, queue }
                    }
                    _ => XdpError::Io { step, error },
                }
            },
        )?;
        let mut socket = Self::new(interface, queue, mtu, opened, config.frames, partial_checksums);
        socket.refill();
        let number = std::os::fd::AsRawFd::as_raw_fd(&socket.fd);
        maps::set(sockets, queue.to_ne_bytes(), number.to_ne_bytes()).map_err(|error| {
            let (interface, queue) = place();
            match error.raw_os_error() {
                Some(libc::E2BIG) => XdpError::NoQueue { interface, queue },
                _ => XdpError::Io { step: "entering the socket into the map of sockets", error },
            }
        })?;
        Ok(socket)
    }

    fn new(
        interface: &str,
        queue: u32,
        mtu: usize,
        opened: Opened,
        frames: u32,
        partial_checksums: bool,
    ) -> Self {
        let Opened {
            fd,
            chunks,
            mut fill,
            completion,
            receive,
            transmit,
            is_zero_copy,
            has_many_chunks,
        } = opened;
        let offset = |chunk: u32| u64::from(chunk) * CHUNK_BYTES as u64;
        // The first half is received into, the second sent from.
        for chunk in 0..frames {
            fill.push(offset(chunk));
        }
        let longest = if has_many_chunks { FRAME_CHUNKS_MAX * CHUNK_BYTES } else { CHUNK_BYTES };
        let frame_bytes_max = (mtu + ETHERNET_HEADER_BYTES).min(longest).min(FRAME_BYTES_MAX);
        Self {
            fd,
            interface: interface.to_owned(),
            queue,
            capabilities: Capabilities { checksum: false, tso: false, uso: false, frame_bytes_max },
            chunks,
            fill,
            completion,
            receive,
            transmit,
            free: (frames..2 * frames).map(offset).collect(),
            unsent: 0,
            is_zero_copy,
            has_many_chunks,
            partial_checksums,
            receives: 0,
            malformed: 0,
            overflowed: 0,
        }
    }

    /// Name of the interface at the time the socket was opened.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The queue of the interface that the socket is on.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Whether the driver reads and writes the shared memory itself.
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Whether frames may be longer than a chunk of 4 KiB.
    pub fn has_many_chunks(&self) -> bool {
        self.has_many_chunks
    }

    /// Lets the kernel see the chunks that were given back to be received into.
    fn refill(&mut self) {
        self.fill.publish();
        if self.fill.needs_wakeup() {
            wake_receiver(self.fd.as_fd());
        }
    }

    /// Takes the next frame out of the ring; `None` if it is not whole yet.
    fn take(&mut self, burst: &mut Burst) -> Option<()> {
        let mut count = 0u32;
        loop {
            let descriptor = self.receive.peek(count)?;
            count += 1;
            // What is longer than any frame is thrown away in pieces.
            if descriptor.options & XDP_PKT_CONTD == 0 || count as usize > FRAME_CHUNKS_MAX {
                break;
            }
        }
        let mut parts = ArrayVec::<IoSlice<'_>, FRAME_CHUNKS_MAX>::new();
        let mut is_whole = true;
        for ahead in 0..count {
            let part =
                self.receive.peek(ahead).and_then(|part| self.chunks.read(part.addr, part.len));
            is_whole &= part.is_some_and(|part| parts.try_push(IoSlice::new(part)).is_ok());
        }
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let accepted = is_whole && bytes >= ETHERNET_HEADER_BYTES && {
            let frame = burst.next_free()?;
            let copied = frame.copy_from(&parts, Offload::default()).is_ok();
            if copied && self.partial_checksums {
                let checksum = partial::checksum(frame.data());
                frame.set_offload(Offload { checksum, gso: None });
            }
            copied
        };
        for _ in 0..count {
            if let Some(part) = self.receive.pop() {
                // There is room: these chunks came out of the fill ring.
                self.fill.push(chunk_of(part.addr));
            }
        }
        if accepted {
            burst.push();
        } else {
            self.malformed += 1;
        }
        Some(())
    }

    /// Finds the chunks that have been sent.
    fn reclaim(&mut self) {
        self.completion.refresh();
        while let Some(offset) = self.completion.pop() {
            if self.free.len() < self.free.capacity() {
                self.free.push(chunk_of(offset));
            }
        }
        self.completion.release();
    }

    /// Whether a frame of so many chunks can be written.
    fn has_room(&mut self, chunks: usize) -> bool {
        self.free.len() >= chunks && self.transmit.has_room(chunks as u32)
    }

    /// Has the kernel send what was written, if it does not see that itself.
    fn push_out(&mut self) -> io::Result<()> {
        self.unsent = 0;
        if self.is_zero_copy {
            return if self.transmit.needs_wakeup() {
                tolerate(kick(self.fd.as_fd()))
            } else {
                Ok(())
            };
        }
        // A system call sends some; as many as it takes, unless the interface does not keep up.
        for _ in 0..FRAME_CHUNKS_MAX * 8 {
            if self.transmit.is_drained() {
                break;
            }
            match kick(self.fd.as_fd()) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                result => {
                    tolerate(result)?;
                    if !self.transmit.is_drained() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// What costs a system call, now and then.
    fn look(&mut self) -> io::Result<()> {
        if let Err(error) = pending_error(self.fd.as_fd()) {
            return Err(match error.raw_os_error() {
                Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => io::Error::new(
                    io::ErrorKind::NotConnected,
                    XdpError::Gone(self.interface.clone()),
                ),
                _ => error,
            });
        }
        self.overflowed = dropped(self.fd.as_fd())?;
        Ok(())
    }
}

/// Errors of a wake-up that are no more than frames that find no room.
fn tolerate(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(
                    libc::EAGAIN
                        | libc::EBUSY
                        | libc::ENOBUFS
                        | libc::ENETDOWN
                        | libc::ENXIO
                        | libc::EINTR
                )
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Port for XdpSocket {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        self.receives = self.receives.wrapping_add(1);
        if self.receives.is_multiple_of(RECEIVES_PER_LOOK) {
            self.look()?;
        }
        if self.receive.refresh() == 0 {
            return Ok(0);
        }
        while burst.len() < burst.capacity() && self.take(burst).is_some() {}
        self.receive.release();
        self.refill();
        Ok(burst.len())
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let frame_len = self.capabilities.check(parts, &offload)?;
        if frame_len > self.capabilities.frame_bytes_max + VLAN_TAGS_BYTES {
            return Err(SendError::TooLong);
        }
        let chunks = frame_len.div_ceil(CHUNK_BYTES);
        if !self.has_room(chunks) {
            self.push_out().map_err(SendError::Io)?;
            self.reclaim();
            if !self.has_room(chunks) {
                return Err(SendError::Full);
            }
        }
        let mut gather = Gather { parts, at: 0 };
        let mut left = frame_len;
        while left > 0 {
            let bytes = left.min(CHUNK_BYTES);
            left -= bytes;
            // Both are there, as `has_room` has seen.
            let Some(offset) = self.free.pop() else { return Err(SendError::Full) };
            if let Some(chunk) = self.chunks.chunk_mut(offset) {
                gather.fill(&mut chunk[..bytes]);
            }
            let options = if left > 0 { XDP_PKT_CONTD } else { 0 };
            self.transmit.push(xdp_desc { addr: offset, len: bytes as u32, options });
            self.unsent += 1;
        }
        self.transmit.publish();
        if self.unsent >= KICK_CHUNKS {
            self.push_out().map_err(SendError::Io)?;
            self.reclaim();
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.unsent > 0 {
            self.push_out()?;
            self.reclaim();
        }
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn receive_dropped(&self) -> u64 {
        self.malformed + self.overflowed
    }
}

/// What VLAN tags may add to a frame of the interface's MTU.
const VLAN_TAGS_BYTES: usize = 8;

/// A gather list, read from front to back.
struct Gather<'a, 'b> {
    parts: &'a [IoSlice<'b>],
    /// Bytes of the first part that are read.
    at: usize,
}

impl Gather<'_, '_> {
    fn fill(&mut self, mut out: &mut [u8]) {
        while let ([first, rest @ ..], false) = (self.parts, out.is_empty()) {
            let bytes = (first.len() - self.at).min(out.len());
            let (now, later) = out.split_at_mut(bytes);
            now.copy_from_slice(&first[self.at..self.at + bytes]);
            out = later;
            self.at += bytes;
            if self.at == first.len() {
                (self.parts, self.at) = (rest, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gathering_in_pieces_is_gathering_at_once(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..8),
            piece in 1usize..30,
        ) {
            let whole = parts.concat();
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut gather = Gather { parts: &slices, at: 0 };
            let mut out = vec![0; whole.len()];
            out.chunks_mut(piece).for_each(|piece| gather.fill(piece));
            prop_assert_eq!(out, whole);
        }
    }
}
