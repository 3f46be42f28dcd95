//! What viewers of a `nicache serve` are shown: samples, taken once for all who look at about the
//! same time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use nicache_admin::{
    CardSample, Crossing, Description, Direction, Mode, SAMPLE_INTERVAL, Sample, Source,
    WatcherSample,
};
use nicache_host::BLOCK_BYTES;

use super::messages::{CardReport, describe};
use super::report::ServeStatus;
use super::shared::Shared;
use crate::supervisor::sampler::moment;

/// A sample that is younger than this is told again: half of the time between two samples.
const FRESH: Duration = SAMPLE_INTERVAL.checked_div(2).expect("2 is not 0");

/// Takes samples of a host and its cards.
#[derive(Debug)]
pub(crate) struct Sampler {
    shared: Arc<Shared>,
    started: Instant,
    last: Mutex<Option<(Instant, Arc<Sample>)>>,
}

impl Sampler {
    /// For those who answer through `shared`.
    pub(crate) fn new(shared: Arc<Shared>, started: Instant) -> Self {
        Self { shared, started, last: Mutex::new(None) }
    }

    /// A sample of about now.
    ///
    /// # Errors
    /// The host does not answer.
    pub(crate) fn take(&self) -> Result<Arc<Sample>> {
        let mut last = self.last.lock().expect("no holder of this lock panics");
        if let Some((at, sample)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(sample));
        }
        let sample = Arc::new(sample(self.shared.ask(self.started)?, moment(self.started)));
        *last = Some((Instant::now(), Arc::clone(&sample)));
        Ok(sample)
    }
}

impl Source for Sampler {
    fn sample(&self, _hottest: bool) -> Result<Arc<Sample>, String> {
        self.take().map_err(|error| format!("{error:#}"))
    }

    fn describe(&self, counter: &str) -> Option<Description> {
        describe(counter)
    }
}

fn sample(status: ServeStatus, (uptime_ms, unix_ms): (u64, u64)) -> Sample {
    let cards = status.report.cards.iter().zip(&status.interfaces);
    Sample {
        name: status.name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: Mode::Serve,
        pid: status.pid,
        uptime_ms,
        unix_ms,
        serves: status.root,
        urls: status.urls,
        published: status.published,
        bypass_on: false,
        not_caching: status.not_keeping.clone(),
        watcher: WatcherSample { kind: "kernel".to_owned(), unavailable: status.not_keeping },
        databases: Vec::new(),
        connections: status.report.counters.get("connections").copied().unwrap_or(0),
        restarts: status.restarts,
        cards: cards
            .map(|(card, interface)| card_sample(card, interface, status.cache_bytes))
            .collect(),
        counters: status.report.counters,
        hottest: None,
    }
}

fn card_sample(card: &CardReport, interface: &str, cache_bytes: u64) -> CardSample {
    let of = |name: &str| card.counters.get(name).copied().unwrap_or(0);
    let refused = of("blocks_refused");
    let content = card.bus.get("content").copied().unwrap_or(0);
    let crossing = |(class, bytes): (&String, &u64)| Crossing {
        class: class.clone(),
        direction: Direction::Either,
        bytes: *bytes,
    };
    CardSample {
        id: interface.to_owned(),
        hits: of("block_hits"),
        misses: of("block_misses").saturating_sub(refused),
        bypasses: refused,
        sent_bytes: of("cached_bytes"),
        saved_bytes: (of("cached_bytes") + of("copied_bytes")).saturating_sub(content),
        entries: of("blocks"),
        memory_used_bytes: of("blocks") * BLOCK_BYTES,
        memory_bytes: cache_bytes,
        evictions: of("blocks_evicted"),
        purges: of("blocks_invalidated"),
        bus: card.bus.iter().map(crossing).collect(),
        ..CardSample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::HostReport;
    use super::*;

    #[test]
    fn blocks_are_what_is_looked_for() {
        let named = |counters: &[(&str, u64)]| {
            counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let counters = named(&[
            ("block_hits", 70),
            ("block_misses", 30),
            ("blocks_refused", 10),
            ("blocks", 16),
            ("cached_bytes", 300_000),
            ("copied_bytes", 50_000),
        ]);
        let card = CardReport {
            attached: true,
            bus: named(&[("content", 90_000), ("overhead", 7)]),
            transfers: 1,
            counters,
        };
        let report = HostReport {
            counters: named(&[("requests", 12), ("connections", 3)]),
            cards: vec![card],
        };
        let interfaces = vec!["nic0".to_owned()];
        let sample = sample(
            ServeStatus { report, interfaces, cache_bytes: 1 << 20, ..ServeStatus::default() },
            (5, 6),
        );
        let card = &sample.cards[0];
        assert_eq!((card.id.as_str(), card.hits, card.misses, card.bypasses), ("nic0", 70, 20, 10));
        assert_eq!((card.saved_bytes, card.memory_used_bytes), (260_000, 65_536));
        assert_eq!(
            (sample.requests(), sample.connections, sample.total().bus_by_class().len()),
            (12, 3, 2)
        );
    }
}
