//! A word for the operator when nothing is kept for a while: what most requests and replies were
//! refused for, and what there is to do.
//!
//! State machine: counters and the time are arguments.

use std::time::{Duration, Instant};

use crate::control::Counters;
use crate::words;

/// For so long nothing must have been kept.
const AFTER: Duration = Duration::from_secs(300);
/// With fewer requests in it nothing is said.
const REQUESTS_MIN: u64 = 10;
/// A word that was written to the log is not written again before this time is over.
const AGAIN_AFTER: Duration = Duration::from_secs(3600);

/// Follows the counters.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Since when nothing was kept, and the counters then.
    since: Option<(Instant, Counters)>,
    current: Option<String>,
    told: Option<(Instant, String)>,
}

impl Hints {
    /// What is to be said now; `None` as soon as something is kept.
    pub(crate) fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Takes the counters, and returns what is to be written to the log.
    pub(crate) fn handle(&mut self, counters: &Counters, now: Instant) -> Option<String> {
        let Some((since, before)) = &self.since else {
            self.since = Some((now, counters.clone()));
            return None;
        };
        let kept = |counters: &Counters| counters.hits + sum(counters, &["fills_stored", "agreed"]);
        let requests = |counters: &Counters| counters.hits + counters.misses + counters.bypasses;
        // Fewer than before: another card.
        if kept(counters) != kept(before) || requests(counters) < requests(before) {
            (self.since, self.current) = (Some((now, counters.clone())), None);
            return None;
        }
        let asked = requests(counters) - requests(before);
        let time = now.saturating_duration_since(*since);
        if time < AFTER || asked < REQUESTS_MIN {
            return None;
        }
        let (because, advice) = main_reason(counters, before);
        let minutes = match time.as_secs() / 60 {
            5 => "five minutes".to_owned(),
            minutes => format!("{minutes} minutes"),
        };
        let hint = format!("nothing was kept in {minutes}, mostly because {because}. {advice}");
        // From here on, what is new counts.
        let is_new = self.told.as_ref().is_none_or(|(at, told)| {
            now.saturating_duration_since(*at) >= AGAIN_AFTER || stem(told) != stem(&because)
        });
        self.since = Some((now, counters.clone()));
        self.current = Some(hint.clone());
        is_new.then(|| {
            self.told = Some((now, because));
            hint
        })
    }
}

/// Without how often.
fn stem(because: &str) -> &str {
    because.rsplit_once(" (").map_or(because, |(stem, _)| stem)
}

fn sum(counters: &Counters, names: &[&str]) -> u64 {
    names.iter().filter_map(|name| counters.more.get(*name)).sum()
}

/// What most requests and replies since `before` were refused for, and what there is to do.
fn main_reason(counters: &Counters, before: &Counters) -> (String, String) {
    let look = "`nicache why URL` says it of a page.";
    if counters.bypass_on {
        return (
            "caching is switched off by command".into(),
            "Switch it on again: nicache bypass off".into(),
        );
    }
    if let Some(reason) = &counters.not_caching {
        return (reason.clone(), "`nicache status` and `nicache check` say more.".into());
    }
    let grown = counters.since(before);
    let of = |name: &str| grown.get(name).copied().unwrap_or(0);
    let reasons =
        grown.iter().filter(|(name, _)| name.starts_with("bypass_") || name.starts_with("fill_"));
    let mut reasons: Vec<(u64, &str)> =
        reasons.map(|(name, count)| (*count, name.as_str())).collect();
    reasons.extend(
        ["misses_excluded", "misses_differing", "misses_not_worth"].map(|name| (of(name), name)),
    );
    // What is left of the replies: each the first of two that have to agree.
    let judged: u64 =
        grown.iter().filter(|(name, _)| name.starts_with("fill_")).map(|(_, count)| count).sum();
    let differed = of("executions_differed");
    reasons.push((differed, "differed"));
    reasons.push((of("fills").saturating_sub(judged + differed), "first"));
    let Some((count, name)) = reasons.into_iter().max().filter(|(count, _)| *count > 0) else {
        return ("the server has not answered what was asked".into(), look.into());
    };
    let (because, advice) = match name {
        "misses_excluded" => ("the settings for their paths exclude the pages".to_owned(), None),
        "misses_differing" => (
            "pages differ from one reply to the next although nothing has changed".to_owned(),
            words::of("differed"),
        ),
        "misses_not_worth" => ("pages change before they are asked for again".to_owned(), None),
        name => match words::of(name) {
            Some(words) => (words.because.to_owned(), Some(words)),
            None => (name.replace('_', " "), None),
        },
    };
    let is_cookie = name == "bypass_cookie";
    let stranger = counters.unknown_names.iter().find(|stranger| stranger.is_cookie == is_cookie);
    let advice = match stranger.filter(|_| is_cookie || name == "bypass_unknown_header") {
        Some(stranger) => format!("The {stranger}: {}.", stranger.advice()),
        None => advice.and_then(|words| words.advice).map(str::to_owned).unwrap_or_default(),
    };
    let times = crate::numbers::grouped(count);
    (format!("{because} ({times} times)"), format!("{advice} {look}").trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::StrangerReport;

    fn counters(misses: u64, more: &[(&str, u64)]) -> Counters {
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Counters { misses, more, ..Counters::default() }
    }

    #[test]
    fn it_is_told_after_five_minutes_and_taken_back() {
        let (mut hints, start) = (Hints::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(hints.handle(&counters(0, &[]), at(0)), None);
        let bad = counters(
            50,
            &[("fills", 50), ("fill_refused_wrote", 30), ("fill_not_shared_private", 20)],
        );
        assert_eq!(hints.handle(&bad, at(299)), None);
        let told = hints.handle(&bad, at(300)).unwrap();
        assert!(
            told.starts_with(
                "nothing was kept in five minutes, mostly because the server changed a file"
            ),
            "{told}"
        );
        assert!(
            told.contains("(30 times)") && told.contains("session files") && !told.contains('_'),
            "{told}"
        );
        assert_eq!(hints.current(), Some(&*told));
        // The same again is not told, nor is a quiet time.
        let more = counters(
            100,
            &[("fills", 100), ("fill_refused_wrote", 60), ("fill_not_shared_private", 20)],
        );
        assert_eq!(hints.handle(&more, at(600)), None);
        assert_eq!(hints.handle(&more, at(1200)), None);
        assert!(hints.current().is_some());
        let good = Counters { hits: 1, ..more };
        assert_eq!((hints.handle(&good, at(1201)), hints.current()), (None, None));
    }

    #[test]
    fn what_can_be_named_is() {
        let (mut hints, start) = (Hints::default(), Instant::now());
        hints.handle(&counters(0, &[]), start);
        let stranger = StrangerReport { is_cookie: true, name: "theme".into(), requests: 40 };
        let bad =
            Counters { unknown_names: vec![stranger], ..counters(40, &[("bypass_cookie", 40)]) };
        let told = hints.handle(&bad, start + AFTER).unwrap();
        assert!(told.contains("The cookie theme: write --ignore-cookie theme"), "{told}");
        let mut first = Hints::default();
        first.handle(&counters(0, &[]), start);
        let told = first.handle(&counters(12, &[("fills", 12)]), start + AFTER).unwrap();
        assert!(told.contains("once a second reply, for another client"), "{told}");
        let mut few = Hints::default();
        few.handle(&counters(0, &[]), start);
        assert_eq!(few.handle(&counters(9, &[("fills", 9)]), start + AFTER), None);
    }
}
