//! What the protocols have in common: how much is counted.

/// Requests under way that are counted; with more, nothing is over any longer.
pub(super) const UNDER_WAY_MAX: usize = 4096;
