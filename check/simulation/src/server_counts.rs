//! What the server counts.

/// What the server counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Closed since they were idle.
    pub idle_closes: u64,
    /// Reset in the middle of a reply.
    pub resets: u64,
    /// Deaths.
    pub deaths: u64,
    /// Replies in pieces.
    pub slow: u64,
    /// Replies in chunks (RFC 9112 section 7.1).
    pub chunked: u64,
    /// Replies that end with the connection.
    pub close_delimited: u64,
    /// Replies after an interim one (1xx).
    pub interim: u64,
    /// Replies that are for one client alone.
    pub private: u64,
    /// Replies that say that there is no such file (404).
    pub not_found: u64,
    /// A file changed while it was sent.
    pub changed_during_reply: u64,
    /// Files changed by requests, of which no witness knows.
    pub changed_by_request: u64,
    /// Replies with ranges, and of these with several.
    pub ranges: (u64, u64),
    /// Replies with 412 or 416.
    pub failed: u64,
}
