//! What an interface's driver says of itself (`ethtool(8)`).

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// `ETHTOOL_*` of linux/ethtool.h.
const GET_DRIVER_INFO: u32 = 0x3;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;
/// `ETH_FLAG_RXVLAN`.
const FLAG_TAKES_TAGS: u32 = 1 << 8;

/// How the administrator has set an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Receive queues, from 0 on. `None`: the driver does not say.
    pub receive_queues: Option<u32>,
    /// The driver takes VLAN tags out of frames, so AF_XDP does not see them.
    pub takes_tags: bool,
}

impl Settings {
    /// Asks for the settings of an interface in the calling thread's network namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(interface: &str) -> io::Result<Self> {
        // `struct ethtool_channels`: most of each kind, then how many there are: for receiving,
        // sending, other things, and for both.
        let receive_queues = ask::<9>(interface, GET_CHANNELS)?.map(|answer| answer[5] + answer[8]);
        let takes_tags =
            ask::<2>(interface, GET_FLAGS)?.is_some_and(|answer| answer[1] & FLAG_TAKES_TAGS != 0);
        Ok(Self { receive_queues: receive_queues.filter(|queues| *queues > 0), takes_tags })
    }
}

/// The name of an interface's driver; empty if it has none.
pub(crate) fn driver(interface: &str) -> io::Result<String> {
    // `struct ethtool_drvinfo`: command, name of 32 bytes, more.
    let info = ask::<49>(interface, GET_DRIVER_INFO)?;
    let name = info.iter().flat_map(|info| &info[1..9]).flat_map(|word| word.to_ne_bytes());
    Ok(String::from_utf8(name.take_while(|byte| *byte != 0).collect()).unwrap_or_default())
}

/// The answer, which begins with the command; `None`: the driver has none. `WORDS` are as many as
/// the command's structure has.
fn ask<const WORDS: usize>(interface: &str, command: u32) -> io::Result<Option<[u32; WORDS]>> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let mut words = [0u32; WORDS];
    words[0] = command;
    // SAFETY: plain data, of which zeros are valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`; with each of these commands the kernel writes a
    // structure where it points to that is as long as `words`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if result == 0 {
        return Ok(Some(words));
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        error => Err(error),
    }
}
