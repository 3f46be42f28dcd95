//! Everything that is known at one moment. Counters are since the start; rates come from two
//! samples ([`crate::Change`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What kind of nicache it is, and so what hits and misses are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A card in front of a server: requests are hits, misses or bypasses.
    #[default]
    Run,
    /// A server whose host manages the card's memory: blocks of 4 KB are.
    Serve,
    /// A forwarder: bytes of payload are, by whether they were sent from the card or from main
    /// memory.
    Forward,
    /// A file server in front of a logical unit: blocks of 4 KB are, by whether its cache had them.
    Nfs,
}

/// What there is to see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The name of the running nicache.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// What kind it is.
    pub mode: Mode,
    /// Process number of the supervisor.
    pub pid: u32,
    /// Since its start, in milliseconds, by a clock that never jumps; when the sample was taken.
    pub uptime_ms: u64,
    /// When the sample was taken: UNIX time in milliseconds.
    pub unix_ms: u64,
    /// The server's command, or the folder.
    pub serves: String,
    /// Where it is served.
    pub urls: Vec<String>,
    /// Addresses of this machine at which it is offered.
    pub published: Vec<String>,
    /// Everything is passed to the server by command.
    pub bypass_on: bool,
    /// Why nothing is kept at the moment, if so.
    pub not_caching: Option<String>,
    /// Who watches what is kept.
    pub watcher: WatcherSample,
    /// Databases that relays tell of.
    pub databases: Vec<DatabaseSample>,
    /// Connections at the moment.
    pub connections: u64,
    /// How often a part that had ended was started again.
    pub restarts: u64,
    /// Each card, or each queue of one.
    pub cards: Vec<CardSample>,
    /// All other counters by name, over all cards.
    pub counters: BTreeMap<String, u64>,
    /// What is used most, most first; `None` if nobody has looked.
    pub hottest: Option<Vec<HotObject>>,
}

impl Sample {
    /// All cards together. [`CardSample::id`] is empty.
    pub fn total(&self) -> CardSample {
        let mut sum = CardSample::default();
        for card in &self.cards {
            sum.add(card);
        }
        sum
    }

    /// Requests so far, whoever answered them.
    pub fn requests(&self) -> u64 {
        match self.mode {
            Mode::Run => {
                let total = self.total();
                total.hits + total.misses + total.bypasses
            }
            Mode::Serve | Mode::Nfs => self.counters.get("requests").copied().unwrap_or(0),
            Mode::Forward => self.counters.get("forward_packets").copied().unwrap_or(0),
        }
    }

    /// A counter by name; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Counters whose name begins so, without that beginning, in order of their names.
    pub fn by_reason<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> + 'a {
        let from = self.counters.range(prefix.to_owned()..);
        from.map_while(move |(name, value)| Some((name.strip_prefix(prefix)?, *value)))
    }
}

/// One card, or one queue of a card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CardSample {
    /// The card's number.
    pub id: String,
    /// What it answered from its memory: requests, or blocks.
    pub hits: u64,
    /// What it might have answered, but had not: requests, or blocks.
    pub misses: u64,
    /// Requests that are not for it; blocks that its policy did not want.
    pub bypasses: u64,
    /// Bytes that were sent from its memory.
    pub sent_bytes: u64,
    /// Bytes that did not cross the bus therefore.
    pub saved_bytes: u64,
    /// Replies, or blocks, in its memory.
    pub entries: u64,
    /// Of its memory, in use.
    pub memory_used_bytes: u64,
    /// The card's memory in bytes.
    pub memory_bytes: u64,
    /// Connections at the moment.
    pub flows: u64,
    /// Entries that have gone to make room.
    pub evictions: u64,
    /// Entries that have gone since something changed.
    pub purges: u64,
    /// Requests that waited for the reply to another one, or for the watcher.
    pub waits: u64,
    /// Segments that it sent again.
    pub retransmits: u64,
    /// Frames that it dropped: ports refused them, or their checksum was wrong.
    pub drops: u64,
    /// What has crossed the bus; each byte is counted once.
    pub bus: Vec<Crossing>,
}

impl CardSample {
    fn add(&mut self, other: &Self) {
        for (sum, value) in [
            (&mut self.hits, other.hits),
            (&mut self.misses, other.misses),
            (&mut self.bypasses, other.bypasses),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.saved_bytes, other.saved_bytes),
            (&mut self.entries, other.entries),
            (&mut self.memory_used_bytes, other.memory_used_bytes),
            (&mut self.memory_bytes, other.memory_bytes),
            (&mut self.flows, other.flows),
            (&mut self.evictions, other.evictions),
            (&mut self.purges, other.purges),
            (&mut self.waits, other.waits),
            (&mut self.retransmits, other.retransmits),
            (&mut self.drops, other.drops),
        ] {
            *sum += value;
        }
        for crossing in &other.bus {
            let same = |known: &&mut Crossing| {
                known.class == crossing.class && known.direction == crossing.direction
            };
            match self.bus.iter_mut().find(same) {
                Some(known) => known.bytes += crossing.bytes,
                None => self.bus.push(crossing.clone()),
            }
        }
    }

    /// Bytes over the bus by class, whatever their direction, in the order in which the card names
    /// the classes.
    pub fn bus_by_class(&self) -> Vec<(&str, u64)> {
        let mut classes: Vec<(&str, u64)> = Vec::new();
        for crossing in &self.bus {
            match classes.iter_mut().find(|(class, _)| *class == crossing.class) {
                Some((_, bytes)) => *bytes += crossing.bytes,
                None => classes.push((&crossing.class, crossing.bytes)),
            }
        }
        classes
    }

    /// Share of what was looked for and found, 0 to 1; 0 if nothing was.
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.misses + self.bypasses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// Bytes of one class that have crossed the bus one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossing {
    /// The class, as in docs/bus.md.
    pub class: String,
    /// Which way.
    pub direction: Direction,
    /// How many bytes.
    pub bytes: u64,
}

/// Which way bytes cross the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From card to host.
    ToHost,
    /// From host to card.
    FromHost,
    /// Not told apart.
    Either,
}

impl Direction {
    /// The name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ToHost => "to_host",
            Self::FromHost => "from_host",
            Self::Either => "either",
        }
    }
}

/// Who watches the sources of what is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatcherSample {
    /// `kernel` or `preload`.
    pub kind: String,
    /// Why nothing is watched, if so.
    pub unavailable: Option<String>,
}

/// A database that a relay tells of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatabaseSample {
    /// Where the server finds it.
    pub database: String,
    /// Whether pages that ask it may be kept.
    pub in_step: bool,
    /// Statements that the relay has told of.
    pub events: u64,
    /// How often all its pages were voided.
    pub voided: u64,
}

/// An object that is used much.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotObject {
    /// The host that its request named. Clients choose it: it is to be escaped wherever it is
    /// shown.
    pub host: String,
    /// The request target. Clients choose it, too.
    pub target: String,
    /// Hits per second, of late: an average in which what is 10 s ago counts a third.
    pub hits_per_s: f64,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// Is it dynamic: did a program make it?
    pub is_dynamic: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crossing(class: &str, direction: Direction, bytes: u64) -> Crossing {
        Crossing { class: class.to_owned(), direction, bytes }
    }

    #[test]
    fn a_total_is_the_sum_of_cards() {
        let card = |hits, bytes| CardSample {
            id: "0".into(),
            hits,
            misses: 1,
            bus: vec![
                crossing("content", Direction::ToHost, bytes),
                crossing("content", Direction::FromHost, 1),
            ],
            ..CardSample::default()
        };
        let sample = Sample { cards: vec![card(2, 10), card(3, 20)], ..Sample::default() };
        let total = sample.total();
        assert_eq!((total.hits, total.misses, sample.requests()), (5, 2, 7));
        assert_eq!(
            total.bus,
            [
                crossing("content", Direction::ToHost, 30),
                crossing("content", Direction::FromHost, 2)
            ]
        );
        assert_eq!(total.bus_by_class(), [("content", 32)]);
        assert!(
            (total.hit_rate() - 5.0 / 7.0).abs() < 1e-9 && CardSample::default().hit_rate() == 0.0
        );
    }

    #[test]
    fn reasons_are_found_by_their_beginning() {
        let counters =
            [("bypass_cookie", 3), ("bypass_lease", 0), ("bypassed", 9), ("fills", 1), ("a", 2)];
        let counters = counters.map(|(name, value)| (name.to_owned(), value)).into();
        let sample = Sample { counters, ..Sample::default() };
        let reasons: Vec<_> = sample.by_reason("bypass_").collect();
        assert_eq!(reasons, [("cookie", 3), ("lease", 0)]);
        assert_eq!((sample.counter("fills"), sample.counter("none")), (1, 0));
    }

    #[test]
    fn a_sample_survives_json_and_an_older_one_can_be_read() {
        let hottest = Some(vec![HotObject { target: "/<b>\u{1}".into(), ..HotObject::default() }]);
        let sample = Sample {
            mode: Mode::Serve,
            hottest,
            not_caching: Some("x".into()),
            ..Sample::default()
        };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
        assert_eq!(serde_json::from_str::<Sample>("{}").unwrap(), Sample::default());
    }
}
