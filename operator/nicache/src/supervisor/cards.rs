//! All cards of one nicache as one: questions go to each, answers are put together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::card_link::CardLink;
use crate::control::{Answer, Counters, HOTTEST_MAX, Question, misfit};
use crate::engine::merge;
use crate::inquiry::ENTRIES_MAX;
use crate::vitals::LOOK_EVERY;

/// Somebody who asks for something waits so long for a card that is being started again.
const RESTART: Duration = Duration::from_secs(4);

/// The ways to them, at least one; and what is to be said of all.
#[derive(Debug)]
pub(crate) struct Cards(Vec<Arc<CardLink>>, Mutex<Option<String>>);

impl Cards {
    /// The cards behind these links.
    pub(crate) fn new(links: Vec<Arc<CardLink>>) -> Self {
        Self(links, Mutex::new(None))
    }

    /// Why nothing has been kept lately, if so.
    pub(crate) fn hint(&self) -> Option<String> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says so from now on.
    pub(crate) fn set_hint(&self, hint: Option<&str>) {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = hint.map(str::to_owned);
    }

    /// Waits until all of them are there, but not for longer.
    fn wait(&self, until: Instant) {
        while !self.0.iter().all(|link| link.is_connected()) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Process numbers.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|link| link.pid()).collect()
    }

    /// How often a card has taken the place of one that ended.
    pub(crate) fn restarts(&self) -> u64 {
        self.0.iter().map(|link| link.restarts()).sum()
    }

    /// Asks for the counters.
    pub(crate) fn counters(&self) -> Result<Counters> {
        match self.ask(Question::Counters)? {
            Answer::Counters(counters) => Ok(counters),
            Answer::Refused { reason } => bail!("{reason}"),
            _ => Err(misfit("the card")),
        }
    }

    /// Asks all and puts their answers together. A question that only looks is answered by those
    /// that are there, and asked again while none is; one that does something waits for all, and
    /// fails if not all have done it.
    pub(crate) fn ask(&self, question: Question) -> Result<Answer> {
        let only_looks = !matches!(
            question,
            Question::PurgeAll | Question::PurgeTarget { .. } | Question::Bypass { .. }
        );
        let until = Instant::now() + RESTART;
        if !only_looks {
            self.wait(until);
        }
        loop {
            match self.ask_once(&question, only_looks) {
                Err(_) if only_looks && Instant::now() < until => std::thread::sleep(LOOK_EVERY),
                answer => return answer,
            }
        }
    }

    fn ask_once(&self, question: &Question, only_looks: bool) -> Result<Answer> {
        let answers = self.0.iter().map(|link| link.ask(question.clone()));
        let mut answers: Vec<(usize, Result<Answer>)> = answers.enumerate().collect();
        let is_answered = |answer: &Result<Answer>| {
            matches!(answer,
            Ok(answer) if !matches!(answer, Answer::Refused { .. }))
        };
        if only_looks && answers.iter().any(|(_, answer)| is_answered(answer)) {
            answers.retain(|(_, answer)| is_answered(answer));
        }
        let are_several = self.0.len() > 1;
        let mut all: Option<Answer> = None;
        for (number, answer) in answers {
            let answer = if are_several { named(answer?, number) } else { answer? };
            all = Some(match all {
                None => answer,
                Some(before) => joined(before, answer)?,
            });
        }
        match all {
            Some(answer) => Ok(answer),
            None => bail!("there is no card"),
        }
    }
}

/// Queues are told apart by the card, too.
fn named(mut answer: Answer, number: usize) -> Answer {
    if let Answer::Cards { cards, .. } = &mut answer {
        for card in cards {
            card.id = format!("{number}.{}", card.id);
        }
    }
    answer
}

fn joined(one: Answer, other: Answer) -> Result<Answer> {
    Ok(match (one, other) {
        (Answer::Alive, Answer::Alive) => Answer::Alive,
        (Answer::Counters(one), Answer::Counters(other)) => Answer::Counters(merge([one, other])),
        (Answer::Cards { cards, counters }, Answer::Cards { cards: more, counters: others }) => {
            Answer::Cards {
                cards: [cards, more].concat(),
                counters: Box::new(merge([*counters, *others])),
            }
        }
        (Answer::Hottest { mut objects }, Answer::Hottest { objects: more }) => {
            for object in more {
                match objects
                    .iter_mut()
                    .find(|known| known.host == object.host && known.target == object.target)
                {
                    Some(known) => known.hits_per_s += object.hits_per_s,
                    None => objects.push(object),
                }
            }
            objects.sort_by(|one, other| other.hits_per_s.total_cmp(&one.hits_per_s));
            objects.truncate(HOTTEST_MAX);
            Answer::Hottest { objects }
        }
        (Answer::Purged { entries }, Answer::Purged { entries: more }) => {
            Answer::Purged { entries: entries + more }
        }
        (Answer::Page(page), Answer::Page(other)) => {
            let (mut page, other) = (*page, *other);
            page.entries.extend(other.entries);
            page.entries.truncate(ENTRIES_MAX);
            page.entries_count += other.entries_count;
            if other.last_ms.is_some_and(|ago| page.last_ms.is_none_or(|before| ago < before)) {
                (page.last, page.last_ms, page.last_request) =
                    (other.last, other.last_ms, other.last_request);
            }
            if other.bypass_ms.is_some_and(|ago| page.bypass_ms.is_none_or(|before| ago < before)) {
                (page.bypass, page.bypass_ms) = (other.bypass, other.bypass_ms);
            }
            page.stranger = page.stranger.or(other.stranger);
            page.put_aside_ms = page.put_aside_ms.max(other.put_aside_ms);
            if page.vary.is_empty() {
                page.vary = other.vary;
            }
            for (meeting, of_other) in page.asked.iter_mut().zip(other.asked) {
                meeting.join(of_other);
            }
            Answer::Page(Box::new(page))
        }
        (
            Answer::Entries { mut entries, count },
            Answer::Entries { entries: more, count: others },
        ) => {
            entries.extend(more);
            entries.truncate(ENTRIES_MAX);
            Answer::Entries { entries, count: count + others }
        }
        (Answer::Bypass { on }, Answer::Bypass { .. }) => Answer::Bypass { on },
        (Answer::Refused { reason }, _) | (_, Answer::Refused { reason }) => {
            Answer::Refused { reason }
        }
        _ => return Err(misfit("a card")),
    })
}

#[cfg(test)]
mod tests {
    use nicache_admin::HotObject;

    use super::*;

    #[test]
    fn answers_are_put_together() {
        let hot = |target: &str, hits_per_s| HotObject {
            target: target.into(),
            hits_per_s,
            ..HotObject::default()
        };
        let one = Answer::Hottest { objects: vec![hot("/a", 3.0), hot("/b", 2.0)] };
        let other = Answer::Hottest { objects: vec![hot("/b", 2.0), hot("/c", 1.0)] };
        let Answer::Hottest { objects } = joined(one, other).unwrap() else { panic!() };
        let told: Vec<_> =
            objects.iter().map(|object| (object.target.as_str(), object.hits_per_s)).collect();
        assert_eq!(told, [("/b", 4.0), ("/a", 3.0), ("/c", 1.0)]);
        let counters = |hits| Answer::Counters(Counters { hits, ..Counters::default() });
        let Answer::Counters(sum) = joined(counters(2), counters(3)).unwrap() else { panic!() };
        assert_eq!(sum.hits, 5);
        let refused = Answer::Refused { reason: "no".into() };
        assert_eq!(joined(Answer::Purged { entries: 1 }, refused.clone()).unwrap(), refused);
        assert!(joined(Answer::Alive, Answer::Purged { entries: 1 }).is_err());
    }
}
