//! A program at one link whose frames are a forwarder's, by AF_XDP sockets, except what this
//! machine keeps.
//!
//! ```no_run
//! use nicache_xdp::{Kept, KeptPorts, Sieve, XdpConfig, XdpSocket};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ports = vec![KeptPorts { is_udp: false, ports: 22..=22 }];
//! let kept = Kept { ports, addresses: vec!["192.0.2.1".parse()?], answered: Vec::new() };
//! let sieve = Sieve::attach("eth0", 1, kept)?;
//! let socket = XdpSocket::open("eth0", 0, sieve.sockets(), &XdpConfig::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! What this machine keeps goes to the kernel's stack, where packet sockets see it, and so does
//! everything from a queue that has no socket.
//!
//! Read first: `ebpf/sieve.bpf.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, ObjectBuilder};

use crate::error::{SteeringError, step};
use crate::link::attach_native;
use crate::log::with_log;
use crate::maps;
use crate::program::{Aligned, Failure, check_capabilities};
use crate::steering::index_of;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sieve.bpf.o")));

/// Ports of one word of the map, and words of a protocol (`ebpf/sieve.bpf.c`).
const PORTS_OF_A_WORD: u32 = 64;
const WORDS_OF_A_PROTOCOL: u32 = 65_536 / PORTS_OF_A_WORD;

/// Ports of this machine's own stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPorts {
    /// The ports are of UDP; otherwise of TCP.
    pub is_udp: bool,
    /// Which ones.
    pub ports: std::ops::RangeInclusive<u16>,
}

/// What this machine keeps besides the frames of neighbours: these ports at its own addresses, and
/// errors about what they have sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Which ports.
    pub ports: Vec<KeptPorts>,
    /// This machine's addresses.
    pub addresses: Vec<IpAddr>,
    /// What is the forwarder's all the same, at TCP (false) or UDP (true).
    pub answered: Vec<(bool, SocketAddr)>,
}

/// The program at work. When this is dropped, or the process that has it ends in whatever way, the
/// link is as before.
#[derive(Debug)]
pub struct Sieve {
    program: OwnedFd,
    sockets: OwnedFd,
    own: OwnedFd,
    addresses: BTreeSet<IpAddr>,
    _link: OwnedFd,
}

impl Sieve {
    /// Attaches the program to an interface of the calling thread's network namespace, with room
    /// for a socket on each of so many queues. As long as a queue has none, its frames go to the
    /// kernel.
    ///
    /// # Errors
    /// See [`SteeringError`]; then nothing is left behind.
    pub fn attach(interface: &str, queues: u32, kept: Kept) -> Result<Self, SteeringError> {
        let index = index_of(interface)?;
        let Loaded { program, sockets, kept: words, own, answered } = load(queues)?;
        let told = step("telling the program what is kept");
        for (word, bits) in bits_of(kept.ports) {
            maps::set(words.as_fd(), word.to_ne_bytes(), bits.to_ne_bytes()).map_err(&told)?;
        }
        for (is_udp, endpoint) in kept.answered {
            maps::set(answered.as_fd(), answered_key(is_udp, endpoint), [1]).map_err(&told)?;
        }
        for address in &kept.addresses {
            maps::set(own.as_fd(), octets(*address), [1]).map_err(&told)?;
        }
        let link = attach_native(program.as_fd(), interface, index)?;
        let addresses = kept.addresses.into_iter().collect();
        Ok(Self { program, sockets, own, addresses, _link: link })
    }

    /// This machine has these addresses now.
    ///
    /// # Errors
    /// What the kernel says of one; then the same call is to be made again.
    pub fn set_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> io::Result<()> {
        for new in addresses.difference(&self.addresses) {
            maps::set(self.own.as_fd(), octets(*new), [1])?;
        }
        for old in self.addresses.difference(addresses) {
            maps::remove(self.own.as_fd(), octets(*old))?;
        }
        self.addresses.clone_from(addresses);
        Ok(())
    }

    /// The map of sockets by queue, for [`XdpSocket::open`](crate::XdpSocket::open).
    pub fn sockets(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }

    /// The program itself, for [`probe_link`](crate::probe_link).
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// The program and its maps.
pub(crate) struct Loaded {
    pub(crate) program: OwnedFd,
    sockets: OwnedFd,
    kept: OwnedFd,
    own: OwnedFd,
    answered: OwnedFd,
}

pub(crate) fn load(queues: u32) -> Result<Loaded, SteeringError> {
    check_capabilities()?;
    let (result, log) = with_log(|| load_object(queues));
    result.map_err(|failure| failure.explain(&log))
}

fn load_object(queues: u32) -> Result<Loaded, Failure> {
    let mut open = ObjectBuilder::default().open_memory(&OBJECT.0)?;
    for mut map in open.maps_mut() {
        if map.name() == "sockets" {
            map.set_max_entries(queues.max(1))?;
        }
    }
    let object = open.load()?;
    let map = |name: &str| {
        let map = object.maps().find(|map| map.name() == OsStr::new(name));
        map.ok_or_else(|| Failure::Absent(name.to_owned()))?
            .as_fd()
            .try_clone_to_owned()
            .map_err(Failure::Io)
    };
    let program = object.progs().find(|program| program.name() == OsStr::new("sieve"));
    let program = program.ok_or_else(|| Failure::Absent("sieve".to_owned()))?;
    let program = program.as_fd().try_clone_to_owned().map_err(Failure::Io)?;
    Ok(Loaded {
        program,
        sockets: map("sockets")?,
        kept: map("kept")?,
        own: map("own")?,
        answered: map("answered")?,
    })
}

/// As in the program's `struct address`.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// As in the program's `struct answered`.
fn answered_key(is_udp: bool, endpoint: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&octets(endpoint.ip()));
    key[16..18].copy_from_slice(&endpoint.port().to_be_bytes());
    let protocol = if is_udp { libc::IPPROTO_UDP } else { libc::IPPROTO_TCP };
    key[18..].copy_from_slice(&(protocol as u16).to_ne_bytes());
    key
}

/// Words of the map that are not 0.
fn bits_of(kept: impl IntoIterator<Item = KeptPorts>) -> BTreeMap<u32, u64> {
    let mut words = BTreeMap::new();
    for KeptPorts { is_udp, ports } in kept {
        for port in ports.map(u32::from) {
            let word = port / PORTS_OF_A_WORD + if is_udp { WORDS_OF_A_PROTOCOL } else { 0 };
            *words.entry(word).or_default() |= 1 << (port % PORTS_OF_A_WORD);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_for_each_port() {
        let kept = [(false, 0..=0), (false, 62..=65), (true, 65_535..=65_535)];
        let words = bits_of(kept.map(|(is_udp, ports)| KeptPorts { is_udp, ports }));
        let expected = [(0, 1 | 3 << 62), (1, 3), (2 * WORDS_OF_A_PROTOCOL - 1, 1 << 63)];
        assert_eq!(words.into_iter().collect::<Vec<_>>(), expected);
    }
}
