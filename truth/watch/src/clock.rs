//! The clock of the watcher and its cards.

/// CLOCK_MONOTONIC in nanoseconds, the clock of all times between card, kernel and watcher.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
