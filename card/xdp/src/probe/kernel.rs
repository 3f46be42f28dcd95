//! What probe frames ask of the kernel.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};

/// Runs a program at tc, which has a copy of the frame come in.
pub(super) fn inject(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<()> {
    let options = libbpf_sys::bpf_test_run_opts {
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    run(program, options)
}

/// Runs an XDP program on a frame as if the first queue of the interface had just received it, and
/// does what it says (Linux 5.18 and newer). Whichever queue is asked for, the kernel runs the
/// program with the number 0 (`xdp_test_run_setup`).
pub(super) fn run_as_received(
    program: BorrowedFd<'_>,
    interface: &str,
    frame: &[u8],
) -> io::Result<()> {
    let context = libbpf_sys::xdp_md {
        data_end: frame.len() as u32,
        ingress_ifindex: index_of(interface)?,
        ..Default::default()
    };
    let options = libbpf_sys::bpf_test_run_opts {
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of_val(&context) as u32,
        repeat: 1,
        flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        ..Default::default()
    };
    run(program, options)
}

/// The pointers in `options` are to what lives during the call, and is as long as they say.
fn run(program: BorrowedFd<'_>, mut options: libbpf_sys::bpf_test_run_opts) -> io::Result<()> {
    options.sz = size_of_val(&options) as _;
    // SAFETY: the kernel reads frame and context, which live during the call and are as long as
    // `options` says; it writes nothing but `options`.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// A socket that sees the probe frames that leave by an interface.
pub(super) struct Watcher(OwnedFd);

impl Watcher {
    pub(super) fn open(interface: &str, filter: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without an Ethertype it receives nothing until it is bound.
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let number = filter.as_raw_fd();
        // SAFETY: the kernel reads as many bytes at the pointer as `number` has.
        check(unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_BPF,
                (&raw const number).cast(),
                size_of_val(&number) as libc::socklen_t,
            )
        })?;
        // SAFETY: plain data, of which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index_of(interface)? as i32;
        // SAFETY: the kernel reads as many bytes at the pointer as `address` has.
        check(unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        })?;
        Ok(Self(fd))
    }

    /// Whether this very frame is among those that left since the last look.
    pub(super) fn has_seen(&self, frame: &[u8]) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        loop {
            match recv(&self.0, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((bytes, _)) if buffer[..bytes] == *frame => return Ok(true),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

pub(super) fn is_up(interface: &str) -> io::Result<bool> {
    Ok(flags(interface)? & libc::IFF_UP != 0)
}

/// Whether it is up and has a carrier.
pub(super) fn is_running(interface: &str) -> io::Result<bool> {
    let both = libc::IFF_UP | libc::IFF_RUNNING;
    Ok(flags(interface)? & both == both)
}

fn flags(interface: &str) -> io::Result<i32> {
    let request = ask(interface, libc::SIOCGIFFLAGS)?;
    // SAFETY: the kernel has written this member of the union.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// The MAC address of an interface.
pub(super) fn address_of(interface: &str) -> io::Result<[u8; 6]> {
    let request = ask(interface, libc::SIOCGIFHWADDR)?;
    // SAFETY: the kernel has written this member of the union.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    Ok(std::array::from_fn(|at| address.sa_data[at] as u8))
}

/// Bytes and frames that an interface has sent. Drivers count them when they are done with a frame,
/// some only one of the two for AF_XDP (virtio_net the bytes).
pub(super) fn sent(interface: &str) -> io::Result<[u64; 2]> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let line =
        table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
    // Eight numbers of what was received come first.
    let numbers = line.and_then(|line| {
        let mut numbers = line.split_ascii_whitespace().skip(8).map(|number| number.parse().ok());
        Some([numbers.next()??, numbers.next()??])
    });
    numbers.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{interface} is gone")))
}

/// The interfaces that a bond is made of; none if it is not a bond.
pub(super) fn slaves_of(interface: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/thread-self/net/bonding/{interface}"))
        .unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_prefix("Slave Interface: "))
        .map(str::to_owned)
        .collect()
}

fn index_of(interface: &str) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(socket()?, interface)?)
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn ask(interface: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: plain data, of which zeros are valid.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    let socket = socket()?;
    // SAFETY: these requests read and write one `struct ifreq`.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) })?;
    Ok(request)
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
