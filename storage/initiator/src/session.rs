//! One session with a target: connecting within a time, sending, and noticing that the other side no longer answers.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::libiscsi::{Answer, Context, Found, Request, SessionType};
use crate::sense::{Verdict, judge};
use crate::url::{Credentials, TargetUrl};

/// Who this initiator is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) initiator: String,
    pub(crate) isid: (u32, u16),
}

/// What a unit says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Capacity {
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u32,
}

pub(crate) struct Session {
    context: Context,
    lun: u16,
    next_tag: u64,
    /// When the target last answered, or got its first command after being idle.
    heard: Instant,
    pub(crate) capacity: Capacity,
}

impl Session {
    /// Connects to one portal, logs in, and asks for the unit's size.
    pub(crate) fn open(
        url: &TargetUrl,
        portal: &str,
        identity: &Identity,
        deadline: Instant,
    ) -> Result<Session, String> {
        let mut context = Context::new(&identity.initiator, SessionType::Normal, identity.isid)?;
        context.set_target(&url.target)?;
        set_credentials(&mut context, url.credentials.as_ref(), url.target_credentials.as_ref())?;
        context.connect(portal, Some(url.lun))?;
        drive(&mut context, deadline, Context::poll_connected)??;
        let unknown = Capacity { bytes: 0, block_bytes: 0 };
        let mut session = Session { context, lun: url.lun, next_tag: 0, heard: Instant::now(), capacity: unknown };
        session.capacity = session.ask_capacity(deadline)?;
        Ok(session)
    }

    fn ask_capacity(&mut self, deadline: Instant) -> Result<Capacity, String> {
        // A unit that was just reset says so once to each command (UNIT ATTENTION).
        for _ in 0..8 {
            let tag =
                self.issue(Request::Capacity(BytesMut::zeroed(32))).map_err(|_| "READ CAPACITY could not be sent")?;
            let answer = drive(&mut self.context, deadline, Context::poll_answer)?;
            debug_assert_eq!(answer.tag, tag);
            match (judge(answer.status, answer.sense), answer.request) {
                (Verdict::Done, Request::Capacity(data)) => return parse_capacity(&data),
                (Verdict::Again | Verdict::Later(_), _) => {}
                (Verdict::Failed(reason) | Verdict::Full(reason), _) => return Err(reason),
                _ => return Err("the session ended during READ CAPACITY".to_owned()),
            }
        }
        Err("the unit does not become ready".to_owned())
    }

    /// Sends a command and says its tag. What cannot be sent comes back.
    pub(crate) fn issue(&mut self, request: Request) -> Result<u64, Request> {
        let tag = self.next_tag;
        self.next_tag += 1;
        if self.context.in_flight() == 0 {
            self.heard = Instant::now();
        }
        self.context.issue(tag, self.lun, request)?;
        Ok(tag)
    }

    pub(crate) fn poll_answer(&mut self) -> Option<Answer> {
        let answer = self.context.poll_answer()?;
        self.heard = Instant::now();
        Some(answer)
    }

    /// Waits for the target, for `wake`, or until `until`. An error ends the session.
    pub(crate) fn wait(
        &mut self,
        wake: BorrowedFd<'_>,
        until: Option<Instant>,
        silence_max: Duration,
    ) -> Result<(), String> {
        let silence_ends = (self.context.in_flight() > 0).then(|| self.heard + silence_max);
        if silence_ends.is_some_and(|end| end <= Instant::now()) {
            return Err(format!("no answer for {} s", silence_max.as_secs()));
        }
        let until = [until, silence_ends].into_iter().flatten().min();
        wait(&mut self.context, Some(wake), until)
    }

    /// Says goodbye, within a short time.
    pub(crate) fn log_out(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        if self.context.log_out().is_ok() {
            let _ = drive(&mut self.context, deadline, |context| context.poll_logged_out().then_some(()));
        }
    }

    /// Ends the session; what was at the target comes back.
    pub(crate) fn end(self) -> Vec<Answer> {
        self.context.end()
    }
}

/// Asks a portal for its targets.
pub(crate) fn discover(
    portal: &str,
    credentials: Option<&Credentials>,
    identity: &Identity,
    deadline: Instant,
) -> Result<Vec<Found>, String> {
    let mut context = Context::new(&identity.initiator, SessionType::Discovery, identity.isid)?;
    set_credentials(&mut context, credentials, None)?;
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

/// READ CAPACITY (16)'s parameter data (SBC-3, section 5.16.2): the last block and the length of a block.
fn parse_capacity(data: &[u8]) -> Result<Capacity, String> {
    let last =
        data.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes)).ok_or("READ CAPACITY's answer is too short")?;
    let length = data
        .get(8..)
        .unwrap_or_default()
        .first_chunk::<4>()
        .map(|bytes| u32::from_be_bytes(*bytes))
        .ok_or("READ CAPACITY's answer is too short")?;
    if ![512, 1024, 2048, 4096].contains(&length) {
        return Err(format!("a unit with blocks of {length} bytes is not supported"));
    }
    let bytes = last.checked_add(1).and_then(|blocks| blocks.checked_mul(u64::from(length)));
    let bytes = bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or("READ CAPACITY's answer is out of range")?;
    Ok(Capacity { bytes, block_bytes: length })
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

fn wait(context: &mut Context, wake: Option<BorrowedFd<'_>>, until: Option<Instant>) -> Result<(), String> {
    let Some((socket, events)) = context.interest() else { return Err("the connection broke".to_owned()) };
    let mut fds = vec![PollFd::from_borrowed_fd(socket, PollFlags::from_bits_truncate(events as u16))];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_of_hostile_targets() {
        let data = |last: u64, length: u32| [&last.to_be_bytes()[..], &length.to_be_bytes()[..], &[0; 20]].concat();
        assert_eq!(parse_capacity(&data(7, 512)), Ok(Capacity { bytes: 4096, block_bytes: 512 }));
        assert!(parse_capacity(&data(u64::MAX, 512)).is_err());
        assert!(parse_capacity(&data(u64::MAX - 1, 4096)).is_err());
        assert!(parse_capacity(&data(7, 0)).is_err());
        assert!(parse_capacity(&data(7, 520)).is_err());
        assert!(parse_capacity(&[0; 9]).is_err());
        assert!(parse_capacity(&[]).is_err());
    }
}
