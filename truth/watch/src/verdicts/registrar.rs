//! Judges fills: may this reply become an entry, and which sources does it depend on? And again
//! later: may the entry stay?
//!
//! A reply is *dynamic* if it is none of the server's files, see `dynamic.rs`; and *static* if its
//! body is, byte for byte, a file that the server looked up while it worked on the request. The
//! order of the steps is the proof that an entry is never older than a change that had ended:
//!
//! 1. The card advanced the clock (to the fill's stamp) before it forwarded the request.
//! 2. Every look-up of the server between forward and end is resolved again behind a barrier
//!    (`resolve/resolver.rs`): a change whose witness has fired while its effect was not visible is
//!    over by then. It must lead where it led the server. And the server must have had the right to
//!    read it: it opened it, or could have (`openings.rs`).
//! 3. The sources that this gives are marked watched: from now on a change of them moves the epoch.
//! 4. Behind another barrier (`contents.rs`) the file must still have the body's bytes.
//! 5. Files that the server has opened before, and that had the same bytes, are sources, too
//!    (`copies.rs`): the reply may be one of them, and what was looked up another request's.
//! 6. No source has a stamp at or above the fill's.
//!
//! A change that ended before step 1 was seen by the server. One that was witnessed after step 1
//! has a stamp at or above the fill's: step 6 sees it, or, as step 3 was before, the epoch moves
//! and the card's own check sees it. One that was witnessed before and took effect after (the lock
//! is held from one to the other) is over in steps 2 and 4, whose look-ups and bytes then differ
//! from what the server said.
//!
//! Concurrent requests: what a process did that works on one request at a time is that request's
//! (`attribution/requests.rs`). An event loop's look-ups cannot be told apart by thread or time, so
//! a fill gets those of all requests in flight, but for files that are *proven* to be another
//! reply's: opened, and then sent with sendfile, with another length than this body.
//!
//! An entry is reinstated if nothing but directories has changed since its stamp, and behind a
//! barrier every look-up leads where it led, through the same directories with the same modes and
//! owners. A change that was witnessed before the question's stamp is over by then; one that was
//! witnessed after it is seen in the stamps.
//!
//! Known and accepted: a look-up on an unwatched file system refuses the fill, except for the
//! harmless devices (`/dev/null` and the like).

mod file;
mod reinstatement;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_clock::monotonic_ns;
use nicache_coherence::{
    Class, FillRequest, FillVerdict, RefusalReason, ReinstateRequest, ReinstateVerdict,
    Reinstatement, RevisionTable, Rule, SourceSet, SourceSlot, Stamp, Verdict,
};

use crate::attribution::hiding::{HidingPrograms, Surroundings};
use crate::attribution::listeners::Listeners;
use crate::attribution::offspring::Offspring;
use crate::attribution::older::OlderPrograms;
use crate::attribution::peers::Peers;
use crate::attribution::requests::Attribution;
use crate::databases::processes::DatabaseProcesses;
use crate::memory::data::DataFolders;
use crate::memory::grace::{Ends, Pace};
use crate::memory::retained::{Look, Retained};
use crate::memory::sessions::SessionFiles;
use crate::processes::have_rings;
use crate::resolve::openings::Openings;
use crate::resolve::resolver::Resolver;
use crate::resolve::settled::AtRest;
use crate::statements::asked::Asked;
use crate::statements::databases::Databases;
use crate::statements::remote::RemoteDatabase;
use crate::verdicts::dynamic::{DynamicSources, Seen, may_be_decided, survey_dynamic};
use crate::verdicts::lease::renew_lease;
use crate::verdicts::records::{Record, Records};
use crate::witnesses::event::{EventKind, LookupEvent, RequestStep};
use crate::witnesses::folders::FoldersByProcess;
use crate::witnesses::history::History;
use crate::witnesses::members::{Members, Outsiders};
use crate::witnesses::witness::{Drained, UntoldFile, Witness};

/// Earlier replies that the entry of a later one depends on, too, at most.
const ALSO_MAX: usize = 32;
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
    /// Dynamic replies whose look-ups were those of an earlier one, so they were not done
    /// again.
    pub reused: u64,
    /// Entries that may stay.
    pub reinstated: u64,
    /// Entries that may not.
    pub gone: u64,
}

/// Judges fills: may this reply become an entry, and which sources does it depend on? And again
/// later: may the entry stay? The [module](self) has the steps and their proof.
pub struct Registrar {
    pub(crate) table: Arc<RevisionTable>,
    witness: Box<dyn Witness>,
    history: History,
    attribution: Attribution,
    pace: Pace,
    /// `RevisionTable::lost` when `attribution` was last cleared.
    attributed_since_lost: u64,
    pub(crate) retained: Retained,
    /// The last mount that [`Retained::see_mounts`] knows of.
    mounts_seen: Stamp,
    at_rest: AtRest,
    openings: Openings,
    /// The server has sent what it did not look up.
    keeps_files: bool,
    offspring: Offspring,
    hiding: HidingPrograms,
    folders: FoldersByProcess,
    listeners: Listeners,
    sessions: SessionFiles,
    data: DataFolders,
    databases: Databases,
    remotes: Vec<Arc<RemoteDatabase>>,
    database_processes: Option<DatabaseProcesses>,
    members: Option<Members>,
    outsiders: Outsiders,
    pub(crate) records: Records,
    counters: RegistrarCounters,
    lease_renewed_ns: u64,
    corrupt: bool,
    /// Only look-ups within a request and bytes are vouched for.
    files_only: bool,
    /// Programs of the server that ran before the witness was there.
    older: Option<OlderPrograms>,
}

impl Registrar {
    /// A registrar that judges fills forwarded from now on.
    pub fn new(table: Arc<RevisionTable>, witness: Box<dyn Witness>) -> Self {
        let now_ns = monotonic_ns();
        let history = History::new(now_ns);
        let listeners = Listeners::new(Arc::clone(&table));
        Self {
            table,
            witness,
            history,
            attribution: Attribution::default(),
            pace: Pace::default(),
            attributed_since_lost: 0,
            retained: Retained::default(),
            mounts_seen: Stamp(0),
            at_rest: AtRest::default(),
            openings: Openings::default(),
            keeps_files: false,
            offspring: Offspring::default(),
            hiding: HidingPrograms::default(),
            folders: FoldersByProcess::default(),
            listeners,
            sessions: SessionFiles::default(),
            data: DataFolders::default(),
            databases: Databases::new(HashSet::new(), 0),
            remotes: Vec::new(),
            database_processes: None,
            members: None,
            outsiders: Outsiders::default(),
            records: Records::new(now_ns),
            counters: RegistrarCounters::default(),
            lease_renewed_ns: 0,
            corrupt: false,
            files_only: false,
            older: None,
        }
    }

    /// The server was started before the witness was there: what it has read is in its memory, and
    /// nobody has seen it read. No dynamic reply is vouched for in which a program that runs now
    /// may have a part, and none at all if the witness does not see every program.
    pub fn handle_older_server(&mut self) {
        if !self.witness.sees_everybody() {
            self.files_only = true;
        } else if self.older.is_none() {
            let netns = self.table.server_netns();
            let older = OlderPrograms::in_namespace(netns, monotonic_ns());
            let (clock, mut resolver) = (self.table.advance_clock(), self.resolver());
            for process in older.processes() {
                self.openings.add_held(process, clock, &mut resolver);
            }
            self.older = Some(older);
        }
        if !self.witness.sees_rings() && have_rings(self.table.server_netns()) {
            self.history.hide();
        }
    }

    /// May a program that is older than the witness have had a part in the reply?
    fn may_be_of_older(&mut self, request: &FillRequest<'_>) -> bool {
        let older = self.older.as_mut();
        self.files_only
            || older
                .is_some_and(|older| older.may_have_answered(request.forwarded_ns, monotonic_ns()))
    }

    /// May a program have had a part in the reply that does what nobody sees?
    fn may_be_of_hiding(&mut self, request: &FillRequest<'_>) -> bool {
        let around = Surroundings {
            attribution: &self.attribution,
            members: self.members.as_ref(),
            table: &self.table,
            listeners: &mut self.listeners,
        };
        self.hiding.may_have_answered(request, around, monotonic_ns())
    }

    /// Follows the statements that these servers receive. Without, every database is a program that
    /// is not watched.
    pub fn follow_databases(&mut self, processes: &DatabaseProcesses) {
        self.databases =
            Databases::new(processes.sockets().into_keys().collect(), self.table.server_netns());
        for (process, kind) in processes.servers() {
            self.databases.handle_started(process, kind, monotonic_ns(), self.table.clock());
        }
        self.database_processes = Some(processes.clone());
    }

    /// Takes programs outside the server's network that are members for parts of the application.
    pub fn follow_members(&mut self, members: &Members) {
        self.databases.follow_members(members);
        self.members = Some(members.clone());
    }

    /// Processes of PHP-FPM that the server has asked and that run for longer than anybody has
    /// watched them. Once they have begun anew they are members.
    pub fn outsiders(&mut self) -> Vec<u32> {
        self.members.as_ref().map_or_else(Vec::new, |members| self.outsiders.take(members))
    }

    /// Leaves out what the server does with these files.
    pub fn leave_out(&mut self, sessions: SessionFiles) {
        self.sessions = sessions;
    }

    /// Takes the server not to keep what is in these folders in its memory.
    pub fn take_as_data(&mut self, folders: DataFolders) {
        self.data = folders;
    }

    /// Counts databases on other machines as watched, as far as their relays vouch for them.
    pub fn follow_remotes(&mut self, remotes: Vec<Arc<RemoteDatabase>>) {
        self.remotes = remotes;
    }

    /// Takes the look-ups out of the witness's ring. To be called often enough that it does not
    /// overflow.
    pub fn handle_events(&mut self) {
        let _ = self.drain();
        // The sooner, the less of what is changed meanwhile is taken for a change before the
        // opening.
        if self.retained.has_new() {
            self.verify_retained();
        }
    }

    fn verify_retained(&mut self) {
        let (table, coverage) = (&self.table, self.witness.coverage());
        let mut begin =
            || Look { clock: table.advance_clock(), resolver: Resolver::new(coverage.clone()) };
        self.retained.verify(&mut begin, table);
    }

    /// Renews the lease if it is time to. Without a call for [`LEASE_NS`](nicache_coherence::LEASE_NS) every card stops serving.
    pub fn handle_time(&mut self) {
        renew_lease(&self.table, &self.remotes, &mut self.lease_renewed_ns);
        self.witness.handle_time(&self.table, monotonic_ns());
        self.databases.handle_time(monotonic_ns());
        let closed = self.databases.find_closed(monotonic_ns());
        if !closed.is_empty() && self.drain() == Drained::All {
            closed.iter().for_each(|one| self.table.record_change(one.slot));
            self.databases.end_closed(&closed, self.table.clock());
        }
        self.table.set_strict_sql(self.databases.functions_may_write(), None);
    }

    /// Can it vouch for nothing any longer, because its witness no longer sees everything?
    pub fn is_blind(&self) -> bool {
        self.witness.is_blind()
    }

    /// Ends the lease at once: nobody vouches any longer.
    pub fn end_lease(&mut self) {
        self.table.renew_lease(0);
    }

    /// What the kernel says of the server's paths from now on, for all questions that have come by
    /// now.
    pub fn resolver(&self) -> Resolver {
        Resolver::new(self.witness.coverage().clone())
    }

    /// Judges one fill. Takes some 50 µs plus the hashing of the file. `resolver` was made after
    /// the request had come.
    pub fn judge(&mut self, request: &FillRequest<'_>, resolver: &mut Resolver) -> FillVerdict {
        let verdict = self.try_judge(request, resolver).unwrap_or_else(Verdict::Refused);
        match &verdict {
            Verdict::Stored { .. } => self.counters.stored += 1,
            Verdict::Outdated(reason) | Verdict::Refused(reason) => {
                self.counters.refused[reason.index()] += 1;
                tracing::debug!(
                    target = %String::from_utf8_lossy(request.target),
                    reason = reason.label(),
                    "fill refused"
                );
            }
        }
        FillVerdict { id: request.id, verdict }
    }

    /// Judges one entry again. `resolver` was made after the request had come.
    pub fn reinstate(
        &mut self,
        request: &ReinstateRequest,
        resolver: &mut Resolver,
    ) -> ReinstateVerdict {
        let outcome = self.try_reinstate(request, resolver);
        match outcome {
            Reinstatement::Stays => self.counters.reinstated += 1,
            Reinstatement::Again => {}
            Reinstatement::Gone => self.counters.gone += 1,
        }
        ReinstateVerdict { id: request.id, stamp: request.stamp, outcome }
    }

    /// What was decided so far.
    pub fn counters(&self) -> &RegistrarCounters {
        &self.counters
    }

    fn drain(&mut self) -> Drained {
        let definitions = self.table.definitions_told();
        let (history, retained, events) =
            (&mut self.history, &mut self.retained, &mut self.counters.events);
        let (table, databases, attribution) =
            (&self.table, &mut self.databases, &mut self.attribution);
        let (sessions, data, openings) = (&mut self.sessions, &self.data, &mut self.openings);
        let pace = &self.pace;
        let (offspring, older, folders) = (&mut self.offspring, &mut self.older, &mut self.folders);
        let (hiding, listeners) = (&mut self.hiding, &mut self.listeners);
        let (members, sees_rings) = (self.members.as_ref(), self.witness.sees_rings());
        let drained = self.witness.drain(&mut |mut event| {
            *events += 1;
            if let Some(older) = older {
                older.observe(&event, monotonic_ns());
            }
            offspring.mark(&mut event);
            if event.starter == 0 {
                folders.follow(&mut event);
            }
            match event.kind {
                EventKind::Sql(sql) => databases.observe(&event, sql),
                EventKind::DatabaseStarted(kind) => {
                    databases.handle_started(event.ret as u32, kind, event.time_ns, event.clock);
                }
                EventKind::DatabaseGone { crashed } => {
                    databases.handle_gone(&event);
                    if let Some(server) = crashed {
                        databases.handle_crash(server, event.clock);
                    }
                }
                EventKind::Request(request) => {
                    match request.what {
                        RequestStep::Gone => {
                            history.forget_process(event.tgid);
                            hiding.forget(&event, attribution);
                            openings.forget_process(event.tgid);
                            folders.forget_process(event.tgid);
                            if offspring.forget(event.tgid) {
                                retained.forget_reader(event.tgid);
                            } else {
                                retained.disown(event.tgid);
                            }
                        }
                        RequestStep::Started(starter) => {
                            let child = request.connection as u32;
                            retained.disown(child);
                            history.handle_started(event.tgid, child);
                            offspring.add(child, starter, event.time_ns);
                        }
                        RequestStep::Connection => {
                            for read in offspring.promote(event.tgid) {
                                retained.observe(&read, table, Ends { attribution, pace });
                            }
                        }
                        _ => {}
                    }
                    attribution.observe(&event);
                }
                EventKind::Hides { is_bystander } => {
                    let around = Surroundings { attribution, members, table, listeners };
                    hiding.add(&event, is_bystander, around, monotonic_ns());
                }
                // What is asked for by it is told.
                EventKind::Hidden
                    if sees_rings && i64::from(event.nr) == libc::SYS_io_uring_setup => {}
                _ => {
                    attribution.observe(&event);
                    if event.starter == 0 {
                        openings.observe(&event);
                    }
                    if !sessions.observe(&event) {
                        let is_put_by = event.starter != 0 && offspring.put_by(&event);
                        if !data.has(&event) && !is_put_by {
                            retained.observe(&event, table, Ends { attribution, pace });
                        }
                        history.push(event);
                    }
                }
            }
        });
        let lost = self.table.lost();
        if lost != self.attributed_since_lost {
            self.attributed_since_lost = lost;
            let takers = self.witness.takers();
            if let Some(older) = &mut self.older {
                older.handle_lost(self.table.server_netns(), takers.as_ref(), monotonic_ns());
            }
            self.attribution.clear(monotonic_ns(), takers);
            self.openings.handle_lost();
            self.retained.disown_all();
            self.history.forget_directories();
            self.sessions.forget_files();
            self.offspring.forget_folders();
            self.folders.clear();
            self.databases.handle_lost(monotonic_ns());
            self.take_untold_files();
        }
        let known = (drained == Drained::All).then_some(definitions);
        self.table.set_strict_sql(self.databases.functions_may_write(), known);
        self.see_mounts();
        if self.retained.take_renewed() {
            self.table.record_change(SourceSlot::EVERYTHING);
        }
        if self.databases.take_unseen_change() {
            self.table.record_change(SourceSlot::DATABASES);
        }
        self.corrupt |= drained == Drained::Corrupt;
        drained
    }

    fn see_mounts(&mut self) {
        // With this clock, or a later one, there may be another.
        let clock = self.table.clock();
        let mounted = self.table.stamp_of(SourceSlot::MOUNTS);
        if mounted != self.mounts_seen {
            self.retained
                .see_mounts(&mut Resolver::new(self.witness.coverage().clone()), &self.table);
            if mounted < clock {
                self.mounts_seen = mounted;
            }
        }
    }

    /// Files that the server has read, when there was no room to tell. What their paths are is not
    /// known.
    fn take_untold_files(&mut self) {
        for UntoldFile { inode, clock, changed_ns, stillness } in self.witness.take_untold_files() {
            let event = LookupEvent {
                clock,
                changed_ns,
                stillness,
                inode: Some(inode),
                mode: libc::S_IFREG as u16,
                incomplete: true,
                // When is not known: any reply may be of it.
                ..LookupEvent::blank(0)
            };
            self.retained.observe(
                &event,
                &self.table,
                Ends { attribution: &self.attribution, pace: &self.pace },
            );
        }
    }

    /// Everything that the server looked up before the call is in the history, or an error.
    #[expect(clippy::disallowed_methods, reason = "it waits for the kernel's ring")]
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

    fn try_judge(
        &mut self,
        request: &FillRequest<'_>,
        resolver: &mut Resolver,
    ) -> Result<Verdict, RefusalReason> {
        self.drain_completely()?;
        let is_complete = !self.corrupt
            && self.table.lost() == request.lost
            && request.forwarded_ns <= request.finished_ns
            && request.forwarded_ns > self.witness.blind_until_ns()
            && self.history.covers(request.forwarded_ns);
        if !is_complete {
            return Err(RefusalReason::EventsLost);
        }
        if self.history.is_hidden() || self.may_be_of_hiding(request) {
            return Err(RefusalReason::Unseen);
        }
        // Who changes a file unseen must not be believed for longer than a dynamic entry lives.
        if !self.witness.sees_everybody() && !request.may_be_dynamic {
            return Err(RefusalReason::UnwatchedFilesystem);
        }
        if !request.may_be_static || !self.witness.sees_everybody() {
            return self.judge_dynamic(request, resolver);
        }
        if self.may_be_decided(request) {
            return match request.may_be_dynamic {
                // Who may not get the file is not who may: that the file is the same says nothing.
                true => self.judge_dynamic(request, resolver).map_err(|reason| match reason {
                    RefusalReason::NotLookedUp => RefusalReason::Decided,
                    reason => reason,
                }),
                false => Err(RefusalReason::Decided),
            };
        }
        match self.judge_file(request, resolver) {
            Err(
                RefusalReason::NoMatchingFile
                | RefusalReason::NotLookedUp
                | RefusalReason::ModifiedMismatch
                | RefusalReason::EmptyBody
                | RefusalReason::TooManySources,
            ) if request.may_be_dynamic => match self.judge_dynamic(request, resolver)? {
                // It may as well be a file that has just changed.
                Verdict::Outdated(reason) => Err(reason),
                verdict => Ok(verdict),
            },
            outcome => outcome,
        }
    }

    fn may_be_decided(&mut self, request: &FillRequest<'_>) -> bool {
        let addresses = self.remotes.iter().map(|remote| remote.address()).collect();
        let databases = self.database_processes.clone();
        let mut peers = Peers::new(
            self.table.server_netns(),
            databases,
            addresses,
            &mut self.listeners,
            monotonic_ns(),
        )
        .with_members(self.members.clone(), &mut self.outsiders)
        .without(self.hiding.family());
        let (databases, remotes) = (&self.databases, &*self.remotes);
        let witness = &*self.witness;
        let seen = Seen {
            history: &self.history,
            databases,
            remotes,
            attribution: &self.attribution,
            witness,
            table: &self.table,
        };
        let is_alone = !self.files_only && self.older.is_none();
        may_be_decided(seen, request, &mut peers, is_alone)
    }

    /// What does a reply depend on that is not a file? Once it is certain that the server has only
    /// asked for what it said, a change since makes it outdated.
    fn judge_dynamic(
        &mut self,
        request: &FillRequest<'_>,
        resolver: &mut Resolver,
    ) -> Result<Verdict, RefusalReason> {
        if self.may_be_of_older(request) {
            return Err(RefusalReason::ServerOlder);
        }
        for read in self.offspring.take_readings_of(request.forwarded_ns) {
            self.retained.observe(
                &read,
                &self.table,
                Ends { attribution: &self.attribution, pace: &self.pace },
            );
        }
        if self.retained.has_overflowed() {
            return Err(RefusalReason::TooManyRetained);
        }
        if self.retained.has_unverified() {
            self.verify_retained();
        }
        self.pace.observe(request.forwarded_ns, request.finished_ns);
        let since = if Rule::Forwarded.holds() { request.stamp } else { request.asked };
        let addresses = self.remotes.iter().map(|remote| remote.address()).collect();
        let databases = self.database_processes.clone();
        let mut peers = Peers::new(
            self.table.server_netns(),
            databases,
            addresses,
            &mut self.listeners,
            monotonic_ns(),
        )
        .with_members(self.members.clone(), &mut self.outsiders)
        .without(self.hiding.family());
        let (databases, remotes) = (&self.databases, &*self.remotes);
        let at_rest = &mut self.at_rest;
        let witness = &*self.witness;
        let seen = Seen {
            history: &self.history,
            databases,
            remotes,
            attribution: &self.attribution,
            witness,
            table: &self.table,
        };
        // What somebody may have changed unseen is looked at each time.
        let earlier = request.previous.filter(|_| self.witness.sees_everybody());
        let earlier = earlier.and_then(|(number, _)| self.records.get(number));
        let mut asked = Asked::default();
        let found =
            survey_dynamic(seen, request, earlier, resolver, &mut peers, at_rest, &mut asked);
        self.databases.note_asked(&asked, request.forwarded_ns, request.finished_ns);
        let DynamicSources { looked, is_reused, reads, reads_changed } = found?;
        self.counters.reused += u64::from(is_reused);
        for &slot in &looked.sources {
            self.table.track(slot);
        }
        let ends = Ends { attribution: &self.attribution, pace: &self.pace };
        let outdated = if reads_changed {
            Some(RefusalReason::Changed)
        } else if let Some(&slot) =
            looked.sources.iter().find(|&&slot| self.table.stamp_of(slot) >= since)
        {
            tracing::debug!(slot = slot.0, "a source has changed");
            Some(RefusalReason::Changed)
        } else if self.retained.is_dirty(&self.table, ends, request.forwarded_ns, monotonic_ns()) {
            Some(RefusalReason::Dirty)
        } else {
            let has_changed = self.retained.has_changed(&self.table, since, request.finished_ns);
            has_changed.then_some(RefusalReason::Changed)
        };
        if self.table.lost() != request.lost {
            return Err(RefusalReason::EventsLost);
        }
        if let Some(reason) = outdated {
            return Ok(Verdict::Outdated(reason));
        }
        let mut sources = SourceSet::new();
        sources.insert(SourceSlot::DYNAMIC).map_err(|_| RefusalReason::TooManySources)?;
        if reads.is_some() && Rule::Databases.holds() {
            sources.insert(SourceSlot::DATABASES).map_err(|_| RefusalReason::TooManySources)?;
        }
        let mut record = Record {
            class: Class::Dynamic,
            since: request.asked,
            finished_ns: request.finished_ns,
            reads: reads.unwrap_or_default(),
            looked,
            also: Vec::new(),
        };
        if Rule::Databases.holds() {
            for slot in record.databases() {
                self.table.watch(slot);
                sources.insert(slot).map_err(|_| RefusalReason::TooManySources)?;
            }
        }
        let previous_unchanged = self.take_previous(request, &mut record, &mut sources);
        let record = self.records.push(record);
        Ok(Verdict::Stored { class: Class::Dynamic, sources, record, previous_unchanged })
    }

    /// Is nothing changed that an earlier reply to the same request depends on? Then an entry of
    /// the new one may answer whom it answered; so it depends on both (rule 24), and what the
    /// earlier one has beside the new one is added to `record` and `sources`.
    fn take_previous(
        &mut self,
        request: &FillRequest<'_>,
        record: &mut Record,
        sources: &mut SourceSet,
    ) -> bool {
        let Some((number, since)) = request.previous else { return false };
        let Some(earlier) = self.records.with_also(number) else { return false };
        let mut all = *sources;
        for (number, earlier) in earlier {
            if !self.is_unchanged(&earlier, since, record) {
                return false;
            }
            if record.covers(&earlier) {
                continue;
            }
            // What somebody may have changed unseen is looked at in the look-ups of the last reply.
            if record.also.len() == ALSO_MAX || !self.witness.sees_everybody() {
                record.also.clear();
                return false;
            }
            record.also.push(number);
            let has_read = !earlier.reads.is_empty() && Rule::Databases.holds();
            let databases = earlier.databases().chain([SourceSlot::DATABASES]);
            let more = has_read.then_some(databases);
            let files = (record.class == Class::Static).then_some(&earlier.looked.sources);
            let files = files.into_iter().flatten().copied();
            if more.into_iter().flatten().chain(files).any(|slot| all.insert(slot).is_err()) {
                record.also.clear();
                return false;
            }
        }
        *sources = all;
        true
    }

    fn is_unchanged(&mut self, earlier: &Record, since: Stamp, now: &Record) -> bool {
        let is_dynamic = earlier.class == Class::Dynamic;
        earlier.class == now.class
            && (self.witness.sees_everybody()
                || earlier.looked.change_times == now.looked.change_times)
            && earlier.looked.sources.iter().all(|&slot| self.table.stamp_of(slot) < since)
            && !(is_dynamic && self.retained.has_changed(&self.table, since, earlier.finished_ns))
            && !self.databases.has_changed(&earlier.reads, since)
            && !self.remotes.iter().any(|remote| remote.has_changed(&earlier.reads, since))
    }
}
