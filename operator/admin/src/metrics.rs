//! A sample as text for Prometheus. Objects and clients are in no label: clients choose them, and
//! each new value would be a new time series.

use nicache_exposition::{Exposition, Format, Kind};

use crate::Description;
use crate::sample::{CardSample, Mode, Sample};

/// Values of a sample that may sink and are one family with a label: how their names begin, the
/// family, the label, what it is.
const BY_LABEL: [(&str, &str, &str, &str); 3] = [
    (
        "forward_state_",
        "nicache_forward_connections",
        "state",
        "Connections that the forwarder knows, by state.",
    ),
    (
        "forward_up_",
        "nicache_forward_back_end_up",
        "back_end",
        "Whether a back end gets new connections.",
    ),
    (
        "forward_serving_",
        "nicache_forward_back_end_connections",
        "back_end",
        "Connections that a back end has.",
    ),
];

/// Counters of a sample that are one family with a label: how their names begin, the family, what
/// it is.
const BY_REASON: [(&str, &str, &str); 5] = [
    (
        "forward_dropped_",
        "nicache_forward_dropped",
        "Packets that the forwarder did not pass on, by reason.",
    ),
    ("bypass_", "nicache_bypasses", "Requests that the card left to the server, by reason."),
    (
        "fill_refused_",
        "nicache_fills_refused",
        "Replies that are not kept because the watcher cannot vouch for them, by reason.",
    ),
    (
        "fill_not_shared_",
        "nicache_fills_not_shared",
        "Replies that are not kept because they are not for everybody, by reason.",
    ),
    (
        "fill_aborted_",
        "nicache_fills_aborted",
        "Replies that are not kept because the card gave up, by reason.",
    ),
];
/// Counters of a sample that are told of each card.
const OF_CARDS: [&str; 2] = ["bus_to_host_", "bus_from_host_"];

/// The text. `sample`: `None` if the card does not answer; then only that is told. `tell_own`: has
/// told families of its own in the place of those of cards and counters.
pub fn render(
    sample: Option<&Sample>,
    describe: impl Fn(&str) -> Option<Description>,
    tell_own: impl FnOnce(&mut Exposition) -> bool,
    format: Format,
) -> String {
    let mut text = Exposition::new(format);
    text.gauge(
        "nicache_up",
        "Whether nicache answers: the card, and with `nicache serve` the host, too.",
        sample.is_some().into(),
    );
    if let Some(sample) = sample {
        identity(&mut text, sample);
        if !tell_own(&mut text) {
            about(&mut text, sample);
            cards(&mut text, sample);
            reasons(&mut text, sample);
            others(&mut text, sample, describe);
        }
    }
    text.finish()
}

fn identity(text: &mut Exposition, sample: &Sample) {
    let mode = match sample.mode {
        Mode::Run => "run",
        Mode::Serve => "serve",
        Mode::Forward => "forward",
        Mode::Nfs => "nfs",
    };
    text.family("nicache_build_info", Kind::Gauge, "Which nicache this is; the value is 1.");
    text.value(
        "nicache_build_info",
        &[("name", &sample.name), ("mode", mode), ("version", &sample.version)],
        1,
    );
    let started = sample.unix_ms.saturating_sub(sample.uptime_ms) / 1000;
    text.gauge("nicache_start_time_seconds", "When it was started, UNIX time.", started);
}

fn about(text: &mut Exposition, sample: &Sample) {
    let is_caching = !sample.bypass_on && sample.not_caching.is_none();
    text.gauge(
        "nicache_caching",
        "Whether replies are kept and served from card memory.",
        is_caching.into(),
    );
    text.gauge(
        "nicache_bypass",
        "Whether everything passes to the server by command.",
        sample.bypass_on.into(),
    );
    text.family(
        "nicache_watcher_up",
        Kind::Gauge,
        "Whether what replies depend on can be watched.",
    );
    let is_watched = sample.watcher.unavailable.is_none();
    text.value("nicache_watcher_up", &[("kind", &sample.watcher.kind)], is_watched.into());
    text.family("nicache_restarts", Kind::Counter, "Parts that had ended and were started again.");
    text.value("nicache_restarts", &[], sample.restarts);
    text.gauge("nicache_connections", "Connections at the moment.", sample.connections);
    if sample.databases.is_empty() {
        return;
    }
    let databases = || sample.databases.iter();
    text.family(
        "nicache_database_in_step",
        Kind::Gauge,
        "Whether pages that ask this database may be kept.",
    );
    for database in databases() {
        text.value(
            "nicache_database_in_step",
            &[("database", &database.database)],
            database.in_step.into(),
        );
    }
    text.family(
        "nicache_database_events",
        Kind::Counter,
        "Statements that the database's relay has told of.",
    );
    for database in databases() {
        text.value("nicache_database_events", &[("database", &database.database)], database.events);
    }
    text.family(
        "nicache_database_voided",
        Kind::Counter,
        "Times that all pages of this database were dropped at once.",
    );
    for database in databases() {
        text.value("nicache_database_voided", &[("database", &database.database)], database.voided);
    }
}

type OfCard = (&'static str, Kind, &'static str, fn(&CardSample) -> u64);

const CARD_FAMILIES: [OfCard; 12] = [
    ("nicache_sent_bytes", Kind::Counter, "Bytes sent from card memory.", |card| card.sent_bytes),
    ("nicache_bus_saved_bytes", Kind::Counter, "Bytes that did not cross the bus.", |card| {
        card.saved_bytes
    }),
    ("nicache_entries", Kind::Gauge, "Replies or blocks in card memory.", |card| card.entries),
    ("nicache_memory_used_bytes", Kind::Gauge, "Card memory in use.", |card| {
        card.memory_used_bytes
    }),
    ("nicache_memory_bytes", Kind::Gauge, "Card memory.", |card| card.memory_bytes),
    (
        "nicache_flows_active",
        Kind::Gauge,
        "Connections that the card follows at the moment.",
        |card| card.flows,
    ),
    ("nicache_evictions", Kind::Counter, "Entries that have gone to make room.", |card| {
        card.evictions
    }),
    (
        "nicache_purges",
        Kind::Counter,
        "Entries that have gone because something changed.",
        |card| card.purges,
    ),
    (
        "nicache_waits",
        Kind::Counter,
        "Requests that waited for another one's reply or for the watcher.",
        |card| card.waits,
    ),
    ("nicache_retransmits", Kind::Counter, "Segments sent again by the card.", |card| {
        card.retransmits
    }),
    (
        "nicache_drops",
        Kind::Counter,
        "Frames that ports refused or whose checksum was wrong.",
        |card| card.drops,
    ),
    ("nicache_card_up", Kind::Gauge, "1 for each card, or queue of one, that there is.", |_| 1),
];

fn cards(text: &mut Exposition, sample: &Sample) {
    let (family, help, bypass) = match sample.mode {
        Mode::Run => ("nicache_requests", "Requests, by what became of them.", "bypass"),
        Mode::Serve | Mode::Nfs => (
            "nicache_block_lookups",
            "Blocks that replies needed, by what the card's directory said.",
            "refused",
        ),
        Mode::Forward => (
            "nicache_forward_payload_bytes",
            "Bytes of payload that were sent on: from the card (hit), or from main memory (miss).",
            "bypass",
        ),
    };
    text.family(family, Kind::Counter, help);
    for card in &sample.cards {
        for (outcome, value) in [("hit", card.hits), ("miss", card.misses), (bypass, card.bypasses)]
        {
            text.value(family, &[("card", &card.id), ("outcome", outcome)], value);
        }
    }
    for (family, kind, help, value) in CARD_FAMILIES {
        text.family(family, kind, help);
        for card in &sample.cards {
            text.value(family, &[("card", &card.id)], value(card));
        }
    }
    text.family(
        "nicache_bus_bytes",
        Kind::Counter,
        "Bytes over the bus between card and host, each in one class.",
    );
    for card in &sample.cards {
        for crossing in &card.bus {
            let labels = [
                ("card", &*card.id),
                ("class", &*crossing.class),
                ("direction", crossing.direction.label()),
            ];
            text.value("nicache_bus_bytes", &labels, crossing.bytes);
        }
    }
}

fn reasons(text: &mut Exposition, sample: &Sample) {
    for (prefix, family, help) in BY_REASON {
        let mut reasons = sample.by_reason(prefix).peekable();
        if reasons.peek().is_none() {
            continue;
        }
        text.family(family, Kind::Counter, help);
        for (reason, value) in reasons {
            text.value(family, &[("reason", reason)], value);
        }
    }
    for (prefix, family, label, help) in BY_LABEL {
        let mut values = sample.by_reason(prefix).peekable();
        if values.peek().is_none() {
            continue;
        }
        text.family(family, Kind::Gauge, help);
        for (name, value) in values {
            text.value(family, &[(label, name)], value);
        }
    }
}

/// Whatever else is counted, under its own name. What nobody has described is one family with a
/// label.
fn others(text: &mut Exposition, sample: &Sample, describe: impl Fn(&str) -> Option<Description>) {
    let is_told = |name: &str| {
        let labelled = BY_LABEL.iter().map(|(prefix, ..)| prefix);
        BY_REASON
            .iter()
            .map(|(prefix, ..)| prefix)
            .chain(labelled)
            .chain(&OF_CARDS)
            .any(|it| name.starts_with(it))
    };
    let mut strange = Vec::new();
    for (name, value) in sample.counters.iter().filter(|(name, _)| !is_told(name)) {
        let Some(description) = describe(name) else {
            strange.push((name, *value));
            continue;
        };
        let family = format!("nicache_{name}");
        let kind = if description.is_gauge { Kind::Gauge } else { Kind::Counter };
        if text.family(&family, kind, description.help) {
            text.value(&family, &[], *value);
        }
    }
    if !strange.is_empty() {
        text.family("nicache_other", Kind::Gauge, "Counters without a description, by name.");
        for (name, value) in strange {
            text.value("nicache_other", &[("counter", name)], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;
    use crate::sample::{Crossing, DatabaseSample, Direction};

    fn described(name: &str) -> Option<Description> {
        (name != "odd")
            .then_some(Description { help: "Something.", is_gauge: name.ends_with("_now") })
    }

    fn sample(name: &str) -> Sample {
        let bus =
            vec![Crossing { class: "content".into(), direction: Direction::ToHost, bytes: 9 }];
        let card = |id: &str| CardSample {
            id: id.into(),
            hits: 5,
            misses: 2,
            bus: bus.clone(),
            ..CardSample::default()
        };
        let counters = [
            "bypass_cookie",
            "fills",
            "flows_now",
            "evictions",
            "odd",
            "bus_to_host_content_bytes",
            "hit_bytes",
        ];
        Sample {
            name: name.to_owned(),
            cards: vec![card("0"), card("1")],
            counters: counters.map(|name| (name.to_owned(), 3)).into(),
            databases: vec![DatabaseSample {
                database: "10.0.0.5:3306".into(),
                in_step: true,
                ..DatabaseSample::default()
            }],
            ..Sample::default()
        }
    }

    type Values = BTreeMap<(String, BTreeMap<String, String>), f64>;

    /// Reads the text format by its grammar; panics where it is broken.
    fn parse(text: &str, format: Format) -> Values {
        let (mut kinds, mut values, mut closed) = (BTreeMap::new(), Values::new(), HashSet::new());
        let mut current = String::new();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        assert!(text.ends_with('\n'));
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line == "# EOF" {
                assert!(format == Format::OpenMetrics && lines.peek().is_none());
                return values;
            }
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (what, family, rest) =
                    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
                assert!(is_name(family), "{line}");
                match what {
                    "HELP" => {
                        // All lines of a family are together.
                        assert!(closed.insert(family.to_owned()), "{family} comes twice");
                        current = family.to_owned();
                    }
                    "TYPE" => {
                        assert!(
                            matches!(rest, "counter" | "gauge")
                                && kinds.insert(family, rest).is_none(),
                            "{line}"
                        );
                        assert_eq!(family, current);
                        assert_eq!(
                            family.ends_with("_total"),
                            rest == "counter" && format == Format::Prometheus,
                            "{line}"
                        );
                    }
                    "UNIT" => {
                        assert!(format == Format::OpenMetrics && family.ends_with(rest), "{line}");
                    }
                    other => panic!("{other}"),
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
                None => (series, ""),
            };
            let family = match format {
                Format::OpenMetrics if kinds[&*current] == "counter" => {
                    name.strip_suffix("_total").unwrap()
                }
                _ => name,
            };
            assert_eq!(family, current, "{line}");
            let mut found = BTreeMap::new();
            let mut chars = labels.chars().peekable();
            while chars.peek().is_some() {
                let label: String = chars.by_ref().take_while(|c| *c != '=').collect();
                assert!(is_name(&label), "{line}");
                assert_eq!(chars.next(), Some('"'));
                let mut text = String::new();
                loop {
                    match chars.next().unwrap() {
                        '\\' => text.push(match chars.next().unwrap() {
                            'n' => '\n',
                            c @ ('\\' | '"') => c,
                            other => panic!("\\{other}"),
                        }),
                        '"' => break,
                        c => text.push(c),
                    }
                }
                assert!(found.insert(label, text).is_none());
                assert!(chars.next().is_none_or(|c| c == ','));
            }
            let is_new = values.insert((name.to_owned(), found), value.parse().unwrap()).is_none();
            assert!(is_new, "{line} comes twice");
        }
        assert_eq!(format, Format::Prometheus, "no end");
        values
    }

    fn value(values: &Values, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        values.get(&(name.to_owned(), labels)).copied()
    }

    #[test]
    fn both_formats_say_the_same() {
        let read = [Format::Prometheus, Format::OpenMetrics].map(|format| {
            parse(&render(Some(&sample("shop")), described, |_| false, format), format)
        });
        assert_eq!(read[0], read[1]);
        let of = |name: &str, labels: &[(&str, &str)]| value(&read[0], name, labels);
        assert_eq!(of("nicache_up", &[]), Some(1.0));
        assert_eq!(of("nicache_requests_total", &[("card", "1"), ("outcome", "hit")]), Some(5.0));
        assert_eq!(of("nicache_bypasses_total", &[("reason", "cookie")]), Some(3.0));
        let labels = [("card", "0"), ("class", "content"), ("direction", "to_host")];
        assert_eq!(of("nicache_bus_bytes_total", &labels), Some(9.0));
        assert_eq!(
            (of("nicache_fills_total", &[]), of("nicache_flows_now", &[])),
            (Some(3.0), Some(3.0))
        );
        assert_eq!(of("nicache_hit_bytes_total", &[]), Some(3.0));
        assert_eq!(of("nicache_other", &[("counter", "odd")]), Some(3.0));
        assert_eq!(of("nicache_database_in_step", &[("database", "10.0.0.5:3306")]), Some(1.0));
        // Told of each card already.
        assert_eq!(of("nicache_evictions_total", &[]), None);
        assert!(!read[0].keys().any(|(name, _)| name.contains("bus_to_host")));
    }

    #[test]
    fn a_card_that_does_not_answer_is_down() {
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let values = parse(&render(None, described, |_| false, format), format);
            assert_eq!(value(&values, "nicache_up", &[]), Some(0.0));
            assert_eq!(values.len(), 1);
        }
    }

    #[test]
    fn families_of_its_own_take_the_place_of_cards() {
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let tell_own = |text: &mut Exposition| {
                text.counter("nicache_own", "Something.", 4);
                true
            };
            let values = parse(&render(Some(&sample("a")), described, tell_own, format), format);
            assert_eq!(value(&values, "nicache_own_total", &[]), Some(4.0));
            assert_eq!(value(&values, "nicache_up", &[]), Some(1.0));
            let names: HashSet<&str> = values.keys().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names.len(), 4, "{names:?}");
        }
    }

    proptest! {
        #[test]
        fn any_label_is_read_as_it_was(name in "\\PC*|[\\\\\"\n{},= ]*") {
            for format in [Format::Prometheus, Format::OpenMetrics] {
                let text = render(Some(&sample(&name)), described, |_| false, format);
                let values = parse(&text, format);
                let labels = [("name", &*name), ("mode", "run"), ("version", "")];
                prop_assert_eq!(value(&values, "nicache_build_info", &labels), Some(1.0));
            }
        }
    }

    #[test]
    fn prometheus_own_checker_finds_nothing() {
        let mut command = Command::new("promtool");
        command
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            eprintln!("promtool (Debian's prometheus) is not installed: not checked");
            return;
        };
        let text = render(Some(&sample("shop")), described, |_| false, Format::Prometheus);
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
