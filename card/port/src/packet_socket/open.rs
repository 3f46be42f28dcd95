//! Opens packet sockets and asks the kernel for everything that the port counts on.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::config::{PacketConfig, PacketError, Reception, step};
use super::{options, ring};

const ETHERTYPE_ALL: u16 = 3;
/// `struct packet_mreq.mr_type`.
const MEMBER_PROMISCUOUS: u16 = 1;
const MEMBER_ALL_MULTICAST: u16 = 2;
const MEMBER_UNICAST: u16 = 3;
pub(super) const MEMBERSHIP: &str = "asking the interface for frames of other addresses";

/// A socket that is not bound, and the index of an interface.
pub(super) fn open_idle(interface: &str) -> Result<(OwnedFd, u32), PacketError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without an Ethertype it receives nothing until it is bound.
    let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).map_err(|errno| {
        match errno {
            Errno::PERM | Errno::ACCESS => PacketError::NotPermitted,
            Errno::AFNOSUPPORT => PacketError::Unsupported,
            errno => step("opening a packet socket")(errno.into()),
        }
    })?;
    let index = name_to_index(&fd, interface)
        .map_err(|_| PacketError::NoInterface(interface.to_owned()))?;
    Ok((fd, index))
}

/// A socket that is bound, and receives nothing as yet.
pub(super) fn open_refusing(
    interface: &str,
    config: &PacketConfig<'_>,
) -> Result<OwnedFd, PacketError> {
    let (fd, index) = open_idle(interface)?;
    for (name, what) in [
        (libc::PACKET_VNET_HDR, "asking for virtio-net headers"),
        (
            libc::PACKET_IGNORE_OUTGOING,
            "leaving out this machine's own frames (Linux 4.20 is needed)",
        ),
        (libc::PACKET_QDISC_BYPASS, "sending past the queueing discipline"),
        (libc::PACKET_AUXDATA, "asking for VLAN tags"),
    ] {
        options::set(&fd, libc::SOL_PACKET, name, 1).map_err(step(what))?;
    }
    ring::prepare(&fd).map_err(step("giving a packet socket its ring"))?;
    set_buffer(&fd, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF], config.receive_buffer_bytes)?;
    set_buffer(&fd, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], config.send_buffer_bytes)?;
    options::refuse_all(&fd).map_err(step("setting a socket's filter"))?;
    options::bind(&fd, index, ETHERTYPE_ALL)
        .map_err(step("binding a packet socket to the interface"))?;
    if options::bound(&fd).map_err(step("asking for the kind of interface"))?.link
        != libc::ARPHRD_ETHER
    {
        return Err(PacketError::NotEthernet(interface.to_owned()));
    }
    become_member(fd.as_fd(), index, config.reception).map_err(step(MEMBERSHIP))?;
    Ok(fd)
}

/// Sets a buffer's size past the machine's limit if that is permitted, else as far as it goes.
fn set_buffer(fd: &OwnedFd, [force, ordinary]: [c_int; 2], bytes: u32) -> Result<(), PacketError> {
    // The kernel doubles the value.
    let value = c_int::try_from(bytes / 2).unwrap_or(c_int::MAX / 2);
    options::set(fd, libc::SOL_SOCKET, force, value)
        .or_else(|_| options::set(fd, libc::SOL_SOCKET, ordinary, value))
        .map_err(step("setting the size of a socket's buffer"))
}

pub(super) fn become_member(
    socket: BorrowedFd<'_>,
    index: u32,
    reception: Reception<'_>,
) -> io::Result<()> {
    let join = |kind: u16, address: &[u8]| {
        let mut request = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: kind,
            mr_alen: address.len() as u16,
            mr_address: [0; 8],
        };
        request.mr_address[..address.len()].copy_from_slice(address);
        options::set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
    };
    match reception {
        Reception::Own => Ok(()),
        Reception::Promiscuous => join(MEMBER_PROMISCUOUS, &[]),
        Reception::Addresses(addresses) => {
            addresses.iter().try_for_each(|address| join(MEMBER_UNICAST, address))?;
            join(MEMBER_ALL_MULTICAST, &[])
        }
    }
}

/// Joins the sockets that share the interface's flows, or begins such a group; tells its number.
/// `queue` is a program that chooses one.
pub(super) fn join_fanout(
    socket: BorrowedFd<'_>,
    group: Option<u16>,
    queue: Option<BorrowedFd<'_>>,
) -> Result<u16, PacketError> {
    let kind = if queue.is_some() { libc::PACKET_FANOUT_EBPF } else { libc::PACKET_FANOUT_HASH };
    let kind = kind | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    // The number is unique in the network namespace if the kernel chooses it.
    let new = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    let failed = step("sharing flows between sockets (Linux 5.13 is needed)");
    let argument = (kind | new) << 16 | u32::from(group.unwrap_or(0));
    options::set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, argument).map_err(&failed)?;
    if let (Some(program), None) = (queue, group) {
        options::set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, program.as_raw_fd())
            .map_err(step("setting the program that chooses a queue"))?;
    }
    let argument: u32 =
        options::get(socket, libc::SOL_PACKET, libc::PACKET_FANOUT).map_err(failed)?;
    Ok(argument as u16)
}
