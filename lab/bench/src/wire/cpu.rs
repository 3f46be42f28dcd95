//! Which CPUs threads and programs of the benchmark may use.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Where the programs of one side run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    /// On this CPU alone.
    One(usize),
    /// On the first two, which they share with the other side.
    Shared,
}

impl From<usize> for Cpus {
    fn from(cpu: usize) -> Self {
        Self::One(cpu)
    }
}

impl Cpus {
    /// The CPUs as `taskset -c` takes them.
    pub fn list(self) -> String {
        match self {
            Self::One(cpu) => cpu.to_string(),
            Self::Shared => "0,1".to_owned(),
        }
    }

    /// How many there are: threads or workers that a program should have.
    pub fn count(self) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::Shared => 2,
        }
    }
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// The machine has no such CPU, or the process may not use it.
pub fn bind_to(cpu: usize) -> std::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}
