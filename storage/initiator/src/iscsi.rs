//! A unit of an iSCSI target: a thread that owns the session, and commands from any thread.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::configure_io_flusher_behavior;

use crate::capacity::Capacity;
use crate::libiscsi::{Answer, Request};
use crate::lun::{BLOCK_BYTES, Lun, LunError};
use crate::queue::{Command, Limits, Operation, Queue};
use crate::reservation::{Claim, ReservationOptions, parse_reserved};
use crate::sense::{Verdict, judge};
use crate::session::{Identity, OpenError, Session, ask_reservation};
use crate::url::TargetUrl;

/// How a unit is used.
#[derive(Clone, Debug)]
pub struct IscsiOptions {
    /// This initiator's name.
    pub initiator: String,
    /// How long commands wait while the target is away, and how long one may be at the target,
    /// before the unit is given up. Clients wait as long.
    pub patience: Duration,
    /// How long a target may say nothing while it has commands, also when asked for a sign of life,
    /// before the connection counts as broken.
    pub silence_max: Duration,
    /// How long one attempt to log in may take.
    pub login_max: Duration,
    /// Commands at the target at once.
    pub depth_max: usize,
    /// The longest single transfer, in bytes; longer ones are split.
    pub transfer_bytes_max: usize,
    /// Bytes of completed writes that are kept until a flush. At this many, the initiator flushes
    /// of its own. They take memory.
    pub unflushed_bytes_max: usize,
    /// Has the target refuse all others. None: whoever logs in may read and write.
    pub reservation: Option<ReservationOptions>,
}

/// How often it is looked whether the unit is still reserved.
const LOOK: Duration = Duration::from_secs(2);
/// What the operator is told of a unit that grows.
const LARGER: &str = "the unit is larger now; the gateway uses the rest after a restart";
/// Attempts at the first session of a gateway that reserves.
const FIRST_ATTEMPTS: usize = 4;
/// How long giving a reservation back may take.
const RELEASE_MAX: Duration = Duration::from_secs(2);

impl Default for IscsiOptions {
    fn default() -> Self {
        Self {
            initiator: "iqn.2026-11.org.nicache:gateway".to_owned(),
            patience: Duration::from_secs(60),
            silence_max: Duration::from_secs(15),
            login_max: Duration::from_secs(5),
            depth_max: 64,
            transfer_bytes_max: 256 << 10,
            unflushed_bytes_max: 64 << 20,
            reservation: None,
        }
    }
}

/// Who waits for a command.
type Caller = SyncSender<(Operation, Result<(), LunError>)>;

struct Shared {
    submitted: Mutex<Submitted>,
    wake: OwnedFd,
    sessions: AtomicU64,
    /// Why the unit takes no further commands.
    lost: OnceLock<LunError>,
}

#[derive(Default)]
struct Submitted {
    commands: Vec<(Operation, Caller)>,
    is_ending: bool,
    is_ended: bool,
}

/// A unit of an iSCSI target.
///
/// While the target is away, commands wait, and a thread tries its portals in turn. Dropping the
/// unit logs out.
pub struct IscsiLun {
    name: String,
    capacity: Capacity,
    transfer_bytes_max: usize,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl IscsiLun {
    /// Logs in. Fails if no portal takes the login at the first attempt.
    pub fn open(url: &TargetUrl, options: &IscsiOptions) -> Result<Self, LunError> {
        let name = url.to_string();
        let refused = |reason: String| LunError::Refused { lun: name.clone(), reason };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| refused(format!("eventfd: {e}")))?;
        let (submitted, sessions, lost) = (Mutex::default(), AtomicU64::new(0), OnceLock::new());
        let shared = Arc::new(Shared { submitted, wake, sessions, lost });
        let random = nicache_secret::random_bytes::<10>().map_err(|e| refused(e.to_string()))?;
        let [a, b, c, d, e, f, seed @ ..] = random;
        // A gateway that reserves is the same initiator port after a restart: its new session ends
        // the one of a process that was killed, with its commands, and LIO lets only the holder's
        // own port preempt it where the name is the same.
        let isid = match options.reservation {
            Some(ReservationOptions { identity, .. }) => {
                (identity & 0x00FF_FFFF, (identity >> 24) as u16)
            }
            None => (u32::from_le_bytes([a, b, c, 0]), u16::from_le_bytes([d, e]) ^ u16::from(f)),
        };
        let driver = Driver {
            url: url.clone(),
            options: options.clone(),
            identity: Identity { initiator: options.initiator.clone(), isid },
            shared: Arc::clone(&shared),
            capacity: None,
            portal: 0,
            claim: options.reservation.map(|options| Claim::new(options, u32::from_le_bytes(seed))),
            looked: Instant::now(),
            look: None,
        };
        let (opened, capacity) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("iscsi".to_owned())
            .spawn(move || driver.run(&opened))
            .map_err(|e| refused(format!("thread: {e}")))?;
        let capacity = capacity
            .recv()
            .map_err(|_| refused("the thread ended".to_owned()))?
            .map_err(refused)?;
        let transfer_bytes_max = (options.transfer_bytes_max / BLOCK_BYTES).max(1) * BLOCK_BYTES;
        Ok(Self { name, capacity, transfer_bytes_max, shared, thread: Some(thread) })
    }

    /// Sessions begun so far: one, and one for each time that the target was away.
    pub fn sessions(&self) -> u64 {
        self.shared.sessions.load(Ordering::Relaxed)
    }

    fn submit(&self, operation: Operation) -> Receiver<(Operation, Result<(), LunError>)> {
        let (caller, result) = sync_channel(1);
        let mut submitted = self.shared.lock();
        // The thread's end drops `caller`, which the receiver notices.
        if !submitted.is_ended {
            submitted.commands.push((operation, caller));
            drop(submitted);
            self.shared.wake();
        }
        result
    }

    fn finish(
        &self,
        result: &Receiver<(Operation, Result<(), LunError>)>,
    ) -> Result<Operation, LunError> {
        let ended = || LunError::Lost {
            lun: self.name.clone(),
            waited_s: 0,
            reason: "the session's thread ended".to_owned(),
        };
        let (operation, result) = result.recv().map_err(|_| ended())?;
        result.map(|()| operation)
    }
}

impl Lun for IscsiLun {
    fn name(&self) -> &str {
        &self.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity.bytes - self.capacity.bytes % BLOCK_BYTES as u64
    }

    fn block_bytes(&self) -> u32 {
        self.capacity.block_bytes
    }

    fn read(&self, offset: u64, buffers: &mut Vec<BytesMut>) -> Result<(), LunError> {
        self.check_range(offset, buffers.iter().map(BytesMut::len))?;
        let mut waiting = Vec::new();
        let mut at = offset;
        for buffers in split(std::mem::take(buffers), self.transfer_bytes_max, BytesMut::len) {
            let bytes: usize = buffers.iter().map(BytesMut::len).sum();
            waiting.push(self.submit(Operation::Read { offset: at, buffers }));
            at += bytes as u64;
        }
        for result in waiting {
            if let Operation::Read { buffers: filled, .. } = self.finish(&result)? {
                buffers.extend(filled);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[Bytes]) -> Result<(), LunError> {
        self.check_range(offset, data.iter().map(Bytes::len))?;
        let mut waiting = Vec::new();
        let mut at = offset;
        // Pieces longer than a transfer are cut; cutting does not copy.
        let data = data.iter().flat_map(|piece| {
            let cuts = (0..piece.len()).step_by(self.transfer_bytes_max);
            cuts.map(|cut| piece.slice(cut..piece.len().min(cut + self.transfer_bytes_max)))
        });
        for data in split(data.collect(), self.transfer_bytes_max, Bytes::len) {
            let bytes: usize = data.iter().map(Bytes::len).sum();
            waiting.push(self.submit(Operation::Write { offset: at, data }));
            at += bytes as u64;
        }
        let results: Vec<_> = waiting.iter().map(|result| self.finish(result)).collect();
        results.into_iter().try_for_each(|result| result.map(drop))
    }

    fn flush(&self) -> Result<(), LunError> {
        self.finish(&self.submit(Operation::Flush)).map(drop)
    }

    fn lost(&self) -> Option<LunError> {
        self.shared.lost.get().cloned()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.shared.wake.as_raw_fd()]
    }
}

impl Drop for IscsiLun {
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Submitted> {
        self.submitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only when the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Groups of neighbours, none longer than `bytes_max` unless it is one piece.
fn split<P>(pieces: Vec<P>, bytes_max: usize, len: impl Fn(&P) -> usize) -> Vec<Vec<P>> {
    let mut groups: Vec<Vec<P>> = Vec::new();
    let mut bytes = usize::MAX;
    for piece in pieces {
        let piece_bytes = len(&piece);
        match groups.last_mut() {
            Some(group) if bytes + piece_bytes <= bytes_max => group.push(piece),
            _ => {
                groups.push(vec![piece]);
                bytes = 0;
            }
        }
        bytes += piece_bytes;
    }
    groups
}

/// What the thread knows.
struct Driver {
    url: TargetUrl,
    options: IscsiOptions,
    identity: Identity,
    shared: Arc<Shared>,
    capacity: Option<Capacity>,
    /// The portal to try next.
    portal: usize,
    claim: Option<Claim>,
    /// When it was last looked whether the unit is still reserved.
    looked: Instant,
    /// The tag of such a look.
    look: Option<u64>,
}

impl Driver {
    fn run(mut self, opened: &SyncSender<Result<Capacity, String>>) {
        // Every block of a mounted device goes through this thread. When memory is short, the
        // kernel must not make it wait for that device. Not everywhere permitted.
        if let Err(error) = configure_io_flusher_behavior(true) {
            tracing::debug!("PR_SET_IO_FLUSHER: {error}");
        }
        let limits = Limits {
            depth_max: self.options.depth_max.max(1),
            unflushed_bytes_max: self.options.unflushed_bytes_max,
            transfer_bytes_max: self.options.transfer_bytes_max.max(BLOCK_BYTES),
            patience: self.options.patience,
        };
        let mut queue = Queue::new(self.url.to_string(), limits, Instant::now());
        let mut session = match self.open_first() {
            Ok(session) => {
                let _ = opened.send(Ok(session.capacity));
                Some(session)
            }
            Err(
                OpenError::Failed(reason) | OpenError::Taken(reason) | OpenError::Changed(reason),
            ) => {
                let _ = opened.send(Err(reason));
                return;
            }
        };
        queue.handle_session_up();
        let mut sent: HashMap<u64, Command<Caller>> = HashMap::new();
        loop {
            let is_ending = self.take_submitted(&mut queue);
            // Before anything that waits: the wakeup for these is spent.
            deliver(&mut queue);
            if is_ending && (sent.is_empty() || session.is_none()) {
                break;
            }
            session = match session {
                Some(open) => self.turn(open, &mut queue, &mut sent),
                None => self.reopen(&mut queue),
            };
            if let Some(error) = queue.lost() {
                // Those that give no commands have to know, too: they answer out of memory.
                self.shared.lost.get_or_init(|| error.clone());
            }
            deliver(&mut queue);
        }
        if let Some(mut session) = session {
            if let Some(claim) = self.claim.as_ref().filter(|_| !queue.is_lost()) {
                session.release(claim, Instant::now() + RELEASE_MAX);
            }
            session.log_out();
        }
        let mut submitted = self.shared.lock();
        submitted.is_ended = true;
        submitted.commands.clear();
    }

    fn take_submitted(&self, queue: &mut Queue<Caller>) -> bool {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut counter);
        let mut submitted = self.shared.lock();
        for (operation, caller) in submitted.commands.drain(..) {
            queue.handle_command(operation, caller);
        }
        submitted.is_ending
    }

    /// Sends what may be sent, waits, and takes the answers. None: the session is over.
    fn turn(
        &mut self,
        mut session: Session,
        queue: &mut Queue<Caller>,
        sent: &mut HashMap<u64, Command<Caller>>,
    ) -> Option<Session> {
        let block = session.capacity.block_bytes;
        let mut broken = None;
        let now = Instant::now();
        while let Some(mut command) = queue.poll_command(now) {
            let operation = std::mem::replace(&mut command.operation, Operation::Flush);
            match session.issue(Request::Transfer { operation, block }) {
                Ok(tag) => {
                    sent.insert(tag, command);
                }
                Err(Request::Transfer { operation, .. }) => {
                    command.operation = operation;
                    broken = Some("a command could not be sent".to_owned());
                    queue.handle_answer(command, Verdict::NextSession, Instant::now());
                    break;
                }
                Err(Request::Capacity(_) | Request::Raw { .. }) => {}
            }
        }
        let is_looking =
            self.claim.as_ref().is_some_and(|claim| claim.held().is_some()) && !queue.is_lost();
        if is_looking && self.look.is_none() && self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.look = session.issue(ask_reservation()).ok();
        }
        let look_due = is_looking.then(|| match self.look {
            Some(_) => self.looked + self.options.patience,
            None => self.looked + LOOK,
        });
        let until = [queue.next_time(now), look_due].into_iter().flatten().min();
        if broken.is_none()
            && let Err(reason) =
                session.wait(self.shared.wake.as_fd(), until, self.options.silence_max)
        {
            broken = Some(reason);
        }
        while let Some(answer) = session.poll_answer() {
            if is_over(&answer) && broken.is_none() {
                broken = Some("the connection broke".to_owned());
            }
            if answer.sense.is_resized() {
                tracing::warn!("{}: the target says that the unit's size changed", self.url);
            }
            if self.look == Some(answer.tag) {
                self.take_look(answer, queue);
            } else {
                self.take_answer(answer, queue, sent);
            }
        }
        let now = Instant::now();
        queue.handle_time(now);
        if broken.is_none() {
            if queue.is_stuck(now) {
                broken = Some("a command is not answered".to_owned());
            } else if self.look.is_some() && self.looked + self.options.patience <= now {
                broken = Some("READ RESERVATION is not answered".to_owned());
            }
        }
        let Some(reason) = broken else { return Some(session) };
        tracing::warn!("{}: {reason}; commands wait for a new session", self.url);
        queue.handle_session_down(reason, Instant::now());
        self.look = None;
        for answer in session.end() {
            self.take_answer(answer, queue, sent);
        }
        None
    }

    fn take_answer(
        &self,
        answer: Answer,
        queue: &mut Queue<Caller>,
        sent: &mut HashMap<u64, Command<Caller>>,
    ) {
        let Some(mut command) = sent.remove(&answer.tag) else { return };
        if let Request::Transfer { operation, .. } = answer.request {
            command.operation = operation;
        }
        let mut verdict = judge(answer.status, answer.sense);
        if verdict == Verdict::Done && answer.is_short {
            verdict = Verdict::Failed(
                "the target moved another number of bytes than was asked for".to_owned(),
            );
        }
        if let Verdict::Forgot(reason) = &verdict {
            tell_forgot(&self.url, reason);
        }
        queue.handle_answer(command, verdict, Instant::now());
    }

    /// Whether the unit is still this gateway's.
    fn take_look(&mut self, answer: Answer, queue: &mut Queue<Caller>) {
        self.look = None;
        let verdict = judge(answer.status, answer.sense);
        // A reset is told once to each session: to whichever command comes next.
        if let Verdict::Forgot(reason) = &verdict {
            tell_forgot(&self.url, reason);
            queue.handle_forgot();
        }
        let (Some(claim), Request::Raw { data, .. }) = (&self.claim, &answer.request) else {
            return;
        };
        if verdict == Verdict::Done
            && let Some(reason) = parse_reserved(data).and_then(|found| claim.lost(found))
        {
            queue.handle_taken(reason);
        }
    }

    /// One attempt at a new session; then a pause, in which a shutdown is noticed.
    fn reopen(&mut self, queue: &mut Queue<Caller>) -> Option<Session> {
        if !queue.is_lost() {
            match self.open_any() {
                Ok(session) => {
                    tracing::info!("{}: a new session", self.url);
                    queue.handle_session_up();
                    return Some(session);
                }
                Err(OpenError::Failed(reason)) => queue.handle_session_down(reason, Instant::now()),
                Err(OpenError::Taken(reason)) => queue.handle_taken(reason),
                Err(OpenError::Changed(reason)) => queue.handle_changed(reason),
            }
            queue.handle_time(Instant::now());
            if queue.is_lost() {
                tracing::error!("{}: given up", self.url);
                // Its callers want to know now.
                return None;
            }
        }
        let pause = if queue.is_lost() {
            None
        } else {
            Timespec::try_from(Duration::from_millis(200)).ok()
        };
        let _ = poll(&mut [PollFd::new(&self.shared.wake, PollFlags::IN)], pause.as_ref());
        None
    }

    /// The first session. A process of the same identity that still lives may end one or two of
    /// them by its own, before it hears that it has lost the unit.
    fn open_first(&mut self) -> Result<Session, OpenError> {
        let mut opened = self.open_any();
        for _ in 1..FIRST_ATTEMPTS {
            if self.claim.is_none() || !matches!(opened, Err(OpenError::Failed(_))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
            opened = self.open_any();
        }
        opened
    }

    /// Tries each portal once.
    fn open_any(&mut self) -> Result<Session, OpenError> {
        let mut last = "no portal".to_owned();
        for _ in 0..self.url.portals.len() {
            let portal = &self.url.portals[self.portal % self.url.portals.len()];
            let deadline = Instant::now() + self.options.login_max;
            match Session::open(&self.url, portal, &self.identity, self.claim.as_mut(), deadline) {
                Ok(session) => match self.capacity {
                    Some(capacity) if !capacity.fits(session.capacity) => {
                        return Err(OpenError::Changed(format!(
                            "the unit is another or smaller: it has {} bytes in blocks of {}, and had {} in blocks of {}",
                            session.capacity.bytes,
                            session.capacity.block_bytes,
                            capacity.bytes,
                            capacity.block_bytes
                        )));
                    }
                    capacity => {
                        if capacity.is_some_and(|capacity| capacity != session.capacity) {
                            tracing::warn!("{}: {LARGER}", self.url);
                        }
                        // The size stays that of the first session.
                        self.capacity = capacity.or(Some(session.capacity));
                        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
                        return Ok(session);
                    }
                },
                Err(OpenError::Failed(reason)) => last = format!("{portal}: {reason}"),
                // It is the same unit behind all of them.
                Err(taken) => return Err(taken),
            }
            self.portal += 1;
        }
        Err(last.into())
    }
}

fn deliver(queue: &mut Queue<Caller>) {
    while let Some((caller, operation, result)) = queue.poll_finished() {
        // A caller that went away does not want to know.
        let _ = caller.send((operation, result));
    }
}

fn is_over(answer: &Answer) -> bool {
    judge(answer.status, answer.sense) == Verdict::NextSession
}

fn tell_forgot(url: &TargetUrl, reason: &str) {
    tracing::warn!("{url}: {reason}; what no flush has covered is written again");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_no_longer_than_a_transfer() {
        let groups = split(vec![4, 4, 4, 12, 4], 8, |n| *n);
        assert_eq!(groups, [vec![4, 4], vec![4], vec![12], vec![4]]);
        assert!(split(Vec::<usize>::new(), 8, |n| *n).is_empty());
    }
}
