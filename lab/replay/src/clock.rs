//! The clock of writers and clients.

/// CLOCK_MONOTONIC in nanoseconds: the clock of writers and clients alike.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
