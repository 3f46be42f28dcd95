//! The clocks of editors and readers.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// What has to be added to CLOCK_MONOTONIC for the UNIX time, in nanoseconds.
pub(crate) fn unix_offset_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime)).saturating_sub(now_ns())
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
