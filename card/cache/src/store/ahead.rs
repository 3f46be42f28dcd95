//! Pages whose next visitor is expected, and whose entry has lapsed meanwhile: asked for before he comes.
//!
//! Where visitors come seldom, a change that leaves the page as it was (a program's own notes of a visit, say) would make every one of them wait for the
//! server. The page has paid for one more request with its hits ([`Credit`](super::credit)); it is made when changes have come to rest, so that several of
//! them cost one. A page that nobody comes to any more is left alone.
//!
//! After such a change the answer is for the class of clients alone that has got it since. A page that has saved enough is asked for as one of each
//! other class that had it before ([`Seen::has_lost`](super::seen::Seen::has_lost)), one after the other.

use std::time::Duration;

use nicache_tcp::Time;

use super::entry::EntryId;
use super::index::Store;
use super::standing::Standing;
use crate::counters::Counters;
use crate::limits::SUSPECTS_MAX;
use crate::recheck::Recheck;

/// Between two [looks](Store::look_ahead).
pub const LOOK_AHEAD: Duration = Duration::from_millis(250);
/// Places looked at in one.
const PLACES: u32 = 1024;
/// Requests and questions to the watcher that come of one.
const ASKED_MAX: usize = 8;
/// A visitor is expected for so many times as long as the pause between the last two.
const PAUSES: u32 = 3;
/// Pages with longer pauses are not looked after.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A lapsed page is asked for after this share of the pause, within these bounds.
const REST_SHARE: u32 = 8;
const REST_MIN: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(5);

impl Store {
    /// Looks at some entries, other ones each time: what has changed is found suspect, and for what has lapsed the server is asked by `ask`.
    pub fn look_ahead(&mut self, now: Time, counters: &mut Counters, mut ask: impl FnMut(Recheck, &mut Counters)) {
        self.now = now;
        let mut asked = 0;
        for _ in 0..PLACES.min(self.places_used) {
            let index = self.looked_at;
            self.looked_at = (index + 1) % self.places_used;
            let id = EntryId { index, generation: self.places[index as usize].generation };
            match self.ahead(id, now) {
                Step::Nothing => continue,
                Step::Suspect => {
                    if !self.suspect(id) {
                        self.purge(id, counters);
                    }
                }
                Step::Ask => {
                    if let Some(recheck) = self.ask_ahead(id, now) {
                        ask(recheck, counters);
                    }
                }
            }
            asked += 1;
            if asked >= ASKED_MAX {
                break;
            }
        }
    }

    fn ahead(&self, id: EntryId, now: Time) -> Step {
        let Some(entry) = self.get(id).filter(|entry| !entry.dead) else { return Step::Nothing };
        let age = &entry.age;
        let is_expected = age.pause < PAUSE_MAX && now < age.used + age.pause * PAUSES;
        // What the card is told does not answer for those behind another machine's proxy: after a change they ask for themselves.
        if !is_expected || age.by.is_beyond || age.recheck.is_none() || !age.credit.may_spend() {
            return Step::Nothing;
        }
        let rest = (age.pause / REST_SHARE).clamp(REST_MIN, REST_MAX);
        match entry.standing {
            Standing::Good if self.has_changed_by_request(entry) => Step::Nothing,
            Standing::Good if self.revisions.is_unchanged(entry.sources.as_slice(), entry.stamp) => {
                let is_due = now >= age.recheck_at && !age.is_awaited(now);
                if is_due || age.seen.has_lost() && age.credit.is_ample() { Step::Ask } else { Step::Nothing }
            }
            Standing::Good if !entry.is_dynamic() => Step::Nothing,
            Standing::Good if self.suspects_to_ask() < SUSPECTS_MAX / 2 => Step::Suspect,
            Standing::Lapsed if now >= entry.lapsed + rest && self.is_left_alone(&entry.key, now).is_none() => {
                Step::Ask
            }
            _ => Step::Nothing,
        }
    }

    fn ask_ahead(&mut self, id: EntryId, now: Time) -> Option<Recheck> {
        let age = &mut self.get_mut(id)?.age;
        if age.is_awaited(now) || !age.credit.spend(false) {
            return None;
        }
        age.asked = Some(now);
        self.dressed_recheck(id, now)
    }
}

enum Step {
    Nothing,
    /// A source has changed, and nobody has asked for it since.
    Suspect,
    /// The server is to be asked.
    Ask,
}
