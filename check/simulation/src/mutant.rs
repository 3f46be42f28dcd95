//! Faults put into the models, never into the card, to prove that the checkers can fail.

/// What a model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Writers do not tell the revision table.
    WriterSilent,
    /// Writers tell the revision table after their call has returned.
    WriterLate,
    /// The watcher neither waits for writers nor compares the body with the file.
    WatcherSkipsCompare,
    /// The lease is renewed while the watcher is dead.
    LeaseOutlivesWatcher,
    /// Lost events are not counted.
    LossNotTold,
    /// The server changes a byte of a body while its own log says otherwise.
    ServerCorrupts,
    /// Requests are recorded with another byte than was sent.
    RequestCorrupts,
    /// The server marks private replies as shareable, and the watcher agrees to everything.
    PrivateUnmarked,
    /// An entry is reinstated although a file has changed.
    ReinstatesChangedFiles,
    /// An entry is reinstated although a path leads elsewhere.
    ReinstatesWithoutLookups,
    /// An entry is reinstated while a directory is being changed.
    ReinstatesWithoutWaiting,
    /// A request with a safe method changes a file of which no witness knows.
    ChangedByGet,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::WriterSilent,
        Self::WriterLate,
        Self::WatcherSkipsCompare,
        Self::LeaseOutlivesWatcher,
        Self::LossNotTold,
        Self::ServerCorrupts,
        Self::RequestCorrupts,
        Self::PrivateUnmarked,
        Self::ReinstatesChangedFiles,
        Self::ReinstatesWithoutLookups,
        Self::ReinstatesWithoutWaiting,
        Self::ChangedByGet,
    ];
}
