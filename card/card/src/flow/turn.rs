//! The line of flows that wait for their turn to send.

use std::collections::VecDeque;

use crate::limits::SUPER_FRAME_BYTES;

/// Payload bytes that are sent between two looks at the ports, for what has arrived, and as many
/// again for those whose turn it is.
const BYTES_PER_LOOK: u32 = 4 * SUPER_FRAME_BYTES;
/// A frame costs as much as so many bytes of payload, at least.
const FRAME_COST_BYTES: u32 = 4096;

/// Where a flow stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The flow has nothing to send, or sends at once.
    #[default]
    No,
    /// The flow is to be put in line.
    Wanted,
    /// The flow is in line.
    Waiting,
}

/// The flows that wait for their turn to send.
#[derive(Debug)]
pub(crate) struct Turns {
    line: VecDeque<u32>,
    places: usize,
    bytes_left: u32,
}

impl Turns {
    /// Turns for so many flows.
    pub(crate) fn new(flows: usize) -> Self {
        Self { line: VecDeque::with_capacity(flows), places: flows, bytes_left: BYTES_PER_LOOK }
    }

    /// Does nobody wait?
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The ports have been looked at.
    pub(crate) fn begin(&mut self) {
        self.bytes_left = BYTES_PER_LOOK;
    }

    /// May more be sent before the ports are looked at again?
    pub(crate) fn may_send(&self) -> bool {
        self.bytes_left > 0
    }

    /// So many bytes of payload are sent in one frame.
    pub(crate) fn count(&mut self, bytes: u32) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.max(FRAME_COST_BYTES));
    }

    /// Puts a flow in line that wants it. Places of flows that are gone are taken until their turn
    /// comes: a flow that finds none goes on at its next acknowledgment.
    pub(crate) fn join(&mut self, index: u32, turn: &mut Turn) {
        if *turn == Turn::Wanted {
            *turn = Turn::No;
            if self.line.len() < self.places {
                self.line.push_back(index);
                *turn = Turn::Waiting;
            }
        }
    }

    /// Takes the place of the flow that is first in line. Another flow may have that place by now.
    pub(crate) fn take_first(&mut self) -> Option<u32> {
        self.line.pop_front()
    }
}
