//! The few `rtnetlink(7)` requests that an interface needs: name, MTU, up, address, default route.
//!
//! Messages are `nlmsghdr`, a fixed family header, then attributes (length, type, value, each padded to 4 bytes), in native byte order.
//! A socket works on the network namespace of the thread that opened it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Protocol 0 of the family.
const NETLINK_ROUTE: Option<rustix::net::Protocol> = None;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;

/// A connection to the kernel's routing tables.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens one in the calling thread's network namespace.
    pub fn open() -> io::Result<Netlink> {
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, NETLINK_ROUTE)?;
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Index of an interface, `None` if there is none of this name.
    pub fn index(&self, name: &str) -> io::Result<Option<u32>> {
        match rustix::net::netdevice::name_to_index(&self.socket, name) {
            Ok(index) => Ok(Some(index)),
            Err(rustix::io::Errno::NODEV) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives an interface a MAC address.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.put(&[0; 4]).put(&index.to_ne_bytes()).put(&[0; 8]);
        message.attribute(IFLA_ADDRESS, &mac);
        self.request(message)
    }

    /// Lets so many frames wait in an interface's queue.
    pub fn set_queue(&mut self, index: u32, frames: u32) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.put(&[0; 4]).put(&index.to_ne_bytes()).put(&[0; 8]);
        message.attribute(IFLA_TXQLEN, &frames.to_ne_bytes());
        self.request(message)
    }

    /// Brings an interface up, setting its MTU (bytes) if given.
    pub fn up(&mut self, index: u32, mtu: Option<u32>) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        // ifinfomsg: family, padding, type (u16), index (i32), flags, change mask.
        message.put(&[0; 4]).put(&index.to_ne_bytes()).put(&IFF_UP.to_ne_bytes()).put(&IFF_UP.to_ne_bytes());
        if let Some(mtu) = mtu {
            message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        }
        self.request(message)
    }

    /// Gives an interface an address.
    pub fn add_address(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        // ifaddrmsg: family, prefix length, flags, scope (0: universe), index.
        message.put(&[AF_INET, prefix, 0, 0]).put(&index.to_ne_bytes());
        message.attribute(IFA_LOCAL, &address.octets()).attribute(IFA_ADDRESS, &address.octets());
        self.request(message)
    }

    /// Sets the default route.
    pub fn add_default_route(&mut self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
        // rtmsg: family, destination and source prefix lengths, tos, table, protocol, scope, type, flags (u32).
        message.put(&[AF_INET, 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, 0, RTN_UNICAST]).put(&[0; 4]);
        message.attribute(RTA_GATEWAY, &gateway.octets()).attribute(RTA_OIF, &index.to_ne_bytes());
        self.request(message)
    }

    fn request(&mut self, message: Message) -> io::Result<()> {
        self.sequence += 1;
        let bytes = message.finish(self.sequence);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answer = [0u8; 4096];
        loop {
            let (length, _) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            if let Some(errno) = acknowledgement(&answer[..length], self.sequence) {
                return if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-errno)) };
            }
        }
    }
}

/// The error number (0 or negative) if `bytes` begins with the acknowledgement of request `sequence`.
fn acknowledgement(bytes: &[u8], sequence: u32) -> Option<i32> {
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let answered = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    let errno = i32::from_ne_bytes(bytes.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR && answered == sequence).then_some(errno)
}

struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        Message { bytes }
    }

    fn put(&mut self, part: &[u8]) -> &mut Message {
        self.bytes.extend_from_slice(part);
        self
    }

    /// `value` is at most a few bytes here.
    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Message {
        let length = u16::try_from(4 + value.len()).expect("a short attribute");
        self.put(&length.to_ne_bytes()).put(&kind.to_ne_bytes()).put(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("a short message");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_lengths_add_up() {
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE);
        message.put(&[1, 2, 3, 4]).attribute(IFA_LOCAL, &[10, 0, 0, 1]).attribute(9, &[7]);
        let bytes = message.finish(5);
        assert_eq!(bytes.len(), 16 + 4 + 8 + 8);
        assert_eq!(bytes[0..4], 36u32.to_ne_bytes());
        assert_eq!(bytes[28..30], 5u16.to_ne_bytes());
        assert_eq!(bytes[33..36], [0; 3]);
    }

    #[test]
    fn only_the_awaited_acknowledgement_counts() {
        let mut bytes = vec![0; 36];
        bytes[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        bytes[8..12].copy_from_slice(&3u32.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(acknowledgement(&bytes, 3), Some(-17));
        assert_eq!(acknowledgement(&bytes, 4), None);
        assert_eq!(acknowledgement(&bytes[..18], 3), None);
    }

    #[test]
    fn loopback_is_there() {
        let netlink = Netlink::open().unwrap();
        assert!(netlink.index("lo").unwrap().is_some());
        assert!(netlink.index("none-such").unwrap().is_none());
    }
}
