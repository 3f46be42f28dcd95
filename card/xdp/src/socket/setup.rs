//! Opens AF_XDP sockets: memory, rings, and the interface's queue.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{
    c_void, socklen_t, xdp_desc, xdp_mmap_offsets, xdp_options, xdp_statistics, xdp_umem_reg,
};

use super::memory::{CHUNK_BYTES, Chunks, Mapping};
use super::ring::{FromKernel, ToKernel};

/// Everything of a socket that is bound.
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    pub(super) chunks: Chunks,
    pub(super) fill: ToKernel<u64>,
    pub(super) completion: FromKernel<u64>,
    pub(super) receive: FromKernel<xdp_desc>,
    pub(super) transmit: ToKernel<xdp_desc>,
    pub(super) is_zero_copy: bool,
    /// Frames may go through several chunks.
    pub(super) has_many_chunks: bool,
}

/// A step that failed.
pub(super) type Failure = (&'static str, io::Error);

/// Opens a socket with `frames` chunks for each direction, binds it to a queue.
pub(super) fn open(
    interface: u32,
    queue: u32,
    frames: u32,
    copy_only: bool,
) -> Result<Opened, Failure> {
    let named = |what: &'static str| move |error: io::Error| (what, error);
    let fd = socket().map_err(named("opening an AF_XDP socket"))?;
    let chunks = Chunks::new(2 * frames as usize).map_err(named("taking memory for frames"))?;
    let (addr, len) = chunks.region();
    let region = xdp_umem_reg {
        addr,
        len,
        chunk_size: CHUNK_BYTES as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(&fd, libc::XDP_UMEM_REG, &region).map_err(named("registering memory for frames"))?;
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        set(&fd, ring, &(frames as c_int)).map_err(named("making a ring"))?;
    }
    let offsets: xdp_mmap_offsets =
        get(&fd, libc::XDP_MMAP_OFFSETS).map_err(named("asking for the rings' layout"))?;
    let map = |offset: u64, start: u64, entry: usize| {
        Mapping::of_ring(fd.as_fd(), offset, start as usize + frames as usize * entry)
    };
    let failed = named("mapping a ring");
    let (address, descriptor) = (size_of::<u64>(), size_of::<xdp_desc>());
    let fill = map(libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr.desc, address)
        .and_then(|mapping| ToKernel::new(mapping, &offsets.fr, frames))
        .map_err(failed)?;
    let completion = map(libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr.desc, address)
        .and_then(|mapping| FromKernel::new(mapping, &offsets.cr, frames))
        .map_err(failed)?;
    let receive = map(libc::XDP_PGOFF_RX_RING as u64, offsets.rx.desc, descriptor)
        .and_then(|mapping| FromKernel::new(mapping, &offsets.rx, frames))
        .map_err(failed)?;
    let transmit = map(libc::XDP_PGOFF_TX_RING as u64, offsets.tx.desc, descriptor)
        .and_then(|mapping| ToKernel::new(mapping, &offsets.tx, frames))
        .map_err(failed)?;
    let has_many_chunks = bind(&fd, interface, queue, copy_only)
        .map_err(named("binding to the interface's queue"))?;
    let options: xdp_options =
        get(&fd, libc::XDP_OPTIONS).map_err(named("asking for the kind of copy"))?;
    let is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
    Ok(Opened { fd, chunks, fill, completion, receive, transmit, is_zero_copy, has_many_chunks })
}

/// Binds in the best way that driver and kernel have; tells whether frames may go through several
/// chunks.
fn bind(fd: &OwnedFd, interface: u32, queue: u32, copy_only: bool) -> io::Result<bool> {
    let (wake, many) = (libc::XDP_USE_NEED_WAKEUP, libc::XDP_USE_SG);
    let attempts = [
        libc::XDP_ZEROCOPY | wake | many,
        libc::XDP_ZEROCOPY | wake,
        libc::XDP_COPY | wake | many,
        libc::XDP_COPY | wake,
    ];
    let mut last = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    for flags in attempts.into_iter().skip(if copy_only { 2 } else { 0 }) {
        match bind_with(fd, interface, queue, flags) {
            Ok(()) => return Ok(flags & many != 0),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EBUSY | libc::EPERM | libc::ENODEV)
                ) =>
            {
                return Err(error);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_with(fd: &OwnedFd, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of_val(&address) as socklen_t;
    // SAFETY: the kernel reads `len` bytes at the pointer, which are those of `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Has the kernel send what is in the transmit ring.
pub(super) fn kick(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no data, no address.
    let sent = unsafe {
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tells the driver that the fill ring has entries again.
pub(super) fn wake_receiver(fd: BorrowedFd<'_>) {
    // SAFETY: no buffer, no address.
    unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}

/// Frames that the kernel has dropped, for want of chunks or of room in the ring, or as they did
/// not fit.
pub(super) fn dropped(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let counts: xdp_statistics = get(fd, libc::XDP_STATISTICS)?;
    // Without chunks a frame is not counted as dropped, but without room it is.
    Ok(counts.rx_dropped + counts.rx_ring_full + counts.rx_fill_ring_empty_descs)
}

/// An error that the socket has kept, such as that the interface is gone.
pub(super) fn pending_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    rustix::net::sockopt::socket_error(fd)?.map_err(io::Error::from)
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory of ours is involved.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    check(fd)?;
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A type that the kernel reads or writes as an option of AF_XDP.
///
/// # Safety
/// It is plain data, every bit pattern of which is valid.
unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: integers only.
unsafe impl Plain for xdp_umem_reg {}
// SAFETY: integers only.
unsafe impl Plain for xdp_mmap_offsets {}
// SAFETY: an integer.
unsafe impl Plain for xdp_options {}
// SAFETY: integers only.
unsafe impl Plain for xdp_statistics {}

fn set<T: Plain>(fd: &OwnedFd, name: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: the kernel reads `len` bytes at the pointer, which are those of `value`.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            name,
            (value as *const T).cast::<c_void>(),
            len,
        )
    })
}

fn get<T: Plain>(fd: impl AsFd, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes at the pointer, which is as many as `value`
    // has.
    check(unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_XDP,
            name,
            value.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    })?;
    // SAFETY: zeroed and maybe overwritten; every bit pattern is valid.
    Ok(unsafe { value.assume_init() })
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
