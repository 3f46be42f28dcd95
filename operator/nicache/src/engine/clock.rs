//! The clocks that the card and its host are told the time by.

use nicache_tcp::Time;

/// CLOCK_MONOTONIC, which the watcher's events carry, too.
pub(crate) fn monotonic() -> Time {
    Time(nicache_clock::monotonic_ns())
}

/// Seconds since 1970, as of the last tick.
pub(super) fn unix_s() -> u64 {
    nicache_clock::unix_coarse_ns() / 1_000_000_000
}
