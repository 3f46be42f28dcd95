//! Runs a script against a backend.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::backend::{Backend, BackendError};
use crate::connection::Connection;
use crate::content::Streams;
use crate::describe::{Sender, describe};
use crate::packet::{Frame, Packet, read};
use crate::script::{Event, Expectation, Line, Script, Segment, Side, When};
use crate::trace::Trace;
use crate::{endpoint, injection, matching};

#[cfg(test)]
mod tests;

/// How long a packet is waited for that may come at any time.
const ANY_TIME_MAX: Duration = Duration::from_secs(120);
/// How long a packet that is too late is waited for, so the error can say how late it is.
const GRACE: Duration = Duration::from_secs(1);
/// Between two SYNs of a flood.
const FLOOD_INTERVAL: Duration = Duration::from_micros(20);

/// Why a script did not pass.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server did something else than the script says.
    #[error(transparent)]
    Failed(Box<Failure>),
    /// The script could not be run.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Where server and script differ.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, against {}: {problem}\n    {text}\n{trace}", side.name())]
pub struct Failure {
    /// Against whom it ran.
    pub side: Side,
    /// Number of the script's line.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What was expected, and what came.
    pub problem: String,
    /// All that happened.
    pub trace: Trace,
    /// The right packet came, at a wrong time. In real time a busy machine can be the reason.
    pub is_timing: bool,
}

/// Runs a script. Lines for the other side are left out.
///
/// # Errors
/// See [`RunError`].
pub fn run<B: Backend>(script: &Script, side: Side, backend: &mut B) -> Result<Trace, RunError> {
    let mut runner = Runner::new(script, side, backend);
    let mut last = None;
    for line in script
        .lines
        .iter()
        .filter(|line| line.only.as_ref().is_none_or(|(only, _)| side.reads(*only)))
    {
        runner.step(line).map_err(|stop| runner.error(line, stop))?;
        last = Some(line);
    }
    if let Some(line) = last {
        runner.finish().map_err(|stop| runner.error(line, stop))?;
    }
    Ok(runner.trace)
}

/// A segment of the server that no line has taken yet.
struct Arrival {
    at: Duration,
    connection: u16,
    packet: Packet,
}

/// Why a line ends the run.
enum Stop {
    Differs(String),
    IsLate(String),
    Backend(BackendError),
}

impl From<BackendError> for Stop {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

struct Runner<'a, B> {
    script: &'a Script,
    side: Side,
    backend: &'a mut B,
    connections: BTreeMap<u16, Connection>,
    inbox: VecDeque<Arrival>,
    /// What the server may send, and whether more than once.
    may: Vec<(Segment, bool)>,
    /// Time of the event before.
    last: Duration,
    trace: Trace,
}

impl<'a, B: Backend> Runner<'a, B> {
    fn new(script: &'a Script, side: Side, backend: &'a mut B) -> Self {
        let last = backend.now();
        Runner {
            script,
            side,
            backend,
            connections: BTreeMap::new(),
            inbox: VecDeque::new(),
            may: Vec::new(),
            last,
            trace: Trace::default(),
        }
    }

    fn step(&mut self, line: &Line) -> Result<(), Stop> {
        if let (false, When::After { time, .. }) =
            (matches!(line.event, Event::Expect(_)), line.when)
        {
            self.last += time;
        }
        match &line.event {
            Event::Inject(segment) => {
                self.collect(self.last)?;
                self.inject(segment)
            }
            Event::InjectTooBig(error) => {
                self.collect(self.last)?;
                let ip = self.script.setup.ip;
                let frame = injection::too_big(error, self.connection(error.connection), ip);
                let text =
                    format!("<  too-big mtu {} about {}({})", error.mtu, error.seq, error.len);
                self.send(&frame, text)
            }
            Event::Expect(expectation) => self.expect(expectation, line.when, self.last),
            Event::May { segment, is_repeated } => {
                self.may.push((segment.clone(), *is_repeated));
                Ok(())
            }
            Event::AnyOrder(members) => self.expect_all(members),
            Event::Quiet(time) => {
                self.last += *time;
                self.collect(self.last)?;
                self.nothing_came(Some(*time))
            }
            Event::Server(action) => {
                self.collect(self.last)?;
                self.backend.act(*action)?;
                self.last = self.last.max(self.backend.now());
                self.trace.note(self.last, format!("server {action:?}"));
                Ok(())
            }
            Event::Flood(syns) => self.flood(*syns),
        }
    }

    /// At the end nothing is left over.
    fn finish(&mut self) -> Result<(), Stop> {
        self.collect(self.last)?;
        self.nothing_came(None)
    }

    fn error(&mut self, line: &Line, stop: Stop) -> RunError {
        let (problem, is_timing) = match stop {
            Stop::Differs(problem) => (problem, false),
            Stop::IsLate(problem) => (problem, true),
            Stop::Backend(error) => return RunError::Backend(error),
        };
        RunError::Failed(Box::new(Failure {
            side: self.side,
            line: line.number,
            text: line.text.clone(),
            problem,
            trace: std::mem::take(&mut self.trace),
            is_timing,
        }))
    }

    fn connection(&mut self, number: u16) -> &mut Connection {
        let setup = &self.script.setup;
        self.connections.entry(number).or_insert_with(|| {
            let requests = setup
                .streams
                .iter()
                .find(|(known, _)| *known == number)
                .map(|(_, requests)| &requests[..]);
            Connection::new(
                number,
                setup.client_isn,
                Streams::new(requests.unwrap_or_default(), &setup.objects),
            )
        })
    }

    fn inject(&mut self, segment: &Segment) -> Result<(), Stop> {
        let (ip, now) = (self.script.setup.ip, self.last);
        let connection = self.connection(segment.connection);
        let packet = injection::packet(segment, connection, ip, now).map_err(Stop::Differs)?;
        let text = format!("<  {}", describe(&packet, Sender::Client, connection));
        self.send(&packet.frame(), text)
    }

    fn send(&mut self, frame: &[u8], text: String) -> Result<(), Stop> {
        // The event is when it really happens: in real time that may be later than the script says.
        self.last = self.last.max(self.backend.now());
        self.trace.note(self.last, text);
        self.backend.send(frame)?;
        Ok(())
    }

    fn flood(&mut self, syns: u32) -> Result<(), Stop> {
        self.collect(self.last)?;
        self.trace.note(self.last, format!("<  a SYN of each of {syns} other clients"));
        for at in 0..syns {
            self.backend.send(&injection::flooding_syn(at, self.script.setup.ip).frame())?;
            self.last += FLOOD_INTERVAL;
            self.collect(self.last)?;
        }
        self.last = self.last.max(self.backend.now());
        Ok(())
    }

    /// When a packet is in time: from, to, and how long it is waited for.
    fn window(&self, when: When, since: Duration) -> (Duration, Duration, Duration) {
        let (from, to, own) = match when {
            When::After { time, tolerance } => (
                since + time,
                since + time,
                tolerance.or(self.script.setup.tolerance).unwrap_or_default(),
            ),
            When::Between(from, to) => (since + from, since + to, Duration::ZERO),
            When::At(from, to) => (from, to, Duration::ZERO),
            When::Any => (since, since + ANY_TIME_MAX, Duration::ZERO),
        };
        // A tolerance of the script's own does not make real time more exact than it is.
        let (early, late) = self.backend.tolerance(to.saturating_sub(since));
        let (from, to) = (from.saturating_sub(early.max(own)), to + late.max(own));
        (from, to, to + GRACE)
    }

    fn expect(
        &mut self,
        expectation: &Expectation,
        when: When,
        since: Duration,
    ) -> Result<(), Stop> {
        if expectation.count == 1 {
            return self.expect_one(&expectation.segment, when, since);
        }
        let mut next = expectation.segment.clone();
        let (first, len) = (next.seq.unwrap_or(0), next.len.unwrap_or(0));
        next.len = None;
        for number in 1..=expectation.count {
            let before = next.seq;
            let taken = self.expect_next(&next, true, when, since)?;
            next.seq = before.map(|seq| seq.wrapping_add(taken));
            let so_far = next.seq.unwrap_or(0).wrapping_sub(first);
            if (number == expectation.count) != (so_far == len) || so_far > len {
                return Err(Stop::Differs(format!(
                    "{number} segments have {so_far} bytes, where {} were to have {len}",
                    expectation.count
                )));
            }
        }
        Ok(())
    }

    fn expect_one(&mut self, segment: &Segment, when: When, since: Duration) -> Result<(), Stop> {
        self.expect_next(segment, false, when, since).map(|_| ())
    }

    /// The next segment that counts is this one; returns its payload's length.
    fn expect_next(
        &mut self,
        segment: &Segment,
        in_row: bool,
        when: When,
        since: Duration,
    ) -> Result<u32, Stop> {
        let (from, to, limit) = self.window(when, since);
        loop {
            let Some(arrival) = self.next_arrival(limit)? else {
                return Err(Stop::Differs(format!(
                    "nothing came until {:.6}",
                    limit.as_secs_f64()
                )));
            };
            let connection = self.connection(arrival.connection);
            let mut found = matching::differences(segment, &arrival.packet, connection);
            if in_row && arrival.packet.payload.is_empty() {
                found.push("it has no payload".to_owned());
            }
            if !found.is_empty() {
                if self.is_passed_over(&arrival) {
                    continue;
                }
                return Err(Stop::Differs(self.differs(&arrival, &found)));
            }
            self.take(segment, &arrival)?;
            if arrival.at < from || arrival.at > to {
                let (at, from, to) =
                    (arrival.at.as_secs_f64(), from.as_secs_f64(), to.as_secs_f64());
                return Err(Stop::IsLate(format!(
                    "it came at {at:.6}, not between {from:.6} and {to:.6}"
                )));
            }
            return Ok(arrival.packet.payload.len() as u32);
        }
    }

    /// All of them come, in any order.
    fn expect_all(&mut self, members: &[Line]) -> Result<(), Stop> {
        let since = self.last;
        let mut left: Vec<(&Line, Expectation)> = members
            .iter()
            .filter_map(|line| match &line.event {
                Event::Expect(expectation) => Some((line, expectation.clone())),
                _ => None,
            })
            .collect();
        while !left.is_empty() {
            let limit =
                left.iter().map(|(line, _)| self.window(line.when, since).2).max().unwrap_or(since);
            let Some(arrival) = self.next_arrival(limit)? else {
                return Err(Stop::Differs(format!(
                    "nothing more came; `{}` is missing",
                    left[0].0.text
                )));
            };
            let connection = self.connection(arrival.connection);
            let fits = |expectation: &Expectation| {
                matching::differences(&expectation.segment, &arrival.packet, connection).is_empty()
            };
            match left.iter().position(|(_, expectation)| fits(expectation)) {
                Some(at) => {
                    let (line, expectation) = left.remove(at);
                    self.take(&expectation.segment, &arrival)?;
                    let (from, to, _) = self.window(line.when, since);
                    if arrival.at < from || arrival.at > to {
                        return Err(Stop::IsLate(format!(
                            "`{}` came at {:.6}",
                            line.text,
                            arrival.at.as_secs_f64()
                        )));
                    }
                }
                None if self.is_passed_over(&arrival) => {}
                None => {
                    return Err(Stop::Differs(
                        self.differs(&arrival, &["it is none of the group".to_owned()]),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Nothing has come that counts.
    fn nothing_came(&mut self, time: Option<Duration>) -> Result<(), Stop> {
        while let Some(arrival) = self.inbox.pop_front() {
            if !self.is_passed_over(&arrival) {
                let why = match time {
                    Some(time) => format!("no packet was to come for {:.6} s", time.as_secs_f64()),
                    None => "it is left over at the script's end".to_owned(),
                };
                return Err(Stop::Differs(self.differs(&arrival, &[why])));
            }
        }
        Ok(())
    }

    /// The script does not care for this segment.
    fn is_passed_over(&mut self, arrival: &Arrival) -> bool {
        const ACK: u8 = 0x10;
        if self.script.setup.ignores_acks
            && arrival.packet.flags == ACK
            && arrival.packet.payload.is_empty()
        {
            return true;
        }
        let connection = &self.connections[&arrival.connection];
        let fits = |segment: &Segment| {
            matching::differences(segment, &arrival.packet, connection).is_empty()
        };
        let Some(at) = self.may.iter().position(|(segment, _)| fits(segment)) else { return false };
        if !self.may[at].1 {
            self.may.remove(at);
        }
        true
    }

    /// An expected segment has come: its bytes must be the server's, and its time is the event's.
    fn take(&mut self, segment: &Segment, arrival: &Arrival) -> Result<(), Stop> {
        let connection = self.connection(arrival.connection);
        matching::take_names(segment, &arrival.packet, connection);
        let at = arrival.packet.seq.wrapping_sub(connection.server_base()).wrapping_sub(1);
        if !arrival.packet.payload.is_empty()
            && let Some(why) =
                connection.streams.contradiction(at as usize, &arrival.packet.payload)
        {
            return Err(Stop::Differs(
                self.differs(arrival, &[format!("the payload is wrong: {why}")]),
            ));
        }
        self.last = self.last.max(arrival.at);
        Ok(())
    }

    fn differs(&self, arrival: &Arrival, found: &[String]) -> String {
        let text =
            describe(&arrival.packet, Sender::Server, &self.connections[&arrival.connection]);
        format!("this came at {:.6}: {text}\n    {}", arrival.at.as_secs_f64(), found.join("; "))
    }

    fn next_arrival(&mut self, until: Duration) -> Result<Option<Arrival>, Stop> {
        while self.inbox.is_empty() {
            match self.backend.receive(until)? {
                Some((at, frame)) => self.accept(at, &frame)?,
                None => return Ok(None),
            }
        }
        Ok(self.inbox.pop_front())
    }

    /// Takes what comes until then.
    fn collect(&mut self, until: Duration) -> Result<(), Stop> {
        while let Some((at, frame)) = self.backend.receive(until)? {
            self.accept(at, &frame)?;
        }
        Ok(())
    }

    fn accept(&mut self, at: Duration, frame: &[u8]) -> Result<(), Stop> {
        match read(frame) {
            Frame::Other => Ok(()),
            Frame::Bad(why) => {
                self.trace.note(at, format!(">  a segment that nobody accepts: {why}"));
                Err(Stop::Differs(format!("a segment came that nobody accepts: {why}")))
            }
            Frame::Tcp(packet) => {
                let number = endpoint::connection(packet.destination_port);
                let is_ours = packet.destination == endpoint::client(self.script.setup.ip);
                let Some(number) = number.filter(|_| is_ours) else { return Ok(()) };
                let connection = self.connection(number);
                connection.observe(&packet);
                let text = format!(" > {}", describe(&packet, Sender::Server, connection));
                self.trace.note(at, text);
                self.inbox.push_back(Arrival { at, connection: number, packet });
                Ok(())
            }
        }
    }
}
