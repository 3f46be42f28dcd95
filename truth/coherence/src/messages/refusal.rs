//! Why a reply may not become an entry.

/// Why a reply may not become an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RefusalReason {
    /// The server looked at files, but none has the body's bytes.
    NoMatchingFile = 1,
    /// The server looked at no file at all during the request: it answered from something that
    /// cannot be seen.
    NotLookedUp = 2,
    /// Somebody has the file open for writing or mapped writable.
    OpenForWriting = 3,
    /// A source changed after the request was forwarded.
    Changed = 4,
    /// More than [`SOURCES_MAX`](crate::SOURCES_MAX) sources.
    TooManySources = 5,
    /// A file or directory is on a file system without a proven witness.
    UnwatchedFilesystem = 6,
    /// Look-up events were lost, or are no longer kept.
    EventsLost = 7,
    /// Last-Modified is absent or not the file's modification time.
    ModifiedMismatch = 8,
    /// A body of no bytes matches every empty file.
    EmptyBody = 9,
    /// The file, a directory or a process could not be read.
    Io = 10,
    /// The server changed something while it worked on the request: a request that does more than
    /// ask.
    Wrote = 11,
    /// The server talked to a program that is not watched.
    UnwatchedPeer = 12,
    /// A file that the server has in its own memory has changed, and the server has not looked at
    /// it since.
    Dirty = 13,
    /// The server keeps more files in its own memory than can be followed.
    TooManyRetained = 14,
    /// The server read from a database what cannot be told apart from the rest, or in a way that
    /// cannot be followed.
    DatabaseUnclear = 15,
    /// The server was started before it was watched, so nobody knows what it has in its own memory;
    /// and it computed the reply.
    ServerOlder = 16,
    /// It is a file, but a program or a database that the server asked meanwhile may have decided
    /// that it be sent.
    Decided = 17,
}

impl RefusalReason {
    /// All reasons, in order of their codes.
    pub const ALL: [Self; 17] = [
        Self::NoMatchingFile,
        Self::NotLookedUp,
        Self::OpenForWriting,
        Self::Changed,
        Self::TooManySources,
        Self::UnwatchedFilesystem,
        Self::EventsLost,
        Self::ModifiedMismatch,
        Self::EmptyBody,
        Self::Io,
        Self::Wrote,
        Self::UnwatchedPeer,
        Self::Dirty,
        Self::TooManyRetained,
        Self::DatabaseUnclear,
        Self::ServerOlder,
        Self::Decided,
    ];

    /// Name for metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoMatchingFile => "no_matching_file",
            Self::NotLookedUp => "not_looked_up",
            Self::OpenForWriting => "open_for_writing",
            Self::Changed => "changed",
            Self::TooManySources => "too_many_sources",
            Self::UnwatchedFilesystem => "unwatched_filesystem",
            Self::EventsLost => "events_lost",
            Self::ModifiedMismatch => "modified_mismatch",
            Self::EmptyBody => "empty_body",
            Self::Io => "io",
            Self::Wrote => "wrote",
            Self::UnwatchedPeer => "unwatched_peer",
            Self::Dirty => "dirty",
            Self::TooManyRetained => "too_many_retained",
            Self::DatabaseUnclear => "database_unclear",
            Self::ServerOlder => "server_older",
            Self::Decided => "decided",
        }
    }

    /// Position in [`RefusalReason::ALL`], for arrays of counters.
    pub const fn index(self) -> usize {
        self as usize - 1
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_distinct_labels_and_match_their_codes() {
        for (index, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(RefusalReason::from_code(reason as u8), Some(reason));
            assert_eq!(
                RefusalReason::ALL.iter().filter(|other| other.label() == reason.label()).count(),
                1
            );
        }
    }
}
