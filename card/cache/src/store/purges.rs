//! What an operator has purged: a reply that was asked for before does not become an entry.

use std::collections::VecDeque;

use nicache_coherence::Stamp;

use super::entry::Entry;

/// Purges that are told apart. Before the oldest of more, everything counts as purged.
const PURGES_MAX: usize = 16;

type Chosen = Box<dyn Fn(&Entry) -> bool + Send>;

/// The last purges.
#[derive(Default)]
pub(super) struct Purges {
    recent: VecDeque<(Stamp, Chosen)>,
    /// What was forwarded until then counts as purged, whatever it is.
    all_until: Option<Stamp>,
}

impl Purges {
    /// What `chosen` says is purged, if it was forwarded at this clock or before.
    pub(super) fn note(&mut self, at: Stamp, chosen: impl Fn(&Entry) -> bool + Send + 'static) {
        if self.recent.len() == PURGES_MAX
            && let Some((oldest, _)) = self.recent.pop_front()
        {
            self.all_until = Some(oldest);
        }
        self.recent.push_back((at, Box::new(chosen)));
    }

    /// Was a reply purged, for which this is the entry or would be, if it was `forwarded` then?
    pub(super) fn covers(&self, entry: &Entry, forwarded: Stamp) -> bool {
        self.all_until.is_some_and(|until| forwarded <= until)
            || self.recent.iter().any(|(at, chosen)| forwarded <= *at && chosen(entry))
    }
}
