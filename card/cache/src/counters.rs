//! What the cache counts. One thread owns it; others get copies.

use nicache_coherence::RefusalReason;
use nicache_http::NotShared;
use nicache_reasons::reasons;

reasons! {
    /// Why a reply that passed was not offered to the watcher.
    FillAbort {
        /// No fill was free, or the request head was too long to keep.
        Resources => "resources",
        /// The body is larger than one object may be.
        TooLarge => "too_large",
        /// The policy holds what is in memory for worth more, or all of it is in use.
        NoRoom => "no_room",
        /// The policy did not want it once its length was known.
        NotAdmitted => "not_admitted",
        /// The head of the reply is larger than the card stores.
        HeadTooLarge => "head_too_large",
        /// The reply has no body by its nature.
        NoBody => "no_body",
        /// The reply's chunks had extensions or trailers, which the card does not keep.
        ChunkExtras => "chunk_extras",
        /// Bytes of the reply did not pass in order, or it ended early.
        Incomplete => "incomplete",
        /// The watcher did not answer in time, or is gone.
        NoVerdict => "no_verdict",
        /// A source changed between the verdict and the insertion.
        ChangedAtInsert => "changed_at_insert",
        /// Another request for the same was let through because the server said nothing to this
        /// one.
        Superseded => "superseded",
        /// A dynamic reply that is different each time.
        Volatile => "volatile",
        /// The client took the reply so slowly that others could not have wanted to wait for it.
        SlowClient => "slow_client",
    }
}

nicache_counters::counters! {
    /// All counters of one cache, in units of events.
    #[derive(Clone, Debug, Default)]
    pub struct Counters {
        fills: "Replies that were copied into card memory to be judged.",
        fills_stored: "Replies that were copied into card memory and became entries.",
        purges_by_source: "Entries dropped because a source changed.",
        reinstated: "Entries that stayed although a directory among their sources had changed.",
        masked: "Executions that were equal except for what is masked.",
        classes_split: "Pages that the server gave to clients of different classes differently without a Vary header.",
        put_aside: "Times a page was put aside because it is purged more often than it is used.",
        agreed: "Dynamic replies that became entries, because two executions agreed.",
        renewed: "Dynamic entries that stayed, because the server said the same again.",
        executions_differed: "Executions that differed although no source had changed.",
        rechecks: "Requests of the card's own by which the server is asked again.",
        rechecks_dropped: "Requests of the card's own that were dropped because too many were waiting.",
        waits: "Requests that waited for another one's reply or for the watcher.",
        waits_answered: "Requests that waited and were then answered from card memory.",
        waits_shared: "Requests that waited and were then answered with a reply that is not kept.",
        waits_collapsed: "Requests that waited for the reply to another request for the same page.",
        evictions: "Entries dropped to make room.",
    }
    beside {
        /// Fills that the watcher refused.
        pub fills_refused: [u64; RefusalReason::ALL.len()],
        /// Replies that may not be shared.
        pub fills_not_shared: [u64; NotShared::ALL.len()],
        /// Fills that the card gave up.
        pub fills_aborted: [u64; FillAbort::ALL.len()],
    }
}

impl Counters {
    /// Counts a reply that is not offered to the watcher.
    pub fn count_abort(&mut self, reason: FillAbort) {
        self.fills_aborted[reason.index()] += 1;
    }
}
