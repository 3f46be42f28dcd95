//! Options of packet sockets, and what else is asked of them by number.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::{c_int, c_uint, c_void, socklen_t};

/// Of linux/ethtool.h.
const ETHTOOL_GTSO: u32 = 0x1e;

/// A type that the kernel reads or writes as an option: plain data without padding, of which every
/// bit pattern is valid.
///
/// # Safety
/// All of that is true of the type.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for c_int {}
// SAFETY: integers.
unsafe impl Plain for c_uint {}
// SAFETY: an int, two u16 and eight bytes, in this order: no padding.
unsafe impl Plain for libc::packet_mreq {}

// SAFETY: integers.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: integers.
unsafe impl Plain for Statistics {}

/// `struct tpacket_stats`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Statistics {
    /// Frames for the socket, dropped ones included.
    pub(super) packets: c_uint,
    pub(super) drops: c_uint,
}

/// Sets an option.
pub(super) fn set<T: Plain>(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    let len = size_of::<T>() as socklen_t;
    // SAFETY: the kernel reads `len` bytes at the pointer, which are those of `value`.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            len,
        )
    })
}

/// Reads an option.
pub(super) fn get<T: Plain>(socket: impl AsFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes at the pointer, which is as many as `value`
    // has.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    })?;
    // SAFETY: zeroed and maybe overwritten; every bit pattern is valid.
    Ok(unsafe { value.assume_init() })
}

/// Binds to an interface and an Ethertype (in host byte order); from then on frames are received.
pub(super) fn bind(socket: impl AsFd, interface: u32, ethertype: u16) -> io::Result<()> {
    let mut address = empty_address();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = interface as c_int;
    let len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the kernel reads `len` bytes at the pointer, which are those of `address`.
    check(unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const address).cast(), len) })
}

/// What a packet socket is bound to.
pub(super) struct Bound {
    /// Index of the interface, which is gone if this is not positive.
    pub(super) interface: c_int,
    /// Kind of link (`ARPHRD_*`); 0 if the interface is gone.
    pub(super) link: u16,
}

/// Asks a packet socket what it is bound to.
pub(super) fn bound(socket: impl AsFd) -> io::Result<Bound> {
    let mut address = empty_address();
    let mut len = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes at the pointer, which is as many as `address`
    // has.
    check(unsafe {
        libc::getsockname(socket.as_fd().as_raw_fd(), (&raw mut address).cast(), &raw mut len)
    })?;
    Ok(Bound { interface: address.sll_ifindex, link: address.sll_hatype })
}

/// The MTU of an interface, in bytes, as seen in the network namespace of a socket of any kind.
///
/// # Errors
/// What the kernel says, e.g. that there is no such interface.
pub fn mtu(socket: impl AsFd, interface: &str) -> io::Result<usize> {
    let mut request = request_for(interface);
    // SAFETY: SIOCGIFMTU reads and writes one `struct ifreq`.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: the kernel has written this member of the union.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Whether whoever is behind an interface takes TCP super-frames (`ethtool -K INTERFACE tso`). What
/// is sent past the queueing discipline is not cut for one who does not, but dropped (Linux
/// `__dev_direct_xmit`).
///
/// # Errors
/// What the kernel says, e.g. that there is no such interface.
pub(super) fn takes_super_frames(socket: impl AsFd, interface: &str) -> io::Result<bool> {
    // `struct ethtool_value`: the command, and the answer.
    let mut value = [ETHTOOL_GTSO, 0];
    let mut request = request_for(interface);
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`, and with this command the kernel reads and
    // writes an `ethtool_value` where it points to, which is as long as `value`.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })?;
    Ok(value[1] != 0)
}

fn request_for(interface: &str) -> libc::ifreq {
    // SAFETY: plain data, of which zeros are valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Lets the socket receive nothing.
pub(super) fn refuse_all(socket: impl AsFd) -> io::Result<()> {
    // `BPF_RET | BPF_K`: accept no byte.
    let mut code = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    let len = size_of::<libc::sock_fprog>() as socklen_t;
    // SAFETY: the kernel reads `len` bytes at the pointer, which are those of `program`, and as
    // many instructions as it says, which are those of `code`.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            len,
        )
    })
}

/// Replaces the filter by an eBPF program, or removes it.
pub(super) fn set_filter(socket: impl AsFd, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
    match program {
        Some(program) => set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd()),
        None => match set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
            // There was none.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        },
    }
}

fn empty_address() -> libc::sockaddr_ll {
    // SAFETY: plain data, of which zeros are valid.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
