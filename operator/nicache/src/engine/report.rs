//! The card's counters as the supervisor, `nicache status` and Prometheus know them: each is named and described once, here.

use nicache_admin::{CardSample, Crossing, Description, Direction};
use nicache_cache::FillAbort;
use nicache_card::bus::BusClass;
use nicache_card::{Card, CardBypass, Counters as Counts};
use nicache_coherence::RefusalReason;
use nicache_http::{BypassReason, NotShared};
use nicache_port::Port;

use super::strangers;
use crate::control::{Counters, StrangerReport};
use crate::words;

type Named = (&'static str, &'static str, fn(&Counts) -> u64);

/// Counters that only grow: name, what it is, value.
const COUNTERS: &[Named] = &[
    ("hits_not_modified", "Hits that were answered with 304.", |counts| counts.hits_not_modified),
    ("hits_predicted", "Hits for requests that were expected, answered the short way.", |counts| counts.hits_predicted),
    ("hits_head", "Hits of HEAD requests.", |counts| counts.hits_head),
    ("hits_range", "Hits of a range, or of several.", |counts| counts.hits_range),
    ("hits_l0", "Hits that L0 has answered, before the card.", |counts| counts.hits_l0),
    ("l0_published", "Replies that L0 was given.", |counts| counts.l0_published),
    ("l0_lent", "Times that a connection was lent to L0.", |counts| counts.l0_lent),
    ("l0_repeated", "Replies of L0 that the card has sent again.", |counts| counts.l0_repeated),
    ("l0_lost", "Connections reset because the reply that L0 had given them is gone.", |counts| counts.l0_lost),
    ("l0_pauses", "Times that L0 was left out for a while because too many of its replies did not arrive.", |counts| {
        counts.l0_pauses
    }),
    ("hits_ranges", "Hits of several ranges.", |counts| counts.hits_ranges),
    ("invalidations", "Resources that requests may have changed.", |counts| counts.invalidations),
    ("waits_collapsed", "Requests that waited for the same reply to another one.", |counts| {
        counts.cache.waits_collapsed
    }),
    ("hit_bytes", "HTTP bytes sent from card memory, retransmissions not counted.", |counts| counts.hit_bytes),
    ("fills", "Replies that were copied into card memory to be judged.", |counts| counts.cache.fills),
    ("fills_stored", "Of these, those that became entries.", |counts| counts.cache.fills_stored),
    ("hits_handed_over", "Misses of stored replies, because the server was about to answer anyway.", |counts| {
        counts.hits_handed_over
    }),
    ("purges_by_source", "Entries dropped because a source changed.", |counts| counts.cache.purges_by_source),
    ("reinstated", "Entries that stayed although a directory among their sources had changed.", |counts| {
        counts.cache.reinstated
    }),
    ("agreed", "Dynamic replies that became entries, because two executions agreed.", |counts| counts.cache.agreed),
    ("masked", "Executions taken for the same although what is masked differs.", |counts| counts.cache.masked),
    ("misses_excluded", "Misses below a path that the operator has excluded.", |counts| counts.misses_excluded),
    (
        "misses_class",
        "Misses because the server has not answered a client of this class yet (Referer, language, kind of program).",
        |counts| counts.misses_class,
    ),
    (
        "classes_split",
        "Times that the server answered clients of different classes differently without saying Vary.",
        |counts| counts.cache.classes_split,
    ),
    ("misses_differing", "Misses of pages left alone, because their executions differ.", |counts| {
        counts.misses_differing
    }),
    ("misses_not_worth", "Misses of pages left alone, because they are purged before they are used.", |counts| {
        counts.misses_not_worth
    }),
    ("put_aside", "Times that a page was left alone for that.", |counts| counts.cache.put_aside),
    ("renewed", "Dynamic entries that stayed, because the server said the same again.", |counts| counts.cache.renewed),
    ("executions_differed", "Executions that differed although no source had changed.", |counts| {
        counts.cache.executions_differed
    }),
    ("rechecks", "Times that the server was to be asked again by the card itself.", |counts| counts.cache.rechecks),
    ("rechecks_dropped", "Of these, those dropped as too many were waiting.", |counts| counts.cache.rechecks_dropped),
    ("recheck_requests", "Requests of the card itself.", |counts| counts.recheck_requests),
    ("proxy_headers", "Connections that began with a header of the PROXY protocol.", |counts| counts.proxy_headers),
    ("waits", "Requests that waited for another one's reply or for the watcher.", |counts| counts.cache.waits),
    ("waits_answered", "Of these, those answered from card memory then.", |counts| counts.cache.waits_answered),
    ("waits_shared", "Of these, those answered with a reply that is not kept.", |counts| counts.cache.waits_shared),
    ("hits_dynamic", "Hits of dynamic replies.", |counts| counts.hits_dynamic),
    ("purges_by_operator", "Entries dropped by command.", |counts| counts.purges_by_operator),
    ("evictions", "Entries dropped to make room.", |counts| counts.cache.evictions),
    ("flows", "Connections followed since the start.", |counts| counts.flows),
    ("flows_untracked", "Connections that passed because the flow table was full.", |counts| counts.flows_untracked),
    ("flows_opaque", "Connections whose HTTP the card stopped to follow.", |counts| counts.flows_opaque),
    ("host_ends_absorbed", "Idle connections that the server closed without the client's hearing of it.", |counts| {
        counts.host_ends_absorbed
    }),
    ("retransmits", "Segments sent again by the card.", |counts| counts.retransmits),
    ("corrupt", "Frames with a wrong checksum.", |counts| counts.corrupt),
    ("unwrapped", "Segments that came with IP options, with extension headers or in fragments.", |counts| {
        counts.unwrapped
    }),
    ("orphans_reset", "Connections of an earlier card that were reset.", |counts| counts.orphans_reset),
    ("too_big_obeyed", "Messages of routers that made segments to a client smaller.", |counts| counts.too_big_obeyed),
    ("too_big_ignored", "Such messages about nothing that is under way.", |counts| counts.too_big_ignored),
    ("segments_unacceptable", "Segments dropped because they do not fit their connection.", |counts| {
        counts.segments_unacceptable
    }),
    ("half_open_evicted", "Connections forgotten before their handshake was complete, for another one.", |counts| {
        counts.half_open_evicted
    }),
    ("silent_evicted", "Connections that had been silent for long, ended to make room for another one.", |counts| {
        counts.silent_evicted
    }),
    ("syn_cookies_sent", "SYNs answered without keeping anything, as too many handshakes were under way.", |counts| {
        counts.syn_cookies_sent
    }),
    ("syn_cookies_accepted", "Connections that such an answer has led to.", |counts| counts.syn_cookies_accepted),
    ("challenges_sent", "Challenge acknowledgments: answers to segments that do not fit.", |counts| {
        counts.challenges_sent
    }),
    ("challenges_refused", "Challenge acknowledgments not sent, as there were too many.", |counts| {
        counts.challenges_refused
    }),
    ("clients_gone", "Connections ended because an idle client did not answer.", |counts| counts.clients_gone),
    ("clients_slow", "Connections ended because a client read too slowly.", |counts| counts.clients_slow),
    ("clients_window_closed", "Connections ended because a client kept its window closed.", |counts| {
        counts.clients_window_closed
    }),
    ("clients_head_slow", "Connections ended because a request head took too long.", |counts| counts.clients_head_slow),
    ("drops_elder", "Frames that the card before this one did not take in time.", |counts| counts.drops_elder),
    ("drops_wire", "Frames that the wire port refused.", |counts| counts.drops_wire),
    ("drops_host", "Frames that the host port refused.", |counts| counts.drops_host),
    ("access_lost", "Hits that the access log had no room for.", |counts| counts.access_lost),
    ("bus_total_bytes", "Bytes over the bus, counted by frame and not by class.", |counts| counts.bus.total()),
    ("bus_frames", "Frames over the bus.", |counts| counts.bus.frames()),
];
/// What is there at the moment: name, and what it is.
const GAUGES: [(&str, &str); 5] = [
    ("flows_now", "Connections that are followed at the moment."),
    ("half_open_now", "Of these, those whose handshake is not complete."),
    ("left_to_host_now", "Of these, those that clients are done with and the server has yet to close."),
    ("holds_now", "Buffers for requests in use at the moment."),
    ("fills_now", "Replies that are copied into card memory at the moment."),
];

/// What a counter is. Those that count reasons are described together, and not here.
pub fn describe(name: &str) -> Option<Description> {
    if let Some((_, help)) = GAUGES.iter().find(|(known, _)| *known == name) {
        return Some(Description { help, is_gauge: true });
    }
    let named = COUNTERS.iter().find(|(known, ..)| *known == name);
    named.map(|(_, help, _)| Description { help, is_gauge: false })
}

/// What a counter means, of any that `nicache status` shows, as a sentence.
pub fn meaning(name: &str) -> Option<String> {
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
    report.unknown_names = card.strangers().iter().map(|(name, count)| strangers::report(name, *count)).collect();
    let mut add = |name: String, value: u64| {
        report.more.insert(name, value);
    };
    for &(name, _, value) in COUNTERS {
        add(name.to_owned(), value(counts));
    }
    let now = [card.flows(), card.half_open(), card.left_to_host(), card.holds_in_use(), card.fills_in_use()];
    for ((name, _), value) in GAUGES.iter().zip(now) {
        add((*name).to_owned(), value as u64);
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
        add(format!("fill_refused_{}", reason.label()), counts.cache.fills_refused[reason.index()]);
    }
    for reason in NotShared::ALL {
        add(format!("fill_not_shared_{}", reason.label()), counts.cache.fills_not_shared[reason.index()]);
    }
    for reason in FillAbort::ALL {
        add(format!("fill_aborted_{}", reason.label()), counts.cache.fills_aborted[reason as usize]);
    }
    report
}

/// The same, as far as it is told of each shard.
pub fn card_sample<W: Port, H: Port>(number: usize, card: &Card<W, H>) -> CardSample {
    let counts = card.counters();
    let memory = card.store().memory();
    let crossings = BusClass::ALL.into_iter().flat_map(|class| {
        let crossing = |direction, bytes| Crossing { class: class.label().to_owned(), direction, bytes };
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
        for stranger in report.unknown_names {
            let is_same =
                |known: &&mut StrangerReport| known.is_cookie == stranger.is_cookie && known.name == stranger.name;
            match sum.unknown_names.iter_mut().find(is_same) {
                Some(known) => known.requests += stranger.requests,
                None => sum.unknown_names.push(stranger),
            }
        }
        for (name, value) in report.more {
            *sum.more.entry(name).or_default() += value;
        }
    }
    sum.unknown_names.sort_by(|one, other| other.requests.cmp(&one.requests).then_with(|| one.name.cmp(&other.name)));
    sum.unknown_names.truncate(UNKNOWN_NAMES_MAX);
    sum
}
