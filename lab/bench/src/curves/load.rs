//! The two ways to load a server: at a rate, whatever it does (open loop), and as fast as it
//! answers (closed loop).

use std::io;

use serde::{Deserialize, Serialize};

use super::arrivals::Arrivals;
use super::connections::{Connections, Failures, Happened, Target};
use super::statistics::{TimeSummary, Times, Windows};

/// Length of the windows in which connections and replies are counted.
pub(super) const WINDOW_NS: u64 = 100_000_000;

/// What is measured, in nanoseconds from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    /// Before this, the load is there and nothing is counted.
    pub begin_ns: u64,
    /// What arrives after this is not counted.
    pub end_ns: u64,
}

impl Measured {
    /// So many seconds, after a warm-up.
    pub(super) fn after(warm_up_ns: u64, seconds: u32) -> Self {
        Self { begin_ns: warm_up_ns, end_ns: warm_up_ns + u64::from(seconds) * 1_000_000_000 }
    }

    fn contains(&self, at_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&at_ns)
    }

    fn windows(&self) -> Windows {
        Windows::new(self.begin_ns, self.end_ns, WINDOW_NS)
    }
}

/// What came of connections at a rate, a request on each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtRate {
    /// Arrivals in the measured time.
    pub offered: u64,
    /// Of those, arrivals at which as many connections as are allowed were under way: not even
    /// attempted.
    pub refused: u64,
    /// Completed handshakes in each window of 100 ms.
    pub connected: Vec<u32>,
    /// Replies in each.
    pub replied: Vec<u32>,
    /// From the connection's beginning to the last byte of the reply, of those that were attempted.
    pub time: TimeSummary,
    /// Of those that were attempted, those that failed.
    pub failures: Failures,
    /// All replies, those of the warm-up included.
    pub replies: u64,
    /// How long after their time connections were begun: 99 % of them, in microseconds. More than a
    /// few: this side is too slow.
    pub late_p99_us: f64,
}

/// Begins a connection for each arrival while there are less than `at_once`, and waits for what is
/// under way at the end: an arrival that counts is refused, or answered, or has failed.
///
/// # Errors
/// What the system says of epoll.
pub(super) fn run_at_rate(
    target: Target,
    arrivals: Arrivals,
    at_once: usize,
    measured: Measured,
) -> io::Result<AtRate> {
    let mut connections = Connections::new(target, at_once)?;
    let (mut connected, mut replied) = (measured.windows(), measured.windows());
    let (mut times, mut late, mut failures) =
        (Times::default(), Times::default(), Failures::default());
    let (mut offered, mut refused, mut replies) = (0, 0, 0);
    let mut arrivals = arrivals.peekable();
    let mut happened = Vec::new();
    while arrivals.peek().is_some() || !connections.is_empty() {
        while let Some(due_ns) = arrivals.next_if(|due_ns| *due_ns <= connections.now_ns()) {
            let is_counted = measured.contains(due_ns);
            offered += u64::from(is_counted);
            if connections.is_full() {
                refused += u64::from(is_counted);
                continue;
            }
            late.record(connections.now_ns() - due_ns);
            if let Err(failure) = connections.open(is_counted)
                && is_counted
            {
                failures.count(failure);
            }
        }
        connections.poll(&mut happened);
        for event in happened.drain(..) {
            match event {
                Happened::Connected => connected.count(connections.now_ns()),
                Happened::Replied { begun_ns, end_ns, is_counted, .. } => {
                    replies += 1;
                    replied.count(end_ns);
                    if is_counted {
                        times.record(end_ns - begun_ns);
                    }
                }
                Happened::Failed { failure, is_counted: true } => failures.count(failure),
                Happened::Failed { .. } | Happened::Ended => {}
            }
        }
    }
    Ok(AtRate {
        offered,
        refused,
        connected: connected.into_counts(),
        replied: replied.into_counts(),
        time: times.summary(),
        failures,
        replies,
        late_p99_us: late.summary().p99_us,
    })
}

/// What came of connections that ask as fast as they are answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtFullSpeed {
    /// Replies in each window of 100 ms.
    pub replied: Vec<u32>,
    /// From the request (or the connection's beginning, if it is for one request) to the last byte
    /// of the reply.
    pub time: TimeSummary,
    /// Connections that failed; another one takes the place.
    pub failures: Failures,
    /// All replies, those of the warm-up included.
    pub replies: u64,
}

/// Keeps `at_once` connections busy. Each stays open, or is followed by another one, as the target
/// says.
///
/// # Errors
/// What the system says of epoll.
pub(super) fn run_at_full_speed(
    target: Target,
    at_once: usize,
    measured: Measured,
) -> io::Result<AtFullSpeed> {
    let close = target.close;
    let mut connections = Connections::new(target, at_once)?;
    let (mut replied, mut times, mut failures) =
        (measured.windows(), Times::default(), Failures::default());
    let mut replies = 0;
    let mut happened = Vec::new();
    loop {
        let is_over = connections.now_ns() >= measured.end_ns;
        // At the end what is asked for is still answered, so the server's counters fit.
        while !is_over && !connections.is_full() {
            if let Err(failure) = connections.open(true) {
                failures.count(failure);
                break;
            }
        }
        connections.poll(&mut happened);
        for event in happened.drain(..) {
            match event {
                Happened::Replied { place, begun_ns, end_ns, .. } => {
                    replies += 1;
                    replied.count(end_ns);
                    if measured.contains(end_ns) {
                        times.record(end_ns - begun_ns);
                    }
                    if !close
                        && !is_over
                        && let Err(failure) = connections.ask_again(place)
                    {
                        failures.count(failure);
                    }
                }
                Happened::Failed { failure, .. } => failures.count(failure),
                Happened::Connected | Happened::Ended => {}
            }
        }
        if is_over && !connections.is_waiting() {
            break;
        }
    }
    Ok(AtFullSpeed { replied: replied.into_counts(), time: times.summary(), failures, replies })
}

#[cfg(test)]
mod tests;
