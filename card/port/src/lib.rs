//! Frames in and out of a card.
//!
//! A [`Port`] receives bursts of Ethernet frames and sends one frame at a time from a gather list.
//! Every frame carries its [`Offload`]: whether its checksum is verified, or still partial, and
//! whether it is a super-frame that somebody further on has to cut into segments. The metadata is
//! that of virtio-net (virtio 1.2, section 5.1.6), because kernel TAPs, AF_PACKET sockets and
//! virtual machines all speak it.
//!
//! Ports: [`TapQueue`] (one queue of a kernel TAP interface), [`PacketSocket`] (one queue of an
//! interface that exists already) and [`MemoryPort`] (one end of an in-memory wire). Wrappers,
//! each generic over the port inside: [`Losable`] (goes on without it when it breaks), [`Pcap`]
//! (capture file), [`Faulty`] (seeded loss, duplication, reordering, delay, corruption),
//! [`Counted`] (counters that another thread can read). Around a port: [`send_with_fallback`]
//! cuts a super-frame in software for a port that cannot, and [`Idle`] with [`wait`] says when to
//! poll and when to sleep. [`ReceiveSteering`] keeps the kernel's share of the work on the card's
//! CPU. Beside the ports, [`unacknowledged()`] asks the kernel about a TCP socket.
//!
//! Read first: `port.rs` (the contract), then `frame.rs`. Another kind of port is one more file
//! that implements [`Port`]; nothing else here knows the ports by name.
//!
//! Deliberately absent: parsing beyond what cutting a super-frame needs, addresses and routes of
//! interfaces (the supervisor's), and any thread of its own.
//!
//! Unsafe code is confined to `tap.rs` (the ioctls of `/dev/net/tun`), `unacknowledged.rs` (one
//! ioctl) and `packet_socket` (socket options, and receiving several frames at once).

#![deny(unsafe_code)]

mod clock;
mod counters;
mod cpu_pressure;
mod fault;
mod frame;
mod gather;
mod idle;
#[cfg(test)]
mod kernel_tests;
mod losable;
mod memory_wire;
mod packet_socket;
mod pair_socket;
mod pcap;
mod port;
mod segment;
mod steering;
mod tap;
#[cfg(test)]
mod test_frames;
mod unacknowledged;
mod virtio_net;

pub use clock::{Clock, ManualClock, MonotonicClock, RealtimeClock};
pub use counters::{Counted, DirectionSnapshot, PortCounters, PortSnapshot};
pub use cpu_pressure::CpuPressure;
pub use fault::{FaultConfig, FaultCounters, FaultRates, Faulty, LaneOf};
pub use frame::{
    Burst, Checksum, ETHERNET_HEADER_BYTES, FRAME_BYTES_MAX, FrameBuf, Gso, GsoKind, Offload,
};
pub use gather::{PARTS_MAX, SendError};
pub use idle::{Idle, IdlePolicy, IdleStep, NAP, WAIT_FDS_MAX, Wake, wait};
pub use losable::Losable;
pub use memory_wire::{MemoryPort, memory_wire};
pub use packet_socket::{PacketConfig, PacketError, PacketSocket, Reception, mtu};
pub use pair_socket::{Divertible, PairSocket};
pub use pcap::{PCAP_SNAPLEN_DEFAULT, Pcap};
pub use port::{Capabilities, Port};
pub use segment::{HEADER_BYTES_MAX, Segments, send_with_fallback};
pub use steering::ReceiveSteering;
pub use tap::{Tap, TapConfig, TapError, TapQueue};
pub use unacknowledged::unacknowledged;
pub use virtio_net::{HeaderError, VIRTIO_NET_HEADER_BYTES, decode_header, encode_header};
