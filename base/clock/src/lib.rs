//! The clocks of the kernel, in nanoseconds. Only what waits or does I/O reads them; all else takes
//! time as an argument.

#![forbid(unsafe_code)]

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of all times between card, kernel and watcher
/// but for leases.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// `CLOCK_BOOTTIME` in nanoseconds, which goes on while the machine is suspended: the clock of
/// leases, because whoever waits for one to end may be another machine.
pub fn boottime_ns() -> u64 {
    read(ClockId::Boottime)
}

/// `CLOCK_REALTIME`: nanoseconds since 1970. It may jump.
pub fn unix_ns() -> u64 {
    read(ClockId::Realtime)
}

/// [`unix_ns`] as of the kernel's last tick (`CLOCK_REALTIME_COARSE`): cheaper, up to 10 ms older,
/// and the clock that times of files are of.
pub fn unix_coarse_ns() -> u64 {
    read(ClockId::RealtimeCoarse)
}

/// Processor time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // No clock shows a time before 0, and 2^64 ns are 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let (monotonic, cpu) = (monotonic_ns(), thread_cpu_ns());
        assert!(monotonic_ns() >= monotonic && thread_cpu_ns() >= cpu);
        assert!(unix_ns() > 1_700_000_000_000_000_000);
        assert!(boottime_ns() >= monotonic);
        assert!(unix_ns() >= unix_coarse_ns());
    }
}
