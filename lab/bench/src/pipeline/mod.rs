//! The card alone: how long one request of each kind keeps it busy.
//!
//! A real [`Card`](nicache_card::Card) stands between two ports in memory ([`stage`]). A hand-made
//! client opens connections and asks on all of them in turn ([`client`]), a hand-made host answers
//! ([`host`]). Only [`Card::poll`](nicache_card::Card::poll) is timed, and each poll handles a
//! burst of frames, so neither the two nor the clock weigh on the result. Ports cost nothing but
//! the copy of a received frame into the burst: what the kernel adds at a real port is the wire
//! benchmark's matter.

mod client;
mod host;
mod instructions;
mod scenario;
mod stage;

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use scenario::{Kind, Scenario};

use crate::Summary;

/// All scenarios that are measured.
pub const SCENARIOS: [Scenario; 9] = [
    Scenario { kind: Kind::Hit, body_bytes: 100, browser: false },
    Scenario { kind: Kind::Hit, body_bytes: 100, browser: true },
    Scenario { kind: Kind::Hit, body_bytes: 10_000, browser: false },
    Scenario { kind: Kind::HitWithConnection, body_bytes: 100, browser: false },
    Scenario { kind: Kind::Bypass, body_bytes: 100, browser: false },
    Scenario { kind: Kind::Bypass, body_bytes: 10_000, browser: false },
    Scenario { kind: Kind::Miss, body_bytes: 100, browser: false },
    Scenario { kind: Kind::Miss, body_bytes: 10_000, browser: false },
    Scenario { kind: Kind::HitAfterWrite, body_bytes: 100, browser: false },
];

/// What was measured of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Which scenario was measured.
    pub scenario: Scenario,
    /// Nanoseconds of CPU time in the card per request.
    pub ns: Summary,
    /// Instructions (user space) in the card per request, if the machine counts them.
    pub instructions: Option<Summary>,
    /// Frames that the card took and gave per request.
    pub frames: f64,
}

/// What was measured of all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineReport {
    /// In their order.
    pub measured: Vec<Measured>,
    /// Why there are no instructions, if so.
    pub no_instructions: Option<String>,
    /// Rounds that the summaries are of.
    pub rounds: u32,
}

/// Measures every scenario in `rounds` rounds of `time` each, interleaved; `chosen` picks among
/// them by label.
///
/// # Errors
/// The card did not do what the scenario is about.
pub fn run(rounds: u32, time: Duration, chosen: impl Fn(&str) -> bool) -> Result<PipelineReport> {
    let (mut counter, no_instructions) = match instructions::Counter::open() {
        Ok(counter) => (Some(counter), None),
        Err(reason) => (None, Some(reason)),
    };
    let scenarios: Vec<Scenario> =
        SCENARIOS.into_iter().filter(|scenario| chosen(&scenario.label())).collect();
    let mut rounds_of: Vec<Vec<scenario::Round>> = vec![Vec::new(); scenarios.len()];
    for round in 0..rounds {
        for (scenario, rounds_of) in scenarios.iter().zip(&mut rounds_of) {
            let _ = writeln!(
                std::io::stderr(),
                "round {} of {rounds}: {}",
                round + 1,
                scenario.label()
            );
            rounds_of.push(scenario.run(time, counter.as_mut())?);
        }
    }
    let measured = scenarios
        .into_iter()
        .zip(rounds_of)
        .map(|(scenario, rounds)| Measured {
            scenario,
            ns: Summary::of(rounds.iter().map(|round| round.ns)),
            instructions: counter
                .is_some()
                .then(|| Summary::of(rounds.iter().filter_map(|round| round.instructions))),
            frames: Summary::of(rounds.iter().map(|round| round.frames)).median,
        })
        .collect();
    Ok(PipelineReport { measured, no_instructions, rounds })
}

impl PipelineReport {
    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:<52}{:>22}{:>15}{:>9}",
            "in the card alone, per request", "ns (min..max)", "instructions", "frames"
        );
        for measured in &self.measured {
            let ns = &measured.ns;
            let ns = format!("{:.0} ({:.0}..{:.0})", ns.median, ns.min, ns.max);
            let instructions = measured
                .instructions
                .map_or_else(|| "-".to_owned(), |count| format!("{:.0}", count.median));
            let _ = writeln!(
                text,
                "{:<52}{ns:>22}{instructions:>15}{:>9.1}",
                measured.scenario.label(),
                measured.frames
            );
        }
        let _ = writeln!(text, "Medians of {} rounds.", self.rounds);
        if let Some(reason) = &self.no_instructions {
            let _ = writeln!(text, "Instructions were not counted: {reason}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each scenario checks by itself that the card treats every request as it is meant to.
    #[test]
    fn every_scenario_does_what_it_says() {
        let report = run(1, Duration::from_millis(5), |_| true).unwrap();
        assert_eq!(report.measured.len(), SCENARIOS.len());
        for measured in &report.measured {
            assert!(measured.ns.median > 0.0, "{}", measured.scenario.label());
        }
        // A hit is a frame in and a frame out.
        assert_eq!(report.measured[0].frames, 2.0);
        let text = report.table();
        assert!(text.contains("hit with its connection, 100 B"), "{text}");
    }
}
