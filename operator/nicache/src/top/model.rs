//! What is shown: samples, rates, and what keys have chosen.

use std::collections::VecDeque;

use nicache_admin::{CardSample, Change, HotObject, Sample, per_second};

use crate::words;

/// Intervals that are remembered for the small curves.
pub(super) const PAST_MAX: usize = 512;
/// Beginnings of names of counters that count reasons, and what such a reason keeps from happening.
pub(super) const REASONS: [(&str, &str); 4] = [
    ("bypass_", "passes"),
    ("fill_refused_", "not kept: watcher"),
    ("fill_not_shared_", "not kept: private"),
    ("fill_aborted_", "not kept: card"),
];

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// q, Esc, Ctrl-C.
    Quit,
    /// p, space.
    Pause,
    /// s.
    Sort,
    /// ?, h.
    Help,
    /// An arrow, or k.
    Up,
    /// An arrow, or j.
    Down,
    /// An arrow.
    Left,
    /// An arrow, or the tabulator.
    Right,
}

/// A list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum List {
    /// The hottest objects.
    #[default]
    Objects,
    /// Why replies do not come from the card.
    Reasons,
    /// The cards.
    Cards,
}

impl List {
    /// All, from left to right.
    pub(super) const ALL: [Self; 3] = [Self::Objects, Self::Reasons, Self::Cards];
}

/// By what the objects are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Hits per second.
    #[default]
    Rate,
    /// Bytes per second.
    Bytes,
    /// Bytes of the body.
    Size,
    /// The name.
    Name,
}

impl Order {
    /// For the head of the list.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Rate => "hits/s",
            Self::Bytes => "bytes/s",
            Self::Size => "size",
            Self::Name => "name",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Bytes,
            Self::Bytes => Self::Size,
            Self::Size => Self::Name,
            Self::Name => Self::Rate,
        }
    }
}

/// A reason and how often it was one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reason {
    /// The reason.
    pub name: String,
    /// What it keeps from happening.
    pub kind: &'static str,
    /// Times per second in the last interval.
    pub per_s: f64,
    /// Times since the start.
    pub count: u64,
    /// The reason in words, if there are some.
    pub because: Option<&'static str>,
}

/// Everything that a drawing depends on.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The newest sample.
    pub now: Option<Sample>,
    /// The one before it, of the same nicache.
    pub then: Option<Sample>,
    /// What happened between the two.
    pub change: Option<Change>,
    /// What happened in earlier intervals, oldest first.
    pub past: VecDeque<Change>,
    /// Why there is no sample at the moment.
    pub error: Option<String>,
    /// Nothing changes until the key is pressed again.
    pub is_paused: bool,
    /// The keys are explained.
    pub has_help: bool,
    /// By what objects are sorted.
    pub order: Order,
    /// The list that keys move in.
    pub list: List,
    selected: [usize; List::ALL.len()],
    has_ended: bool,
}

impl Model {
    /// Takes a sample, or why there is none.
    pub(super) fn handle_sample(&mut self, sample: Result<Sample, String>) {
        let sample = match sample {
            Ok(sample) => sample,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        self.error = None;
        if self.is_paused {
            return;
        }
        let is_later =
            |before: &Sample| before.pid == sample.pid && before.uptime_ms < sample.uptime_ms;
        match self.now.take() {
            Some(before) if before.pid == sample.pid && before.uptime_ms == sample.uptime_ms => {
                // Another viewer's, told again.
                self.now = Some(before);
                return;
            }
            before => self.then = before.filter(is_later),
        }
        if self.then.is_none() {
            self.past.clear();
        }
        self.change = self.then.as_ref().map(|then| Change::between(then, &sample));
        if let Some(change) = &self.change {
            if self.past.len() == PAST_MAX {
                self.past.pop_front();
            }
            self.past.push_back(change.clone());
        }
        self.now = Some(sample);
        for list in List::ALL {
            self.hold(list);
        }
    }

    /// Does what a key means.
    pub(super) fn handle_key(&mut self, key: Key) {
        if std::mem::take(&mut self.has_help) {
            return;
        }
        match key {
            Key::Quit => self.has_ended = true,
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Sort => self.order = self.order.next(),
            Key::Help => self.has_help = true,
            Key::Up => {
                let place = &mut self.selected[self.list as usize];
                *place = place.saturating_sub(1);
            }
            Key::Down => {
                self.selected[self.list as usize] += 1;
                self.hold(self.list);
            }
            Key::Left | Key::Right => {
                let step = if key == Key::Right { 1 } else { List::ALL.len() - 1 };
                self.list = List::ALL[(self.list as usize + step) % List::ALL.len()];
            }
        }
    }

    /// Is it over?
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Place of the chosen line of a list.
    pub(super) fn selected(&self, list: List) -> usize {
        self.selected[list as usize]
    }

    /// The hottest objects, as they are sorted.
    pub(super) fn objects(&self) -> Vec<&HotObject> {
        let mut objects: Vec<&HotObject> =
            self.now.iter().flat_map(|sample| sample.hottest.iter().flatten()).collect();
        match self.order {
            Order::Rate => objects.sort_by(|a, b| b.hits_per_s.total_cmp(&a.hits_per_s)),
            Order::Bytes => objects.sort_by(|a, b| bytes_per_s(b).total_cmp(&bytes_per_s(a))),
            Order::Size => objects.sort_by_key(|object| std::cmp::Reverse(object.body_bytes)),
            Order::Name => objects.sort_by(|a, b| (&a.host, &a.target).cmp(&(&b.host, &b.target))),
        }
        objects
    }

    /// Reasons that there were, those of the last interval first.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let Some(now) = &self.now else { return Vec::new() };
        let mut reasons = Vec::new();
        for (prefix, kind) in REASONS {
            for (name, count) in now.by_reason(prefix).filter(|(_, count)| *count > 0) {
                let before =
                    self.then.as_ref().map(|then| then.counter(&format!("{prefix}{name}")));
                let seconds = self.change.as_ref().map_or(0.0, |change| change.seconds);
                let per_s = per_second(before.unwrap_or(count), count, seconds);
                let because = words::of(&format!("{prefix}{name}")).map(|words| words.because);
                reasons.push(Reason { name: name.replace('_', " "), kind, per_s, count, because });
            }
        }
        reasons.sort_by(|a, b| b.per_s.total_cmp(&a.per_s).then(b.count.cmp(&a.count)));
        reasons
    }

    /// The cards, and what they have done in the last interval.
    pub(super) fn cards(&self) -> Vec<(&CardSample, Option<Change>)> {
        let cards = self.now.iter().flat_map(|sample| &sample.cards);
        let seconds = self.change.as_ref().map_or(0.0, |change| change.seconds);
        let change = |card: &CardSample| {
            let then = self.then.as_ref()?.cards.iter().find(|other| other.id == card.id)?;
            Some(Change::of_card(then, card, seconds))
        };
        cards.map(|card| (card, change(card))).collect()
    }

    /// The chosen line is one that is there.
    fn hold(&mut self, list: List) {
        let len = match list {
            List::Objects => self.objects().len(),
            List::Reasons => self.reasons().len(),
            List::Cards => self.cards().len(),
        };
        let place = &mut self.selected[list as usize];
        *place = (*place).min(len.saturating_sub(1));
    }
}

/// Bytes that an object has sent per second.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub(super) fn bytes_per_s(object: &HotObject) -> f64 {
    object.hits_per_s * object.body_bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(uptime_ms: u64, hits: u64) -> Sample {
        let object = |target: &str, hits_per_s, body_bytes| HotObject {
            target: target.into(),
            hits_per_s,
            body_bytes,
            ..HotObject::default()
        };
        Sample {
            pid: 1,
            uptime_ms,
            cards: vec![CardSample { id: "0".into(), hits, ..CardSample::default() }],
            counters: [
                ("bypass_cookie", hits / 10),
                ("fill_refused_wrote", 4),
                ("bypass_lease", 0),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            hottest: Some(vec![
                object("/c", 5.0, 10),
                object("/a", 9.0, 1),
                object("/b", 1.0, 1000),
            ]),
            ..Sample::default()
        }
    }

    #[test]
    fn rates_come_from_two_samples_of_the_same_nicache() {
        let mut model = Model::default();
        model.handle_sample(Ok(sample(1000, 100)));
        assert!(model.change.is_none() && model.past.is_empty());
        model.handle_sample(Ok(sample(3000, 500)));
        assert_eq!(model.change.as_ref().map(|change| change.hits_per_s), Some(200.0));
        // The same one again is not an interval of no time.
        model.handle_sample(Ok(sample(3000, 500)));
        assert_eq!((model.past.len(), model.change.as_ref().unwrap().seconds), (1, 2.0));
        model.handle_sample(Ok(Sample { pid: 2, ..sample(5000, 7) }));
        assert!(model.change.is_none() && model.past.is_empty());
    }

    #[test]
    fn reasons_of_now_are_first() {
        let mut model = Model::default();
        model.handle_sample(Ok(sample(1000, 100)));
        model.handle_sample(Ok(sample(2000, 300)));
        let reasons = model.reasons();
        assert_eq!(reasons.len(), 2);
        assert_eq!((&*reasons[0].name, reasons[0].per_s, reasons[0].count), ("cookie", 20.0, 30));
        assert_eq!(
            (&*reasons[1].name, reasons[1].kind, reasons[1].per_s),
            ("wrote", "not kept: watcher", 0.0)
        );
    }

    #[test]
    fn keys() {
        let mut model = Model::default();
        model.handle_key(Key::Down);
        model.handle_sample(Ok(sample(1000, 100)));
        let names = |model: &Model| {
            model.objects().iter().map(|object| object.target.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&model), ["/a", "/c", "/b"]);
        for (order, expected) in [
            (Order::Bytes, ["/b", "/c", "/a"]),
            (Order::Size, ["/b", "/c", "/a"]),
            (Order::Name, ["/a", "/b", "/c"]),
            (Order::Rate, ["/a", "/c", "/b"]),
        ] {
            model.handle_key(Key::Sort);
            assert_eq!((model.order, names(&model)), (order, expected.map(str::to_owned).to_vec()));
        }
        (0..9).for_each(|_| model.handle_key(Key::Down));
        assert_eq!(model.selected(List::Objects), 2);
        model.handle_key(Key::Up);
        model.handle_key(Key::Left);
        assert_eq!((model.list, model.selected(List::Objects)), (List::Cards, 1));
        model.handle_key(Key::Right);
        assert_eq!(model.list, List::Objects);
        // A paused one still hears whether there is a nicache at all.
        model.handle_key(Key::Pause);
        model.handle_sample(Ok(sample(2000, 900)));
        assert_eq!(model.now.as_ref().unwrap().uptime_ms, 1000);
        model.handle_sample(Err("gone".into()));
        assert_eq!(model.error.as_deref(), Some("gone"));
        model.handle_key(Key::Pause);
        model.handle_sample(Ok(sample(3000, 900)));
        assert!(model.error.is_none() && model.now.as_ref().unwrap().uptime_ms == 3000);
        // The help is closed first.
        model.handle_key(Key::Help);
        model.handle_key(Key::Quit);
        assert!(!model.has_ended() && !model.has_help);
        model.handle_key(Key::Quit);
        assert!(model.has_ended());
    }
}
