//! What came of a replay.

use std::fmt;

use serde::Serialize;

use super::latency::{Latencies, LatencySummary};
use super::reply::{Finished, Wrong};

/// Most wrong replies described in a report; all are counted.
const PROBLEMS_MAX: usize = 20;
/// A session that begins so much after its time is late.
const LATE_NS: u64 = 10_000_000;

/// A way to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// No connection.
    Connect,
    /// The connection was reset or ended before the reply did.
    Reset,
    /// Nothing came for too long.
    Timeout,
    /// What came is not a reply, or one without a length.
    Head,
    /// Another status than 200.
    Status,
    /// Another length than the file has.
    Length,
    /// Another byte than the file has.
    Body,
}

/// Requests that went wrong, by the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErrorCounts {
    /// No connection.
    pub connect: u64,
    /// The connection was reset or ended before the reply did.
    pub reset: u64,
    /// Nothing came for too long.
    pub timeout: u64,
    /// What came is not a reply, or one without a length.
    pub head: u64,
    /// Another status than 200.
    pub status: u64,
    /// Another length than the file has.
    pub length: u64,
    /// Another byte than the file has.
    pub body: u64,
}

impl ErrorCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.connect + self.reset + self.timeout + self.head + self.status + self.length + self.body
    }

    fn of(&mut self, kind: ErrorKind) -> &mut u64 {
        match kind {
            ErrorKind::Connect => &mut self.connect,
            ErrorKind::Reset => &mut self.reset,
            ErrorKind::Timeout => &mut self.timeout,
            ErrorKind::Head => &mut self.head,
            ErrorKind::Status => &mut self.status,
            ErrorKind::Length => &mut self.length,
            ErrorKind::Body => &mut self.body,
        }
    }
}

/// Everything counted by one or several replayers. A request has a reply (right, or counted in
/// `errors` by its status, length or body), or is itself counted in `errors`, or in `unanswered`,
/// or was not finished when time was up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayerReport {
    /// Replies that came whole.
    pub replies: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Sessions that came to their end.
    pub sessions: u64,
    /// Connections made.
    pub connections: u64,
    /// Of these: made since a server closed the one before within a session.
    pub reconnections: u64,
    /// Requests that went wrong.
    pub errors: ErrorCounts,
    /// Requests of sessions that were given up after an error.
    pub unanswered: u64,
    /// Open loop: sessions that began more than 10 ms after their time, because all connections
    /// were taken or the replayer could not keep up. Their latencies count from their time.
    pub late_sessions: u64,
    /// Seconds from the begin of the first replayer to the end of the last one.
    pub seconds: f64,
    /// Replies per second.
    pub requests_per_second: f64,
    /// Megabits (10^6) of bodies per second, without heads, as in Table 1 of Kim et al.
    pub content_mbit_per_second: f64,
    /// CPU time of the replayers in seconds, the kernel's work for their sockets included.
    pub cpu_seconds: f64,
    /// CPU time of the replayers per reply, in microseconds, the kernel's work for their sockets
    /// included.
    pub cpu_us_per_request: f64,
    /// From the sending of a request's batch (open loop: from when it should have been sent) to the
    /// reply's last byte.
    pub latency: LatencySummary,
    /// From the begin of a session (open loop: from when it should have begun) to the last byte of
    /// its last reply.
    pub session_latency: LatencySummary,
    /// The first errors in words.
    pub problems: Vec<String>,
    #[serde(skip)]
    pub(super) latencies: Latencies,
    #[serde(skip)]
    pub(super) session_latencies: Latencies,
    /// Monotonic times of begin and end.
    #[serde(skip)]
    pub(super) from_ns: u64,
    #[serde(skip)]
    pub(super) to_ns: u64,
}

impl ReplayerReport {
    /// Whether every reply was right and none was waited for in vain.
    pub fn is_clean(&self) -> bool {
        self.errors.total() + self.unanswered == 0
    }

    /// Adds what another replayer counted at the same time.
    pub fn merge(&mut self, other: Self) {
        let is_first = self.to_ns == 0;
        self.from_ns = if is_first { other.from_ns } else { self.from_ns.min(other.from_ns) };
        self.to_ns = self.to_ns.max(other.to_ns);
        self.replies += other.replies;
        self.body_bytes += other.body_bytes;
        self.sessions += other.sessions;
        self.connections += other.connections;
        self.reconnections += other.reconnections;
        let (sum, errors) = (&mut self.errors, other.errors);
        sum.connect += errors.connect;
        sum.reset += errors.reset;
        sum.timeout += errors.timeout;
        sum.head += errors.head;
        sum.status += errors.status;
        sum.length += errors.length;
        sum.body += errors.body;
        self.unanswered += other.unanswered;
        self.late_sessions += other.late_sessions;
        self.cpu_seconds += other.cpu_seconds;
        self.latencies.merge(&other.latencies);
        self.session_latencies.merge(&other.session_latencies);
        other.problems.into_iter().for_each(|problem| self.describe(|| problem));
        self.finish();
    }

    /// Computes the figures from the counts.
    pub(super) fn finish(&mut self) {
        self.seconds = (self.to_ns - self.from_ns) as f64 / 1e9;
        let seconds = self.seconds.max(1e-9);
        self.requests_per_second = self.replies as f64 / seconds;
        self.content_mbit_per_second = self.body_bytes as f64 * 8.0 / 1e6 / seconds;
        self.cpu_us_per_request = self.cpu_seconds * 1e6 / self.replies.max(1) as f64;
        self.latency = self.latencies.summary();
        self.session_latency = self.session_latencies.summary();
    }

    pub(super) fn count_reply(
        &mut self,
        reply: &Finished,
        latency_ns: u64,
        target: impl FnOnce() -> String,
    ) {
        self.replies += 1;
        self.body_bytes += reply.body_bytes;
        self.latencies.record(latency_ns);
        let Some(wrong) = reply.wrong else { return };
        let (kind, what) = match wrong {
            Wrong::Status(status) => (ErrorKind::Status, format!("status {status}")),
            Wrong::Length(bytes) => {
                (ErrorKind::Length, format!("{bytes} bytes, which is not the file's length"))
            }
            Wrong::Body(at) => (ErrorKind::Body, format!("byte {at} is wrong")),
        };
        *self.errors.of(kind) += 1;
        self.describe(|| format!("{}: {what}", target()));
    }

    pub(super) fn count_session(&mut self, latency_ns: u64) {
        self.sessions += 1;
        self.session_latencies.record(latency_ns);
    }

    pub(super) fn count_begin(&mut self, late_ns: u64) {
        self.late_sessions += u64::from(late_ns > LATE_NS);
    }

    /// Counts a session that cannot go on with so many requests left.
    pub(super) fn count_failure(
        &mut self,
        kind: ErrorKind,
        unanswered: u64,
        what: impl FnOnce() -> String,
    ) {
        *self.errors.of(kind) += 1;
        self.unanswered += unanswered.saturating_sub(1);
        self.describe(what);
    }

    fn describe(&mut self, problem: impl FnOnce() -> String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem());
        }
    }
}

impl fmt::Display for ReplayerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "replies    {} in {:.1} s: {:.0}/s, {:.1} Mb/s of content",
            self.replies, self.seconds, self.requests_per_second, self.content_mbit_per_second
        )?;
        writeln!(
            f,
            "sessions   {} ended, {} begun late; {} connections, {} of them since a server closed early",
            self.sessions, self.late_sessions, self.connections, self.reconnections
        )?;
        for (name, of) in [("latency", &self.latency), ("of session", &self.session_latency)] {
            writeln!(
                f,
                "{name:<10} median {:.0} µs, 90 % {:.0} µs, 99 % {:.0} µs, 99.9 % {:.0} µs, longest {:.0} µs",
                of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us
            )?;
        }
        writeln!(
            f,
            "own CPU    {:.2} s, {:.1} µs per request, with the kernel's part",
            self.cpu_seconds, self.cpu_us_per_request
        )?;
        let errors = &self.errors;
        writeln!(
            f,
            "errors     {} connect, {} reset, {} timeout, {} head, {} status, {} length, {} BODY; {} unanswered after them",
            errors.connect,
            errors.reset,
            errors.timeout,
            errors.head,
            errors.status,
            errors.length,
            errors.body,
            self.unanswered
        )?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "! {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(from_ns: u64, to_ns: u64) -> ReplayerReport {
        let mut part =
            ReplayerReport { from_ns, to_ns, cpu_seconds: 0.001, ..ReplayerReport::default() };
        let reply = Finished { wrong: None, body_bytes: 1000, keeps_open: true };
        (1..=100).for_each(|n| part.count_reply(&reply, n * 1000, String::new));
        part.count_session(5000);
        part.count_begin(0);
        part.finish();
        part
    }

    #[test]
    fn replayers_add_up() {
        let second = 1_000_000_000;
        let mut sum = ReplayerReport::default();
        sum.merge(part(5 * second, 6 * second));
        sum.merge(part(5 * second + second / 2, 7 * second));
        assert_eq!(
            (sum.seconds, sum.requests_per_second, sum.content_mbit_per_second),
            (2.0, 100.0, 0.8)
        );
        assert_eq!((sum.latency.count, sum.session_latency.count, sum.sessions), (200, 2, 2));
        assert!((sum.cpu_us_per_request - 10.0).abs() < 1e-9);
        assert!(sum.is_clean() && sum.late_sessions == 0);
    }

    #[test]
    fn errors_are_counted_by_kind_and_the_first_described() {
        let mut report = part(0, 1);
        for n in 0..30 {
            let wrong = Some(if n % 2 == 0 { Wrong::Body(7) } else { Wrong::Status(404) });
            let reply = Finished { wrong, body_bytes: 0, keeps_open: true };
            report.count_reply(&reply, 1, || "/x".to_owned());
        }
        report.count_failure(ErrorKind::Reset, 4, || "reset".to_owned());
        report.count_begin(1_000_000_000);
        let errors = ErrorCounts { body: 15, status: 15, reset: 1, ..ErrorCounts::default() };
        assert_eq!((report.errors, report.unanswered, report.late_sessions), (errors, 3, 1));
        assert_eq!(
            (report.problems.len(), &*report.problems[0]),
            (PROBLEMS_MAX, "/x: byte 7 is wrong")
        );
        assert!(!report.is_clean());
        assert_eq!(report.errors.total(), 31);
    }
}
