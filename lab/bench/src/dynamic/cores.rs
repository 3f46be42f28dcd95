//! How busy single CPUs were: whose CPU is full tells what a figure is the limit of.

use std::time::Instant;

use anyhow::{Context, Result};

const US_PER_TICK: f64 = 1e6 / 100.0;

/// The busy time of client's and server's CPU at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cores {
    at: Instant,
    busy_us: [f64; 2],
}

impl Cores {
    /// Now, of two CPUs.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(super) fn now(cpus: [usize; 2]) -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let busy = |cpu| busy_us(&stat, cpu).with_context(|| format!("no cpu{cpu} in /proc/stat"));
        Ok(Self { at: Instant::now(), busy_us: [busy(cpus[0])?, busy(cpus[1])?] })
    }

    /// Busy shares since an `earlier` moment, 0 to 1, whoever it was that used them.
    pub(super) fn shares_since(&self, earlier: &Self) -> [f64; 2] {
        let us = (self.at - earlier.at).as_micros().max(1) as f64;
        [0, 1].map(|at| ((self.busy_us[at] - earlier.busy_us[at]) / us).clamp(0.0, 1.0))
    }
}

/// User, nice, system, irq, softirq.
fn busy_us(stat: &str, cpu: usize) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6].into_iter().filter_map(|at| fields.get(at)).sum();
    Some(busy as f64 * US_PER_TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_its_line() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 100 50 4 5 7 0 0\ncpu1 10 0 0 1 1 0 0 1 0 0\n";
        assert_eq!(busy_us(stat, 0), Some(150_000.0));
        assert_eq!(busy_us(stat, 1), Some(100_000.0));
        assert_eq!(busy_us(stat, 2), None);
    }
}
