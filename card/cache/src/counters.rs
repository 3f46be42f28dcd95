//! What the cache counts. One thread owns it; others get copies.

use nicache_coherence::RefusalReason;
use nicache_http::NotShared;

/// Why a reply that passed was not offered to the watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum FillAbort {
    /// No fill was free, or the request head was too long to keep.
    Resources,
    /// The body is larger than one object may be.
    TooLarge,
    /// The policy holds what is in memory for worth more, or all of it is in use.
    NoRoom,
    /// The policy did not want it once its length was known.
    NotAdmitted,
    /// The head of the reply is larger than the card stores.
    HeadTooLarge,
    /// The reply has no body by its nature.
    NoBody,
    /// Its chunks had extensions or trailers, which the card does not keep.
    ChunkExtras,
    /// Bytes of the reply did not pass in order, or it ended early.
    Incomplete,
    /// The watcher did not answer in time, or is gone.
    NoVerdict,
    /// A source changed between the verdict and the insertion.
    ChangedAtInsert,
    /// Another request for the same was let through because the server said nothing to this one.
    Superseded,
    /// A computed reply that is different each time.
    Volatile,
    /// The client took the reply so slowly that others could not have wanted to wait for it.
    SlowClient,
}

impl FillAbort {
    /// All reasons.
    pub const ALL: [FillAbort; 13] = [
        FillAbort::Resources,
        FillAbort::TooLarge,
        FillAbort::NoRoom,
        FillAbort::NotAdmitted,
        FillAbort::HeadTooLarge,
        FillAbort::NoBody,
        FillAbort::ChunkExtras,
        FillAbort::Incomplete,
        FillAbort::NoVerdict,
        FillAbort::ChangedAtInsert,
        FillAbort::Superseded,
        FillAbort::Volatile,
        FillAbort::SlowClient,
    ];

    /// The name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            FillAbort::Resources => "resources",
            FillAbort::TooLarge => "too_large",
            FillAbort::NoRoom => "no_room",
            FillAbort::NotAdmitted => "not_admitted",
            FillAbort::HeadTooLarge => "head_too_large",
            FillAbort::NoBody => "no_body",
            FillAbort::ChunkExtras => "chunk_extras",
            FillAbort::Incomplete => "incomplete",
            FillAbort::NoVerdict => "no_verdict",
            FillAbort::ChangedAtInsert => "changed_at_insert",
            FillAbort::Superseded => "superseded",
            FillAbort::Volatile => "volatile",
            FillAbort::SlowClient => "slow_client",
        }
    }
}

/// All counters of one cache, in units of events.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Fills begun.
    pub fills: u64,
    /// Fills that became entries.
    pub fills_stored: u64,
    /// Fills that the watcher refused.
    pub fills_refused: [u64; RefusalReason::ALL.len()],
    /// Replies that may not be shared.
    pub fills_not_shared: [u64; NotShared::ALL.len()],
    /// Fills that the card gave up.
    pub fills_aborted: [u64; FillAbort::ALL.len()],
    /// Entries dropped because a source changed.
    pub purges_by_source: u64,
    /// Entries that stayed although a directory among their sources had changed.
    pub reinstated: u64,
    /// Executions that were taken for the same although what is masked differs.
    pub masked: u64,
    /// Times that the server has answered clients of different classes differently, without `Vary`.
    pub classes_split: u64,
    /// Times that a page was put aside, because it is purged more often than used.
    pub put_aside: u64,
    /// Computed replies that became entries, because two executions agreed.
    pub agreed: u64,
    /// Dynamic entries that stayed, because the server said the same again.
    pub renewed: u64,
    /// Executions that differed from another although no source had changed.
    pub executions_differed: u64,
    /// Times that the server was to be asked again by the card itself.
    pub rechecks: u64,
    /// Of these: dropped, because too many were waiting.
    pub rechecks_dropped: u64,
    /// Requests that waited for the reply to another one, or for the watcher.
    pub waits: u64,
    /// Of these: answered from card memory then.
    pub waits_answered: u64,
    /// Of these: with a reply that is not kept, because something has changed, but was computed after they had come.
    pub waits_shared: u64,
    /// Requests that had no entry and waited for another one's reply.
    pub waits_collapsed: u64,
    /// Entries dropped to make room.
    pub evictions: u64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            fills: 0,
            fills_stored: 0,
            fills_refused: [0; RefusalReason::ALL.len()],
            fills_not_shared: [0; NotShared::ALL.len()],
            fills_aborted: [0; FillAbort::ALL.len()],
            purges_by_source: 0,
            reinstated: 0,
            masked: 0,
            classes_split: 0,
            put_aside: 0,
            agreed: 0,
            renewed: 0,
            executions_differed: 0,
            rechecks: 0,
            rechecks_dropped: 0,
            waits: 0,
            waits_answered: 0,
            waits_shared: 0,
            waits_collapsed: 0,
            evictions: 0,
        }
    }
}

impl Counters {
    /// Counts a reply that is not offered to the watcher.
    pub fn count_abort(&mut self, reason: FillAbort) {
        self.fills_aborted[reason as usize] += 1;
    }
}
