//! What came of a replay.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::method::Method;
use crate::oracle::Judgement;

/// Most violations described in a report; all are counted.
pub(crate) const VIOLATIONS_MAX: usize = 20;

/// How often a method was used, and what was seen of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MethodReport {
    /// Times it was used.
    pub writes: u64,
    /// Times that a kept reply had been served just before, so there was something to purge.
    pub cached_before: u64,
    /// Replies asked for right after a step of it had returned.
    pub read_after: u64,
}

/// Everything counted in a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Requests sent.
    pub requests: u64,
    /// Replies that came whole.
    pub replies: u64,
    /// Of these: answered by a cache; only known if the server repeats the number of the request.
    pub hits: u64,
    /// Of these: answered by the server itself.
    pub from_server: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Connections made.
    pub connections: u64,
    /// Replies that were cut off or lost with their connection.
    pub broken: u64,
    /// Replies that did not come in time.
    pub timeouts: u64,
    /// Replies that show a state of the file at their time.
    pub fresh: u64,
    /// Replies that the server mixed since the file was written in place meanwhile.
    pub mixed_by_server: u64,
    /// Old or mixed replies that the server itself gave, from its own cache of open files.
    pub stale_by_server: u64,
    /// Replies older than a finished write. Must be 0.
    pub stale: u64,
    /// Replies of several versions that were never in the file together. Must be 0.
    pub torn: u64,
    /// Replies with bytes or a status that were never the file's. Must be 0.
    pub corrupt: u64,
    /// What was written.
    pub writes: BTreeMap<Method, MethodReport>,
    /// Seconds from the first request to the last reply.
    pub seconds: f64,
    /// Median time from sending a request (open loop: from when it should have been sent) to its
    /// last byte, in µs.
    pub latency_median_us: f64,
    /// 99th percentile of the same.
    pub latency_p99_us: f64,
    /// The first violations in words.
    pub violations: Vec<String>,
    /// Latencies in buckets of powers of 2^(1/8) ns.
    #[serde(skip)]
    pub(crate) latencies: BTreeMap<u32, u64>,
}

impl Report {
    /// Whether no reply was stale, torn or corrupt, and none was waited for in vain.
    pub fn is_clean(&self) -> bool {
        self.stale + self.torn + self.corrupt + self.timeouts == 0
    }

    /// Share of the replies that a cache gave, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / (self.replies.max(1)) as f64
    }

    /// How many writes there were, by all methods.
    pub fn writes_total(&self) -> u64 {
        self.writes.values().map(|method| method.writes).sum()
    }

    pub(crate) fn count(&mut self, judgement: Judgement) {
        *match judgement {
            Judgement::Fresh => &mut self.fresh,
            Judgement::MixedByServer => &mut self.mixed_by_server,
            Judgement::Stale { .. } => &mut self.stale,
            Judgement::Torn => &mut self.torn,
            Judgement::Corrupt => &mut self.corrupt,
        } += 1;
    }

    pub(crate) fn count_latency(&mut self, ns: u64) {
        *self.latencies.entry(((ns.max(1) as f64).log2() * 8.0) as u32).or_default() += 1;
    }

    pub(crate) fn describe(&mut self, violation: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(violation);
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.replies += other.replies;
        self.hits += other.hits;
        self.from_server += other.from_server;
        self.body_bytes += other.body_bytes;
        self.connections += other.connections;
        self.broken += other.broken;
        self.timeouts += other.timeouts;
        self.fresh += other.fresh;
        self.mixed_by_server += other.mixed_by_server;
        self.stale_by_server += other.stale_by_server;
        self.stale += other.stale;
        self.torn += other.torn;
        self.corrupt += other.corrupt;
        for (method, counted) in other.writes {
            let sum = self.writes.entry(method).or_default();
            sum.writes += counted.writes;
            sum.cached_before += counted.cached_before;
            sum.read_after += counted.read_after;
        }
        for (bucket, count) in other.latencies {
            *self.latencies.entry(bucket).or_default() += count;
        }
        other.violations.into_iter().for_each(|violation| self.describe(violation));
    }

    pub(crate) fn finish(&mut self, seconds: f64) {
        self.seconds = seconds;
        self.latency_median_us = self.quantile_us(0.5);
        self.latency_p99_us = self.quantile_us(0.99);
    }

    fn quantile_us(&self, share: f64) -> f64 {
        let wanted = (self.latencies.values().sum::<u64>() as f64 * share) as u64;
        let mut sum = 0;
        let bucket = self.latencies.iter().find(|(_, count)| {
            sum += **count;
            sum > wanted
        });
        bucket.map_or(0.0, |(bucket, _)| ((f64::from(*bucket) + 0.5) / 8.0).exp2() / 1000.0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.replies as f64 / self.seconds.max(1e-9);
        writeln!(
            f,
            "replies    {} of {} requests in {:.1} s ({rate:.0}/s, {:.1} MB), {} connections, {} cut off, {} timed out",
            self.replies,
            self.requests,
            self.seconds,
            self.body_bytes as f64 / 1e6,
            self.connections,
            self.broken,
            self.timeouts
        )?;
        writeln!(
            f,
            "latency    median {:.0} µs, 99 % {:.0} µs",
            self.latency_median_us, self.latency_p99_us
        )?;
        writeln!(
            f,
            "hits       {} ({:.1} %), {} from the server itself",
            self.hits,
            100.0 * self.hit_rate(),
            self.from_server
        )?;
        writeln!(
            f,
            "verdicts   {} fresh, {} mixed by the server, {} stale by the server, {} STALE, {} TORN, {} CORRUPT",
            self.fresh,
            self.mixed_by_server,
            self.stale_by_server,
            self.stale,
            self.torn,
            self.corrupt
        )?;
        writeln!(f, "writes     {}", self.writes_total())?;
        for (method, counted) in &self.writes {
            writeln!(
                f,
                "  {method:<16} {:>7}, cached before {:>7}, read right after {:>7}",
                counted.writes, counted.cached_before, counted.read_after
            )?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(f, "! {violation}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_quantiles_add_up() {
        let mut sum = Report::default();
        for thread in 0..4u64 {
            let mut part = Report { requests: 100, replies: 100, hits: 50, ..Report::default() };
            (0..100).for_each(|n| part.count_latency(1000 * (1 + n + 100 * thread)));
            part.count(Judgement::Fresh);
            part.writes.entry(Method::Chmod).or_default().writes = 3;
            sum.merge(part);
        }
        sum.finish(2.0);
        assert!((160.0..240.0).contains(&sum.latency_median_us), "{}", sum.latency_median_us);
        assert!((360.0..440.0).contains(&sum.latency_p99_us), "{}", sum.latency_p99_us);
        assert!(sum.is_clean() && sum.fresh == 4 && sum.writes_total() == 12);
        sum.count(Judgement::Stale { age_ns: 1 });
        assert!(!sum.is_clean());
    }
}
