//! What becomes of a frame.

use std::ops::Range;

use arrayvec::ArrayVec;
use nicache_port::Offload;
use nicache_tcp::Time;

use crate::counters::Drop;
use crate::icmp;

/// Bytes of a head at most: headers of a packet that is passed on, or a whole frame of ours.
pub const HEAD_BYTES_MAX: usize = 640;
const _: () = assert!(icmp::ERROR_FRAME_BYTES_MAX + 8 <= HEAD_BYTES_MAX);

/// The first bytes of a frame that is to be sent.
pub type Head = ArrayVec<u8, HEAD_BYTES_MAX>;

/// A frame that has come in.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its first bytes: all headers at least.
    pub look: &'a [u8],
    /// All of its bytes.
    pub len: usize,
    /// The port that it came in by.
    pub port: u8,
    /// Its metadata.
    pub offload: Offload,
}

/// When a packet came, and a number that nobody can guess.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When the packet came.
    pub now: Time,
    /// The number.
    pub random: u32,
}

/// A frame that is to be sent: the head, and behind it bytes of the frame that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The interface.
    pub interface: usize,
    /// Which bytes of the frame that came in follow the head.
    pub rest: Range<usize>,
    /// The metadata of what is sent.
    pub offload: Offload,
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is sent.
    Forward(Outgoing),
    /// It is sent in pieces, each of which the link takes ([`crate::cutting`]). The head is that of
    /// all of it.
    Cut {
        /// The packet as it would be sent whole.
        whole: Outgoing,
        /// Where the IP header begins in the head.
        network_at: usize,
        /// Bytes of the longest IP packet that the link takes.
        mtu: u32,
    },
    /// It is sent as a super-frame whose segments its receiver takes ([`crate::segmenting`]). Its
    /// checksum is still whole, and is to become partial.
    Segment {
        /// The super-frame.
        whole: Outgoing,
        /// Where the IP header begins in the head.
        network_at: usize,
    },
    /// It is sent to each target of a group, see [`Forwarder::fan_out`](crate::Forwarder::fan_out).
    FanOut {
        /// The group.
        group: usize,
        /// How many targets that has.
        targets: usize,
    },
    /// The head is a frame of ours, which answers it.
    Answer {
        /// The interface that it goes out by.
        interface: usize,
    },
    /// The next hop's MAC address is asked for. The frame may come again a little later; to drop it
    /// is right, too.
    Wait,
    /// All of its bytes are wanted: it is to come again by
    /// [`Forwarder::handle_whole`](crate::Forwarder::handle_whole), in the order of such frames.
    Look,
    /// It was for us, and nothing is sent for it now.
    Taken,
    /// It is dropped.
    Drop(Drop),
}
