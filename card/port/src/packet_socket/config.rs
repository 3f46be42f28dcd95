//! How packet sockets are set up, and why they could not be.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Most sockets that share an interface (Linux `PACKET_FANOUT_MAX`, 256 before 5.13).
pub(super) const QUEUES_MAX: usize = 256;

/// Which frames an interface is to receive beside those for its own address, as long as the socket
/// is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reception<'a> {
    /// No frames beside those for its own address.
    #[default]
    Own,
    /// Frames for these MAC addresses, and all multicast.
    Addresses(&'a [[u8; 6]]),
    /// Everything that is on the wire.
    Promiscuous,
}

/// How packet sockets are set up.
#[derive(Debug, Clone, Copy)]
pub struct PacketConfig<'a> {
    /// Which frames the interface receives. Default: its own. A card that stands in for other
    /// machines, such as a server behind it, needs their addresses or everything.
    pub reception: Reception<'a>,
    /// An eBPF socket filter that says which frames are received (0 = not). Default: all.
    pub filter: Option<BorrowedFd<'a>>,
    /// An eBPF socket filter that says which queue a frame is for, modulo the number of queues; it
    /// sees the frame from its network header on. Default: the kernel's symmetric hash.
    pub queue: Option<BorrowedFd<'a>>,
    /// Most bytes of kernel memory for long frames that wait to be received, per queue. Default: 16
    /// MiB. It is used only as far as frames wait; with too little, bursts of super-frames are
    /// dropped. (Short frames have 8 MiB, always.)
    pub receive_buffer_bytes: u32,
    /// Most bytes of kernel memory for frames that were sent and are not consumed yet, per queue.
    /// Default: 16 MiB.
    pub send_buffer_bytes: u32,
}

impl Default for PacketConfig<'_> {
    fn default() -> Self {
        const BUFFER_BYTES: u32 = 16 << 20;
        PacketConfig {
            reception: Reception::Own,
            filter: None,
            queue: None,
            receive_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: BUFFER_BYTES,
        }
    }
}

/// Why packet sockets could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// Not a name that an interface can have: 1 to 15 bytes.
    #[error("`{0}` cannot be the name of an interface")]
    BadName(String),
    /// There is none of that name in the calling thread's network namespace.
    #[error("there is no interface `{0}` in this network namespace: `ip link` lists them")]
    NoInterface(String),
    /// Loopback, a tunnel, or another interface whose frames have no Ethernet header.
    #[error("interface `{0}` is not an Ethernet: a veth, bridge port or network card is needed")]
    NotEthernet(String),
    /// Neither root nor `CAP_NET_RAW` in the network namespace.
    #[error(
        "not permitted to open packet sockets: CAP_NET_RAW is needed, and CAP_NET_ADMIN for large buffers"
    )]
    NotPermitted,
    /// The kernel was built without packet sockets.
    #[error("this kernel has no packet sockets: load the af_packet module")]
    Unsupported,
    /// No queue, or more than the kernel allows (256).
    #[error("an interface cannot have {0} packet queues: 1 to {QUEUES_MAX}")]
    QueueCount(usize),
    /// The file descriptor is not a packet socket with virtio-net headers and a ring that is bound
    /// to an interface.
    #[error("file descriptor {0} is not a bound packet socket with virtio-net headers and a ring")]
    NotAPacketSocket(RawFd),
    /// The interface was there and has been removed; what [`receive`](crate::Port::receive) tells,
    /// inside of an [`io::Error`].
    #[error("interface `{0}` is gone: start again when it is back")]
    Gone(String),
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

/// Names what was being done.
pub(super) fn step(step: &'static str) -> impl Fn(io::Error) -> PacketError {
    move |error| PacketError::Io { step, error }
}
