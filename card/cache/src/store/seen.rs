//! The classes of clients to whom the server has given an entry's answer, and when last: only these
//! get it from the card (docs/coherence.md).

use std::cmp::Reverse;

use nicache_http::{ClientClass, Trait};
use nicache_tcp::Time;

use super::site_classes::SiteClasses;

/// Classes remembered for each entry in each trait. With more, those that were answered first are
/// asked again.
const SEEN_MAX: usize = 64;

/// Times in a row that the card asks as a class, after a change, of which no client has come to the
/// server since. It then waits until somebody comes.
const REGAINED_MAX: u8 = 8;

/// What is known of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The class has got the answer.
    Answered,
    /// The class had got the answer before a change that is seen: the change may be a rule for this
    /// class.
    Lost,
    /// The card has asked as one of it since; what the server says is not there.
    Asked,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    class: u32,
    known: Known,
    at: Time,
    /// When the card last asked as one of this class.
    asked: Time,
    /// Changes after which only the card has asked as one of it.
    regained: u8,
}

/// Most entries have one class in each trait: a vector that begins with room for four would cost
/// half a kilobyte each.
fn push(answered: &mut Vec<Answered>, known: Answered) {
    if answered.is_empty() {
        answered.reserve_exact(1);
    }
    answered.push(known);
}

/// The classes that were answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    answered: [Vec<Answered>; Trait::ALL.len()],
    /// The client that was answered last.
    last: Option<(ClientClass, Time)>,
}

impl Seen {
    /// A client of this class, or the card as one of it, was answered by a request that was
    /// forwarded then.
    pub(super) fn note(&mut self, class: ClientClass, at: Time, by_card: bool) {
        if self.last.is_none_or(|(_, last)| at >= last) {
            self.last = Some((class, at));
        }
        for of in Trait::ALL {
            let (class, answered) = (class.of(of), &mut self.answered[of as usize]);
            if let Some(known) = answered.iter_mut().find(|known| known.class == class) {
                (known.at, known.known) = (known.at.max(at), Known::Answered);
                known.regained = if by_card { known.regained } else { 0 };
                continue;
            }
            if answered.len() == SEEN_MAX
                && let Some(oldest) = (0..SEEN_MAX).min_by_key(|place| answered[*place].at)
            {
                answered.swap_remove(oldest);
            }
            push(
                answered,
                Answered { class, known: Known::Answered, at, asked: Time::ZERO, regained: 0 },
            );
        }
    }

    /// Something has changed: nobody gets the answer before the server has given it to
    /// the client's class again.
    pub(super) fn lose(mut self) -> Self {
        for answered in &mut self.answered {
            answered
                .retain(|known| known.known == Known::Answered && known.regained < REGAINED_MAX);
            for known in answered {
                (known.known, known.regained) = (Known::Lost, known.regained + 1);
            }
        }
        self.last = None;
        self
    }

    /// Had clients of this class the answer, in each trait, before a change or since? What the card
    /// has asked for in vain they had not.
    pub(super) fn had(&self, class: ClientClass) -> bool {
        let had = |of: Trait| {
            self.answered[of as usize]
                .iter()
                .any(|known| known.class == class.of(of) && known.known != Known::Asked)
        };
        Trait::ALL.into_iter().all(had)
    }

    /// Are there classes that had the answer before a change, and as which the card has not asked
    /// since?
    pub(super) fn has_lost(&self) -> bool {
        self.answered.iter().flatten().any(|known| known.known == Known::Lost)
    }

    /// Are there classes that come to the site, and that nobody is known to be of who has got the
    /// answer or was to?
    pub(super) fn lacks(&self, site_classes: &SiteClasses, now: Time) -> bool {
        Trait::ALL.into_iter().any(|of| self.lacking(of, site_classes, now).is_some())
    }

    fn lacking(&self, of: Trait, site_classes: &SiteClasses, now: Time) -> Option<u32> {
        let known = &self.answered[of as usize];
        // Where there are so many, none is put out for one that may never come.
        let may_be_asked = |class: &u32| known.iter().all(|known| known.class != *class);
        if known.len() < SEEN_MAX { site_classes.of(of, now).find(may_be_asked) } else { None }
    }

    /// Was a client of this class answered, in each trait, at `oldest` or later?
    #[inline]
    pub(super) fn covers(&self, class: ClientClass, oldest: Time) -> bool {
        self.last.is_some_and(|(last, at)| last == class && at >= oldest)
            || Trait::ALL.into_iter().all(|of| self.has(of, class.of(of), oldest))
    }

    #[inline]
    fn has(&self, of: Trait, class: u32, oldest: Time) -> bool {
        self.answered[of as usize].iter().any(|known| {
            known.class == class && known.known == Known::Answered && known.at >= oldest
        })
    }

    /// The traits in which no client of this class was answered.
    pub(super) fn missing(&self, class: ClientClass) -> Traits {
        Traits::of(|of| !self.has(of, class.of(of), Time::ZERO))
    }

    /// The traits in which no client of this class was answered at `oldest` or later, but for those
    /// that are `exempt`.
    pub(super) fn missing_since(
        &self,
        class: ClientClass,
        oldest: Time,
        exempt: impl Fn(Trait) -> bool,
    ) -> Traits {
        Traits::of(|of| !exempt(of) && !self.has(of, class.of(of), oldest))
    }

    /// The server has answered a client of this class in another way: nobody gets this answer any
    /// longer who is of its class where that is not the class of the client that got it last.
    /// False: there is no such trait, so it is not for this class.
    pub(super) fn refute(&mut self, class: ClientClass) -> bool {
        let Some((last, _)) = self.last else { return false };
        let blamed = Traits::of(|of| class.of(of) != last.of(of));
        for of in blamed.iter() {
            self.answered[of as usize].retain(|known| known.class != class.of(of));
        }
        !blamed.is_empty()
    }

    /// The part of the site's visitors, in thousandths, who are of the classes that the card asks
    /// as [next](Seen::take_turn). `after_change`: it has asked as none yet.
    pub(super) fn share_of_turn(
        &self,
        site_classes: &SiteClasses,
        after_change: bool,
        now: Time,
    ) -> u64 {
        let share = |of: Trait| {
            let share_of = |known: &Answered| site_classes.share(of, known.class, now);
            let answered = self.answered[of as usize].iter();
            let asked = |known: &&Answered| after_change || known.known == Known::Lost;
            let lacking = || {
                self.lacking(of, site_classes, now).map(|class| site_classes.share(of, class, now))
            };
            // Where everybody has the answer, nothing is in the way.
            answered.filter(asked).map(share_of).max().or_else(lacking).unwrap_or(1000)
        };
        Trait::ALL.into_iter().map(share).min().unwrap_or(1000)
    }

    /// In each trait the class that nobody has asked as for longest; before that those that have
    /// lost the answer, most of whom come first, and then those that come to the site and never had
    /// it: the card does now.
    pub(super) fn take_turn(&mut self, site_classes: &SiteClasses, now: Time) -> ClientClass {
        let mut class = ClientClass::default();
        for of in Trait::ALL {
            let has_lost =
                self.answered[of as usize].iter().any(|known| known.known == Known::Lost);
            if !has_lost && let Some(known_class) = self.lacking(of, site_classes, now) {
                let known = Answered {
                    class: known_class,
                    known: Known::Asked,
                    at: Time::ZERO,
                    asked: now,
                    regained: 0,
                };
                push(&mut self.answered[of as usize], known);
                class.0[of as usize] = known_class;
                continue;
            }
            // What the card is told may say nothing for that class: then its time stays.
            let others =
                self.answered[of as usize].iter_mut().filter(|known| known.known != Known::Asked);
            let rank = |known: &&mut Answered| {
                let share = if has_lost { site_classes.share(of, known.class, now) } else { 0 };
                (known.known == Known::Answered, Reverse(share), known.at.max(known.asked))
            };
            if let Some(known) = others.min_by_key(rank) {
                known.asked = now;
                if known.known == Known::Lost {
                    known.known = Known::Asked;
                }
                class.0[of as usize] = known.class;
            }
        }
        class
    }

    /// How many classes of clients have been answered.
    pub(super) fn len(&self) -> usize {
        self.answered.iter().flatten().filter(|known| known.known == Known::Answered).count()
    }
}

/// A set of traits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits(u8);

impl Traits {
    pub(super) fn of(holds: impl Fn(Trait) -> bool) -> Self {
        Self(Trait::ALL.into_iter().map(|of| u8::from(holds(of)) << of as u8).sum())
    }

    /// Is the set of traits empty?
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Is the trait one of them?
    #[inline]
    pub(super) fn has(self, of: Trait) -> bool {
        self.0 >> of as u8 & 1 != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Trait> {
        Trait::ALL.into_iter().filter(move |of| self.has(*of))
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn class(origin: u32, agent: u32) -> ClientClass {
        let mut class = ClientClass::default();
        (class.0[Trait::Origin as usize], class.0[Trait::Agent as usize]) = (origin, agent);
        class
    }

    #[test]
    fn each_trait_is_answered_by_itself() {
        let mut seen = Seen::default();
        assert!(!seen.covers(class(0, 0), Time::ZERO));
        seen.note(class(1, 1), at(1), false);
        seen.note(class(2, 2), at(5), false);
        for (origin, agent) in [(1, 1), (2, 2), (1, 2), (2, 1)] {
            assert!(seen.covers(class(origin, agent), Time::ZERO), "{origin} {agent}");
        }
        assert!(!seen.covers(class(3, 1), Time::ZERO) && !seen.covers(class(1, 0), Time::ZERO));
        assert_eq!(seen.missing(class(3, 1)).iter().collect::<Vec<_>>(), [Trait::Origin]);
        // Too long ago.
        assert!(!seen.covers(class(1, 2), at(2)) && seen.covers(class(2, 2), at(5)));
        assert_eq!(seen.take_turn(&SiteClasses::default(), at(6)), class(1, 1));
        assert_eq!(seen.take_turn(&SiteClasses::default(), at(7)), class(2, 2));
        // The last one was of class 2 in both.
        assert!(seen.refute(class(1, 2)));
        assert!(!seen.covers(class(1, 1), Time::ZERO) && seen.covers(class(2, 1), Time::ZERO));
        assert!(!seen.refute(class(2, 2)) && seen.covers(class(2, 1), Time::ZERO));
    }

    #[test]
    fn an_entry_for_clients_of_one_kind_takes_a_place_in_each_trait() {
        let mut seen = Seen::default();
        seen.note(class(1, 1), at(1), false);
        seen.note(class(1, 1), at(2), true);
        let places: usize = seen.answered.iter().map(Vec::capacity).sum();
        assert_eq!(places, Trait::ALL.len());
    }

    #[test]
    fn after_a_change_the_card_asks_as_each_class_once() {
        let mut seen = Seen::default();
        seen.note(class(1, 1), at(1), false);
        seen.note(class(2, 2), at(2), false);
        let mut seen = seen.lose();
        assert!(seen.has_lost() && seen.len() == 0 && !seen.covers(class(1, 1), Time::ZERO));
        assert!(seen.had(class(1, 1)) && seen.had(class(2, 1)) && !seen.had(class(3, 1)));
        seen.note(class(2, 2), at(3), false);
        assert!(
            seen.covers(class(2, 2), Time::ZERO)
                && !seen.covers(class(1, 2), Time::ZERO)
                && seen.has_lost()
        );
        assert_eq!(seen.take_turn(&SiteClasses::default(), at(4)), class(1, 1));
        // Whatever becomes of that request, there is none more.
        assert!(
            !seen.has_lost() && !seen.covers(class(1, 2), Time::ZERO) && !seen.had(class(1, 2))
        );
        assert_eq!(seen.take_turn(&SiteClasses::default(), at(5)), class(2, 2));
        seen.note(class(1, 1), at(6), true);
        assert!(seen.covers(class(1, 2), Time::ZERO));
    }

    #[test]
    fn a_class_that_nobody_comes_of_is_given_up() {
        let mut seen = Seen::default();
        seen.note(class(1, 1), at(0), false);
        let rounds = (1..100).take_while(|round| {
            seen = std::mem::take(&mut seen).lose();
            let is_lost = seen.has_lost();
            let turn = seen.take_turn(&SiteClasses::default(), at(*round));
            seen.note(turn, at(*round), true);
            is_lost
        });
        assert_eq!(rounds.count(), usize::from(REGAINED_MAX));
    }

    #[test]
    fn memory_is_bounded() {
        let mut seen = Seen::default();
        for number in 0..200 {
            seen.note(class(number, number), at(number.into()), false);
            assert!(
                seen.len() <= Trait::ALL.len() * SEEN_MAX
                    && seen.covers(class(number, number), Time::ZERO)
            );
        }
        assert!(!seen.covers(class(0, 0), Time::ZERO));
    }
}
