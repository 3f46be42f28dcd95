//! Which CPU a thread of the benchmark may use.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Binds the calling thread to one CPU.
///
/// # Errors
/// The machine has no such CPU, or the process may not use it.
pub fn bind_to(cpu: usize) -> std::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}
