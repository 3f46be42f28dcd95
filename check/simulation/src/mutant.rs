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
    pub const ALL: [Mutant; 12] = [
        Mutant::WriterSilent,
        Mutant::WriterLate,
        Mutant::WatcherSkipsCompare,
        Mutant::LeaseOutlivesWatcher,
        Mutant::LossNotTold,
        Mutant::ServerCorrupts,
        Mutant::RequestCorrupts,
        Mutant::PrivateUnmarked,
        Mutant::ReinstatesChangedFiles,
        Mutant::ReinstatesWithoutLookups,
        Mutant::ReinstatesWithoutWaiting,
        Mutant::ChangedByGet,
    ];
}
