//! What T costs the files of a log that is asked for at its own times: the real card, on the
//! script's clock.
//!
//! ```console
//! $ zstdcat epa-http.txt.zst > epa.log
//! $ NICACHE_LOG_FILE=$PWD/epa.log cargo test --release -p nicache-card --test segments -- --ignored --nocapture log
//! ```

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use nicache_cache::AgeBounds;
use nicache_coherence::Class;
use nicache_tcp::Time;

use crate::script::Script;

/// When a file was asked for, in seconds, and which. Common Log Format, with EPA's times
/// (day:hour:minute:second), too; and tables of time, client, method, target and status.
fn requests(text: &str) -> Vec<(u64, String)> {
    let common = |line: &str| {
        let (_, rest) = line.split_once('[')?;
        let (time, rest) = rest.split_once(']')?;
        let request = rest.split('"').nth(1)?;
        let status = rest.rsplit('"').next()?.split_ascii_whitespace().next()?;
        let target = request.strip_prefix("GET ")?.split(' ').next()?;
        let mut numbers = time
            .split([':', ' '])
            .map(|part| part.split('/').next().unwrap_or_default().parse::<u64>());
        let [day, hour, minute, second] =
            std::array::from_fn(|_| numbers.next().and_then(Result::ok));
        let seconds = ((day? * 24 + hour?) * 60 + minute?) * 60 + second?;
        (status == "200").then(|| (seconds, target.to_owned()))
    };
    let table = |line: &str| {
        let columns: Vec<_> = line.split('\t').collect();
        let [time, _, "GET", target, "200", ..] = columns[..] else { return None };
        Some((time.parse().ok()?, target.to_owned()))
    };
    let mut all: Vec<_> =
        text.lines().filter_map(|line| common(line).or_else(|| table(line))).collect();
    all.sort_by_key(|(seconds, _)| *seconds);
    all
}

/// For each file of a log.
const MEMORY_BYTES: usize = 256 << 20;

/// Requests and hits, of those that come at most so many seconds after the last for the same file.
#[derive(Default)]
struct Share {
    asked: u32,
    hits: u32,
}

impl Share {
    fn count(&mut self, is_hit: bool) {
        self.asked += 1;
        self.hits += u32::from(is_hit);
    }

    fn percent(&self) -> f64 {
        100.0 * f64::from(self.hits) / f64::from(self.asked.max(1))
    }
}

/// A file's requests.
struct File {
    /// Seconds.
    first: u64,
    last: u64,
    share: Share,
}

impl File {
    fn count(&mut self, second: u64, is_hit: bool) {
        self.last = second;
        self.share.count(is_hit);
    }

    /// On the average, between its first and its last request.
    fn is_asked_each_minute(&self) -> bool {
        self.share.asked > 1 && self.last - self.first <= 60 * u64::from(self.share.asked - 1)
    }
}

#[test]
#[ignore = "it needs a log: see the module's head"]
fn log_at_its_own_times() {
    let path = std::env::var("NICACHE_LOG_FILE").expect("NICACHE_LOG_FILE names a log");
    let log = requests(&std::fs::read_to_string(path).unwrap());
    for most in [Duration::from_secs(60), Duration::from_secs(3600 * 24 * 365)] {
        let first = Duration::from_secs(if most.as_secs() > 60 { most.as_secs() } else { 1 });
        let mut script =
            Script::with_ages_and_memory(Class::Static, AgeBounds { first, most }, MEMORY_BYTES);
        let executions = Cell::new(0_u32);
        let mut serve = |_: Time, request: &[u8]| {
            executions.set(executions.get() + 1);
            let length = request.iter().take_while(|byte| **byte != b'\r').count();
            let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
            let reply = format!(
                "HTTP/1.1 200 OK\r\n{date}\r\nContent-Length: {length}\r\n\r\n{}",
                "x".repeat(length)
            );
            (Duration::from_millis(1), reply.into_bytes())
        };
        let (begun, mut last) = (script.now, HashMap::new());
        let mut files: HashMap<&str, File> = HashMap::new();
        let (mut all, mut minute, mut second) =
            (Share::default(), Share::default(), Share::default());
        for (number, (time, target)) in log.iter().enumerate() {
            let due = begun + Duration::from_secs(time - log[0].0);
            while script.now < due {
                script.poll_once_after((due - script.now).min(Duration::from_millis(250)));
                script.answer_card(&mut serve);
            }
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let address = [10, 0, 1, (number % 200 + 10) as u8];
            let (_, is_hit) = script.visit(address, request.as_bytes(), &mut serve);
            all.count(is_hit);
            files
                .entry(target)
                .or_insert_with(|| File { first: *time, last: *time, share: Share::default() })
                .count(*time, is_hit);
            if let Some(before) = last.insert(target, *time) {
                if time - before <= 60 {
                    minute.count(is_hit);
                }
                if time - before <= 1 {
                    second.count(is_hit);
                }
            }
        }
        let mut often = Share::default();
        for file in files.values().filter(|file| file.is_asked_each_minute()) {
            often.asked += file.share.asked;
            often.hits += file.share.hits;
        }
        let counters = script.card.counters();
        let allowed = all.asked + all.asked / 20 + files.len() as u32;
        assert!(
            executions.get() <= allowed,
            "{} executions for {} requests",
            executions.get(),
            all.asked
        );
        assert!(
            all.hits > 0 && counters.cache.evictions == 0,
            "of this log the card keeps not all: {counters:?}"
        );
        println!(
            "T up to {most:?}: {} requests, {} executions, hits {:.1} %; within 60 s of the last for the file: {} requests, {:.1} %; within 1 s: {}, {:.1} %; \
             of files asked for once a minute or more often: {}, {:.1} %",
            all.asked,
            executions.get(),
            all.percent(),
            minute.asked,
            minute.percent(),
            second.asked,
            second.percent(),
            often.asked,
            often.percent()
        );
    }
}
