//! What watching costs a server that gets nothing for it: a dynamic page that is never answered by
//! the card.
//!
//! Both sides are the same path, the card with its cache bypassed between the same interfaces; in
//! one of them no watcher is loaded. A round measures both, one right after the other, and each
//! round begins with the other one; what is told is the ratio within a round.

use anyhow::Result;
use nicache_applications::Application;
use serde::{Deserialize, Serialize};

use super::page::Page;
use super::site::Site;
use super::subject::{Running, Subject};
use crate::Summary;
use crate::wire::SERVER_CPU;
use crate::wire::load::Client;

/// The pages whose cost is looked at: a few lines of PHP with one row, so system calls weigh
/// most, and one of a real application.
pub(super) const PAGES: [Page; 2] = [Page::PhpItem, Page::WordPressFront];
/// Connections at a time.
pub(super) const CONNECTIONS: [u32; 2] = [1, 8];
/// What watching may cost, as a share.
pub(super) const AIM: f64 = 0.05;

const WARM_UP_SECONDS: u32 = 1;

/// What one measurement gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchersSample {
    /// Who answered.
    pub subject: Subject,
    /// What was asked for.
    pub page: Page,
    /// Connections at a time.
    pub connections: u32,
    /// When, from 0.
    pub round: usize,
    /// Replies per second.
    pub requests_per_s: f64,
    /// CPU time per request of everything on the serving side.
    pub server_cpu_us: f64,
    /// Of that, what nginx, PHP and MariaDB used.
    pub programs_cpu_us: f64,
}

/// Seconds of a measurement whose page gets some twenty replies per second, for those of others.
const SLOW_PAGE_TIMES: u32 = 4;

/// Starts a subject and measures a page with each number of connections.
///
/// # Errors
/// It does not start, or requests fail.
pub(super) fn measure(
    subject: Subject,
    page: Page,
    site: &Site,
    nicache: &std::path::Path,
    load: &Client,
    round: usize,
    seconds: u32,
) -> Result<Vec<WatchersSample>> {
    let mut running = Running::start(subject, site, nicache, SERVER_CPU)?;
    running.wait_for(page.path(), |_| true)?;
    let url = format!("http://{}{}", running.server().ip(), page.path());
    let seconds = if page.application() == Application::WordPress {
        seconds * SLOW_PAGE_TIMES
    } else {
        seconds
    };
    let mut samples = Vec::new();
    for connections in CONNECTIONS {
        let run = |seconds| load.run(running.client(), &url, 1, connections, false, seconds);
        run(WARM_UP_SECONDS)?;
        let (cpu, programs_us) = (running.cpu_time()?, running.programs_cpu_us()?);
        let totals = run(seconds)?;
        let (cpu, programs_us) =
            (running.cpu_time()?.since(&cpu), running.programs_cpu_us()? - programs_us);
        let requests = totals.requests as f64;
        samples.push(WatchersSample {
            subject,
            page,
            connections,
            round,
            requests_per_s: requests * 1e6 / totals.microseconds.max(1) as f64,
            server_cpu_us: cpu.processes_us / requests,
            programs_cpu_us: programs_us / requests,
        });
    }
    Ok(samples)
}

/// What watching costs with one number of connections, as shares of what it is without: 0.05 is 5
/// %. Medians of the ratios within rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    /// Rounds with both sides.
    pub pairs: usize,
    /// Fewer requests per second.
    pub requests_lost: Summary,
    /// More CPU time of everything on the serving side.
    pub server_cpu_more: Summary,
    /// More CPU time of nginx, PHP and MariaDB.
    pub programs_cpu_more: Summary,
}

impl Cost {
    /// From all samples, for one page and number of connections.
    pub(super) fn of(samples: &[WatchersSample], page: Page, connections: u32) -> Option<Self> {
        let of_page =
            |sample: &&WatchersSample| (sample.page, sample.connections) == (page, connections);
        let side = |subject, round| {
            let is_it =
                |sample: &&WatchersSample| (sample.subject, sample.round) == (subject, round);
            samples.iter().filter(of_page).find(is_it)
        };
        let rounds = samples.iter().map(|sample| sample.round + 1).max()?;
        let pairs: Vec<(&WatchersSample, &WatchersSample)> = (0..rounds)
            .filter_map(|round| {
                Some((
                    side(Subject::CardBypassedUnwatched, round)?,
                    side(Subject::CardBypassed, round)?,
                ))
            })
            .collect();
        let more = |value: fn(&WatchersSample) -> f64| {
            Summary::of(pairs.iter().map(|(without, with)| value(with) / value(without) - 1.0))
        };
        (!pairs.is_empty()).then(|| Self {
            pairs: pairs.len(),
            requests_lost: Summary::of(
                pairs
                    .iter()
                    .map(|(without, with)| 1.0 - with.requests_per_s / without.requests_per_s),
            ),
            server_cpu_more: more(|sample| sample.server_cpu_us),
            programs_cpu_more: more(|sample| sample.programs_cpu_us),
        })
    }

    /// Whether the aim is met, in requests per second and in CPU time.
    pub(super) fn meets_aim(&self) -> bool {
        [self.requests_lost, self.server_cpu_more, self.programs_cpu_more]
            .iter()
            .all(|share| share.median <= AIM)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sample(
        subject: Subject,
        round: usize,
        requests_per_s: f64,
        cpu_us: f64,
    ) -> WatchersSample {
        let (server_cpu_us, programs_cpu_us) = (cpu_us + 100.0, cpu_us);
        WatchersSample {
            subject,
            page: Page::PhpItem,
            connections: 8,
            round,
            requests_per_s,
            server_cpu_us,
            programs_cpu_us,
        }
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let (with, without) = (Subject::CardBypassed, Subject::CardBypassedUnwatched);
        // The machine is twice as slow in the second round, and nobody gave the other side in the
        // third.
        let samples = [
            sample(without, 0, 1000.0, 100.0),
            sample(with, 0, 900.0, 120.0),
            sample(with, 1, 450.0, 240.0),
            sample(without, 1, 500.0, 200.0),
            sample(with, 2, 1.0, 1.0),
        ];
        let cost = Cost::of(&samples, Page::PhpItem, 8).unwrap();
        assert_eq!(cost.pairs, 2);
        assert!(
            (cost.requests_lost.median - 0.1).abs() < 1e-9
                && (cost.programs_cpu_more.max - 0.2).abs() < 1e-9
        );
        assert!((cost.server_cpu_more.min - 0.1).abs() < 1e-9);
        assert!(!cost.meets_aim());
        assert_eq!(Cost::of(&samples, Page::PhpItem, 1), None);
        assert_eq!(Cost::of(&samples, Page::WordPressFront, 8), None);
        assert_eq!(Cost::of(&[], Page::PhpItem, 8), None);
    }
}
