//! Cache-Status (RFC 9211), which the card adds to its own replies if the operator wants it.
//!
//! A reply of the server passes as it is: its bytes carry sequence numbers that the server's TCP
//! knows, so nothing can be put in between. Why a request was forwarded is in the counters.

/// Why a request found nothing (RFC 9211 section 2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Miss {
    /// There was nothing for it.
    #[default]
    Uri,
    /// There may have been other variants.
    Vary,
    /// What was there may not be served any longer.
    Stale,
}

/// What a reply of the card says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheStatus {
    /// Nothing.
    #[default]
    Silent,
    /// The reply was in card memory when the request came.
    Hit,
    /// The reply came into card memory by another request, which this one has waited for.
    Collapsed(Miss),
}

impl CacheStatus {
    /// The line, with its break.
    #[inline]
    pub const fn line(self) -> &'static [u8] {
        match self {
            Self::Silent => b"",
            Self::Hit => b"Cache-Status: nicache; hit\r\n",
            Self::Collapsed(Miss::Uri) => b"Cache-Status: nicache; fwd=uri-miss; collapsed\r\n",
            Self::Collapsed(Miss::Vary) => b"Cache-Status: nicache; fwd=vary-miss; collapsed\r\n",
            Self::Collapsed(Miss::Stale) => b"Cache-Status: nicache; fwd=stale; collapsed\r\n",
        }
    }
}

/// Bytes of the longest line.
pub const LINE_BYTES_MAX: usize = 64;

const _: () = assert!(CacheStatus::Collapsed(Miss::Vary).line().len() <= LINE_BYTES_MAX);
