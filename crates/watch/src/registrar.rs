//! Judges fills: may this reply become an entry, and which sources does it depend on? And again later: may the entry stay?
//!
//! A reply is *static* if its body is, byte for byte, a file that the server looked up while it worked on the request.
//! The order of the steps is the proof that an entry is never older than a change that had ended:
//!
//! 1. The card advanced the clock (to the fill's stamp) before it forwarded the request.
//! 2. Every look-up of the server between forward and end is resolved again behind a barrier (`resolve.rs`): a change whose
//!    witness has fired while its effect was not visible is over by then. It must lead where it led the server.
//! 3. The sources that this gives are marked watched: from now on a change of them moves the epoch.
//! 4. Behind another barrier (`contents.rs`) the file must still have the body's bytes.
//! 5. No source has a stamp at or above the fill's.
//!
//! A change that ended before step 1 was seen by the server. One that was witnessed after step 1 has a stamp at or above
//! the fill's: step 5 sees it, or, as step 3 was before, the epoch moves and the card's own check sees it. One that was
//! witnessed before and took effect after (the lock is held from one to the other) is over in steps 2 and 4, whose look-ups
//! and bytes then differ from what the server said.
//!
//! Concurrent requests: an event loop's look-ups cannot be told apart by thread or time, so a fill gets those of all
//! requests in flight, but for files that are *proven* to be another reply's: opened, and then sent with sendfile, with
//! another length than this body.
//!
//! An entry is reinstated if nothing but directories has changed since its stamp, and behind a barrier every look-up leads where it
//! led, through the same directories with the same modes and owners. A change that was witnessed before the question's stamp is over by
//! then; one that was witnessed after it is seen in the stamps.
//!
//! Known and accepted: a look-up on an unwatched file system refuses the fill, except for the harmless devices
//! (`/dev/null` and the like).

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_coherence::{
    FillRequest, FillVerdict, LEASE_NS, LEASE_RENEWAL_NS, RecordNumber, RefusalReason, ReinstateRequest,
    ReinstateVerdict, Reinstatement, RevisionTable, SourceSet, SourceSlot, Verdict,
};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::contents;
use crate::event::{EventKind, LookupEvent};
use crate::history::History;
use crate::kernel::Coverage;
use crate::records::{Record, Records};
use crate::resolve::{Access, Node, Outcome, Resolver, Walk};
use crate::ring::{Drained, LookupRing};

/// A change time that is older than this is not one of a write that is under way.
const SETTLED_S: i64 = 2;
/// How long after a reply's end the end of its sendfile may be told. One that is told later counts as a source of the fill, which is safe.
const SENT_LATE_NS: u64 = Duration::from_millis(2).as_nanos() as u64;
/// How long to wait for a record that another processor is writing.
const BUSY_WAIT: Duration = Duration::from_millis(2);

/// What the registrar has decided so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrarCounters {
    /// Replies that may become entries.
    pub stored: u64,
    /// Refusals by [`RefusalReason::index`].
    pub refused: [u64; RefusalReason::ALL.len()],
    /// Look-up events taken from the kernel.
    pub events: u64,
    /// Entries that may stay.
    pub reinstated: u64,
    /// Entries that may not.
    pub gone: u64,
}

/// See the module's head.
pub struct Registrar {
    table: Arc<RevisionTable>,
    ring: LookupRing,
    coverage: Coverage,
    history: History,
    records: Records,
    counters: RegistrarCounters,
    lease_renewed_ns: u64,
    corrupt: bool,
}

impl Registrar {
    /// A registrar that judges fills forwarded from now on. `ring` must have no other reader.
    pub fn new(table: Arc<RevisionTable>, ring: LookupRing, coverage: Coverage) -> Registrar {
        let now_ns = now_ns();
        let history = History::new(now_ns);
        Registrar {
            table,
            ring,
            coverage,
            history,
            records: Records::new(now_ns),
            counters: RegistrarCounters::default(),
            lease_renewed_ns: 0,
            corrupt: false,
        }
    }

    /// Takes the look-ups out of the kernel's ring. To be called often enough that it does not overflow.
    pub fn handle_events(&mut self) {
        let _ = self.drain();
    }

    /// Renews the lease if it is time to. Without a call for [`LEASE_NS`] every card stops serving.
    pub fn handle_time(&mut self) {
        renew_lease(&self.table, &mut self.lease_renewed_ns);
    }

    /// Ends the lease at once: nobody vouches any more.
    pub fn end_lease(&mut self) {
        self.table.renew_lease(0);
    }

    /// What the kernel says of the server's paths from now on, for all questions that have come by now.
    pub fn resolver(&self) -> Resolver {
        Resolver::new(self.coverage.clone())
    }

    /// Judges one fill. Takes some 50 µs plus the hashing of the file. `resolver` was made after the request had come.
    pub fn judge(&mut self, request: &FillRequest<'_>, resolver: &mut Resolver) -> FillVerdict {
        let verdict = match self.try_judge(request, resolver) {
            Ok((sources, record)) => {
                self.counters.stored += 1;
                Verdict::Stored { sources, record }
            }
            Err(reason) => {
                self.counters.refused[reason.index()] += 1;
                tracing::debug!(
                    target = %String::from_utf8_lossy(request.target),
                    reason = reason.label(),
                    "fill refused"
                );
                Verdict::Refused(reason)
            }
        };
        FillVerdict { id: request.id, verdict }
    }

    /// Judges one entry again. `resolver` was made after the request had come.
    pub fn reinstate(&mut self, request: &ReinstateRequest, resolver: &mut Resolver) -> ReinstateVerdict {
        let outcome = self.try_reinstate(request, resolver);
        match outcome {
            Reinstatement::Stays => self.counters.reinstated += 1,
            Reinstatement::Again => {}
            Reinstatement::Gone => self.counters.gone += 1,
        }
        ReinstateVerdict { id: request.id, outcome }
    }

    /// What was decided so far.
    pub fn counters(&self) -> &RegistrarCounters {
        &self.counters
    }

    fn drain(&mut self) -> Drained {
        let (history, events) = (&mut self.history, &mut self.counters.events);
        let drained = self.ring.drain(|event| {
            *events += 1;
            history.push(event);
        });
        self.corrupt |= drained == Drained::Corrupt;
        drained
    }

    /// Everything that the server looked up before the call is in the history, or an error.
    fn drain_completely(&mut self) -> Result<(), RefusalReason> {
        let start = Instant::now();
        loop {
            match self.drain() {
                Drained::All => return Ok(()),
                Drained::Busy if start.elapsed() < BUSY_WAIT => std::hint::spin_loop(),
                Drained::Busy | Drained::Corrupt => return Err(RefusalReason::EventsLost),
            }
        }
    }

    fn try_reinstate(&mut self, request: &ReinstateRequest, resolver: &mut Resolver) -> Reinstatement {
        let drained = self.drain_completely();
        if drained.is_err() || self.corrupt || self.history.is_hidden() {
            return Reinstatement::Gone;
        }
        let Some(record) = self.records.get(request.record) else { return Reinstatement::Gone };
        if !self.table.is_unchanged(&record.fixed, request.since) {
            return Reinstatement::Gone;
        }
        let events = record.events.iter().map(|event| Selected { event, sent: false });
        let Ok(now) = survey(events, resolver, None) else { return Reinstatement::Gone };
        let is_same = now.sources == record.sources && now.directories == record.directories;
        // Once more, as the look-ups took a while.
        if !is_same || !self.table.is_unchanged(&record.fixed, request.since) {
            return Reinstatement::Gone;
        }
        let sources: Vec<SourceSlot> = record.sources.iter().copied().collect();
        if self.table.is_unchanged(&sources, request.stamp) { Reinstatement::Stays } else { Reinstatement::Again }
    }

    fn try_judge(
        &mut self,
        request: &FillRequest<'_>,
        resolver: &mut Resolver,
    ) -> Result<(SourceSet, RecordNumber), RefusalReason> {
        if request.body_len == 0 {
            return Err(RefusalReason::EmptyBody);
        }
        self.drain_completely()?;
        let is_complete = !self.corrupt
            && !self.history.is_hidden()
            && self.table.lost() == request.lost
            && request.forwarded_ns <= request.finished_ns
            && self.history.covers(request.forwarded_ns);
        if !is_complete {
            return Err(RefusalReason::EventsLost);
        }
        let events = select(&self.history, request);
        if !events.iter().any(|selected| selected.event.kind == EventKind::Lookup) {
            return Err(RefusalReason::NotLookedUp);
        }

        let survey = survey(events.iter().copied(), resolver, Some(request.body_len))?;
        if survey.candidates.is_empty() {
            return Err(RefusalReason::NoMatchingFile);
        }
        for &slot in &survey.sources {
            self.table.watch(slot);
        }

        let mut tick = || renew_lease(&self.table, &mut self.lease_renewed_ns);
        let mut matched = None;
        for candidate in &survey.candidates {
            if contents::hash(candidate, &mut tick)? == request.body_hash {
                let is_dated = request.last_modified.is_some_and(|seconds| seconds as i64 == candidate.modified_s);
                matched = Some(matched.unwrap_or(false) || is_dated);
            }
        }
        match matched {
            None => return Err(RefusalReason::NoMatchingFile),
            Some(false) => return Err(RefusalReason::ModifiedMismatch),
            Some(true) => {}
        }

        let mut sources = SourceSet::new();
        for &slot in &survey.sources {
            sources.insert(slot).map_err(|_| RefusalReason::TooManySources)?;
        }
        let others: Vec<SourceSlot> = survey.others.iter().copied().collect();
        let is_unchanged = self.table.is_unchanged(sources.as_slice(), request.stamp)
            && self.table.is_unchanged(&others, request.stamp)
            && self.table.lost() == request.lost;
        if !is_unchanged {
            return Err(RefusalReason::Changed);
        }
        let record = Record {
            events: survey.kept.iter().map(|event| (*event).clone()).collect(),
            sources: survey.sources,
            fixed: survey.fixed.into_iter().collect(),
            directories: survey.directories,
        };
        Ok((sources, self.records.push(record)))
    }
}

/// An event of the request's time.
#[derive(Clone, Copy)]
struct Selected<'a> {
    event: &'a LookupEvent,
    /// The file was opened and then sent with sendfile.
    sent: bool,
}

/// The events between forward and end; and which opened files were then sent.
fn select<'a>(history: &'a History, request: &FillRequest<'_>) -> Vec<Selected<'a>> {
    let mut selected: Vec<Selected<'a>> = Vec::new();
    // Latest open by process and descriptor number; None if it came too late to count.
    let mut opened: HashMap<(u32, i64), Option<usize>> = HashMap::new();
    for event in history.since(request.forwarded_ns) {
        if event.time_ns > request.finished_ns + SENT_LATE_NS {
            break;
        }
        let is_during = event.time_ns <= request.finished_ns;
        match event.kind {
            EventKind::Lookup => {
                if event.inode.is_some() {
                    opened.insert((event.tgid, event.ret), is_during.then_some(selected.len()));
                }
                if is_during {
                    selected.push(Selected { event, sent: false });
                }
            }
            EventKind::Sendfile => {
                if let Some(Some(at)) = opened.get(&(event.tgid, i64::from(event.dirfd)))
                    && selected[*at].event.inode == event.inode
                {
                    selected[*at].sent = true;
                }
            }
            EventKind::Readdir if is_during => selected.push(Selected { event, sent: false }),
            EventKind::Readdir | EventKind::Hidden => {}
        }
    }
    selected
}

/// What the look-ups of a request depend on.
#[derive(Default)]
struct Survey<'a> {
    /// Slots of the entry.
    sources: BTreeSet<SourceSlot>,
    /// Those of them that are no directory in which something was looked up.
    fixed: BTreeSet<SourceSlot>,
    /// Those that are, and who may search them.
    directories: BTreeSet<(SourceSlot, Access)>,
    /// Slots of look-ups that belong to other replies: to be unchanged, but no sources.
    others: BTreeSet<SourceSlot>,
    /// Files as long as the body.
    candidates: Vec<Rc<Node>>,
    /// The events that the sources come from.
    kept: Vec<&'a LookupEvent>,
}

/// Does the look-ups again. `body_len` is that of a reply that is to become an entry.
fn survey<'a>(
    events: impl Iterator<Item = Selected<'a>>,
    resolver: &mut Resolver,
    body_len: Option<u64>,
) -> Result<Survey<'a>, RefusalReason> {
    let mut survey = Survey::default();
    survey.fixed.insert(SourceSlot::EVERYTHING);
    let settled_before_s = unix_s() - SETTLED_S;
    let mut listed = Vec::new();
    for Selected { event, sent } in events {
        if event.kind == EventKind::Readdir {
            let Some(identity) = event.inode else { return Err(RefusalReason::Io) };
            listed.push(identity.slot());
            survey.kept.push(event);
            continue;
        }
        let walk = resolver.resolve(event)?;
        check_outcome(event, &walk)?;
        let mut is_others = false;
        match &walk.outcome {
            Outcome::Found(node) if node.is_harmless_device() => continue,
            Outcome::Found(node) if node.kind == FileType::RegularFile => {
                if !node.is_watched() {
                    return Err(RefusalReason::UnwatchedFilesystem);
                }
                if body_len == Some(node.size) && event.ret >= 0 {
                    if !survey.candidates.iter().any(|candidate| candidate.identity == node.identity) {
                        survey.candidates.push(node.clone());
                    }
                } else {
                    is_others = sent && node.changed_s < settled_before_s;
                }
            }
            _ => {}
        }
        if !walk.watched {
            return Err(RefusalReason::UnwatchedFilesystem);
        }
        if is_others {
            survey.others.extend(&walk.slots);
            continue;
        }
        survey.sources.extend(&walk.slots);
        survey.directories.extend(&walk.directories);
        survey.kept.push(event);
        if let Outcome::Found(node) = &walk.outcome
            && node.kind != FileType::Directory
        {
            survey.fixed.insert(node.identity.slot());
        }
    }
    // A directory that was opened before the request has no path to wait in.
    if !listed.iter().all(|slot| survey.sources.contains(slot)) {
        return Err(RefusalReason::Io);
    }
    survey.fixed.extend(listed);
    survey.sources.extend(&survey.fixed);
    Ok(survey)
}

/// Does the path lead where it led the server?
fn check_outcome(event: &LookupEvent, walk: &Walk) -> Result<(), RefusalReason> {
    let errno = (event.ret < 0).then(|| Errno::from_raw_os_error(-event.ret as i32));
    match (&walk.outcome, errno) {
        (Outcome::Found(node), None) => match event.inode {
            Some(identity) if identity != node.identity => Err(RefusalReason::Changed),
            _ => Ok(()),
        },
        (Outcome::Missing, None) => Err(RefusalReason::Changed),
        // The server may be refused what the watcher is not; modes and owners are sources like anything else. The
        // others depend on what was asked for (a link that is none, a directory wanted, an attribute).
        (
            _,
            Some(
                Errno::ACCESS
                | Errno::PERM
                | Errno::LOOP
                | Errno::INVAL
                | Errno::ISDIR
                | Errno::NODATA
                | Errno::RANGE
                | Errno::OPNOTSUPP
                | Errno::NAMETOOLONG
                | Errno::EXIST
                | Errno::ROFS,
            ),
        ) => Ok(()),
        (Outcome::Missing, Some(Errno::NOENT | Errno::NOTDIR)) => Ok(()),
        (Outcome::Found(_), Some(Errno::NOENT)) => Err(RefusalReason::Changed),
        // O_DIRECTORY on something else.
        (Outcome::Found(node), Some(Errno::NOTDIR)) => {
            if node.kind == FileType::Directory {
                Err(RefusalReason::Changed)
            } else {
                Ok(())
            }
        }
        // Out of descriptors, out of memory, interrupted ...: says nothing that would hold the next time.
        (_, Some(_)) => Err(RefusalReason::Io),
    }
}

fn renew_lease(table: &RevisionTable, renewed_ns: &mut u64) {
    let now = now_ns();
    if now.saturating_sub(*renewed_ns) >= LEASE_RENEWAL_NS {
        table.renew_lease(now + LEASE_NS);
        *renewed_ns = now;
    }
}

/// CLOCK_MONOTONIC in nanoseconds, the clock of all times between card, kernel and watcher.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn unix_s() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}
