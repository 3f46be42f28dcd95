//! One client connection at a time: requests out, replies in, and each judged.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nicache_clock::monotonic_ns;

use crate::client::{Asker, Connection, Reply, write_request};
use crate::content::{Body, inspect};
use crate::oracle::{Judgement, Observation, judge};
use crate::report::Report;
use crate::shared::Shared;

/// A reply is judged this long after its end, so the writer has surely noted the returns
/// before it.
const JUDGE_AFTER_NS: u64 = 500_000_000;
/// Replies kept at most until they are judged.
const WAITING_MAX: usize = 8192;
/// Requests on a connection before a new one is made.
const REQUESTS_PER_CONNECTION: u64 = 200;
/// After a failed connection attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// A request on its way.
struct Asked {
    file: usize,
    head: bool,
    number: u64,
    /// For the latency.
    due_ns: u64,
}

/// A reply that is not judged yet.
struct Waiting {
    file: usize,
    sent_ns: u64,
    ended_ns: u64,
    seen: Observation,
    by_server: bool,
}

/// Fetches files over one connection at a time and has every reply judged.
pub(crate) struct Fetcher<'a> {
    shared: &'a Shared<'a>,
    connection: Option<(Connection, u64)>,
    waiting: std::collections::VecDeque<Waiting>,
    text: Vec<u8>,
    pub(crate) report: Report,
}

impl<'a> Fetcher<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>) -> Self {
        Fetcher {
            shared,
            connection: None,
            waiting: Default::default(),
            text: Vec::new(),
            report: Report::default(),
        }
    }

    /// Sends these requests (file, HEAD, due time or 0) at once and reads their replies. True if
    /// the last one was answered by a cache.
    pub(crate) fn fetch(&mut self, batch: &[(usize, bool, u64)]) -> bool {
        let fresh = self.connection.take().filter(|(_, used)| *used < REQUESTS_PER_CONNECTION);
        let (mut connection, used) = match fresh {
            Some(there) => there,
            None => match Connection::open(self.shared.config.server) {
                Ok(connection) => {
                    self.report.connections += 1;
                    (connection, 0)
                }
                Err(error) => {
                    self.report.requests += batch.len() as u64;
                    self.lose(&error, batch.len() as u64, None);
                    std::thread::sleep(RECONNECT_PAUSE);
                    return false;
                }
            },
        };
        self.text.clear();
        let first = self.shared.next_number.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let agents = self.shared.config.agents;
        let numbers = (first..).map(|number| if agents == 0 { number } else { number % agents });
        for (&(file, head, _), number) in batch.iter().zip(numbers.clone()) {
            write_request(
                &mut self.text,
                self.shared.config.server,
                &self.shared.site.target(file),
                head,
                number,
            );
        }
        let sent_ns = monotonic_ns();
        self.report.requests += batch.len() as u64;
        if let Err(error) = connection.send(&self.text) {
            self.lose(&error, batch.len() as u64, None);
            return false;
        }
        let mut hit = false;
        for (index, (&(file, head, due_ns), number)) in batch.iter().zip(numbers).enumerate() {
            let left = (batch.len() - index) as u64;
            let asked = Asked { file, head, number, due_ns };
            match connection.receive(head) {
                Ok(reply) => {
                    hit = self.note(&asked, sent_ns, reply, connection.body());
                    if !reply.keep_alive {
                        self.report.broken += left - 1;
                        return hit;
                    }
                }
                Err(error) => {
                    self.lose(&error, left, Some((&asked, sent_ns)));
                    return false;
                }
            }
        }
        self.connection = Some((connection, used + batch.len() as u64));
        hit
    }

    /// Judges what is left.
    pub(crate) fn finish(mut self) -> Report {
        let newest = self.waiting.back().map_or(0, |waiting| waiting.ended_ns);
        let ready = newest + JUDGE_AFTER_NS;
        std::thread::sleep(Duration::from_nanos(ready.saturating_sub(monotonic_ns())));
        self.judge_until(u64::MAX);
        self.report
    }

    /// Counts replies that will not come.
    fn lose(&mut self, error: &io::Error, count: u64, first: Option<(&Asked, u64)>) {
        let what = first.map_or_else(String::new, |(asked, sent_ns)| {
            let sent_ms = (sent_ns - self.shared.start_ns) as f64 / 1e6;
            format!(
                ": {} (request {}) sent at {sent_ms:.3} ms",
                self.shared.site.target(asked.file),
                asked.number
            )
        });
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                self.report.timeouts += 1;
                self.report.broken += count - 1;
                self.report.describe(format!(
                    "no reply within {} s{what}",
                    crate::client::REPLY_TIMEOUT.as_secs()
                ));
            }
            io::ErrorKind::InvalidData => {
                self.report.corrupt += 1;
                self.report.broken += count - 1;
                self.report.describe(format!("CORRUPT: {error}{what}"));
            }
            _ => self.report.broken += count,
        }
    }

    fn note(&mut self, asked: &Asked, sent_ns: u64, reply: Reply, body: &[u8]) -> bool {
        let ended_ns = monotonic_ns();
        let seen = match reply.status {
            200 if asked.head => Observation::Length(reply.length),
            200 => Observation::Body {
                body: inspect(self.shared.site.id(asked.file), body),
                len: reply.length,
            },
            403 => Observation::Forbidden,
            404 => Observation::Missing,
            other => Observation::Status(other),
        };
        let by_server = reply.answered == Some(Asker::Request(asked.number));
        let hit = reply.answered.is_some() && !by_server;
        self.report.replies += 1;
        self.report.hits += u64::from(hit);
        self.report.from_server += u64::from(by_server);
        self.report.body_bytes += body.len() as u64;
        self.report.count_latency(
            ended_ns - if asked.due_ns == 0 { sent_ns } else { asked.due_ns.min(ended_ns) },
        );
        self.shared.replies.fetch_add(1, Ordering::Relaxed);
        self.waiting.push_back(Waiting { file: asked.file, sent_ns, ended_ns, seen, by_server });
        if self.waiting.len() >= WAITING_MAX || self.waiting.len().is_multiple_of(256) {
            let until = ended_ns.saturating_sub(JUDGE_AFTER_NS);
            self.judge_until(if self.waiting.len() >= WAITING_MAX { u64::MAX } else { until });
        }
        hit
    }

    fn judge_until(&mut self, until_ns: u64) {
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.ended_ns <= until_ns)
        {
            let judgement = {
                let history = self.shared.history(waiting.file);
                judge(&history, waiting.sent_ns, waiting.ended_ns, &waiting.seen)
            };
            let excused = self.shared.config.server_keeps_files_open && waiting.by_server;
            match judgement {
                Judgement::Stale { .. } | Judgement::Torn if excused => {
                    self.report.stale_by_server += 1;
                }
                _ => self.report.count(judgement),
            }
            if !matches!(judgement, Judgement::Fresh | Judgement::MixedByServer) && !excused {
                self.report.describe(self.describe(&waiting, judgement));
            }
        }
    }

    fn describe(&self, waiting: &Waiting, judgement: Judgement) -> String {
        let history = self.shared.history(waiting.file);
        let start = self.shared.start_ns;
        let ms = |ns: u64| ns.saturating_sub(start) as f64 / 1e6;
        let near: Vec<String> = history
            .steps()
            .iter()
            .rev()
            .skip_while(|step| step.call_ns > waiting.ended_ns)
            .take(4)
            .map(|step| {
                format!(
                    "{} by a call from {:.3} to {:.3}",
                    step.state,
                    ms(step.call_ns),
                    ms(step.return_ns)
                )
            })
            .collect();
        format!(
            "{judgement}: {} from {} between {:.3} and {:.3} ms showed {}; the file, latest first: {}",
            self.shared.site.target(waiting.file),
            if waiting.by_server { "the server" } else { "a cache or an unknown source" },
            ms(waiting.sent_ns),
            ms(waiting.ended_ns),
            Shown(&waiting.seen),
            near.join("; ")
        )
    }
}

/// An observation without the bytes.
struct Shown<'a>(&'a Observation);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Observation::Body { body: Body::Garbled { offset, .. }, len } => {
                write!(f, "{len} bytes, garbled in the line at {offset}")
            }
            Observation::Body { body: Body::Empty, .. } => f.write_str("no bytes"),
            Observation::Body { body: Body::Whole { version }, len } => {
                write!(f, "version {version}, {len} bytes")
            }
            Observation::Body { body: Body::Mixed { versions }, len } => {
                let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
                write!(f, "versions {} mixed, {len} bytes", versions.join(", "))
            }
            Observation::Length(len) => write!(f, "a length of {len} bytes"),
            Observation::Missing => f.write_str("no such file"),
            Observation::Forbidden => f.write_str("a file that may not be read"),
            Observation::Status(status) => write!(f, "status {status}"),
        }
    }
}
