//! Requests to the kernel's tables of links, addresses, routes and neighbors, and their answers
//! (`rtnetlink(7)`), and to its table of sockets (`sock_diag(7)`). What the messages of the former
//! mean is for those who send them.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod listening;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

pub use listening::{Listening, listening, listening_of};

/// Room for one datagram of the kernel's, as in `ip`: 64 KiB.
const BUFFER_BYTES: usize = 64 * 1024;
/// A table that changes while it is told is asked for again.
const TRIES: u32 = 8;

/// A connection to the kernel's tables. It stays in the network namespace of the thread that opened
/// it, whoever uses it later.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// What came of a request.
struct Answer<M> {
    /// What the library does not know is an error.
    messages: Vec<Result<M, DecodeError>>,
    /// The table did not change while it was told.
    is_whole: bool,
}

impl Netlink {
    /// Opens one in the calling thread's network namespace.
    ///
    /// # Errors
    /// What the system says.
    pub fn open() -> io::Result<Self> {
        Self::of(None)
    }

    /// One to the tables of a protocol; `None`: `NETLINK_ROUTE`.
    fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// One that another process has opened. Answers to that process's requests may still wait:
    /// `sequence`, the number of the last request, tells them apart.
    pub fn from_file(socket: OwnedFd, sequence: u32) -> Self {
        Self { socket, sequence }
    }

    /// Sends a request, with `NLM_F_*` flags beside those of every request, and returns what the
    /// kernel says before the acknowledgment.
    ///
    /// # Errors
    /// What the system says. An answer that the library does not know is `InvalidData`.
    pub fn request(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let answer = self.ask(request, flags | NLM_F_ACK)?;
        answer.messages.into_iter().map(|message| message.map_err(odd)).collect()
    }

    /// Asks for a whole table. A table that changes all the time is given as it was told last.
    /// Messages that the library does not know are left out.
    ///
    /// # Errors
    /// What the system says.
    pub fn dump(&mut self, request: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut tries = 0;
        loop {
            let answer = self.ask(request.clone(), NLM_F_DUMP)?;
            tries += 1;
            if answer.is_whole || tries == TRIES {
                return Ok(answer.messages.into_iter().flatten().collect());
            }
        }
    }

    fn ask<M: NetlinkSerializable + NetlinkDeserializable>(
        &mut self,
        request: M,
        flags: u16,
    ) -> io::Result<Answer<M>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST | flags, self.sequence);
        let bytes = bytes_of(NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request)));
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut answer = Answer { messages: Vec::new(), is_whole: true };
        loop {
            let received = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty());
            let (length, _) = match received {
                Err(Errno::INTR) => continue,
                received => received?,
            };
            if self.take(&buffer[..length], &mut answer)? {
                return Ok(answer);
            }
        }
    }

    /// Adds what the kernel sent at once to the answer. True: that was the end.
    fn take<M: NetlinkDeserializable>(
        &self,
        mut rest: &[u8],
        answer: &mut Answer<M>,
    ) -> io::Result<bool> {
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(odd)?;
            let length = message.length() as usize;
            let (bytes, behind) = (&rest[..length], length.next_multiple_of(4));
            rest = rest.get(behind..).unwrap_or_default();
            if message.sequence_number() != self.sequence {
                continue;
            }
            answer.is_whole &= message.flags() & NLM_F_DUMP_INTR == 0;
            match NetlinkMessage::deserialize(bytes).map(NetlinkMessage::into_parts) {
                Ok((_, NetlinkPayload::InnerMessage(message))) => answer.messages.push(Ok(message)),
                Ok((_, NetlinkPayload::Done(_))) => return Ok(true),
                // Without a number it is the acknowledgment.
                Ok((_, NetlinkPayload::Error(error))) => {
                    return if error.code.is_none() { Ok(true) } else { Err(error.to_io()) };
                }
                Ok(_) => {}
                Err(error) => answer.messages.push(Err(error)),
            }
        }
        Ok(false)
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn bytes_of<M: NetlinkSerializable>(mut message: NetlinkMessage<M>) -> Vec<u8> {
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn odd(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message of the kernel: {error}"))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};
    use nicache_namespaces::Namespace;

    use super::*;

    fn get_link(index: u32) -> RouteNetlinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        RouteNetlinkMessage::GetLink(message)
    }

    fn names(messages: &[RouteNetlinkMessage]) -> Vec<&str> {
        messages
            .iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewLink(link) => {
                    link.attributes.iter().find_map(|attribute| match attribute {
                        LinkAttribute::IfName(name) => Some(name.as_str()),
                        _ => None,
                    })
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn one_is_asked_for_or_all() {
        let Some(namespace) = Namespace::new() else { return };
        let mut netlink = namespace.run(Netlink::open).unwrap();
        let before = names(&netlink.dump(&get_link(0)).unwrap()).len();
        namespace.ip("link add left type veth peer name right");
        let all = netlink.dump(&get_link(0)).unwrap();
        assert_eq!(names(&all).len(), before + 2);
        assert!(names(&all).contains(&"left") && names(&all).contains(&"right"));
        assert_eq!(names(&netlink.request(get_link(1), 0).unwrap()), ["lo"]);
        let error = netlink.request(get_link(1_000_000), 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
        // An error leaves nothing behind.
        assert_eq!(names(&netlink.request(get_link(1), 0).unwrap()), ["lo"]);
    }

    #[test]
    fn answers_to_others_are_not_taken() {
        let Some(namespace) = Namespace::new() else { return };
        let mut netlink = namespace.run(Netlink::open).unwrap();
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST | NLM_F_ACK, 7);
        // The answer and the acknowledgment wait.
        let asked = bytes_of(NetlinkMessage::new(header, get_link(1).into()));
        rustix::net::send(&netlink.socket, &asked, SendFlags::empty()).unwrap();
        netlink = Netlink::from_file(netlink.socket, 99);
        assert!(netlink.request(get_link(1_000_000), 0).is_err());
        assert_eq!(names(&netlink.request(get_link(1), 0).unwrap()), ["lo"]);
    }

    #[test]
    fn what_is_cut_off_is_an_error_and_what_is_unknown_is_one_in_a_request() {
        let netlink = Netlink::open().unwrap();
        let answer = || Answer::<RouteNetlinkMessage> { messages: Vec::new(), is_whole: true };
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_DUMP_INTR;
        let mut bytes = bytes_of(NetlinkMessage::new(header, get_link(1).into()));
        for len in 1..bytes.len() {
            let error = netlink.take(&bytes[..len], &mut answer()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{len}");
        }
        let mut whole = answer();
        assert!(!netlink.take(&bytes, &mut whole).unwrap());
        assert_eq!((whole.messages.len(), whole.is_whole), (1, false));
        // A type that nobody has.
        bytes[4..6].copy_from_slice(&0xfff0u16.to_ne_bytes());
        let mut unknown = answer();
        assert!(!netlink.take(&bytes, &mut unknown).unwrap());
        assert!(matches!(unknown.messages[..], [Err(_)]));
    }
}
