//! Pages whose next visitor is expected, and whose entry has lapsed meanwhile: asked for before the
//! visitor comes.
//!
//! Where visitors come seldom, a change that leaves the page as it was (a program's own notes of a
//! visit, say) would make every one of them wait for the server. The page has paid for one more
//! request with its hits ([`Credit`](super::credit)); it is made when changes have come to rest, so
//! several of them cost one. A page that nobody comes to any longer is put aside.
//!
//! After such a change the answer is for the class of clients alone that has got it since. If
//! enough is saved, the page is asked for as one of each other class that had it before
//! ([`Seen::has_lost`](super::seen::Seen::has_lost)), and then as one of each that comes to the
//! site and never had it ([`SiteClasses`](super::site_classes::SiteClasses)), one after the other:
//! the first of them who comes finds it answered.
//!
//! A page that is only about to be too old is asked for, too, if visitors come more often than it
//! has to be asked for.

use std::cmp::Reverse;
use std::time::Duration;

use nicache_http::Key;
use nicache_tcp::Time;

use super::entry::{Entry, EntryId};
use super::index::Store;
use super::standing::Standing;
use super::who::Proxy;
use crate::counters::Counters;
use crate::limits::SUSPECTS_MAX;
use crate::recheck::Recheck;

/// Between two [looks](Store::look_ahead).
pub const LOOK_AHEAD: Duration = Duration::from_millis(100);
/// Places looked at in one.
const PLACES: u32 = 512;
/// Requests that come of one.
const ASKED_MAX: usize = 8;
/// Questions to the watcher that come of one.
const SUSPECTS_AT_ONCE: usize = 8;
/// A request is worth it if so many visitors of the page, in thousandths, are expected before its
/// next change, and so many of them are of the classes that it is made as.
const VISITORS_MIN: u64 = 600;
const OF_CLASS_MIN: u64 = 333;
/// A visitor is expected for so many times as long as the pause between the last two.
const PAUSES: u32 = 3;
/// Pages with longer pauses are not looked after.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A lapsed page is asked for after this share of the pause, within these bounds.
const REST_SHARE: u32 = 8;
const REST_MIN: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(5);
/// After each try that came to nothing, twice as long; so often at most.
const REST_DOUBLINGS: u8 = 6;

impl Store {
    /// Looks at some entries, other ones each time: what has changed is found suspect, and for what
    /// has lapsed the server is asked by `ask`, unless it is at work on that already.
    pub fn look_ahead(
        &mut self,
        now: Time,
        counters: &mut Counters,
        is_at_work: impl Fn(&Key) -> bool,
        mut ask: impl FnMut(Recheck, &mut Counters),
    ) {
        self.now = now;
        let (mut suspects, mut worth_asking) = (0, Vec::new());
        for _ in 0..PLACES.min(self.places_used) {
            let index = self.looked_at;
            self.looked_at = (index + 1) % self.places_used;
            let id = EntryId { index, generation: self.places[index as usize].generation };
            match self.ahead(id, now) {
                Step::Nothing => {}
                Step::Suspect => {
                    if !self.suspect(id) {
                        self.purge(id, counters);
                    }
                    suspects += 1;
                    if suspects >= SUSPECTS_AT_ONCE {
                        break;
                    }
                }
                Step::Ask { visitors } => {
                    if !self.get(id).is_some_and(|entry| is_at_work(&entry.key)) {
                        worth_asking.push((Reverse(visitors), id));
                    }
                }
            }
        }
        // Where there is not credit enough for all, it is for those who bring most.
        worth_asking.sort_unstable_by_key(|(visitors, _)| *visitors);
        for (_, id) in worth_asking.into_iter().take(ASKED_MAX) {
            if self.allowance.may_spend()
                && let Some(recheck) = self.ask_ahead(id, now)
            {
                ask(recheck, counters);
            }
        }
    }

    fn ahead(&self, id: EntryId, now: Time) -> Step {
        let Some(entry) = self.get(id).filter(|entry| !entry.dead) else { return Step::Nothing };
        let age = &entry.age;
        let pause = age.pause.now(&self.pace, now);
        let is_expected = pause < PAUSE_MAX && now < age.used + pause * PAUSES;
        let is_paid = age.credit.may_spend() || self.common.may_spend(age.usual);
        // What the card is told does not answer for those behind another machine's proxy: after a
        // change they ask for themselves.
        if !is_expected
            || age.by.proxy == Proxy::Beyond
            || age.recheck.is_none()
            || age.is_awaited(now)
            || !is_paid
        {
            return Step::Nothing;
        }
        let rest =
            (pause / REST_SHARE).clamp(REST_MIN, REST_MAX) * (1 << age.vain.min(REST_DOUBLINGS));
        if age.vain > 0 && now < entry.lapsed + rest {
            return Step::Nothing;
        }
        match entry.standing {
            Standing::Good if self.has_changed_by_request(entry) => Step::Nothing,
            Standing::Good if self.is_over(entry, now + self.lead(entry)) => {
                let is_used = pause < age.earned || age.credit.is_ample();
                if is_used { ask_for(pause, age.life.left(now), 1000) } else { Step::Nothing }
            }
            Standing::Good
                if self.revisions.is_unchanged(entry.sources.as_slice(), entry.stamp) =>
            {
                // The last one is for when the page lapses.
                let is_ample = age.credit.is_ample() || self.common.may_spend(age.usual);
                let is_for_classes = || {
                    age.seen.has_lost() || age.seen.lacks(self.site_classes.of(&entry.host), now)
                };
                if is_ample && is_for_classes() {
                    ask_for(
                        pause,
                        age.life.left(now),
                        age.share_of_turn(self.site_classes.of(&entry.host), false, now),
                    )
                } else {
                    Step::Nothing
                }
            }
            Standing::Good if !entry.is_dynamic() => Step::Nothing,
            Standing::Good if self.suspects_to_ask() < SUSPECTS_MAX / 2 => Step::Suspect,
            Standing::Lapsed
                if now >= entry.lapsed + rest && self.is_put_aside(&entry.key, now).is_none() =>
            {
                ask_for(
                    pause,
                    age.life.whole(),
                    age.share_of_turn(self.site_classes.of(&entry.host), true, now),
                )
            }
            _ => Step::Nothing,
        }
    }

    /// How long before its end an entry is asked for: enough for the request, and for the next look
    /// at it.
    fn lead(&self, entry: &Entry) -> Duration {
        let round = LOOK_AHEAD * (2 + self.places_used / PLACES);
        (round + entry.age.usual * 2).min(entry.age.earned / 4)
    }

    fn ask_ahead(&mut self, id: EntryId, now: Time) -> Option<Recheck> {
        let usual = self.get(id)?.age.usual;
        let is_paid = self.get_mut(id)?.age.credit.spend(false) || self.common.spend(usual);
        if !is_paid {
            return None;
        }
        self.allowance.spend();
        self.get_mut(id)?.age.asked = Some(now);
        self.recheck_as_class(id, now)
    }
}

/// The server is asked if enough of this share of the visitors, in thousandths, are expected to
/// find an answer that lives so long; one visitor comes in each pause.
fn ask_for(pause: Duration, lives: Duration, share: u64) -> Step {
    let (lives, pause) = (lives.as_millis() as u64, pause.as_millis() as u64);
    let all = lives.saturating_mul(1000) / pause.max(1);
    let visitors = all.saturating_mul(share) / 1000;
    if all >= VISITORS_MIN && visitors >= OF_CLASS_MIN {
        Step::Ask { visitors }
    } else {
        Step::Nothing
    }
}

enum Step {
    Nothing,
    /// A source has changed, and nobody has asked for it since.
    Suspect,
    /// The server is to be asked: so many visitors, in thousandths, will find it answered.
    Ask {
        visitors: u64,
    },
}
