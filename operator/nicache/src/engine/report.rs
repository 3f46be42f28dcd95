//! The card's counters as the supervisor, `nicache status` and Prometheus know them.

use nicache_admin::{CardSample, Crossing, Description, Direction};
use nicache_cache::{Counters as CacheCounts, FillAbort};
use nicache_card::bus::BusClass;
use nicache_card::{Card, CardBypass, Counters as Counts};
use nicache_coherence::RefusalReason;
use nicache_counters::Counter;
use nicache_http::{BypassReason, NotShared};
use nicache_port::Port;

use super::strangers;
use crate::control::{Counters, StrangerReport};
use crate::words;

nicache_counters::counters! {
    /// What is there at the moment.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Present {
        flows_now: gauge "Connections that are followed at the moment.",
        half_open_now: gauge "Connections whose handshake is not complete.",
        left_to_host_now: gauge "Connections that clients are done with and the server has yet to close.",
        holds_now: gauge "Buffers for requests in use at the moment.",
        fills_now: gauge "Replies that are copied into card memory at the moment.",
    }
}

/// What a counter is. Those that count reasons are described together, and not here.
pub(crate) fn describe(name: &str) -> Option<Description> {
    let lists = [Counts::COUNTERS, CacheCounts::COUNTERS, Present::COUNTERS];
    Counter::find(&lists, name)
        .map(|counter| Description { help: counter.help, is_gauge: counter.is_gauge })
}

/// What a counter means, of any that `nicache status` shows, as a sentence.
pub(crate) fn meaning(name: &str) -> Option<String> {
    if let Some(known) = describe(name) {
        return Some(known.help.to_owned());
    }
    if let Some(words) = words::of(name) {
        return Some(format!("Times that {}.", words.because));
    }
    BusClass::ALL.into_iter().find_map(|class| {
        let label = class.label();
        let of = label.replace('_', " ");
        let way = |direction: &str| format!("Bytes over the bus {direction}: {of}.");
        match name {
            _ if name == format!("bus_to_host_{label}_bytes") => Some(way("to the server")),
            _ if name == format!("bus_from_host_{label}_bytes") => Some(way("from the server")),
            _ => None,
        }
    })
}

/// The counters of one shard.
pub(crate) fn report<W: Port, H: Port>(card: &Card<W, H>) -> Counters {
    let counts = card.counters();
    let memory = card.store().memory();
    let mut report = Counters {
        hits: counts.hits,
        misses: counts.misses,
        bypasses: counts.bypasses(),
        entries: card.store().len() as u64,
        memory_used_bytes: memory.used_bytes(),
        memory_bytes: memory.used_bytes() + memory.free_bytes(),
        bus_saved_bytes: counts.bus_bytes_saved,
        bus_to_host_bytes: BusClass::ALL.iter().map(|&class| counts.bus.to_host(class)).sum(),
        bus_from_host_bytes: BusClass::ALL.iter().map(|&class| counts.bus.from_host(class)).sum(),
        bypass_on: card.bypass(),
        not_caching: (!card.lease_holds()).then(|| "the watcher's lease has expired".to_owned()),
        ..Counters::default()
    };
    report.unknown_names =
        card.strangers().iter().map(|(name, count)| strangers::report(name, *count)).collect();
    let mut add = |name: String, value: u64| {
        report.more.insert(name, value);
    };
    for (counter, value) in counts.each().chain(counts.cache.each()) {
        add(counter.name.to_owned(), value);
    }
    let now = Present {
        flows_now: card.flows() as u64,
        half_open_now: card.half_open() as u64,
        left_to_host_now: card.left_to_host() as u64,
        holds_now: card.holds_in_use() as u64,
        fills_now: card.fills_in_use() as u64,
    };
    for (counter, value) in now.each() {
        add(counter.name.to_owned(), value);
    }
    for class in BusClass::ALL {
        add(format!("bus_to_host_{}_bytes", class.label()), counts.bus.to_host(class));
        add(format!("bus_from_host_{}_bytes", class.label()), counts.bus.from_host(class));
    }
    for reason in BypassReason::ALL {
        add(format!("bypass_{}", reason.label()), counts.bypasses_by_request[reason.index()]);
    }
    for reason in CardBypass::ALL {
        add(format!("bypass_{}", reason.label()), counts.bypasses_by_card[reason.index()]);
    }
    for reason in RefusalReason::ALL {
        add(format!("fill_refused_{}", reason.label()), counts.cache.fills_refused[reason.index()]);
    }
    for reason in NotShared::ALL {
        add(
            format!("fill_not_shared_{}", reason.label()),
            counts.cache.fills_not_shared[reason.index()],
        );
    }
    for reason in FillAbort::ALL {
        add(format!("fill_aborted_{}", reason.label()), counts.cache.fills_aborted[reason.index()]);
    }
    report
}

/// What one queue of a card has counted, for a sample.
pub(crate) fn card_sample<W: Port, H: Port>(number: usize, card: &Card<W, H>) -> CardSample {
    let counts = card.counters();
    let memory = card.store().memory();
    let crossings = BusClass::ALL.into_iter().flat_map(|class| {
        let crossing =
            |direction, bytes| Crossing { class: class.label().to_owned(), direction, bytes };
        [
            crossing(Direction::ToHost, counts.bus.to_host(class)),
            crossing(Direction::FromHost, counts.bus.from_host(class)),
        ]
    });
    CardSample {
        id: number.to_string(),
        hits: counts.hits,
        misses: counts.misses,
        bypasses: counts.bypasses(),
        sent_bytes: counts.hit_bytes,
        saved_bytes: counts.bus_bytes_saved,
        entries: card.store().len() as u64,
        memory_used_bytes: memory.used_bytes(),
        memory_bytes: memory.used_bytes() + memory.free_bytes(),
        flows: card.flows() as u64,
        evictions: counts.cache.evictions,
        purges: counts.cache.purges_by_source,
        waits: counts.cache.waits,
        retransmits: counts.retransmits,
        drops: counts.drops_wire + counts.drops_host + counts.corrupt,
        bus: crossings.collect(),
    }
}

/// Names of headers and cookies that are told.
const UNKNOWN_NAMES_MAX: usize = 64;

/// The sum of all shards.
pub(crate) fn merge(reports: impl IntoIterator<Item = Counters>) -> Counters {
    let mut sum = Counters::default();
    for report in reports {
        sum.hits += report.hits;
        sum.misses += report.misses;
        sum.bypasses += report.bypasses;
        sum.entries += report.entries;
        sum.memory_used_bytes += report.memory_used_bytes;
        sum.memory_bytes += report.memory_bytes;
        sum.bus_saved_bytes += report.bus_saved_bytes;
        sum.bus_to_host_bytes += report.bus_to_host_bytes;
        sum.bus_from_host_bytes += report.bus_from_host_bytes;
        sum.bypass_on |= report.bypass_on;
        sum.not_caching = sum.not_caching.or(report.not_caching);
        for stranger in report.unknown_names {
            let is_same = |known: &&mut StrangerReport| {
                known.is_cookie == stranger.is_cookie && known.name == stranger.name
            };
            match sum.unknown_names.iter_mut().find(is_same) {
                Some(known) => known.requests += stranger.requests,
                None => sum.unknown_names.push(stranger),
            }
        }
        for (name, value) in report.more {
            *sum.more.entry(name).or_default() += value;
        }
    }
    sum.unknown_names.sort_by(|one, other| {
        other.requests.cmp(&one.requests).then_with(|| one.name.cmp(&other.name))
    });
    sum.unknown_names.truncate(UNKNOWN_NAMES_MAX);
    sum
}
