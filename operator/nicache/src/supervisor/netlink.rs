//! The few `rtnetlink(7)` requests that an interface needs: name, MTU, up, address, default route.
//!
//! Messages are `nlmsghdr`, a fixed family header, then attributes (length, type, value, each
//! padded to 4 bytes), in native byte order. A socket works on the network namespace of the thread
//! that opened it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Protocol 0 of the family.
const NETLINK_ROUTE: Option<rustix::net::Protocol> = None;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETNSID: u16 = 90;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWRULE: u16 = 32;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
/// Bytes of `nlmsghdr`, `ifinfomsg` and `rtgenmsg` with padding.
const NLMSG_BYTES: usize = 16;
const IFINFO_BYTES: usize = 16;
const RTGEN_BYTES: usize = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_TABLE: u16 = 15;
const FRA_SRC: u16 = 2;
const FRA_TABLE: u16 = 15;
const FR_ACT_TO_TBL: u8 = 1;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// No search for others with the address: it may be used at once.
const IFA_F_NODAD: u8 = 2;

/// A connection to the kernel's routing tables.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens one in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            NETLINK_ROUTE,
        )?;
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Index of an interface, `None` if there is none of this name.
    pub(crate) fn index(&self, name: &str) -> io::Result<Option<u32>> {
        match rustix::net::netdevice::name_to_index(&self.socket, name) {
            Ok(index) => Ok(Some(index)),
            Err(rustix::io::Errno::NODEV) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes of an IP packet on an interface at most.
    pub(crate) fn mtu(&self, name: &str) -> io::Result<u32> {
        nicache_port::mtu(&self.socket, name).map(|mtu| u32::try_from(mtu).unwrap_or(0))
    }

    /// Makes a pair of interfaces: `name` here, `peer` in another namespace.
    pub(crate) fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        namespace: impl AsFd,
    ) -> io::Result<()> {
        let text = |name: &str| [name.as_bytes(), &[0]].concat();
        let mut there = Message::part();
        there.put(&[0; IFINFO_BYTES]).attribute(IFLA_IFNAME, &text(peer));
        there.attribute(IFLA_NET_NS_FD, &namespace.as_fd().as_raw_fd().to_ne_bytes());
        let (mut data, mut info) = (Message::part(), Message::part());
        data.attribute(VETH_INFO_PEER, &there.bytes);
        info.attribute(IFLA_INFO_KIND, b"veth").attribute(IFLA_INFO_DATA, &data.bytes);
        let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
        message
            .put(&[0; IFINFO_BYTES])
            .attribute(IFLA_IFNAME, &text(name))
            .attribute(IFLA_LINKINFO, &info.bytes);
        self.request(message)
    }

    /// Gives an interface a MAC address.
    pub(crate) fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.put(&[0; 4]).put(&index.to_ne_bytes()).put(&[0; 8]);
        message.attribute(IFLA_ADDRESS, &mac);
        self.request(message)
    }

    /// Lets so many frames wait in an interface's queue.
    pub(crate) fn set_queue(&mut self, index: u32, frames: u32) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        message.put(&[0; 4]).put(&index.to_ne_bytes()).put(&[0; 8]);
        message.attribute(IFLA_TXQLEN, &frames.to_ne_bytes());
        self.request(message)
    }

    /// Brings an interface up, setting its MTU (bytes) if given.
    pub(crate) fn up(&mut self, index: u32, mtu: Option<u32>) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWLINK, 0);
        // ifinfomsg: family, padding, type (u16), index (i32), flags, change mask.
        message
            .put(&[0; 4])
            .put(&index.to_ne_bytes())
            .put(&IFF_UP.to_ne_bytes())
            .put(&IFF_UP.to_ne_bytes());
        if let Some(mtu) = mtu {
            message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        }
        self.request(message)
    }

    /// Gives an interface an address.
    pub(crate) fn add_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        // ifaddrmsg: family, prefix length, flags, scope (0: universe), index.
        let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        message.put(&[family(address), prefix, flags, 0]).put(&index.to_ne_bytes());
        let octets = octets(address);
        message.attribute(IFA_LOCAL, &octets).attribute(IFA_ADDRESS, &octets);
        self.request(message)
    }

    /// Sets the default route of the gateway's version of IP, in a table of its own if that is
    /// given.
    pub(crate) fn add_default_route(
        &mut self,
        index: u32,
        gateway: IpAddr,
        table: Option<u32>,
    ) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
        // rtmsg: family, destination and source prefix lengths, tos, table, protocol, scope, type,
        // flags (u32).
        message
            .put(&[family(gateway), 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, 0, RTN_UNICAST])
            .put(&[0; 4]);
        message.attribute(RTA_GATEWAY, &octets(gateway)).attribute(RTA_OIF, &index.to_ne_bytes());
        if let Some(table) = table {
            message.attribute(RTA_TABLE, &table.to_ne_bytes());
        }
        self.request(message)
    }

    /// What is sent from this address takes the routes of that table.
    pub(crate) fn add_source_rule(&mut self, source: IpAddr, table: u32) -> io::Result<()> {
        let mut message = Message::new(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL);
        let bits = if source.is_ipv4() { 32 } else { 128 };
        // fib_rule_hdr: family, destination and source prefix lengths, tos, table, two reserved,
        // action, flags (u32).
        message.put(&[family(source), 0, bits, 0, 0, 0, 0, FR_ACT_TO_TBL]).put(&[0; 4]);
        message.attribute(FRA_SRC, &octets(source)).attribute(FRA_TABLE, &table.to_ne_bytes());
        self.request(message)
    }

    /// The number that this namespace gives to the one in which the other end of a veth is; `None`
    /// if that is here, or there is none.
    pub(crate) fn peer_namespace(&mut self, name: &str) -> io::Result<Option<i32>> {
        let index = self.index(name)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}"))
        })?;
        let mut message = Message::new(RTM_GETLINK, 0);
        message.put(&[0; 4]).put(&index.to_ne_bytes()).put(&[0; 8]);
        let answer = self.ask(message)?;
        Ok(attribute(&answer, IFINFO_BYTES, IFLA_LINK_NETNSID).map(i32::from_ne_bytes))
    }

    /// The number that this namespace gives to another one; `None` if it has none.
    pub(crate) fn namespace_number(
        &mut self,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<Option<i32>> {
        let mut message = Message::new(RTM_GETNSID, 0);
        // rtgenmsg: family, padded.
        message.put(&[0; 4]);
        message.attribute(NETNSA_FD, &namespace.as_raw_fd().to_ne_bytes());
        let answer = self.ask(message)?;
        Ok(attribute(&answer, RTGEN_BYTES, NETNSA_NSID)
            .map(i32::from_ne_bytes)
            .filter(|&number| number >= 0))
    }

    /// Sends a question and returns what comes before the acknowledgement.
    fn ask(&mut self, message: Message) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let bytes = message.finish(self.sequence);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let (mut found, mut answer) = (Vec::new(), vec![0u8; 32_768]);
        loop {
            let (length, _) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            match acknowledgement(&answer[..length], self.sequence) {
                Some(0) => return Ok(found),
                Some(errno) => return Err(io::Error::from_raw_os_error(-errno)),
                None => found = answer[..length].to_vec(),
            }
        }
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

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A number among the attributes of a message, behind the family's own header of `header` bytes.
fn attribute(message: &[u8], header: usize, wanted: u16) -> Option<[u8; 4]> {
    let mut rest = message.get(NLMSG_BYTES + header..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        if kind == wanted {
            return rest.get(4..length)?.try_into().ok();
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
}

/// The error number (0 or negative) if `bytes` begins with the acknowledgement of request
/// `sequence`.
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
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        Self { bytes }
    }

    /// What goes into an attribute.
    fn part() -> Self {
        Self { bytes: Vec::new() }
    }

    fn put(&mut self, part: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(part);
        self
    }

    /// `value` is at most a few bytes here.
    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
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
