//! Frames that come from the wire go into buffers of the host, in the order in which it gave them.

use nicache_bus::{BusClass, CardSide, PushError, Received, RingError};
use nicache_port::{Checksum, FrameBuf};

use crate::counters::FirmwareCounters;
use crate::dma::Dma;

/// Hands a frame to the host, and returns how many entries of rings that took. One for which there is no place is dropped and counted.
pub fn deliver(
    frame: &FrameBuf,
    side: &mut CardSide,
    dma: &mut Dma,
    counters: &mut FirmwareCounters,
    now_ns: u64,
) -> Result<u64, RingError> {
    if side.received.room()? == 0 {
        counters.receive_no_buffer += 1;
        return Ok(0);
    }
    let Some(entry) = side.free.pop()? else {
        counters.receive_no_buffer += 1;
        return Ok(0);
    };
    let place = Received::decode(entry);
    let len = frame.len() as u64;
    // A place that is too small, or that is no place, comes back with nothing in it.
    let fits = len <= place.len && dma.write(place.mmaddr, frame.data(), BusClass::Other, now_ns).is_ok();
    if fits {
        counters.received += 1;
    } else {
        counters.receive_refused += 1;
    }
    let checksums_right = !matches!(frame.offload().checksum, Checksum::Unverified);
    let report = Received { mmaddr: place.mmaddr, len: if fits { len } else { 0 }, checksums_right };
    match side.received.push(report.encode()) {
        // The place and the report.
        Ok(()) => Ok(2),
        Err(PushError::Peer(error)) => Err(error),
        Err(PushError::Full) => unreachable!("there was room"),
    }
}
