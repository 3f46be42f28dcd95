//! The two interfaces that a card is between: what it receives by, and what becomes of the rest.

use serde::{Deserialize, Serialize};

/// What becomes of frames that are not the card's, or of all if the card is not alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Frames go on to the kernel's stack, to which the interface belongs.
    Pass,
    /// Frames go out on the other side, as on a wire. The interface receives everything that is on
    /// its own wire, as a bridge's would.
    Redirect,
    /// The other side is a station with this MAC address beside the kernel's own stack: its frames
    /// go there, those for many to both, the others to the stack.
    Station([u8; 6]),
}

/// What the card receives by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardPort {
    /// A [`PacketSocket`](nicache_port::PacketSocket) with the side's
    /// [`filter`](crate::SideFiles::filter).
    Packet,
    /// An [`XdpSocket`](crate::XdpSocket) on each of so many queues. More than one is possible
    /// toward the wire only, with as many packet sockets toward the host, as the network card
    /// chooses the queue of a flow.
    Xdp {
        /// Queues of the interface, from 0 on.
        queues: u32,
    },
}

/// One of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side<'a> {
    /// The interface's name, in the network namespace of the calling thread.
    pub interface: &'a str,
    /// Where frames go that are not the card's.
    pub rest: Rest,
    /// What the card receives by.
    pub port: CardPort,
}
