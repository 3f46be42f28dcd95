//! Instructions of this thread in user space, by the processor's own counter.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter as PerfCounter};

/// A counter that runs between [`Counter::resume`] and [`Counter::pause`].
pub struct Counter(PerfCounter);

impl Counter {
    /// Opens one for the calling thread; the error says why there is none.
    pub fn open() -> Result<Self, String> {
        let opened =
            Builder::new(Hardware::INSTRUCTIONS).exclude_kernel(true).exclude_hv(true).build();
        opened.map(Counter).map_err(|error| match error.raw_os_error() {
            Some(EACCES | EPERM) => {
                format!("not permitted ({error}): run as root, or allow it with `sysctl kernel.perf_event_paranoid=2`")
            }
            _ => format!("this machine does not count them ({error}); virtual machines often do not"),
        })
    }

    /// Goes on counting. Costs a system call.
    pub fn resume(&mut self) {
        let _ = self.0.enable();
    }

    /// Stops counting. Costs a system call.
    pub fn pause(&mut self) {
        let _ = self.0.disable();
    }

    /// Counted so far, or `None` if it cannot be read.
    pub fn total(&mut self) -> Option<u64> {
        self.0.read().ok()
    }
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
