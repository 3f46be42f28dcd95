//! How often a supervisor has started its children again, and when that is too often.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Children that end more often than this many times in [`RECENT`] are not started again.
const MAX: usize = 20;
/// See [`MAX`].
const RECENT: Duration = Duration::from_secs(10);

/// How often a supervisor has started its children again.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    recent: VecDeque<Instant>,
    all: u64,
}

impl Restarts {
    /// Counts one. `children`: who they are.
    ///
    /// # Errors
    /// There were too many of late.
    pub(crate) fn count(&mut self, now: Instant, children: &str) -> Result<()> {
        self.recent.retain(|at| now.duration_since(*at) < RECENT);
        self.recent.push_back(now);
        self.all += 1;
        if self.recent.len() > MAX {
            bail!(
                "{children} ended {MAX} times in {} s: see their messages above",
                RECENT.as_secs()
            );
        }
        Ok(())
    }

    /// All since the start.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_many_in_a_short_time_are_too_many() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        for _ in 0..10 * MAX {
            now += RECENT / MAX as u32;
            restarts.count(now, "card and host").unwrap();
        }
        now += RECENT;
        for _ in 0..MAX {
            restarts.count(now, "card and host").unwrap();
        }
        let error = restarts.count(now, "card and host").unwrap_err().to_string();
        assert_eq!(error, "card and host ended 20 times in 10 s: see their messages above");
        assert_eq!(restarts.all(), 11 * MAX as u64 + 1);
    }
}
