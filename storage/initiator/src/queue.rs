//! Which command is sent next, which is sent again, and which fails: no I/O, and time is an
//! argument.
//!
//! A session that breaks gives its commands back, and they wait for the next one, for as long as
//! the operator said. Then the unit fails closed: it takes no further commands, because nobody can
//! say what the target still has. In a new session, what the old one completed without a flush is
//! written again before anything else (`unflushed.rs`); so also after a flush that failed, because
//! the target may have dropped what it could not write, and after a target said that it was reset.
//! Reads and flushes that were at the target then are sent again.
//!
//! A unit may also answer some commands and not others, because its storage hangs and its network
//! does not. So each command has an age: how long it has been at the target, in all of its sessions
//! together. One that is older than commands may wait has the unit given up, too.
//!
//! Order of calls: `handle_*` tells what happened; then `poll_command` until None, and
//! `poll_finished` until None.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::lun::LunError;
use crate::sense::Verdict;
use crate::unflushed::{Generation, Unflushed};

/// The pause before a command is sent again to a busy target.
const PAUSE: Duration = Duration::from_millis(50);

/// How much waits for the target, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Commands at the target at once.
    pub(crate) depth_max: usize,
    /// Completed bytes without a flush, at which the queue flushes of its own. With those of writes
    /// at the target they may become twice as many; then writes wait for the flush.
    pub(crate) unflushed_bytes_max: usize,
    /// The longest single write of bytes that are written again.
    pub(crate) transfer_bytes_max: usize,
    /// How long commands wait for a target that is away or busy.
    pub(crate) patience: Duration,
}

/// What a command does. It owns its bytes, so they stay where they are however the session
/// ends.
#[derive(Debug)]
pub(crate) enum Operation {
    Read { offset: u64, buffers: Vec<BytesMut> },
    Write { offset: u64, data: Vec<Bytes> },
    Flush,
}

impl Operation {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
        }
    }

    fn write_bytes(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.iter().map(Bytes::len).sum(),
            Self::Read { .. } | Self::Flush => 0,
        }
    }
}

/// A command on its way. `T` says who waits for it.
#[derive(Debug)]
pub(crate) struct Command<T> {
    pub(crate) operation: Operation,
    origin: Origin<T>,
    /// Of a flush that was sent.
    covers: Option<Generation>,
    not_before: Option<Instant>,
    first_refused: Option<Instant>,
    /// Of its flight, while it is at the target.
    number: u64,
    /// How long it was at the target before that.
    flown: Duration,
}

/// A command at the target.
#[derive(Debug)]
struct Flight {
    number: u64,
    name: &'static str,
    sent: Instant,
    flown: Duration,
}

impl Flight {
    fn age(&self, now: Instant) -> Duration {
        self.flown + now.saturating_duration_since(self.sent)
    }
}

#[derive(Debug)]
enum Origin<T> {
    Caller(T),
    /// Bytes that a target may have lost.
    Replay,
    /// A flush because much is unflushed.
    Own,
}

#[derive(Debug)]
enum Link {
    Up,
    Down { since: Instant, reason: String },
    Lost(LunError),
}

/// A command that is over, and how.
pub(crate) type Finished<T> = (T, Operation, Result<(), LunError>);

#[derive(Debug)]
pub(crate) struct Queue<T> {
    name: String,
    limits: Limits,
    link: Link,
    waiting: VecDeque<Command<T>>,
    replays: VecDeque<Command<T>>,
    replay_due: bool,
    replays_sent: usize,
    /// Completed since the replay began, and the most that any attempt at it completed.
    replays_done: usize,
    replays_best: usize,
    /// How long a replay that did not complete was at the target, counted from when more completed.
    replays_flown: Duration,
    sent: usize,
    /// No more than `sent`.
    flights: Vec<Flight>,
    next_number: u64,
    /// Bytes of the callers' writes at the target.
    write_bytes_sent: usize,
    own_flush: bool,
    /// One at a time: if one fails, what another of the same time said is worth nothing.
    flush_sent: bool,
    /// The target forgot something while the flights up to this number were with it: what a read
    /// among them gave may lack what was acknowledged, and the success of a flush says nothing.
    void_through: u64,
    unflushed: Unflushed,
    finished: VecDeque<Finished<T>>,
}

impl<T> Queue<T> {
    pub(crate) fn new(name: String, limits: Limits, now: Instant) -> Self {
        Self {
            name,
            limits,
            link: Link::Down { since: now, reason: "not connected yet".to_owned() },
            waiting: VecDeque::new(),
            replays: VecDeque::new(),
            replay_due: false,
            replays_sent: 0,
            replays_done: 0,
            replays_best: 0,
            replays_flown: Duration::ZERO,
            sent: 0,
            flights: Vec::with_capacity(limits.depth_max),
            next_number: 0,
            write_bytes_sent: 0,
            own_flush: false,
            flush_sent: false,
            void_through: 0,
            unflushed: Unflushed::new(),
            finished: VecDeque::new(),
        }
    }

    pub(crate) fn handle_command(&mut self, operation: Operation, caller: T) {
        if let Link::Lost(error) = &self.link {
            self.finished.push_back((caller, operation, Err(error.clone())));
            return;
        }
        self.waiting.push_back(Command::new(operation, Origin::Caller(caller)));
    }

    /// A session began: every command of the one before came back through [`Queue::handle_answer`].
    pub(crate) fn handle_session_up(&mut self) {
        debug_assert_eq!(self.sent, 0, "a session ended and kept commands");
        if matches!(self.link, Link::Down { .. }) {
            self.link = Link::Up;
            self.replay_due = true;
        }
    }

    /// The session ended, or another attempt to begin one failed.
    pub(crate) fn handle_session_down(&mut self, reason: String, now: Instant) {
        match &mut self.link {
            Link::Up => self.link = Link::Down { since: now, reason },
            Link::Down { reason: last, .. } => *last = reason,
            Link::Lost(_) => {}
        }
    }

    /// The target answered a command, or its session ended.
    pub(crate) fn handle_answer(
        &mut self,
        mut command: Command<T>,
        verdict: Verdict,
        now: Instant,
    ) {
        self.sent -= 1;
        self.land(&mut command, now);
        if matches!(command.origin, Origin::Replay) {
            self.replays_sent -= 1;
            self.count_replay(&command, &verdict);
        } else {
            self.write_bytes_sent -= command.operation.write_bytes();
        }
        let is_over = matches!(
            verdict,
            Verdict::Done | Verdict::Failed(_) | Verdict::Full(_) | Verdict::Taken(_)
        );
        if !is_over && command.flown >= self.limits.patience {
            self.lose(no_answer(command.operation.name()));
        }
        if matches!(command.operation, Operation::Flush) {
            self.flush_sent = false;
        }
        // A write is kept until a later flush covers it, whenever it was executed.
        let is_void = command.number <= self.void_through
            && !matches!(command.operation, Operation::Write { .. });
        match verdict {
            Verdict::Done if is_void => self.repeat(command, None),
            Verdict::Done => self.complete(command),
            Verdict::Again | Verdict::NextSession => self.repeat(command, None),
            Verdict::Forgot(reason) => {
                self.handle_forgot();
                self.postpone(command, &reason, now);
            }
            Verdict::Later(reason) => self.postpone(command, &reason, now),
            Verdict::Full(reason) => self.fail(command, &reason, true),
            Verdict::Taken(reason) => {
                self.handle_taken(reason);
                self.repeat(command, None);
            }
            Verdict::Failed(reason) => self.fail(command, &reason, false),
        }
    }

    /// The target may have lost what it acknowledged since the last flush.
    pub(crate) fn handle_forgot(&mut self) {
        self.replay_due = true;
        self.void_through = self.next_number;
    }

    /// Gives up what has waited too long for a session, or for an answer.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        if let Link::Down { since, reason } = &self.link
            && now.duration_since(*since) >= self.limits.patience
        {
            let reason = reason.clone();
            self.lose(reason);
        }
        if let Some(flight) = self.overdue(now) {
            let reason = no_answer(flight.name);
            self.lose(reason);
        }
    }

    /// Whether the session has to end, because a command of it is not answered although the unit
    /// was given up for that.
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        self.is_lost() && self.overdue(now).is_some()
    }

    /// The unit is another gateway's: this one's writes would destroy what that has written.
    pub(crate) fn handle_taken(&mut self, reason: String) {
        self.end(LunError::Taken { lun: self.name.clone(), reason });
    }

    /// The unit is smaller than at the start, or its blocks have another length.
    pub(crate) fn handle_changed(&mut self, reason: String) {
        self.end(LunError::Changed { lun: self.name.clone(), reason });
    }

    /// When [`Queue::handle_time`] or [`Queue::poll_command`] have something to do without another
    /// event. `now` is that of the last [`Queue::poll_command`].
    pub(crate) fn next_time(&self, now: Instant) -> Option<Instant> {
        let overdue = self
            .flights
            .iter()
            .map(|flight| flight.sent + self.limits.patience.saturating_sub(flight.flown));
        match &self.link {
            Link::Down { since, .. } => Some(*since + self.limits.patience),
            Link::Up => self
                .replays
                .iter()
                .chain(&self.waiting)
                .filter_map(|command| command.not_before)
                // What is due and was not sent waits for another event.
                .filter(|at| *at > now)
                .chain(overdue)
                .min(),
            Link::Lost(_) => overdue.min(),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost().is_some()
    }

    /// Why the unit takes no further commands.
    pub(crate) fn lost(&self) -> Option<&LunError> {
        match &self.link {
            Link::Lost(error) => Some(error),
            Link::Up | Link::Down { .. } => None,
        }
    }

    /// The next command to send.
    pub(crate) fn poll_command(&mut self, now: Instant) -> Option<Command<T>> {
        if !matches!(self.link, Link::Up) {
            return None;
        }
        if self.replay_due {
            // Newer writes of the same blocks must come later than these.
            if self.sent > 0 {
                return None;
            }
            self.replay_due = false;
            self.replays_done = 0;
            let writes = self.unflushed.writes(self.limits.transfer_bytes_max);
            self.replays = writes
                .into_iter()
                .map(|(offset, data)| {
                    Command::new(Operation::Write { offset, data }, Origin::Replay)
                })
                .collect();
        }
        if self.sent >= self.limits.depth_max {
            return None;
        }
        if !self.replays.is_empty() || self.replays_sent > 0 {
            let next = self.replays.iter().position(|command| command.is_due(now))?;
            let mut command = self.replays.remove(next)?;
            self.replays_sent += 1;
            command.flown = command.flown.max(self.replays_flown);
            self.fly(&mut command, now);
            return Some(command);
        }
        if self.unflushed.bytes() > self.limits.unflushed_bytes_max && !self.own_flush {
            self.own_flush = true;
            self.waiting.push_front(Command::new(Operation::Flush, Origin::Own));
        }
        let flush_sent = self.flush_sent;
        let room = self.room();
        let may_go = |command: &Command<T>| {
            command.is_due(now)
                && !(flush_sent && matches!(command.operation, Operation::Flush))
                && command.operation.write_bytes() <= room
        };
        let next = self.waiting.iter().position(may_go)?;
        let mut command = self.waiting.remove(next)?;
        if matches!(command.operation, Operation::Flush) {
            command.covers = Some(self.unflushed.begin_flush());
            self.flush_sent = true;
        }
        self.write_bytes_sent += command.operation.write_bytes();
        self.fly(&mut command, now);
        Some(command)
    }

    pub(crate) fn poll_finished(&mut self) -> Option<Finished<T>> {
        self.finished.pop_front()
    }

    fn fly(&mut self, command: &mut Command<T>, now: Instant) {
        self.sent += 1;
        self.next_number += 1;
        command.number = self.next_number;
        let (number, name, flown) = (command.number, command.operation.name(), command.flown);
        self.flights.push(Flight { number, name, sent: now, flown });
    }

    fn land(&mut self, command: &mut Command<T>, now: Instant) {
        let at = self.flights.iter().position(|flight| flight.number == command.number);
        if let Some(at) = at {
            command.flown = self.flights.swap_remove(at).age(now);
        }
    }

    fn overdue(&self, now: Instant) -> Option<&Flight> {
        self.flights.iter().find(|flight| flight.age(now) >= self.limits.patience)
    }

    /// A replay begins anew with each session, and its commands with it: their age is the queue's.
    /// It goes on only if more of them complete than ever before.
    fn count_replay(&mut self, command: &Command<T>, verdict: &Verdict) {
        if *verdict != Verdict::Done {
            self.replays_flown = self.replays_flown.max(command.flown);
            return;
        }
        self.replays_done += 1;
        if self.replays_done > self.replays_best {
            self.replays_best = self.replays_done;
            self.replays_flown = Duration::ZERO;
        }
        if self.replays.is_empty() && self.replays_sent == 0 && !self.replay_due {
            self.replays_best = 0;
            self.replays_flown = Duration::ZERO;
        }
    }

    fn complete(&mut self, command: Command<T>) {
        match (&command.operation, command.covers) {
            // A replay is in the set already, with the generation that its flush still has to
            // cover.
            (Operation::Write { offset, data }, _) if !matches!(command.origin, Origin::Replay) => {
                self.unflushed.handle_written(*offset, data);
            }
            (Operation::Flush, Some(covered)) => self.unflushed.handle_flushed(covered),
            _ => {}
        }
        match command.origin {
            Origin::Caller(caller) => self.finished.push_back((caller, command.operation, Ok(()))),
            Origin::Own => self.own_flush = false,
            Origin::Replay => {}
        }
    }

    /// Sends a command again after a pause, or gives it up.
    fn postpone(&mut self, mut command: Command<T>, reason: &str, now: Instant) {
        let since = *command.first_refused.get_or_insert(now);
        if now.duration_since(since) >= self.limits.patience {
            self.fail(command, reason, false);
        } else {
            self.repeat(command, Some(now + PAUSE));
        }
    }

    fn repeat(&mut self, mut command: Command<T>, not_before: Option<Instant>) {
        command.not_before = not_before;
        if let Link::Lost(error) = &self.link {
            let error = error.clone();
            self.finish(command, Err(error));
        } else if matches!(command.origin, Origin::Replay) {
            // If all of them are due anew, this one is among them.
            if matches!(self.link, Link::Up) && !self.replay_due {
                self.replays.push_back(command);
            }
        } else {
            self.waiting.push_front(command);
        }
    }

    fn fail(&mut self, command: Command<T>, reason: &str, is_full: bool) {
        let name = command.operation.name();
        if matches!(command.origin, Origin::Replay) {
            // What was acknowledged is gone.
            self.lose(format!("what it had acknowledged could not be written again: {reason}"));
            return;
        }
        if matches!(command.operation, Operation::Flush) {
            self.handle_forgot();
        }
        if matches!(command.origin, Origin::Own) {
            self.fail_writes(reason);
        }
        let lun = self.name.clone();
        let error = match is_full {
            true => LunError::Full { lun, reason: reason.to_owned() },
            false => LunError::Failed { lun, command: name, reason: reason.to_owned() },
        };
        self.finish(command, Err(error));
    }

    /// How many bytes a write may have that is sent now.
    fn room(&self) -> usize {
        // Something is under way that makes more.
        if self.own_flush || self.flush_sent || self.write_bytes_sent > 0 {
            let kept = self.unflushed.bytes() + self.write_bytes_sent;
            (2 * self.limits.unflushed_bytes_max).saturating_sub(kept)
        } else {
            usize::MAX
        }
    }

    /// The queue's own flush failed, for which these have waited.
    fn fail_writes(&mut self, reason: &str) {
        let (lun, reason) = (self.name.clone(), format!("the flush before it failed: {reason}"));
        let error = LunError::Failed { lun, command: "write", reason };
        let room = self.room();
        let (held, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|command| command.operation.write_bytes() > room);
        self.waiting = waiting;
        let held: VecDeque<Command<T>> = held;
        for command in held {
            self.finish(command, Err(error.clone()));
        }
    }

    fn finish(&mut self, command: Command<T>, result: Result<(), LunError>) {
        match command.origin {
            Origin::Caller(caller) => self.finished.push_back((caller, command.operation, result)),
            Origin::Own => self.own_flush = false,
            Origin::Replay => {}
        }
    }

    fn lose(&mut self, reason: String) {
        self.end(LunError::Lost {
            lun: self.name.clone(),
            waited_s: self.limits.patience.as_secs(),
            reason,
        });
    }

    fn end(&mut self, error: LunError) {
        if self.is_lost() {
            return;
        }
        self.link = Link::Lost(error.clone());
        self.replays.clear();
        while let Some(command) = self.waiting.pop_front() {
            self.finish(command, Err(error.clone()));
        }
    }
}

fn no_answer(name: &str) -> String {
    format!("it does not answer a {name}, whatever else it answers")
}

impl<T> Command<T> {
    fn new(operation: Operation, origin: Origin<T>) -> Self {
        Self {
            operation,
            origin,
            covers: None,
            not_before: None,
            first_refused: None,
            number: 0,
            flown: Duration::ZERO,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| at <= now)
    }
}

#[cfg(test)]
mod tests;
