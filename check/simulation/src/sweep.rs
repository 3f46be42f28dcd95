//! Many seeds of one mode.

use crate::events::Events;
use crate::scenario::Mode;
use crate::world::run;

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Seeds that failed, with the first thing wrong.
    pub failures: Vec<(Mode, u64, String)>,
    /// What happened in all runs.
    pub events: Events,
    /// Runs.
    pub runs: u64,
}

/// Runs `seeds` of `mode`.
pub fn sweep(mode: Mode, seeds: std::ops::Range<u64>) -> Sweep {
    let mut sweep = Sweep::default();
    for seed in seeds {
        let outcome = run(mode, seed, None, false);
        sweep.runs += 1;
        sweep.events.merge(&outcome.events);
        if let Some(first) = outcome.violations.first() {
            eprintln!("{}\n  {first}", reproduction(mode, seed));
            sweep.failures.push((mode, seed, first.clone()));
        }
    }
    sweep
}

/// The command that repeats a run, with every frame.
fn reproduction(mode: Mode, seed: u64) -> String {
    format!("cargo run -p nicache-simulation --example seed -- {} {seed}", mode.name())
}

impl Sweep {
    /// Adds another sweep.
    pub fn merge(&mut self, other: Self) {
        self.failures.extend(other.failures);
        self.events.merge(&other.events);
        self.runs += other.runs;
    }
}
