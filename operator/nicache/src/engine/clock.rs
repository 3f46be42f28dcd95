//! The clocks that the card and its host are told the time by.

use nicache_tcp::Time;
use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC, which the watcher's events and the lease carry, too.
pub(crate) fn monotonic() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Seconds since 1970, as of the last tick.
pub(super) fn unix_s() -> u64 {
    clock_gettime(ClockId::RealtimeCoarse).tv_sec as u64
}
