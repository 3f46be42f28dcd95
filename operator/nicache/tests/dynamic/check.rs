//! What a test does with a page: sees that it is kept, changes what it depends on, sees the change
//! at once.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use nicache_applications::Client;
use serde_json::Value;

use crate::common;
use crate::stage::Stage;

/// Longer than the minute for which a changed file that nobody reads again keeps everything from
/// being kept, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
/// Requests after a change, by so many connections, in so long.
const CONNECTIONS: usize = 4;
const REQUESTS: usize = 200;
const WATCHED: Duration = Duration::from_millis(1500);
/// So often at least something is tried, however long one try takes.
const TRIES_MIN: usize = 5;

/// Does something hold in one of many tries? Any of them may be spoiled: other tests' databases and
/// mounts void pages everywhere on the machine, and a busy machine is late at times.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    (0..TRIES_MIN).any(|_| holds()) || common::holds_within(PATIENCE, holds)
}

/// Runs cases one after the other, and fails at the end if any of them did.
#[derive(Default)]
pub(crate) struct Cases {
    failed: Vec<String>,
}

impl Cases {
    pub(crate) fn run(&mut self, name: &str, case: impl FnOnce()) {
        // To look at one alone.
        if std::env::var("NICACHE_CASE").is_ok_and(|only| !name.contains(&only)) {
            return;
        }
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(case));
        println!(
            "{} {name} {:.1} s",
            if outcome.is_ok() { "ok" } else { "FAILED" },
            begun.elapsed().as_secs_f64()
        );
        if outcome.is_err() {
            self.failed.push(name.to_owned());
        }
    }

    pub(crate) fn end(self, stage: &mut Stage) {
        if let Some(path) = std::env::var_os("NICACHE_TEST_LOG") {
            std::fs::write(path, stage.nicache.log_text()).unwrap();
        }
        if !self.failed.is_empty() {
            let told = stage.told();
            let log = stage.nicache.log_text();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(60)..].join("\n");
            for (times, message) in often(&lines) {
                println!("{times:6} times in the log: {message}");
            }
            let said = std::fs::read_to_string(stage.path("log/php.log")).unwrap_or_default();
            let said: Vec<&str> = said.lines().collect();
            println!("{}", said[said.len().saturating_sub(20)..].join("\n"));
            panic!("failed: {:?}\n{told:?}\n{tail}", self.failed);
        }
    }
}

/// What a log says most often, and how often; without the values, which follow the message.
fn often(lines: &[&str]) -> Vec<(usize, String)> {
    let mut times: HashMap<String, usize> = HashMap::new();
    for line in lines {
        let words = line.split_whitespace().skip(1).filter(|word| !word.contains(['=', '"']));
        *times.entry(words.collect::<Vec<_>>().join(" ")).or_default() += 1;
    }
    let mut times: Vec<(usize, String)> =
        times.into_iter().map(|(message, times)| (times, message)).collect();
    times.sort_by(|one, other| other.cmp(one));
    times.truncate(25);
    times
}

impl Stage {
    /// Requests a page until it is served from the card, and returns what it shows.
    pub(crate) fn warm(&self, path: &str) -> String {
        self.try_warm(path, PATIENCE).unwrap_or_else(|| {
            panic!("{path} is never kept, it shows `{}`: {:?}", self.get(path), self.told())
        })
    }

    /// What is counted by now, for the reader of a failure.
    pub(crate) fn told(&self) -> Vec<String> {
        let status = common::status(self.nicache.name());
        let counters = status["counters"].as_object().unwrap();
        let is_telling = |name: &str| !name.starts_with("bus_") && !name.starts_with("flow");
        let is_counted = |count: &Value| count.as_u64().is_some_and(|count| count > 0);
        let told = counters.iter().filter(|(name, count)| is_telling(name) && is_counted(count));
        told.map(|(name, count)| format!("{name} {count}")).collect()
    }

    /// Requests a page until it is served from the card, and returns it; `None`: it is not within
    /// `limit`.
    pub(crate) fn try_warm(&self, path: &str, limit: Duration) -> Option<String> {
        self.try_warm_by(path, "hits_dynamic", limit)
    }

    /// Requests a page or a file until it is served from the card, which this counter says.
    pub(crate) fn warm_by(&self, path: &str, counter: &str) -> String {
        let warmed = self.try_warm_by(path, counter, PATIENCE);
        warmed.unwrap_or_else(|| panic!("{path} is never kept, it shows `{}`", self.get(path)))
    }

    fn try_warm_by(&self, path: &str, counter: &str, limit: Duration) -> Option<String> {
        let mut client = self.client();
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            let before = self.counter(counter);
            let replies: Vec<String> = (0..3).map(|_| client.get(path).unwrap().text()).collect();
            if self.counter(counter) >= before + 3 {
                assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
                return Some(replies[0].clone());
            }
            std::thread::sleep(Duration::from_millis(15));
        }
        None
    }

    /// Sees the page kept, and not looked at again after each `question`.
    pub(crate) fn expect_quiet(&self, path: &str, question: impl Fn()) {
        const QUESTIONS: u64 = 30;
        let counters = || (self.counter("reinstated"), self.counter("hits_dynamic"));
        let is_quiet = || {
            self.warm(path);
            let before = counters();
            for _ in 0..QUESTIONS {
                question();
                self.get(path);
            }
            let after = counters();
            let (again, hits) = (after.0 - before.0, after.1 - before.1);
            println!("  {path}: {again} times looked at again, {hits} hits");
            again < QUESTIONS / 2 && hits > QUESTIONS / 2
        };
        assert!(eventually(is_quiet), "{path}: questions make it suspect");
    }

    /// What changes elsewhere costs the page little: most replies are hits.
    pub(crate) fn expect_kept(&self, path: &str, change: impl Fn()) {
        const CHANGES: u64 = 15;
        let is_kept = || {
            self.warm(path);
            let before = self.counter("hits_dynamic");
            for _ in 0..CHANGES {
                change();
                self.get(path);
                self.get(path);
            }
            let hits = self.counter("hits_dynamic") - before;
            println!("  {path}: {hits} hits beside {CHANGES} changes");
            hits > CHANGES
        };
        assert!(eventually(is_kept), "{path}: changes elsewhere drop it");
    }

    /// The very next reply and all that follow for a while show `new`, and the card takes part
    /// again.
    pub(crate) fn expect(&self, path: &str, new: &str) {
        self.expect_all(path, |reply| reply.contains(new), new);
    }

    pub(crate) fn expect_all(&self, path: &str, right: impl Fn(&str) -> bool + Sync, what: &str) {
        let begun = Instant::now();
        let mut client = self.client();
        let hits = || self.counter("hits_dynamic");
        let before = hits();
        let first = client.get(path).unwrap().text();
        assert!(
            right(&first),
            "{path}: the first reply is not `{what}`, but `{first}` ({} hits): {:?}",
            hits() - before,
            self.told()
        );
        let before = self.counter("hits_dynamic");
        let (address, right) = (self.address(), &right);
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(move || {
                    let mut client = Client::new(address);
                    for _ in 0..REQUESTS / CONNECTIONS {
                        let reply = client.get(path).unwrap().text();
                        assert!(
                            right(&reply),
                            "{path}: not `{what}`, but `{reply}` {:?} after",
                            begun.elapsed()
                        );
                        std::thread::sleep(WATCHED * CONNECTIONS as u32 / REQUESTS as u32);
                    }
                });
            }
        });
        println!("  {path}: {} hits afterwards", self.counter("hits_dynamic") - before);
    }

    /// Makes a change of a page that may be kept or not, and sees that it shows `new` at once. Was
    /// it kept?
    pub(crate) fn change_of_any(&self, path: &str, new: &str, change: impl FnOnce()) -> bool {
        const LONG_ENOUGH: Duration = Duration::from_millis(1500);
        let is_kept = self.try_warm(path, LONG_ENOUGH).is_some();
        let old = self.get(path);
        assert!(!old.contains(new), "{path} shows `{new}` before the change: `{old}`");
        change();
        self.expect(path, new);
        is_kept
    }

    /// Sees the page kept, then makes a change, after which it shows `new` at once.
    pub(crate) fn change(&self, path: &str, new: &str, change: impl FnOnce()) {
        let old = self.warm(path);
        assert!(!old.contains(new), "{path} shows `{new}` before the change: `{old}`");
        change();
        self.expect(path, new);
    }
}
