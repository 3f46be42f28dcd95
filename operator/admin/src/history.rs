//! The last few minutes as points of one second, for a page that has just been opened.

use std::collections::VecDeque;

use serde::Serialize;

use crate::SAMPLE_INTERVAL;
use crate::change::Change;
use crate::sample::Sample;

/// Points that are kept: five minutes.
pub const HISTORY_POINTS: usize = 300;

/// Rates of one interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The interval's end, UNIX time in milliseconds.
    pub unix_ms: u64,
    /// What happened in it, per second.
    #[serde(flatten)]
    pub change: Change,
}

/// The newest [`HISTORY_POINTS`] points. Where no sample could be taken, there is a gap.
#[derive(Debug, Default)]
pub struct History {
    points: VecDeque<Point>,
    last: Option<Sample>,
}

impl History {
    /// Adds what has happened since the last sample. One that came after a gap of more than three
    /// intervals is only a beginning.
    pub fn push(&mut self, sample: &Sample) -> Option<&Point> {
        let last = self.last.replace(Sample { hottest: None, ..sample.clone() })?;
        let change = Change::between(&last, sample);
        let is_gap = change.seconds > 3.0 * SAMPLE_INTERVAL.as_secs_f64();
        if change.seconds <= 0.0 || is_gap {
            return None;
        }
        if self.points.len() == HISTORY_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(Point { unix_ms: sample.unix_ms, change });
        self.points.back()
    }

    /// All points, oldest first.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::CardSample;

    fn sample(uptime_ms: u64) -> Sample {
        let cards = vec![CardSample { hits: uptime_ms, ..CardSample::default() }];
        Sample { uptime_ms, unix_ms: 1_000_000 + uptime_ms, cards, ..Sample::default() }
    }

    #[test]
    fn it_forgets_and_leaves_gaps() {
        let mut history = History::default();
        assert!(history.push(&sample(0)).is_none());
        for second in 1..=HISTORY_POINTS as u64 + 10 {
            let point = history.push(&sample(second * 1000)).unwrap();
            assert!((point.change.hits_per_s - 1000.0).abs() < 1e-9);
        }
        assert_eq!(history.points().count(), HISTORY_POINTS);
        assert_eq!(history.points().next().unwrap().unix_ms, 1_000_000 + 11_000);
        // The same moment again, and one after a gap.
        assert!(history.push(&sample(310_000)).is_none());
        assert!(history.push(&sample(320_000)).is_none());
        assert!(history.push(&sample(321_000)).is_some());
    }
}
