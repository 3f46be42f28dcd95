//! Why a reply may not become an entry.

use nicache_reasons::reasons;

reasons! {
    /// Why a reply may not become an entry.
    #[derive(PartialOrd, Ord)]
    RefusalReason {
        /// The server looked at files, but none has the body's bytes.
        NoMatchingFile => "no_matching_file",
        /// The server looked at no file at all during the request: it answered from something that
        /// cannot be seen.
        NotLookedUp => "not_looked_up",
        /// Somebody has the file open for writing or mapped writable.
        OpenForWriting => "open_for_writing",
        /// A source changed after the request was forwarded.
        Changed => "changed",
        /// More than [`SOURCES_MAX`](crate::SOURCES_MAX) sources.
        TooManySources => "too_many_sources",
        /// A file or directory is on a file system without a proven witness.
        UnwatchedFilesystem => "unwatched_filesystem",
        /// Look-up events were lost, or are no longer kept.
        EventsLost => "events_lost",
        /// Last-Modified is absent or not the file's modification time.
        ModifiedMismatch => "modified_mismatch",
        /// A body of no bytes matches every empty file.
        EmptyBody => "empty_body",
        /// The file, a directory or a process could not be read.
        Io => "io",
        /// The server changed something while it worked on the request: a request that does more
        /// than ask.
        Wrote => "wrote",
        /// The server talked to a program that is not watched.
        UnwatchedPeer => "unwatched_peer",
        /// A file that the server has in its own memory has changed, and the server has not looked
        /// at it since.
        Dirty => "dirty",
        /// The server keeps more files in its own memory than can be followed.
        TooManyRetained => "too_many_retained",
        /// The server read from a database what cannot be told apart from the rest, or in a way
        /// that cannot be followed.
        DatabaseUnclear => "database_unclear",
        /// The server was started before it was watched, so nobody knows what it has in its own
        /// memory; and the reply is dynamic.
        ServerOlder => "server_older",
        /// The reply is a file, but a program or a database that the server asked meanwhile may
        /// have decided that it be sent.
        Decided => "decided",
        /// A program that may have had a part in the reply does what nobody sees.
        Unseen => "unseen",
    }
}

impl RefusalReason {
    /// The reason in a message, where 0 means that nothing was refused.
    pub(super) const fn code(self) -> u8 {
        self as u8 + 1
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_distinct_labels_and_codes_from_1() {
        for (code, &reason) in (1..).zip(RefusalReason::ALL) {
            assert_eq!(reason.code(), code);
            assert_eq!(RefusalReason::from_code(code), Some(reason));
            assert_eq!(
                RefusalReason::ALL.iter().filter(|other| other.label() == reason.label()).count(),
                1
            );
        }
        // What is in messages stays as it is.
        assert_eq!((RefusalReason::NoMatchingFile.code(), RefusalReason::Decided.code()), (1, 17));
        assert_eq!(RefusalReason::Unseen.code(), 18);
        assert_eq!((RefusalReason::from_code(0), RefusalReason::from_code(19)), (None, None));
    }
}
