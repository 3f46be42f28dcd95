//! Which command is sent next, which is sent again, and which fails: no I/O, and time is an
//! argument.
//!
//! A session that breaks gives its commands back, and they wait for the next one, for as long as
//! the operator said. Then the unit fails closed: it takes no further commands, because nobody can
//! say what the target still has. In a new session, what the old one completed without a flush is
//! written again before anything else (`unflushed.rs`); so also after a flush that failed, because
//! the target may have dropped what it could not write, and after a target said that it was reset.
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
    sent: usize,
    /// Bytes of the callers' writes at the target.
    write_bytes_sent: usize,
    own_flush: bool,
    /// One at a time: if one fails, what another of the same time said is worth nothing.
    flush_sent: bool,
    /// The target forgot something while that flush was with it: its success says nothing.
    flush_void: bool,
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
            sent: 0,
            write_bytes_sent: 0,
            own_flush: false,
            flush_sent: false,
            flush_void: false,
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
    pub(crate) fn handle_answer(&mut self, command: Command<T>, verdict: Verdict, now: Instant) {
        self.sent -= 1;
        if matches!(command.origin, Origin::Replay) {
            self.replays_sent -= 1;
        } else {
            self.write_bytes_sent -= command.operation.write_bytes();
        }
        let mut is_void = false;
        if matches!(command.operation, Operation::Flush) {
            self.flush_sent = false;
            is_void = std::mem::take(&mut self.flush_void);
        }
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
        self.flush_void = self.flush_sent;
    }

    /// Gives up what has waited too long for a session.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        if let Link::Down { since, reason } = &self.link
            && now.duration_since(*since) >= self.limits.patience
        {
            let reason = reason.clone();
            self.lose(reason);
        }
    }

    /// The unit is another gateway's: this one's writes would destroy what that has written.
    pub(crate) fn handle_taken(&mut self, reason: String) {
        self.end(LunError::Taken { lun: self.name.clone(), reason });
    }

    /// When [`Queue::handle_time`] or [`Queue::poll_command`] have something to do without another
    /// event.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        match &self.link {
            Link::Down { since, .. } => Some(*since + self.limits.patience),
            Link::Up => self
                .replays
                .iter()
                .chain(&self.waiting)
                .filter_map(|command| command.not_before)
                .min(),
            Link::Lost(_) => None,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.link, Link::Lost(_))
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
            let command = self.replays.remove(next)?;
            self.replays_sent += 1;
            self.sent += 1;
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
        self.sent += 1;
        Some(command)
    }

    pub(crate) fn poll_finished(&mut self) -> Option<Finished<T>> {
        self.finished.pop_front()
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
            self.replay_due = true;
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

impl<T> Command<T> {
    fn new(operation: Operation, origin: Origin<T>) -> Self {
        Self { operation, origin, covers: None, not_before: None, first_refused: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|at| at <= now)
    }
}

#[cfg(test)]
mod tests;
