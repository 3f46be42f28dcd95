//! What a card counts, beside the bytes over the bus.

nicache_counters::counters! {
    /// What the card has done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FirmwareCounters {
        commands: "Descriptors executed.",
        refused: "Descriptors refused.",
        sent: "Packets handed to the port; a super-frame is one.",
        dropped: "Packets of which a part was refused.",
        send_failed: "Packets that the port did not take.",
        cache_bytes: "Bytes sent from the cache.",
        received: "Frames handed to the host.",
        receive_refused: "Frames for which the posted buffers were too small, or invalid.",
        untold: "Refusals of which the host could not be told.",
    }
}
