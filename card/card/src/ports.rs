//! The ports of a card, and what is counted at them.

use std::io::IoSlice;

use nicache_port::{Offload, Port, SendError, send_with_fallback};

use crate::bus::FrameBytes;
use crate::counters::Counters;
use crate::packet::Side;

/// Polls with work from the wire after which a quiet host is looked at again.
const HOST_SKIPS_MAX: u32 = 8;

/// The two ports and what is counted at them.
pub(crate) struct Ports<W, H> {
    pub wire: W,
    pub host: H,
    pub ip_id: u16,
    /// The host had nothing when it was last looked at, and was sent nothing since.
    pub host_quiet: bool,
    host_skips: u32,
}

impl<W: Port, H: Port> Ports<W, H> {
    /// Between these; the first IP packet of the card has the number behind `ip_id`.
    pub(crate) fn new(wire: W, host: H, ip_id: u16) -> Self {
        Self { wire, host, ip_id, host_quiet: false, host_skips: 0 }
    }

    /// Sends a frame to the wire.
    pub(crate) fn send_to_wire(
        &mut self,
        parts: &[IoSlice<'_>],
        offload: Offload,
        counters: &mut Counters,
    ) {
        match send_with_fallback(&mut self.wire, parts, offload) {
            Ok(_) => {}
            Err(error) => count_refusal(error, &mut counters.drops_wire),
        }
    }

    /// Passes a frame that came from that side on to the other one as it was on the wire.
    pub(crate) fn pass(&mut self, from: Side, frame: &[u8], counters: &mut Counters) {
        let (parts, bytes) = ([IoSlice::new(frame)], FrameBytes::other(frame.len()));
        match from {
            Side::Wire => self.send_to_host(&parts, Offload::default(), bytes, counters),
            Side::Host => {
                counters.bus.count_from_host(frame.len(), bytes);
                self.send_to_wire(&parts, Offload::default(), counters);
            }
        }
    }

    /// Under a load of hits a look at the host port is a system call for nothing. A host that was
    /// quiet is looked at less often, and always when the wire has nothing.
    pub(crate) fn may_skip_host(&mut self) -> bool {
        self.host_skips += 1;
        if self.host_quiet && self.host_skips < HOST_SKIPS_MAX {
            return true;
        }
        self.host_skips = 0;
        false
    }

    /// Sends a frame to the host, and counts its bytes on the bus.
    pub(crate) fn send_to_host(
        &mut self,
        parts: &[IoSlice<'_>],
        offload: Offload,
        bytes: FrameBytes,
        counters: &mut Counters,
    ) {
        let len = parts.iter().map(|part| part.len()).sum();
        self.host_quiet = false;
        match send_with_fallback(&mut self.host, parts, offload) {
            Ok(frames) => {
                // A super-frame that the port cannot take goes out as segments with headers of
                // their own.
                let header_len = offload.gso.map_or(0, |gso| usize::from(gso.header_len));
                counters.bus.count_to_host(len, bytes, frames, header_len);
            }
            Err(error) => count_refusal(error, &mut counters.drops_host),
        }
    }
}

fn count_refusal(_: SendError, drops: &mut u64) {
    *drops += 1;
}

/// The way to the older: what is sent here, it receives.
pub struct OlderCard {
    /// In place of what comes from the wire.
    pub wire: Box<dyn Port + Send>,
    /// In place of what comes from the host.
    pub host: Box<dyn Port + Send>,
}
