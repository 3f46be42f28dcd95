//! What has happened between two samples.

use serde::Serialize;

use crate::sample::{CardSample, Mode, Sample};

/// Rates between two samples, per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Change {
    /// Seconds between the two.
    pub seconds: f64,
    /// Requests, whoever answered them.
    pub requests_per_s: f64,
    /// Hits.
    pub hits_per_s: f64,
    /// Misses.
    pub misses_per_s: f64,
    /// Bypasses.
    pub bypasses_per_s: f64,
    /// Hits among what was looked for, 0 to 1; `None` if nothing was.
    pub hit_rate: Option<f64>,
    /// Bytes sent from card memory.
    pub sent_bytes_per_s: f64,
    /// Bytes that did not cross the bus.
    pub saved_bytes_per_s: f64,
    /// Bytes over the bus by class.
    pub bus_bytes_per_s: Vec<(String, f64)>,
}

impl Change {
    /// From `then` to `now`. What has sunk was counted anew from 0, by a card that was started
    /// again.
    pub fn between(then: &Sample, now: &Sample) -> Self {
        let (before, after) = (then.total(), now.total());
        let mut change = Self::of_card(&before, &after, seconds_between(then, now));
        if now.mode != Mode::Run {
            change.requests_per_s = per_second(then.requests(), now.requests(), change.seconds);
        }
        change
    }

    /// Rates of one card between two samples, over so many seconds.
    pub fn of_card(then: &CardSample, now: &CardSample, seconds: f64) -> Self {
        let [hits, misses, bypasses] =
            [(then.hits, now.hits), (then.misses, now.misses), (then.bypasses, now.bypasses)]
                .map(|(then, now)| per_second(then, now, seconds));
        let all = hits + misses + bypasses;
        let before = then.bus_by_class();
        let bus = now.bus_by_class().into_iter().map(|(class, bytes)| {
            let old =
                before.iter().find(|(other, _)| *other == class).map_or(0, |(_, bytes)| *bytes);
            (class.to_owned(), per_second(old, bytes, seconds))
        });
        Self {
            seconds,
            requests_per_s: all,
            hits_per_s: hits,
            misses_per_s: misses,
            bypasses_per_s: bypasses,
            hit_rate: (all > 0.0).then(|| hits / all),
            sent_bytes_per_s: per_second(then.sent_bytes, now.sent_bytes, seconds),
            saved_bytes_per_s: per_second(then.saved_bytes, now.saved_bytes, seconds),
            bus_bytes_per_s: bus.collect(),
        }
    }
}

/// How fast a counter grows. One that has sunk was started again at 0.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn per_second(then: u64, now: u64, seconds: f64) -> f64 {
    let grown = now.checked_sub(then).unwrap_or(now);
    if seconds > 0.0 { grown as f64 / seconds } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since a start")]
pub(crate) fn seconds_between(then: &Sample, now: &Sample) -> f64 {
    now.uptime_ms.saturating_sub(then.uptime_ms) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Crossing, Direction};

    fn sample(uptime_ms: u64, hits: u64, misses: u64, bytes: u64) -> Sample {
        let bus = vec![Crossing { class: "content".into(), direction: Direction::ToHost, bytes }];
        Sample {
            uptime_ms,
            cards: vec![CardSample { hits, misses, bus, ..CardSample::default() }],
            ..Sample::default()
        }
    }

    #[test]
    fn rates_are_per_second() {
        let change = Change::between(&sample(1000, 10, 5, 100), &sample(3000, 40, 15, 500));
        assert_eq!((change.seconds, change.hits_per_s, change.misses_per_s), (2.0, 15.0, 5.0));
        assert_eq!((change.requests_per_s, change.hit_rate), (20.0, Some(0.75)));
        assert_eq!(change.bus_bytes_per_s, [("content".to_owned(), 200.0)]);
    }

    #[test]
    fn a_card_that_was_started_again_counts_from_0() {
        let change = Change::between(&sample(1000, 1000, 5, 100), &sample(2000, 40, 5, 100));
        assert_eq!((change.hits_per_s, change.misses_per_s), (40.0, 0.0));
    }

    #[test]
    fn no_time_and_no_requests_are_no_numbers() {
        let same = sample(1000, 1, 1, 1);
        let change = Change::between(&same, &sample(1000, 5, 1, 1));
        assert_eq!((change.hits_per_s, change.hit_rate), (0.0, None));
    }

    #[test]
    fn requests_of_a_server_are_not_blocks() {
        let with = |uptime_ms, requests| Sample {
            mode: Mode::Serve,
            counters: [("requests".to_owned(), requests)].into(),
            ..sample(uptime_ms, requests * 7, 0, 0)
        };
        let change = Change::between(&with(0, 10), &with(1000, 30));
        assert_eq!((change.requests_per_s, change.hits_per_s), (20.0, 140.0));
    }
}
