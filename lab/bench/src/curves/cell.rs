//! One measurement: a subject, an object, and a load.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::arrivals::{Arrivals, Spacing};
use super::connections::Target;
use super::load::{AtFullSpeed, AtRate, Measured, run_at_full_speed, run_at_rate};
use crate::wire::cpu::bind_to;
use crate::wire::subject::{Counts, Running};
use crate::wire::{CLIENT_CPU, Object, Subject};

/// Connections at a time at most: what the paper's Linux and its card were set to.
pub(super) const AT_ONCE_MAX: usize = 1_024;
/// Who is measured, what others are compared with first.
pub const SUBJECTS: [Subject; 3] = [Subject::Nginx, Subject::CardHit, Subject::CardHitHandshake];
/// A measurement with less hits than that is none of the card's curve.
pub(super) const HITS_MIN: f64 = 0.99;
/// Load before what is measured.
const WARM_UP_NS: u64 = 500_000_000;

/// The load of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Connections that are attempted in a second, each for one request.
    Rate(u32),
    /// Connections that stay open and ask as fast as they are answered.
    Connections(u32),
}

impl Load {
    /// What the load's curves are labeled with.
    pub fn label(self) -> String {
        match self {
            Self::Rate(rate) => format!("{rate}/s"),
            Self::Connections(1) => "1 connection".to_owned(),
            Self::Connections(connections) => format!("{connections} connections"),
        }
    }
}

/// What one measurement gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who answered.
    pub subject: Subject,
    /// Bytes of the object.
    pub bytes: u64,
    /// When, from 0.
    pub round: u32,
    /// What was offered.
    pub load: Load,
    /// What came of it.
    pub outcome: Outcome,
    /// The card's hits among the requests that it saw; `None`: there is no card.
    pub hits: Option<f64>,
}

/// What came of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Of a rate.
    Rate(AtRate),
    /// Of connections at full speed.
    Connections(AtFullSpeed),
}

/// How rates are offered, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// How arrivals follow each other.
    pub spacing: Spacing,
    /// What chance follows from.
    pub seed: u64,
    /// Seconds that are measured.
    pub seconds: u32,
}

/// Measures; also the card's share of the replies.
///
/// # Errors
/// The load cannot be made, or the card cannot be asked.
pub(super) fn measure(
    running: &Running,
    object: &Object,
    load: Load,
    timing: &Timing,
) -> Result<(Outcome, Option<f64>)> {
    let before = running.counts()?;
    let measured = Measured::after(WARM_UP_NS, timing.seconds);
    let outcome = on_client(running, || match load {
        Load::Rate(rate) => {
            let arrivals =
                Arrivals::new(timing.spacing, f64::from(rate), measured.end_ns, timing.seed);
            let target = target(running, object, true);
            Ok(Outcome::Rate(run_at_rate(target, arrivals, AT_ONCE_MAX, measured)?))
        }
        Load::Connections(connections) => {
            let target = target(running, object, false);
            Ok(Outcome::Connections(run_at_full_speed(target, connections as usize, measured)?))
        }
    })?;
    let hits = match (before, running.counts()?) {
        (Some(before), Some(after)) => Some(share(&before, &after)),
        _ => None,
    };
    Ok((outcome, hits))
}

/// Replies per second at full speed with a connection for each request: what a sweep is laid out
/// by.
///
/// # Errors
/// As [`measure`].
pub(super) fn probe(running: &Running, object: &Object) -> Result<f64> {
    let measured = Measured::after(WARM_UP_NS, 1);
    let target = target(running, object, true);
    let got = on_client(running, || {
        Ok(run_at_full_speed(target, object.connections as usize, measured)?)
    })?;
    Ok(got.replied.iter().map(|count| f64::from(*count)).sum())
}

/// Runs a job on a thread in the client's namespace and on the client's CPU.
fn on_client<T: Send>(running: &Running, job: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    running.client().lend(|| {
        bind_to(CLIENT_CPU).context("cannot bind a thread to the client's CPU")?;
        job()
    })?
}

fn target(running: &Running, object: &Object, close: bool) -> Target {
    Target {
        server: SocketAddr::new(IpAddr::V4(running.server()), 80),
        path: object.path(),
        body_bytes: object.bytes,
        close,
    }
}

fn share(before: &Counts, after: &Counts) -> f64 {
    let (hits, others) = (after.hits - before.hits, after.others - before.others);
    hits as f64 / (hits + others).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_measurement_alone() {
        let before = Counts { hits: 100, others: 50 };
        assert_eq!(share(&before, &Counts { hits: 400, others: 150 }), 0.75);
        assert_eq!(share(&before, &before), 0.0);
    }

    #[test]
    fn labels() {
        assert_eq!(Load::Rate(6_000).label(), "6000/s");
        assert_eq!(Load::Connections(1).label(), "1 connection");
    }
}
