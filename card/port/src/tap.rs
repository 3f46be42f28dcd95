//! A kernel TAP interface: the kernel's end is an ordinary network interface, ours is a file per
//! queue.
//!
//! Read first: Linux `Documentation/networking/tuntap.rst` and `drivers/net/tun.c`. Every read and
//! write carries one frame behind a virtio-net header ([`crate::virtio_net`]), so super-frames
//! of up to 64 KiB cross with one system call each.
//!
//! The interface is created in the network namespace of the calling thread and lives as long as one
//! of its queues is open in some process; it is never made persistent. It is down and without
//! addresses: bringing it up is the supervisor's job.
//!
//! The kernel does not believe [`crate::Checksum::Valid`] of a frame that it gets (Linux reads that
//! flag only in its own virtio driver): it verifies the checksum as from a wire. Whoever builds
//! frames saves that on both sides with [`crate::Checksum::Partial`].
//!
//! Deliberately absent: io_uring and batching (measured: no gain), flow steering programs.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use arrayvec::ArrayVec;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd, read, writev};
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl, opcode};

use crate::frame::{Burst, FRAME_BYTES_MAX, Offload};
use crate::gather::{PARTS_MAX, SendError};
use crate::port::{Capabilities, Port};
use crate::virtio_net::{VIRTIO_NET_HEADER_BYTES, decode_header, encode_header};

/// Where queues are opened.
const DEVICE: &str = "/dev/net/tun";
/// Bytes of an interface name with its terminating zero (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;

const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<c_int>(b'T', 208);
const TUNGETIFF: Opcode = opcode::read::<c_int>(b'T', 210);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<c_int>(b'T', 216);
const TUNSETVNETLE: Opcode = opcode::write::<c_int>(b'T', 220);

const IFF_TAP: u16 = 0x0002;
const IFF_NAPI: u16 = 0x0010;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_TUN_EXCL: u16 = 0x8000;

const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;
const TUN_F_TSO_ECN: usize = 0x08;
const TUN_F_USO4: usize = 0x20;
const TUN_F_USO6: usize = 0x40;

/// How a TAP is set up. The default suits a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapConfig {
    /// Let the kernel receive our frames in its NAPI context, with GRO. Default: no (measured: no
    /// gain, more latency).
    pub napi: bool,
    /// Let the kernel hand us frames whose checksum is partial. Default: yes. Super-frames need it.
    pub checksum: bool,
    /// Let the kernel hand us TCP super-frames. Default: yes.
    pub tso: bool,
    /// Let the kernel hand us UDP super-frames, if it can (Linux 6.2). Default: yes.
    pub uso: bool,
    /// Attach to an interface that exists already. Default: no. Danger: if another process serves
    /// it, the two share its traffic.
    pub existing: bool,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self { napi: false, checksum: true, tso: true, uso: true, existing: false }
    }
}

/// Why a TAP could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel was built without TAP, its module is not loaded, or the container does not show
    /// the device.
    #[error(
        "{DEVICE} is missing: load the tun module, or make the device visible in this container"
    )]
    NoDevice,
    /// Neither root nor `CAP_NET_ADMIN` in the network namespace, or no access to the device.
    #[error(
        "not permitted to create a TAP interface: CAP_NET_ADMIN and access to {DEVICE} are needed"
    )]
    NotPermitted,
    /// Not a name that an interface can have: 1 to 15 bytes without blanks, slashes and zeros.
    #[error("`{0}` cannot be the name of a TAP interface")]
    BadName(String),
    /// An interface of that name exists.
    #[error("interface `{0}` exists already")]
    Exists(String),
    /// No queue, or more than the kernel allows (256).
    #[error("a TAP interface cannot have {0} queues")]
    QueueCount(usize),
    /// The file descriptor is not a queue of a TAP with virtio-net headers.
    #[error("file descriptor {0} is not a TAP queue with virtio-net headers")]
    NotATap(RawFd),
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

/// Opens TAP interfaces.
#[derive(Debug)]
pub enum Tap {}

impl Tap {
    /// Creates the TAP interface `name` (`%d` in it stands for a free number) in the network
    /// namespace of the calling thread and opens `queue_count` queues, between which the kernel
    /// spreads flows.
    ///
    /// # Errors
    /// See [`TapError`]; then nothing is left behind.
    pub fn open(name: &str, queue_count: usize) -> Result<Vec<TapQueue>, TapError> {
        Self::open_with(name, queue_count, &TapConfig::default())
    }

    /// Creates the TAP interface `name` (`%d` in it stands for a free number) with settings that
    /// the caller chose, in the network namespace of the calling thread, and opens `queue_count`
    /// queues, between which the kernel spreads flows.
    ///
    /// # Errors
    /// See [`TapError`].
    pub fn open_with(
        name: &str,
        queue_count: usize,
        config: &TapConfig,
    ) -> Result<Vec<TapQueue>, TapError> {
        if !(1..NAME_BYTES).contains(&name.len())
            || name.contains(|c: char| c == '/' || c == '\0' || c.is_ascii_whitespace())
        {
            return Err(TapError::BadName(name.to_owned()));
        }
        if !(1..=256).contains(&queue_count) {
            return Err(TapError::QueueCount(queue_count));
        }
        let mut queues: Vec<TapQueue> = Vec::with_capacity(queue_count);
        for _ in 0..queue_count {
            // The kernel has chosen a name for the pattern when the first queue was opened.
            let (name, create) = queues
                .first()
                .map_or((name, !config.existing), |first| (first.interface.as_str(), false));
            queues.push(open_queue(name, create, config)?);
        }
        Ok(queues)
    }
}

fn open_queue(name: &str, create: bool, config: &TapConfig) -> Result<TapQueue, TapError> {
    let fd =
        rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
            .map_err(|errno| match errno {
                Errno::NOENT | Errno::NODEV | Errno::NXIO => TapError::NoDevice,
                Errno::ACCESS | Errno::PERM => TapError::NotPermitted,
                errno => step("opening /dev/net/tun", errno),
            })?;
    let mut flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
    if create {
        flags |= IFF_TUN_EXCL;
    }
    if config.napi {
        flags |= IFF_NAPI;
    }
    set_interface(fd.as_fd(), &mut InterfaceRequest::new(name, flags)).map_err(
        |errno| match errno {
            Errno::PERM | Errno::ACCESS => TapError::NotPermitted,
            Errno::BUSY | Errno::EXIST => TapError::Exists(name.to_owned()),
            Errno::INVAL => TapError::BadName(name.to_owned()),
            errno => step("creating the TAP interface", errno),
        },
    )?;
    TapQueue::from_owned_fd(fd, config)
}

/// One queue of a TAP interface.
#[derive(Debug)]
pub struct TapQueue {
    fd: OwnedFd,
    interface: String,
    capabilities: Capabilities,
    batch: Batch,
    dropped: u64,
}

/// How many frames to read before they are handled.
///
/// Each frame is a system call of its own, and so is finding that there is none. Under a load that
/// keeps up with the card, looking for another frame right behind each one would mostly be in vain,
/// while after the work on the first the next has come. So a receive reads one frame, and more only
/// while a backlog is there.
#[derive(Debug)]
struct Batch {
    frames: usize,
    /// Receives since the last change that found all they wanted.
    full: u32,
}

/// Receives in a row that find all they want, after which the batch doubles.
const FULL_TO_DOUBLE: u32 = 16;
/// Most frames of a batch.
const BATCH_FRAMES_MAX: usize = 64;

impl Batch {
    fn frames(&self) -> usize {
        self.frames
    }

    fn handle_full(&mut self) {
        self.full += 1;
        if self.full == FULL_TO_DOUBLE {
            *self = Self { frames: (self.frames * 2).min(BATCH_FRAMES_MAX), full: 0 };
        }
    }

    fn handle_empty(&mut self) {
        *self = Self { frames: 1, full: 0 };
    }
}

impl TapQueue {
    /// Takes over an open queue, e.g. one that came over a Unix socket. Sets header size, byte
    /// order, offloads and non-blocking mode anew (the offloads are a property of the whole
    /// interface).
    ///
    /// # Errors
    /// [`TapError::NotATap`] if it is something else, or an error of the kernel; the file
    /// descriptor is closed.
    pub fn from_owned_fd(fd: OwnedFd, config: &TapConfig) -> Result<Self, TapError> {
        let interface = interface_of(fd.as_fd())?;
        let header_bytes = VIRTIO_NET_HEADER_BYTES as c_int;
        set_int::<TUNSETVNETHDRSZ>(fd.as_fd(), header_bytes)
            .map_err(|errno| step("setting the size of the virtio-net header", errno))?;
        set_int::<TUNSETVNETLE>(fd.as_fd(), 1)
            .map_err(|errno| step("setting the byte order of the virtio-net header", errno))?;
        let uso = set_offloads(fd.as_fd(), config)
            .map_err(|errno| step("setting the offloads of the TAP interface", errno))?;
        fcntl_getfl(&fd)
            .and_then(|flags| fcntl_setfl(&fd, flags | OFlags::NONBLOCK))
            .map_err(|errno| step("making the TAP queue non-blocking", errno))?;
        Ok(Self {
            fd,
            interface,
            // With virtio-net headers the kernel takes partial checksums and TCP super-frames
            // whatever it gives.
            capabilities: Capabilities { uso, ..Capabilities::FULL },
            batch: Batch { frames: 1, full: 0 },
            dropped: 0,
        })
    }

    /// Takes over a queue that the parent process left open under `number`, after
    /// [`keep_across_exec`](TapQueue::keep_across_exec). The queue is used through a duplicate; the
    /// number itself stays open as long as this process lives, but is not handed down to children.
    ///
    /// # Errors
    /// [`TapError::NotATap`] if nothing, or something else, is open there; that is left alone.
    pub fn inherit(number: RawFd, config: &TapConfig) -> Result<Self, TapError> {
        if number < 0 {
            return Err(TapError::NotATap(number));
        }
        // SAFETY: the number is not -1, and is only used for fcntl and ioctl calls that answer
        // EBADF if it is not open. Nothing is closed through it, so an owner elsewhere in the
        // process keeps what it has.
        let inherited = unsafe { BorrowedFd::borrow_raw(number) };
        interface_of(inherited)?;
        let fd = fcntl_dupfd_cloexec(inherited, 3)
            .map_err(|errno| step("duplicating the inherited TAP queue", errno))?;
        fcntl_getfd(inherited)
            .and_then(|flags| fcntl_setfd(inherited, flags | FdFlags::CLOEXEC))
            .map_err(|errno| step("keeping the inherited TAP queue from children", errno))?;
        Self::from_owned_fd(fd, config)
    }

    /// Makes the queue survive `exec` in every child that is started from now on, under the number
    /// that is returned (to be told to the child, which calls [`inherit`](TapQueue::inherit)). Drop
    /// the queue once the child has been started.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn keep_across_exec(&self) -> io::Result<RawFd> {
        let flags = fcntl_getfd(&self.fd)?;
        fcntl_setfd(&self.fd, flags - FdFlags::CLOEXEC)?;
        Ok(self.fd.as_raw_fd())
    }

    /// Name of the interface at the time the queue was opened.
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<TapQueue> for OwnedFd {
    fn from(queue: TapQueue) -> Self {
        queue.fd
    }
}

impl Port for TapQueue {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        // As many reads as frames are wanted, so a flood of malformed frames cannot keep us
        // here.
        for _ in 0..self.batch.frames().min(burst.capacity()) {
            let Some(frame) = burst.next_free() else {
                break;
            };
            let received = match read(&self.fd, frame.space_mut(VIRTIO_NET_HEADER_BYTES)) {
                Ok(received) => received,
                Err(Errno::AGAIN) => {
                    self.batch.handle_empty();
                    return Ok(burst.len());
                }
                Err(Errno::INTR) => continue,
                Err(_) if !burst.is_empty() => break,
                Err(errno) => return Err(errno.into()),
            };
            // The kernel cuts a frame that does not fit without telling; the byte too many gives it
            // away.
            let len = match received.checked_sub(VIRTIO_NET_HEADER_BYTES) {
                Some(len) if len <= FRAME_BYTES_MAX => len,
                _ => {
                    self.dropped += 1;
                    continue;
                }
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
        self.batch.handle_full();
        Ok(burst.len())
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let frame_len = self.capabilities.check(parts, &offload)?;
        let header = encode_header(&offload, frame_len).map_err(|_| SendError::Invalid)?;
        let mut list = ArrayVec::<_, { 1 + PARTS_MAX }>::new();
        list.push(IoSlice::new(&header));
        list.extend(parts.iter().copied());
        loop {
            return match writev(&self.fd, &list) {
                // A TAP takes a frame whole or not at all.
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

/// `struct ifreq` as the TUN ioctls use it: a name and flags in a union of 24 bytes.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);

impl InterfaceRequest {
    /// `name` is shorter than [`NAME_BYTES`].
    fn new(name: &str, flags: u16) -> Self {
        let mut request = Self { name: [0; NAME_BYTES], flags, rest: [0; 22] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request
    }
}

fn set_interface(fd: BorrowedFd<'_>, request: &mut InterfaceRequest) -> rustix::io::Result<()> {
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` of at most 40 bytes, which
    // `InterfaceRequest` is and whose every bit pattern is valid. (Other files than TAP queues
    // answer ENOTTY or EBADFD.)
    unsafe { ioctl(fd, Updater::<TUNSETIFF, InterfaceRequest>::new(request)) }
}

/// The name of the interface that a queue belongs to.
fn interface_of(fd: BorrowedFd<'_>) -> Result<String, TapError> {
    let mut request = InterfaceRequest::new("", 0);
    // SAFETY: TUNGETIFF writes one `struct ifreq` of at most 40 bytes, which `InterfaceRequest` is
    // and whose every bit pattern is valid. The opcode belongs to the TUN driver: other files
    // answer ENOTTY.
    let result = unsafe { ioctl(fd, Updater::<TUNGETIFF, InterfaceRequest>::new(&mut request)) };
    let wanted = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if result.is_err() || request.flags & wanted != wanted {
        return Err(TapError::NotATap(fd.as_raw_fd()));
    }
    let len = request.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
    Ok(String::from_utf8_lossy(&request.name[..len]).into_owned())
}

fn set_int<const OPCODE: Opcode>(fd: BorrowedFd<'_>, value: c_int) -> rustix::io::Result<()> {
    // SAFETY: only instantiated with TUNSETVNETHDRSZ and TUNSETVNETLE, which read one int through
    // their pointer.
    unsafe { ioctl(fd, Setter::<OPCODE, c_int>::new(value)) }
}

/// Sets what the kernel may hand us; tells whether it knows UDP super-frames.
fn set_offloads(fd: BorrowedFd<'_>, config: &TapConfig) -> rustix::io::Result<bool> {
    const USO: usize = TUN_F_USO4 | TUN_F_USO6;
    let set = |offloads: usize| {
        // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
        unsafe { ioctl(fd, IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads)) }
    };
    let uso = set(TUN_F_CSUM | USO).is_ok();
    let mut offloads = 0;
    if config.checksum {
        offloads |= TUN_F_CSUM;
        if config.tso {
            offloads |= TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        }
        if config.uso && uso {
            offloads |= USO;
        }
    }
    set(offloads)?;
    Ok(uso)
}

fn step(step: &'static str, errno: Errno) -> TapError {
    TapError::Io { step, error: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_those_of_the_kernel() {
        // include/uapi/linux/if_tun.h on x86 and arm.
        let expected: [Opcode; 5] =
            [0x4004_54ca, 0x4004_54d0, 0x8004_54d2, 0x4004_54d8, 0x4004_54dc];
        assert_eq!([TUNSETIFF, TUNSETOFFLOAD, TUNGETIFF, TUNSETVNETHDRSZ, TUNSETVNETLE], expected);
    }

    #[test]
    fn names_and_counts_are_checked_before_the_kernel_is_asked() {
        for name in ["", "a/b", "a b", "sixteen-bytes-xx", "nul\0"] {
            assert!(matches!(Tap::open(name, 1), Err(TapError::BadName(_))), "{name:?}");
        }
        for count in [0, 257] {
            assert!(matches!(Tap::open("ok", count), Err(TapError::QueueCount(_))));
        }
    }

    #[test]
    fn other_files_are_not_taps() {
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let number = file.as_raw_fd();
        let config = TapConfig::default();
        assert!(matches!(TapQueue::inherit(number, &config), Err(TapError::NotATap(_))));
        assert!(matches!(TapQueue::inherit(-1, &config), Err(TapError::NotATap(-1))));
        assert!(matches!(TapQueue::inherit(1 << 20, &config), Err(TapError::NotATap(_))));
        assert!(fcntl_getfd(&file).is_ok(), "inherit must not close what it refuses");
        assert!(matches!(TapQueue::from_owned_fd(file, &config), Err(TapError::NotATap(_))));
    }
}
