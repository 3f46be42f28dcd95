//! What a card counts, beside the bytes over the bus.

/// What the card has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwareCounters {
    /// Descriptors executed.
    pub commands: u64,
    /// Descriptors refused.
    pub refused: u64,
    /// Packets handed to the port; a super-frame is one.
    pub sent: u64,
    /// Packets of which a part was refused.
    pub dropped: u64,
    /// Packets that the port did not take.
    pub send_failed: u64,
    /// Bytes sent from the cache.
    pub cache_bytes: u64,
    /// Frames handed to the host.
    pub received: u64,
    /// Frames whose buffers were too small, or no buffers.
    pub receive_refused: u64,
    /// Refusals of which the host could not be told.
    pub untold: u64,
}
