//! Do programs wait for a processor? The kernel's pressure stall information for the whole machine.
//!
//! Read first: Linux, Documentation/accounting/psi.rst. `some` counts the time during which at
//! least one program could run and did not. A program that waits on another processor than the
//! card's counts, too: then the machine as a whole is short of them, and spinning only wastes one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How often the kernel is asked; a look takes a few microseconds.
const LOOK: Duration = Duration::from_millis(10);
/// Above this share of the time somebody waits often: one in so many.
const CONTENDED_ONE_IN: u64 = 5;

/// Tells whether programs wait for a processor of this machine, by the kernel's pressure stall
/// information.
#[derive(Debug)]
pub struct CpuPressure {
    /// `None`: the kernel does not tell.
    file: Option<File>,
    last: Option<Sample>,
    is_contended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    waited_us: u64,
}

impl CpuPressure {
    /// Of this machine. On a kernel without pressure stall information nobody ever waits.
    pub fn of_machine() -> Self {
        Self { file: File::open("/proc/pressure/cpu").ok(), last: None, is_contended: false }
    }

    /// Have programs waited for a processor for a fifth of the time lately? `now_ns` is
    /// CLOCK_MONOTONIC. Asks the kernel only every 10 ms.
    pub fn is_contended(&mut self, now_ns: u64) -> bool {
        let Some(file) = &self.file else { return false };
        let is_time = self
            .last
            .is_none_or(|last| now_ns.saturating_sub(last.at_ns) >= LOOK.as_nanos() as u64);
        if is_time {
            let mut text = [0; 256];
            let len = file.read_at(&mut text, 0).unwrap_or(0);
            if let Some(waited_us) = waited_us(&text[..len]) {
                self.observe(Sample { at_ns: now_ns, waited_us });
            } else {
                *self = Self { file: None, last: None, is_contended: false };
            }
        }
        self.is_contended
    }

    fn observe(&mut self, now: Sample) {
        if let Some(last) = self.last {
            let waited_ns = now.waited_us.saturating_sub(last.waited_us).saturating_mul(1000);
            let passed_ns = now.at_ns.saturating_sub(last.at_ns);
            self.is_contended = waited_ns.saturating_mul(CONTENDED_ONE_IN) > passed_ns;
        }
        self.last = Some(now);
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS`, on the first line.
fn waited_us(text: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(text).ok()?.lines().next()?;
    line.strip_prefix("some ")?.rsplit_once("total=")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_understood() {
        let text =
            b"some avg10=19.44 avg60=8.77 avg300=5.95 total=20641538419\nfull avg10=0.00 total=7\n";
        assert_eq!(waited_us(text), Some(20_641_538_419));
        for odd in [&b""[..], b"some", b"full total=7", b"some total=", b"some total=-1", b"\xff"] {
            assert_eq!(waited_us(odd), None);
        }
    }

    #[test]
    fn a_fifth_of_the_time_is_often() {
        let mut pressure = CpuPressure { file: None, last: None, is_contended: false };
        let mut after = |at_ms: u64, waited_us| {
            pressure.observe(Sample { at_ns: at_ms * 1_000_000, waited_us });
            pressure.is_contended
        };
        assert!(!after(1000, 5_000_000), "nothing to compare it with");
        assert!(!after(1010, 5_002_000));
        assert!(after(1020, 5_004_001));
        assert!(!after(1030, 5_004_001));
        // A clock or a count that goes back.
        assert!(!after(900, 5_000_000));
    }

    /// Two busy threads per processor.
    #[test]
    fn a_machine_that_is_short_of_processors_says_so() {
        let mut pressure = CpuPressure::of_machine();
        if pressure.file.is_none() {
            return;
        }
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let start = std::time::Instant::now();
        let end = start + Duration::from_secs(5);
        let found = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while std::time::Instant::now() < end
                        && !found.load(std::sync::atomic::Ordering::Relaxed)
                    {
                        std::hint::spin_loop();
                    }
                });
            }
            while std::time::Instant::now() < end {
                std::thread::sleep(LOOK * 2);
                if pressure.is_contended(start.elapsed().as_nanos() as u64) {
                    found.store(true, std::sync::atomic::Ordering::Relaxed);
                    break;
                }
            }
        });
        assert!(found.into_inner());
    }
}
