//! A database on another machine, as its relay tells of it.
//!
//! Read first: `nicache_relay` (`subscriber.rs` and `validity.rs` have the proofs),
//! `statements/databases/` (what is made of the statements).
//!
//! Two threads share a [`RemoteDatabase`]. One follows the relay: each event stamps the database's
//! slot, unless it is certain to be a question, and is understood, before it is acknowledged. The
//! other, the watcher's own, judges fills and sets the lease of the revision table; only that one
//! gets into step, so between the first bounded lease and the first stored page nothing can come.
//!
//! Why a reply is never kept without what it read: the relay gives a client no reply before the
//! question has been acknowledged here; so the question was noted between the forwarding of the
//! page's request and the end of its reply. Which client asked is not known, so a page that talked
//! to the database counts as having read all that anybody read meanwhile.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddrV4;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicache_clock::{boottime_ns, monotonic_ns};
use nicache_coherence::{RefusalReason, RevisionTable, SourceSlot, Stamp};
use nicache_relay::{Event, Follower, Step, Validity};
use nicache_sql::Dialect;

use crate::databases::database::Database;
use crate::databases::kinds;
use crate::statements::databases::Databases;
use crate::statements::journal::{DatabaseRead, Server};
use crate::witnesses::event::{LookupEvent, SqlEvent, SqlStep};

/// A question about the structure that is not answered for so long is asked again.
const PATIENCE: Duration = Duration::from_secs(20);

/// What has happened on the way from a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounters {
    /// Events that have taken effect.
    pub events: u64,
    /// Of these, statements that may change something.
    pub changes: u64,
    /// Times that everything that rests on the database was voided as the relay could not vouch for
    /// it any longer.
    pub voided: u64,
    /// 1 while pages that ask the database may be kept.
    pub in_step: u64,
}

/// A database on another machine, as its relay tells of it. One thread follows the relay, another
/// judges fills by it.
#[derive(Debug)]
pub struct RemoteDatabase {
    address: SocketAddrV4,
    kind: &'static dyn Database,
    server: Server,
    table: Arc<RevisionTable>,
    state: Mutex<State>,
    questions: Arc<Questions>,
}

#[derive(Debug)]
struct State {
    databases: Databases,
    validity: Validity,
    counters: RemoteCounters,
}

impl RemoteDatabase {
    /// The database that the server reaches at `address`. `index` is another for each.
    pub fn new(
        address: SocketAddrV4,
        dialect: Dialect,
        index: u32,
        table: Arc<RevisionTable>,
    ) -> Self {
        // No process has a number that high.
        let server = u32::MAX - index;
        let kind = kinds::by_dialect(dialect);
        let questions = Arc::new(Questions::default());
        let source = Arc::clone(&questions);
        let databases = Databases::elsewhere(server, kind, Arc::new(move |name| source.ask(name)));
        let state =
            State { databases, validity: Validity::default(), counters: RemoteCounters::default() };
        Self { address, kind, server, table, state: Mutex::new(state), questions }
    }

    /// Where the server finds it.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// What has happened.
    pub fn counters(&self) -> RemoteCounters {
        let state = self.lock();
        RemoteCounters { in_step: state.validity.is_in_step().into(), ..state.counters }
    }

    /// Falls out of step if the relay's word is nearly over by the clock of leases. True: the
    /// table's lease may be set anew.
    pub(crate) fn handle_time(&self, now_ns: u64) -> bool {
        let mut state = self.lock();
        state.databases.handle_time(monotonic_ns());
        if state.validity.must_void(now_ns) {
            tracing::warn!(database = %self.address, "the relay is silent: pages that asked its database are void");
            self.fall_out(&mut state);
            return true;
        }
        let mut later = state.validity;
        later.bound_lease(u64::MAX, now_ns);
        later.is_in_step() != state.validity.is_in_step()
    }

    /// How long the table's lease may be, see [`Validity::bound_lease`].
    pub(crate) fn bound_lease(&self, lease_until_ns: u64, now_ns: u64) -> u64 {
        let mut state = self.lock();
        let was_in_step = state.validity.is_in_step();
        let bound = state.validity.bound_lease(lease_until_ns, now_ns);
        if state.validity.is_in_step() && !was_in_step {
            tracing::info!(database = %self.address, "pages that ask the database may be kept");
            state.databases.begin_memory(monotonic_ns(), self.table.clock());
        }
        bound
    }

    /// What a page may have read that talked to the database between the two moments.
    ///
    /// # Errors
    /// Why the page may not be kept.
    pub(crate) fn reads(
        &self,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<Vec<DatabaseRead>, RefusalReason> {
        let state = self.lock();
        if !state.validity.is_in_step() {
            return Err(RefusalReason::UnwatchedPeer);
        }
        let reads = state.databases.reads(from_ns, to_ns, |_, _| true)?;
        if !state.databases.has_received(from_ns, to_ns) {
            tracing::warn!(
                database = %self.address,
                "the server has talked to the database, and the relay knows nothing of it: does the server go past it?"
            );
            return Err(RefusalReason::UnwatchedPeer);
        }
        if state.databases.has_written(from_ns, to_ns, |_, _| true) {
            Err(RefusalReason::Wrote)
        } else {
            Ok(reads)
        }
    }

    /// May anything of it have changed since the clock was `since`?
    pub(crate) fn has_changed(&self, reads: &[DatabaseRead], since: Stamp) -> bool {
        if !reads.iter().any(|read| read.server == self.server) {
            return false;
        }
        let state = self.lock();
        !state.validity.is_in_step() || state.databases.has_changed(reads, since)
    }

    /// What its changes stamp.
    fn slot(&self) -> SourceSlot {
        SourceSlot::of_database(self.server)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that rests on the database is void when this returns.
    fn fall_out(&self, state: &mut State) {
        if state.validity.is_in_step() {
            state.counters.voided += 1;
            self.table.record_change(self.slot());
        }
        state.validity.fall_out();
    }

    fn observe(&self, state: &mut State, connection: u64, what: SqlStep, bytes: &[u8]) {
        let is_over = matches!(what, SqlStep::Idle | SqlStep::Closed);
        let is_change = match what {
            SqlStep::Received { certain, .. } => !certain,
            _ => is_over && state.databases.is_in_doubt(connection),
        };
        if is_change {
            self.table.record_change(self.slot());
            state.counters.changes += u64::from(!is_over);
        }
        let sql = SqlEvent { connection, kind: self.kind, what, first: 0 };
        state
            .databases
            .observe(&LookupEvent::elsewhere(monotonic_ns(), self.table.clock(), sql, bytes), sql);
        if state.databases.take_unseen_change() {
            self.table.record_change(self.slot());
        }
    }
}

impl Follower for RemoteDatabase {
    fn void(&self, reason: &str) {
        let mut state = self.lock();
        if state.validity.is_in_step() {
            tracing::warn!(database = %self.address, "pages that asked the database are void: {reason}");
        }
        self.fall_out(&mut state);
        drop(state);
        self.questions.give_up();
    }

    fn begin(&self, resumed: bool, busy: &[u64]) {
        let mut state = self.lock();
        self.fall_out(&mut state);
        if resumed {
            return;
        }
        let (now, clock) = (monotonic_ns(), self.table.clock());
        state.databases.begin_anew(now, clock);
        for &connection in busy {
            let what =
                SqlStep::Received { client: 0, by_network: None, certain: false, ahead: false };
            let sql = SqlEvent { connection, kind: self.kind, what, first: 0 };
            state.databases.hold(&LookupEvent::elsewhere(now, clock, sql, &[]), sql);
        }
    }

    fn take(&self, event: Event) {
        let mut state = self.lock();
        state.counters.events += 1;
        let connection = event.connection;
        match event.step {
            Step::Opened => state.databases.handle_opened(connection),
            Step::Received { bytes, certain, ahead } => {
                self.observe(
                    &mut state,
                    connection,
                    SqlStep::Received { client: 0, by_network: None, certain, ahead },
                    &bytes,
                );
            }
            Step::Sent { bytes, over } => {
                self.observe(&mut state, connection, SqlStep::Sent, &bytes);
                if over {
                    self.observe(&mut state, connection, SqlStep::Idle, &[]);
                }
            }
            Step::Idle => self.observe(&mut state, connection, SqlStep::Idle, &[]),
            Step::Closed => self.observe(&mut state, connection, SqlStep::Closed, &[]),
        }
    }

    fn extend(&self, until_ns: u64) {
        let mut state = self.lock();
        // The watcher itself may have stood still.
        if state.validity.must_void(boottime_ns()) {
            self.fall_out(&mut state);
        }
        state.validity.extend(Some(until_ns));
    }

    fn is_plain(&self) -> bool {
        !self.lock().databases.select_may_write()
    }

    fn question(&self) -> Option<(u64, Option<String>)> {
        self.questions.lock().asked.pop_front()
    }

    fn answer(&self, ask: u64, answer: Result<Vec<u8>, String>) {
        if let Some(waiting) = self.questions.lock().waiting.remove(&ask) {
            // Fails only if nobody waits any longer.
            let _ = waiting.send(answer);
        }
    }
}

/// Questions about the structure, on their way.
#[derive(Debug, Default)]
struct Questions {
    state: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    next: u64,
    asked: VecDeque<(u64, Option<String>)>,
    waiting: HashMap<u64, Sender<Result<Vec<u8>, String>>>,
}

impl Questions {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, database: Option<&str>) -> io::Result<String> {
        let (sender, answer) = channel();
        let ask = {
            let mut state = self.lock();
            state.next += 1;
            let ask = state.next;
            state.asked.push_back((ask, database.map(str::to_owned)));
            state.waiting.insert(ask, sender);
            ask
        };
        let answer = answer.recv_timeout(PATIENCE);
        let mut state = self.lock();
        state.waiting.remove(&ask);
        state.asked.retain(|(other, _)| *other != ask);
        drop(state);
        let bytes = answer
            .map_err(|_| io::Error::other("the relay does not answer"))?
            .map_err(io::Error::other)?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    /// Whoever was asked is gone.
    fn give_up(&self) {
        let mut state = self.lock();
        state.asked.clear();
        state.waiting.clear();
    }
}
