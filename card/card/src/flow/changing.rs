//! What a request that the host works on may change.

use nicache_http::{OriginKey, UriKey};

/// The resource that a request of no safe method names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changing {
    /// The host that it names.
    pub origin: OriginKey,
    /// The resource's target.
    pub uri: UriKey,
}
