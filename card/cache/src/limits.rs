//! Limits of the cache that several files share; others stand beside the table that they bound. All
//! memory that these describe is allocated at start (I7).

/// Fills that can be under way at once, from the first byte of a reply to the watcher's verdict.
pub const FILLS_MAX: usize = 256;

/// Entries that can wait at once for a question to the watcher; further ones are dropped when a
/// source has changed.
pub const SUSPECTS_MAX: usize = 1024;

/// Share of card memory that one object may take (1/n).
pub const OBJECT_SHARE: u64 = 4;

/// The card's requests for second replies that wait to be sent; further ones are due again at the
/// page's next visitor.
pub const SECONDS_MAX: usize = 16;
