//! Which replies were stale: what a client saw, held against what was changed and when.
//!
//! Times are nanoseconds since the same moment, by the same clock of the same machine. A reply is
//! stale if it shows a version whose successor's edit had been completed before the request was
//! sent: then no order of events excuses it.

use std::time::{Duration, Instant};

/// What precedes the number of a version in a body.
const MARK: &[u8] = b"version=";

/// One change of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edit {
    /// What the page shows from then on.
    pub version: u64,
    /// When it was begun.
    pub begun_ns: u64,
    /// When it had been made: the database had answered, the file had its name.
    pub ended_ns: u64,
}

/// One reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Observation {
    /// Before the request was sent.
    pub sent_ns: u64,
    /// After the reply had come.
    pub received_ns: u64,
    /// What it showed; `None`: no version at all.
    pub version: Option<u64>,
}

/// What is to be said of replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Replies that were looked at.
    pub checked: u64,
    /// Checked replies that were stale.
    pub stale: u64,
    /// How long before the request the shown version had been replaced, at worst.
    pub worst_ns: u64,
    /// Replies with no version, or with one that nobody had begun to write yet. There should be
    /// none.
    pub impossible: u64,
}

/// The edits of one page since the beginning, one version after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    edits: Vec<Edit>,
}

impl Log {
    /// The version that the next edit makes.
    pub(super) fn next_version(&self) -> u64 {
        self.edits.last().map_or(1, |edit| edit.version + 1)
    }

    /// Adds edits, each with the version after that of the one before.
    pub(super) fn extend(&mut self, edits: impl IntoIterator<Item = Edit>) {
        for edit in edits {
            assert_eq!(edit.version, self.next_version(), "an edit is missing in the log");
            self.edits.push(edit);
        }
    }

    /// Judges replies.
    pub(super) fn judge(&self, observations: &[Observation]) -> Findings {
        let mut findings = Findings::default();
        for observation in observations {
            findings.checked += 1;
            match self.stale_by(observation) {
                Some(0) => {}
                Some(ns) => {
                    findings.stale += 1;
                    findings.worst_ns = findings.worst_ns.max(ns);
                }
                None => findings.impossible += 1,
            }
        }
        findings
    }

    /// For how long another version had been there when the request was sent; 0: the reply is
    /// right. `None`: impossible.
    fn stale_by(&self, observation: &Observation) -> Option<u64> {
        let version = observation.version?;
        let first = self.edits.first().map_or(1, |edit| edit.version);
        let at = |version: u64| self.edits.get(usize::try_from(version.checked_sub(first)?).ok()?);
        let unbegun = at(version).is_none_or(|edit| edit.begun_ns > observation.received_ns);
        // What was there before the first edit was begun by nobody whom we know.
        if unbegun && version >= first {
            return None;
        }
        let replaced_ns = at(version + 1).map_or(u64::MAX, |edit| edit.ended_ns);
        Some(observation.sent_ns.saturating_sub(replaced_ns))
    }
}

/// The clock of edits and observations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    /// Begins now.
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the beginning.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long until a moment.
    pub(super) fn until(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns.saturating_sub(self.now_ns()))
    }
}

/// The first version that a body shows.
pub(super) fn version_in(body: &[u8]) -> Option<u64> {
    let at = body.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits: Vec<u8> = body[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        let mut log = Log::default();
        let edit =
            |version| Edit { version, begun_ns: version * 100, ended_ns: version * 100 + 50 };
        log.extend((1..=3).map(edit));
        log
    }

    fn seen(version: u64, sent_ns: u64, received_ns: u64) -> Findings {
        log().judge(&[Observation { sent_ns, received_ns, version: Some(version) }])
    }

    #[test]
    fn either_version_is_right_while_an_edit_is_under_way() {
        // The second edit goes from 200 to 250.
        for (version, sent, received) in
            [(1, 180, 190), (1, 220, 230), (2, 220, 230), (1, 240, 500), (2, 190, 201)]
        {
            assert_eq!(
                seen(version, sent, received),
                Findings { checked: 1, ..Findings::default() },
                "{version} {sent}"
            );
        }
    }

    #[test]
    fn the_version_before_is_stale_once_the_edit_had_ended() {
        assert_eq!(seen(1, 250, 260).stale, 0, "sent at the very moment");
        assert_eq!(
            seen(1, 251, 260),
            Findings { checked: 1, stale: 1, worst_ns: 1, impossible: 0 }
        );
        assert_eq!(seen(1, 400, 410).worst_ns, 150);
        assert_eq!(seen(3, 9_000, 9_001).stale, 0, "the last one stays right");
        assert_eq!(seen(0, 151, 160).worst_ns, 1, "what was there before all edits");
    }

    #[test]
    fn what_cannot_be_is_told_apart() {
        assert_eq!(seen(3, 100, 299).impossible, 1, "before anybody wrote it");
        assert_eq!(seen(4, 900, 999).impossible, 1, "nobody ever wrote it");
        let none = Observation { sent_ns: 1, received_ns: 2, version: None };
        let findings =
            log().judge(&[none, Observation { version: Some(1), sent_ns: 300, received_ns: 310 }]);
        assert_eq!(findings, Findings { checked: 2, stale: 1, worst_ns: 50, impossible: 1 });
    }

    #[test]
    #[should_panic(expected = "missing in the log")]
    fn no_edit_may_be_forgotten() {
        log().extend([Edit { version: 5, begun_ns: 900, ended_ns: 901 }]);
    }

    #[test]
    fn versions_in_bodies() {
        assert_eq!(version_in(b"<p>version=17.</p><p>version=0.</p>"), Some(17));
        assert_eq!(version_in(b"<p>version=.</p>"), None);
        assert_eq!(version_in(b"nothing"), None);
    }
}
