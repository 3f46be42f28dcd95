//! One session with a target: connecting within a time, sending, and noticing that the other side
//! no longer answers.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::capacity::{Capacity, parse_capacity};
use crate::libiscsi::{Answer, Context, Direction, Found, Request, SessionType};
use crate::reservation::{
    Claim, Judgement, Out, READ_BYTES, READ_RESERVATION, Reserved, parse_reserved,
};
use crate::sense::{Verdict, judge};
use crate::url::{Credentials, TargetUrl};

/// Who this initiator is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) initiator: String,
    pub(crate) isid: (u32, u16),
}

/// Why a session is not begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OpenError {
    /// Another attempt may go better.
    Failed(String),
    /// The unit is another gateway's.
    Taken(String),
    /// The unit no longer holds what it held.
    Changed(String),
}

impl From<String> for OpenError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<&str> for OpenError {
    fn from(reason: &str) -> Self {
        Self::Failed(reason.to_owned())
    }
}

/// How often a claim is looked at anew because another initiator came between.
const CLAIM_ATTEMPTS: usize = 8;

/// How long a command of another gateway may be under way at a target that cannot abort it.
const UNDER_WAY: Duration = Duration::from_secs(2);

pub(crate) struct Session {
    context: Context,
    lun: u16,
    next_tag: u64,
    /// When the target last answered, or got its first command after being idle.
    heard: Instant,
    /// Whether it was asked for a sign of life after that.
    is_asked: bool,
    pub(crate) capacity: Capacity,
}

impl Session {
    /// Connects to one portal, logs in, reserves the unit if there is a claim, and asks for its
    /// size.
    pub(crate) fn open(
        url: &TargetUrl,
        portal: &str,
        identity: &Identity,
        claim: Option<&mut Claim>,
        deadline: Instant,
    ) -> Result<Self, OpenError> {
        let mut context = Context::new(&identity.initiator, SessionType::Normal, identity.isid)?;
        context.set_target(&url.target)?;
        set_credentials(&mut context, url.credentials.as_ref(), url.target_credentials.as_ref())?;
        context.connect(portal, Some(url.lun))?;
        drive(&mut context, deadline, Context::poll_connected)??;
        let unknown = Capacity { bytes: 0, block_bytes: 0 };
        let mut session = Self {
            context,
            lun: url.lun,
            next_tag: 0,
            heard: Instant::now(),
            is_asked: false,
            capacity: unknown,
        };
        // First, because a target may refuse even to tell the size of what another one has reserved
        // (LIO does).
        if let Some(claim) = claim {
            session.claim(claim, deadline)?;
        }
        session.capacity = session.ask_capacity(deadline)?;
        Ok(session)
    }

    /// Reserves the unit, or finds that it is another's.
    fn claim(&mut self, claim: &mut Claim, deadline: Instant) -> Result<(), OpenError> {
        let key = claim.next_key();
        // The unit's generation when the key was registered.
        let mut registered = None;
        for _ in 0..CLAIM_ATTEMPTS {
            let found = match self.read_reservation(deadline)? {
                Some(found) => found,
                None if claim.held().is_some() => {
                    return Err("the target knows persistent reservations no longer".into());
                }
                None => {
                    tracing::warn!(
                        "the target knows no persistent reservations: nothing keeps a gateway on another machine from the unit"
                    );
                    return Ok(());
                }
            };
            let step = match claim.judge(key, found, registered) {
                Judgement::Held => {
                    claim.handle_held(key);
                    return Ok(());
                }
                Judgement::Refused(reason) => {
                    // A key of this session's would be left behind otherwise.
                    let _ = self.order(Out::Unregister { key }, deadline);
                    return Err(OpenError::Taken(reason));
                }
                Judgement::Free => Out::Reserve { key },
                Judgement::Preempt(victim) => Out::Preempt { key, victim, aborts: true },
            };
            if !self.order(Out::Register { key, persists: true }, deadline)?
                && !self.order(Out::Register { key, persists: false }, deadline)?
            {
                return Err("the target takes no registration".into());
            }
            // If this session had the reservation, it has it with the new key now. What is refused
            // is looked at anew.
            let after = self.read_reservation(deadline)?;
            registered = after.map(|after| after.generation);
            if after.is_none_or(|after| after.holder != Some(key)) {
                let is_done = self.order(step, deadline)?;
                if let Out::Preempt { key, victim, .. } = step
                    && !is_done
                    && self.order(Out::Preempt { key, victim, aborts: false }, deadline)?
                    && !claim.is_own(victim)
                {
                    // What it had at the target goes on there.
                    std::thread::sleep(UNDER_WAY);
                }
            }
        }
        Err("the unit's reservation does not settle: other initiators change it".into())
    }

    /// Gives the unit back.
    pub(crate) fn release(&mut self, claim: &Claim, deadline: Instant) {
        if let Some(key) = claim.held() {
            let _ = self.order(Out::Release { key }, deadline);
            let _ = self.order(Out::Unregister { key }, deadline);
        }
    }

    /// What the unit says about its reservation; None if it knows none.
    fn read_reservation(&mut self, deadline: Instant) -> Result<Option<Reserved>, String> {
        let answer = self.ask(ask_reservation, deadline)?;
        match (judge(answer.status, answer.sense), answer.request) {
            (Verdict::Done, Request::Raw { data, .. }) => {
                let short = "the answer to PERSISTENT RESERVE IN is too short";
                parse_reserved(&data).map(Some).ok_or_else(|| short.to_owned())
            }
            (Verdict::Failed(_), _) if answer.sense.key == ILLEGAL_REQUEST => Ok(None),
            (Verdict::Failed(reason), _) => Err(reason),
            _ => Err("the session ended during PERSISTENT RESERVE IN".to_owned()),
        }
    }

    /// Whether a PERSISTENT RESERVE OUT was executed; not, if the target refuses it.
    fn order(&mut self, order: Out, deadline: Instant) -> Result<bool, String> {
        let request = || {
            let (command, parameters) = order.encode();
            Request::Raw {
                command,
                data: BytesMut::from(&parameters[..]),
                direction: Direction::ToTarget,
            }
        };
        let answer = self.ask(request, deadline)?;
        match judge(answer.status, answer.sense) {
            Verdict::Done => Ok(true),
            // Also what it can do only under conditions, such as keeping registrations when it
            // loses its power.
            Verdict::Failed(reason) | Verdict::Taken(reason) => {
                tracing::debug!("{order:?}: {reason}");
                Ok(false)
            }
            _ => Err("the session ended during PERSISTENT RESERVE OUT".to_owned()),
        }
    }

    /// Sends a command until it is executed or refused: a unit that was just reset, or whose
    /// registrations changed, says so once to each command.
    fn ask(&mut self, request: impl Fn() -> Request, deadline: Instant) -> Result<Answer, String> {
        for _ in 0..8 {
            self.issue(request()).map_err(|_| "a command could not be sent")?;
            let answer = drive(&mut self.context, deadline, Context::poll_answer)?;
            // A new session writes again what no flush has covered, whatever the target forgot.
            if !matches!(
                judge(answer.status, answer.sense),
                Verdict::Again | Verdict::Forgot(_) | Verdict::Later(_)
            ) {
                return Ok(answer);
            }
        }
        Err("the unit does not become ready".to_owned())
    }

    fn ask_capacity(&mut self, deadline: Instant) -> Result<Capacity, String> {
        let answer = self.ask(|| Request::Capacity(BytesMut::zeroed(32)), deadline)?;
        match (judge(answer.status, answer.sense), answer.request) {
            (Verdict::Done, Request::Capacity(data)) => parse_capacity(&data),
            (Verdict::Failed(reason) | Verdict::Full(reason) | Verdict::Taken(reason), _) => {
                Err(reason)
            }
            _ => Err("the session ended during READ CAPACITY".to_owned()),
        }
    }

    /// Sends a command and says its tag. What cannot be sent comes back.
    pub(crate) fn issue(&mut self, request: Request) -> Result<u64, Request> {
        let tag = self.next_tag;
        self.next_tag += 1;
        if self.context.in_flight() == 0 {
            self.hear();
        }
        self.context.issue(tag, self.lun, request)?;
        Ok(tag)
    }

    pub(crate) fn poll_answer(&mut self) -> Option<Answer> {
        let answer = self.context.poll_answer()?;
        self.hear();
        Some(answer)
    }

    fn hear(&mut self) {
        self.heard = Instant::now();
        self.is_asked = false;
    }

    /// Waits for the target, for `wake`, or until `until`. An error ends the session.
    ///
    /// A target that says nothing is asked for a sign of life, because a command may take longer
    /// than a connection may be silent.
    pub(crate) fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        until: Option<Instant>,
        silence_max: Duration,
    ) -> Result<(), String> {
        let mut silence_ends = None;
        if self.context.in_flight() > 0 {
            let silent = self.heard.elapsed();
            if silent >= silence_max {
                return Err(format!("no answer for {} s", silence_max.as_secs()));
            }
            if silent >= silence_max / 2 && !self.is_asked {
                self.context.ask_alive()?;
                self.is_asked = true;
            }
            let next = if self.is_asked { silence_max } else { silence_max / 2 };
            silence_ends = Some(self.heard + next);
        }
        let until = [until, silence_ends].into_iter().flatten().min();
        wait(&mut self.context, Some(wake), until)?;
        while self.context.poll_alive() {
            self.hear();
        }
        Ok(())
    }

    /// Says goodbye, within a short time.
    pub(crate) fn log_out(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        if self.context.log_out().is_ok() {
            let _ = drive(&mut self.context, deadline, |context| {
                context.poll_logged_out().then_some(())
            });
        }
    }

    /// Ends the session; what was at the target comes back.
    pub(crate) fn end(self) -> Vec<Answer> {
        self.context.end()
    }
}

/// READ RESERVATION.
pub(crate) fn ask_reservation() -> Request {
    let (command, data) = (READ_RESERVATION, BytesMut::zeroed(READ_BYTES));
    Request::Raw { command, data, direction: Direction::FromTarget }
}

/// The sense key of a command that a target does not know.
const ILLEGAL_REQUEST: u8 = 5;

/// Asks a portal for its targets.
pub(crate) fn discover(
    portal: &str,
    credentials: Option<&Credentials>,
    target_credentials: Option<&Credentials>,
    identity: &Identity,
    deadline: Instant,
) -> Result<Vec<Found>, String> {
    let mut context = Context::new(&identity.initiator, SessionType::Discovery, identity.isid)?;
    set_credentials(&mut context, credentials, target_credentials)?;
    context.connect(portal, None)?;
    drive(&mut context, deadline, Context::poll_connected)??;
    context.discover()?;
    let found = drive(&mut context, deadline, Context::poll_discovered)??;
    if context.log_out().is_ok() {
        let _ = drive(&mut context, deadline, |context| context.poll_logged_out().then_some(()));
    }
    Ok(found)
}

fn set_credentials(
    context: &mut Context,
    own: Option<&Credentials>,
    target: Option<&Credentials>,
) -> Result<(), String> {
    if let Some(Credentials { user, password }) = own {
        context.set_credentials(user, password)?;
    }
    if let Some(Credentials { user, password }) = target {
        context.set_target_credentials(user, password)?;
    }
    Ok(())
}

/// Services a context until `done` has something.
fn drive<T>(
    context: &mut Context,
    deadline: Instant,
    mut done: impl FnMut(&mut Context) -> Option<T>,
) -> Result<T, String> {
    loop {
        if let Some(result) = done(context) {
            return Ok(result);
        }
        if Instant::now() >= deadline {
            return Err("no answer in time".to_owned());
        }
        wait(context, None, Some(deadline))?;
    }
}

fn wait(
    context: &mut Context,
    wake: Option<BorrowedFd<'_>>,
    until: Option<Instant>,
) -> Result<(), String> {
    let Some((socket, events)) = context.interest() else {
        return Err("the connection broke".to_owned());
    };
    let mut fds =
        vec![PollFd::from_borrowed_fd(socket, PollFlags::from_bits_truncate(events as u16))];
    fds.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
    let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(format!("poll: {error}")),
    }
    let revents = fds[0].revents().bits() as i16;
    drop(fds);
    context.service(revents)
}
