//! For how long an answer stays right, once the server has given it after a change: what asking
//! ahead of visitors brings depends on it.

use std::time::Duration;

use nicache_tcp::Time;

use super::usual_time::{NEVER, usual_time};

/// How long a page's answers live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// The server gave the present answer for the first time after a change.
    begun: Time,
    /// The last change that was seen.
    changed: Time,
    /// How long it usually is from one change to the next; as good as never, if none has been seen.
    usual: Duration,
}

impl Life {
    /// A page that is new.
    pub(super) fn new(now: Time) -> Self {
        Self { begun: now, changed: now, usual: NEVER }
    }

    /// The server has given an answer after a change.
    pub(super) fn begun(self, now: Time) -> Self {
        Self { begun: now, ..self }
    }

    /// A source has changed. Not every change is seen: a page that has changed already is not
    /// looked at. So if the answer is younger than the last change that was seen, there may have
    /// been others before it; the last one of them came, on average, as long before it as the
    /// present one comes after it.
    pub(super) fn note_change(&mut self, now: Time) {
        let life = (now.since(self.begun) * 2).min(now.since(self.changed));
        (self.usual, self.changed) = (usual_time(self.usual, life), now);
    }

    /// How long an answer lives that the server gives now for the first time after a change.
    pub(super) fn whole(&self) -> Duration {
        self.usual
    }

    /// How long the present one has left. One that has outlived the usual time may live as long
    /// again.
    pub(super) fn left(&self, now: Time) -> Duration {
        match self.usual.saturating_sub(now.since(self.begun)) {
            Duration::ZERO => self.usual,
            left => left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_life_ends_as_others_have() {
        let mut life = Life::new(at(0));
        assert_eq!(
            (life.whole(), life.left(at(50))),
            (NEVER, NEVER - Duration::from_secs(50)),
            "nothing has changed"
        );
        life.note_change(at(60));
        life = life.begun(at(62));
        assert_eq!(
            (life.whole(), life.left(at(72))),
            (Duration::from_secs(60), Duration::from_secs(50))
        );
        assert_eq!(life.left(at(130)), Duration::from_secs(60), "nobody knows");
        life.note_change(at(80));
        assert_eq!(life.whole(), Duration::from_secs(50), "one that was short says a quarter");
    }

    #[test]
    fn changes_that_nobody_saw_count() {
        let mut life = Life::new(at(0));
        for visit in 1..20 {
            // A change each 10 s, a visitor each 100 s.
            life.note_change(at(100 * visit));
            life = life.begun(at(100 * visit + 95));
        }
        assert!(life.whole() < Duration::from_secs(12), "{life:?}");
    }
}
