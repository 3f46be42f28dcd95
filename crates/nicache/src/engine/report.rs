//! The card's counters as the supervisor and `nicache status` know them.

use nicache_card::bus::BusClass;
use nicache_card::{Card, CardBypass, FillAbort};
use nicache_coherence::RefusalReason;
use nicache_http::{BypassReason, NotShared};
use nicache_port::Port;

use crate::control::Counters;

/// The counters of one shard.
pub fn report<W: Port, H: Port>(card: &Card<W, H>) -> Counters {
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
    let mut add = |name: String, value: u64| {
        report.more.insert(name, value);
    };
    for (name, value) in [
        ("hits_not_modified", counts.hits_not_modified),
        ("hits_head", counts.hits_head),
        ("hit_bytes", counts.hit_bytes),
        ("fills", counts.fills),
        ("fills_stored", counts.fills_stored),
        ("hits_handed_over", counts.hits_handed_over),
        ("purges_by_source", counts.purges_by_source),
        ("reinstated", counts.reinstated),
        ("agreed", counts.agreed),
        ("masked", counts.masked),
        ("misses_excluded", counts.misses_excluded),
        ("misses_differing", counts.misses_differing),
        ("misses_not_worth", counts.misses_not_worth),
        ("put_aside", counts.put_aside),
        ("renewed", counts.renewed),
        ("executions_differed", counts.executions_differed),
        ("rechecks", counts.rechecks),
        ("rechecks_dropped", counts.rechecks_dropped),
        ("recheck_requests", counts.recheck_requests),
        ("waits", counts.waits),
        ("waits_answered", counts.waits_answered),
        ("waits_shared", counts.waits_shared),
        ("hits_dynamic", counts.hits_dynamic),
        ("purges_by_operator", counts.purges_by_operator),
        ("evictions", counts.evictions),
        ("flows", counts.flows),
        ("flows_now", card.flows() as u64),
        ("flows_untracked", counts.flows_untracked),
        ("flows_opaque", counts.flows_opaque),
        ("retransmits", counts.retransmits),
        ("corrupt", counts.corrupt),
        ("segments_unacceptable", counts.segments_unacceptable),
        ("drops_wire", counts.drops_wire),
        ("drops_host", counts.drops_host),
        ("access_lost", counts.access_lost),
        ("bus_total_bytes", counts.bus.total()),
        ("bus_frames", counts.bus.frames()),
    ] {
        add(name.to_owned(), value);
    }
    for class in BusClass::ALL {
        add(format!("bus_to_host_{}_bytes", class.label()), counts.bus.to_host(class));
        add(format!("bus_from_host_{}_bytes", class.label()), counts.bus.from_host(class));
    }
    for reason in BypassReason::ALL {
        add(format!("bypass_{}", reason.label()), counts.bypasses_by_request[reason.index()]);
    }
    for reason in CardBypass::ALL {
        add(format!("bypass_{}", reason.label()), counts.bypasses_by_card[reason as usize]);
    }
    for reason in RefusalReason::ALL {
        add(format!("fill_refused_{}", reason.label()), counts.fills_refused[reason.index()]);
    }
    for reason in NotShared::ALL {
        add(format!("fill_not_shared_{}", reason.label()), counts.fills_not_shared[reason.index()]);
    }
    for reason in FillAbort::ALL {
        add(format!("fill_aborted_{}", reason.label()), counts.fills_aborted[reason as usize]);
    }
    report
}

/// The sum of all shards.
pub fn merge(reports: impl IntoIterator<Item = Counters>) -> Counters {
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
        for (name, value) in report.more {
            *sum.more.entry(name).or_default() += value;
        }
    }
    sum
}
