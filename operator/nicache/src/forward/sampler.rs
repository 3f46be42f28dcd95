//! What viewers show of a `nicache forward`: samples, taken once for all who look at about the same
//! time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nicache_admin::{
    CardSample, Crossing, Description, Direction, Mode, SAMPLE_INTERVAL, Sample, Source,
    WatcherSample,
};
use nicache_counters::Counter;
use nicache_firmware::FirmwareCounters;
use nicache_router::report::{COUNTERS, Report};

use super::messages::{Answer, Question};
use super::orders::{Asked, Orders};
use super::status::About;
use crate::supervisor::sampler::moment;

/// A sample that is younger than this is told again: half of the time between two samples.
const FRESH: Duration = SAMPLE_INTERVAL.checked_div(2).expect("2 is not 0");
const ENTRY_BYTES: u64 = 4096;

/// Takes samples of a forwarder.
#[derive(Debug)]
pub(super) struct Sampler {
    orders: Arc<Orders>,
    started: Instant,
    last: Mutex<Option<(Instant, Arc<Sample>)>>,
}

impl Sampler {
    /// For one who answers through `orders`.
    pub(super) fn new(orders: Arc<Orders>, started: Instant) -> Self {
        Self { orders, started, last: Mutex::new(None) }
    }

    /// A sample of about now.
    ///
    /// # Errors
    /// The forwarder does not answer.
    pub(super) fn take(&self) -> Result<Arc<Sample>> {
        let mut last = self.last.lock().expect("no holder of this lock panics");
        if let Some((at, sample)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(sample));
        }
        let Asked { answer: Answer::Report(report), about } = self.orders.ask(Question::Report)?
        else {
            bail!("the forwarder gave an unexpected answer: is it of another version?");
        };
        let sample = Arc::new(sample(*report, about, moment(self.started)));
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

nicache_counters::counters! {
    /// What is also told under a name of its own, beside the counters of the forwarder.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Payload {
        forward_cache_entries: gauge "Entries of 4 KiB that the card's cache for payload has.",
        forward_cache_unbound: gauge "Entries of the card's cache for payload that are free, or not worth keeping.",
        forward_cache_victim: gauge "Entries of the card's cache for payload that were sent, and which go next.",
        forward_cache_priority: gauge "Entries of the card's cache for payload that were received and not sent.",
        forward_cache_pending: gauge "Entries of the card's cache for payload with a receive or a send under way.",
    }
}

fn describe(counter: &str) -> Option<Description> {
    let payload = Counter::find(&[Payload::COUNTERS], counter);
    let forwarder = || Counter::find(&COUNTERS, counter.strip_prefix("forward_")?);
    let card =
        || Counter::find(&[FirmwareCounters::COUNTERS], counter.strip_prefix("forward_card_")?);
    payload
        .or_else(forwarder)
        .or_else(card)
        .map(|counter| Description { help: counter.help, is_gauge: counter.is_gauge })
}

fn sample(report: Report, about: About, (uptime_ms, unix_ms): (u64, u64)) -> Sample {
    let mut counters = BTreeMap::new();
    for (name, value) in &report.counters {
        counters.insert(format!("forward_{name}"), *value);
    }
    for (why, count) in &report.dropped {
        counters.insert(format!("forward_dropped_{why}"), *count);
    }
    for (state, count) in &report.connections {
        counters.insert(format!("forward_state_{state}"), *count);
    }
    for service in &report.services {
        for back_end in &service.back_ends {
            counters.insert(
                format!("forward_up_{}", back_end.address),
                u64::from(back_end.health == "up"),
            );
            counters.insert(
                format!("forward_serving_{}", back_end.address),
                back_end.connections.into(),
            );
        }
    }
    let cache = &report.cache;
    let payload = Payload {
        forward_cache_entries: cache.entries,
        forward_cache_unbound: cache.unbound,
        forward_cache_victim: cache.victim,
        forward_cache_priority: cache.priority,
        forward_cache_pending: cache.pending,
    };
    for (counter, value) in payload.each() {
        counters.insert(counter.name.to_owned(), value);
    }
    let (card_bytes, memory_bytes) = (report.counter("card_bytes"), report.counter("memory_bytes"));
    let crossing = |(class, bytes): (&String, &u64)| Crossing {
        class: class.clone(),
        direction: Direction::Either,
        bytes: *bytes,
    };
    let card = CardSample {
        id: "0".to_owned(),
        hits: card_bytes,
        misses: memory_bytes,
        sent_bytes: card_bytes,
        // Without a card, payload would cross twice.
        saved_bytes: (2 * (card_bytes + memory_bytes))
            .saturating_sub(report.bus.get("content").copied().unwrap_or(0)),
        entries: cache.entries - cache.unbound,
        memory_used_bytes: (cache.entries - cache.unbound) * ENTRY_BYTES,
        memory_bytes: about.cache_bytes,
        flows: report.connections.values().sum(),
        drops: report.dropped.values().sum(),
        bus: report.bus.iter().map(crossing).collect(),
        ..CardSample::default()
    };
    Sample {
        name: about.name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: Mode::Forward,
        pid: about.pid,
        uptime_ms,
        unix_ms,
        serves: format!("forwards, mode {}", report.mode),
        urls: report.services.iter().map(|service| service.address.clone()).collect(),
        watcher: WatcherSample { kind: "none".to_owned(), unavailable: None },
        connections: report.connections.values().sum(),
        restarts: about.restarts,
        cards: if report.is_attached { vec![card] } else { Vec::new() },
        counters,
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dashboards know them: what changes here is told in CHANGELOG.md.
    #[test]
    fn counters_are_called_and_described_as_ever() {
        let lines: Vec<&str> =
            include_str!("../../tests/snapshots/forward-counters.txt").lines().collect();
        for line in &lines {
            let (name, description) = line.split_once('\t').unwrap();
            let found = describe(&format!("forward_{name}"))
                .unwrap_or_else(|| panic!("{name} is not there"));
            let kind = if found.is_gauge { "gauge" } else { "counter" };
            assert_eq!(format!("{kind}\t{}", found.help), description, "{name}");
        }
        assert_eq!(COUNTERS.iter().map(|list| list.len()).sum::<usize>(), lines.len());
        let forwarder = |name: &str| Counter::find(&COUNTERS, name).is_some();
        for counter in FirmwareCounters::COUNTERS {
            let name = format!("card_{}", counter.name);
            assert!(!forwarder(&name), "{name} is there twice");
            assert!(describe(&format!("forward_{name}")).is_some(), "{name}");
        }
    }
}
