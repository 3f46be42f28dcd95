//! The structure of the databases that are watched: fetched by the servers' own command-line
//! clients, in the background, and again after each change of it.
//!
//! Read first: `nicache_sql::Catalogue`. Until a catalogue is there, and where none can be had (no
//! client program, no permission), a statement touches all that is in reach, and something inside
//! the server may change tables: nothing is wrong then, but no page that reads it is kept.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicache_clock::monotonic_ns;
use nicache_sql::{Catalogue, ChangedTables, Defaults};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::databases::database::{Database, Place};

/// After a change of the structure, so long is waited for further ones.
const SETTLING_NS: u64 = 100_000_000;
/// A change of known tables costs no more than their columns until the structure is asked for
/// again. So it is asked at most this often, however often programs make and drop tables.
const SETTLING_TABLES_NS: u64 = 1_000_000_000;
/// Changes of known tables that are remembered while the structure is asked for.
const CHANGED_MAX: usize = 1024;
/// After a failure. A server that has never answered may still be starting, on a slow machine for
/// minutes: it is asked again after a hundredth of the time for which it has been asked, within
/// these bounds.
const AGAIN_NS: u64 = 10_000_000_000;
const STARTING_NS: u64 = 200_000_000;
const STARTING_SHARE: u64 = 100;
/// The log says so when there has been no answer for this long.
const STARTING_MAX_NS: u64 = 30_000_000_000;
/// Databases whose structure is followed.
const CATALOGUES_MAX: usize = 256;
/// Processes remembered that were started to ask.
const CLIENTS_MAX: usize = 64;
/// A client that says nothing for so long is ended.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct State {
    catalogue: Option<Arc<Catalogue>>,
    /// The server's settings as last known; they outlive a change of tables.
    defaults: Option<Defaults>,
    /// Whether something inside the server changes tables, as last known.
    has_hidden_writers: Option<bool>,
    /// There was an answer once.
    answered: bool,
    /// Counts changes of the structure: an answer to an older question is none.
    generation: u64,
    /// Counts changes of what changes tables by itself.
    writers: u64,
    /// Tables that were being changed when it was asked for, or have been since: the answer may not
    /// know of it.
    changed: Vec<Arc<ChangedTables>>,
    /// When to ask, and when it was asked last.
    ask_at_ns: Option<u64>,
    last_ns: u64,
    /// The last question has failed: the next one waits until then, whatever is changed meanwhile.
    not_before_ns: u64,
    /// An answer is on its way; one at a time, because a busy server takes longer than the next
    /// change.
    asked: bool,
    /// Since when there has been no answer.
    silent_since_ns: Option<u64>,
    /// It has been said that there is none.
    warned: bool,
}

struct Answer {
    place: Place,
    generation: u64,
    writers: u64,
    outcome: io::Result<Catalogue>,
}

/// Processes that were started to ask, and when they had ended.
#[derive(Default)]
struct Clients(Mutex<HashMap<u32, Option<u64>>>);

impl State {
    /// Asks when what is being changed has settled.
    fn ask_soon(&mut self, now_ns: u64) {
        self.ask_at(now_ns + SETTLING_NS);
    }

    /// The same, for known tables.
    fn ask_for_tables(&mut self, now_ns: u64) {
        self.ask_at((now_ns + SETTLING_NS).max(self.last_ns + SETTLING_TABLES_NS));
    }

    fn ask_at(&mut self, time_ns: u64) {
        let soon = time_ns.max(self.not_before_ns);
        self.ask_at_ns = Some(self.ask_at_ns.map_or(soon, |at| at.min(soon)));
    }

    /// Whether something changes tables by itself. Is there now, and was not known to be?
    fn note_hidden_writers(&mut self, catalogue: &Catalogue) -> bool {
        let has_writers = catalogue.has_hidden_writers();
        let is_new = has_writers && self.has_hidden_writers != Some(true);
        if is_new {
            tracing::warn!(
                "a database changes tables by itself (events, replication, a cluster, a background worker): pages that read it are not kept"
            );
        }
        self.has_hidden_writers = Some(has_writers);
        is_new
    }

    /// What is known is that of before a change.
    fn handle_change(&mut self, now_ns: u64) {
        self.catalogue = None;
        self.changed.clear();
        self.generation += 1;
        // What was going to be asked before would be of the change before this one.
        self.ask_at_ns = None;
        self.ask_soon(now_ns);
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Option<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, process: u32) {
        let mut clients = self.lock();
        if clients.len() >= CLIENTS_MAX {
            let ended = clients.iter().filter_map(|(process, ended)| Some(((*ended)?, *process)));
            match ended.min() {
                Some((_, first)) => drop(clients.remove(&first)),
                None => clients.clear(),
            }
        }
        clients.insert(process, None);
    }

    fn end(&self, process: u32, now_ns: u64) {
        self.lock().entry(process).and_modify(|ended| *ended = Some(now_ns));
    }

    /// Was it one of them then? Its number may be another's by now.
    fn had(&self, process: u32, time_ns: u64) -> bool {
        let ended = self.lock().get(&process).copied();
        ended.is_some_and(|ended| ended.is_none_or(|ended| time_ns <= ended))
    }
}

/// Asks a database on another machine for its structure, by name (PostgreSQL); may take seconds.
pub(crate) type Source = Arc<dyn Fn(Option<&str>) -> io::Result<String> + Send + Sync>;

/// The structure of the databases that are watched: fetched by the servers' own command-line
/// clients, in the background, and again after each change of it.
pub(crate) struct Catalogues {
    /// Where to ask, if not the servers on this machine.
    source: Option<Source>,
    states: HashMap<Place, State>,
    answers: Receiver<Answer>,
    sender: Sender<Answer>,
    clients: Arc<Clients>,
    got_hidden_writers: bool,
    /// Connections that change tables, and which.
    changing: Vec<(u64, Arc<ChangedTables>)>,
}

impl Catalogues {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        let (sender, answers) = channel();
        Self {
            source: None,
            states: HashMap::new(),
            answers,
            sender,
            clients: Arc::default(),
            got_hidden_writers: false,
            changing: Vec::new(),
        }
    }

    /// Nothing is known yet of a database on another machine.
    pub(crate) fn elsewhere(source: Source) -> Self {
        Self { source: Some(source), ..Self::new() }
    }

    /// The structure of a place, if it is known; else it will be asked for.
    pub(crate) fn get(&mut self, place: &Place, now_ns: u64) -> Option<Arc<Catalogue>> {
        if !self.states.contains_key(place) {
            if self.states.len() >= CATALOGUES_MAX {
                return None;
            }
            self.states
                .insert(place.clone(), State { ask_at_ns: Some(now_ns), ..State::default() });
        }
        self.states.get(place).and_then(|state| state.catalogue.clone())
    }

    /// May a SELECT on this server change something? Yes, unless all that was asked about is known
    /// and has neither functions nor sequences.
    pub(crate) fn select_may_write(&self, server: u32) -> bool {
        self.may(server, Catalogue::select_may_write)
    }

    /// May a SELECT on this server change something if it names no sequence's function? Yes, unless
    /// all that was asked about is known and has no functions that may write.
    pub(crate) fn functions_may_write(&self, server: u32) -> bool {
        self.may(server, Catalogue::functions_may_write)
    }

    fn may(&self, server: u32, write: impl Fn(&Catalogue) -> bool) -> bool {
        let mut known = self.states.iter().filter(|(place, _)| place.server == server).peekable();
        known.peek().is_none()
            || known.any(|(_, state)| state.catalogue.as_deref().is_none_or(&write))
    }

    /// May something inside the server change tables without a statement: events, a replica's
    /// applier? Yes, unless it is known that nothing does.
    pub(crate) fn may_have_hidden_writers(&self, server: u32) -> bool {
        let mut known = self.states.iter().filter(|(place, _)| place.server == server).peekable();
        known.peek().is_none() || known.any(|(_, state)| state.has_hidden_writers != Some(false))
    }

    /// Has a server got such since the last call?
    pub(crate) fn take_hidden_writers(&mut self) -> bool {
        std::mem::take(&mut self.got_hidden_writers)
    }

    /// The settings that sessions begin with, as last known.
    pub(crate) fn defaults(&mut self, place: &Place, now_ns: u64) -> Option<Defaults> {
        self.get(place, now_ns);
        self.states.get(place).and_then(|state| state.defaults)
    }

    /// Was it at that time (CLOCK_MONOTONIC) one of the clients that were started here to ask?
    pub(crate) fn is_own_client(&self, process: u32, time_ns: u64) -> bool {
        process != 0 && self.clients.had(process, time_ns)
    }

    /// As if one had been started here, which had ended by `ended_ns`.
    #[cfg(test)]
    pub(crate) fn add_ended_client(&self, process: u32, ended_ns: u64) {
        self.clients.add(process);
        self.clients.end(process, ended_ns);
    }

    /// Is it a client that another nicache has started to ask? Two of them would have each other
    /// ask again and again.
    pub(crate) fn is_others_client(process: u32, kind: &dyn Database) -> bool {
        let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        arguments
            .split(|&byte| byte == 0)
            .any(|argument| argument == kind.structure_query().as_bytes())
    }

    /// The structure of something on this server is about to change, or has; with `settings`, maybe
    /// also what sessions begin with, and with `writers` what changes tables by itself.
    pub(crate) fn handle_change(
        &mut self,
        server: u32,
        settings: bool,
        writers: bool,
        now_ns: u64,
    ) {
        for (_, state) in self.states.iter_mut().filter(|(place, _)| place.server == server) {
            if settings {
                state.defaults = None;
            }
            if settings || writers {
                state.has_hidden_writers = None;
                state.writers += 1;
            }
            state.handle_change(now_ns);
        }
    }

    /// The structure of the database at this place is about to change, or has, and that of no
    /// other.
    pub(crate) fn handle_change_at(&mut self, place: &Place, now_ns: u64) {
        if let Some(state) = self.states.get_mut(place) {
            state.handle_change(now_ns);
        }
    }

    /// Tables of this server are about to be changed by a connection, and nothing else of its
    /// structure is. False: too many are, and the end of this one is to be told as that of any
    /// change.
    pub(crate) fn handle_tables(
        &mut self,
        server: u32,
        connection: u64,
        changed: &Arc<ChangedTables>,
        now_ns: u64,
    ) -> bool {
        if self.changing.len() >= CHANGED_MAX {
            self.handle_change(server, false, false, now_ns);
            return false;
        }
        self.changing.push((connection, Arc::clone(changed)));
        for (_, state) in self.states.iter_mut().filter(|(place, _)| place.server == server) {
            if state.changed.len() >= CHANGED_MAX {
                state.handle_change(now_ns);
                continue;
            }
            state.changed.push(Arc::clone(changed));
            if let Some(catalogue) = &mut state.catalogue {
                Arc::make_mut(catalogue).change(changed);
            }
            state.ask_for_tables(now_ns);
        }
        true
    }

    /// Connections may have been forgotten without a word. What those were changing is not known
    /// to be over.
    pub(crate) fn forget_changing(&mut self, is_there: impl Fn(u64) -> bool, now_ns: u64) {
        let before = self.changing.len();
        self.changing.retain(|(connection, _)| is_there(*connection));
        if self.changing.len() < before {
            self.states.values_mut().for_each(|state| state.handle_change(now_ns));
        }
    }

    /// The tables that the connection was going to change are changed.
    pub(crate) fn end_tables(&mut self, server: u32, connection: u64, now_ns: u64) {
        self.changing.retain(|(of, _)| *of != connection);
        for (_, state) in self.states.iter_mut().filter(|(place, _)| place.server == server) {
            state.ask_for_tables(now_ns);
        }
    }

    /// The structure of something on this server may have changed, but probably has not: asks again
    /// soon.
    pub(crate) fn refresh(&mut self, server: u32, now_ns: u64) {
        for (_, state) in self.states.iter_mut().filter(|(place, _)| place.server == server) {
            state.ask_soon(now_ns);
        }
    }

    /// A server has ended.
    pub(crate) fn forget(&mut self, server: u32) {
        self.states.retain(|place, _| place.server != server);
    }

    /// Takes answers, and asks where it is time to. `is_used`: does any connection use the place?
    pub(crate) fn handle_time(&mut self, now_ns: u64, is_used: impl Fn(&Place) -> bool) {
        self.take_answers(now_ns, is_used);
        self.ask(now_ns);
    }

    fn take_answers(&mut self, now_ns: u64, is_used: impl Fn(&Place) -> bool) {
        while let Ok(answer) = self.answers.try_recv() {
            let Some(state) = self.states.get_mut(&answer.place) else { continue };
            state.asked = false;
            match answer.outcome {
                // A database that does not exist, or no longer. What is kept of it depends on the
                // statement that dropped it; who connects to it has it asked about again.
                Err(_) if answer.place.database.is_some() && !is_used(&answer.place) => {
                    self.states.remove(&answer.place);
                }
                // Of another structure; but no statement has made or ended what changes tables by
                // itself.
                Ok(catalogue) if state.generation != answer.generation => {
                    if state.writers == answer.writers {
                        self.got_hidden_writers |= state.note_hidden_writers(&catalogue);
                    }
                }
                Ok(mut catalogue) => {
                    tracing::debug!(place = ?answer.place, "the structure of a database is known");
                    state.defaults = Some(catalogue.defaults());
                    self.got_hidden_writers |= state.note_hidden_writers(&catalogue);
                    state.answered = true;
                    state.silent_since_ns = None;
                    if std::mem::take(&mut state.warned) {
                        tracing::info!("the structure of a database can be read now");
                    }
                    for changed in &state.changed {
                        catalogue.change(changed);
                    }
                    state.catalogue = Some(Arc::new(catalogue));
                }
                Err(error) => {
                    let silent_ns =
                        now_ns.saturating_sub(*state.silent_since_ns.get_or_insert(now_ns));
                    let again_ns = if state.answered {
                        AGAIN_NS
                    } else {
                        (silent_ns / STARTING_SHARE).clamp(STARTING_NS, AGAIN_NS)
                    };
                    state.not_before_ns = now_ns + again_ns;
                    state.ask_at_ns = Some(state.not_before_ns);
                    tracing::debug!("the structure of a database cannot be read yet: {error}");
                    let is_told = !state.answered && silent_ns < STARTING_MAX_NS;
                    if !is_told && !std::mem::replace(&mut state.warned, true) {
                        tracing::warn!(
                            "the structure of a database cannot be read, so no page that reads it is kept: {error}"
                        );
                    }
                }
            }
        }
    }

    fn ask(&mut self, now_ns: u64) {
        for (place, state) in &mut self.states {
            if !state.asked && state.ask_at_ns.is_some_and(|at| now_ns >= at) {
                state.ask_at_ns = None;
                state.last_ns = now_ns;
                state.asked = true;
                state.changed =
                    self.changing.iter().map(|(_, changed)| Arc::clone(changed)).collect();
                let (place, sender) = (place.clone(), self.sender.clone());
                let (generation, writers) = (state.generation, state.writers);
                let (clients, source) = (Arc::clone(&self.clients), self.source.clone());
                let fetch = move || {
                    let outcome = match source {
                        Some(source) => fetch_elsewhere(&place, &source),
                        None => fetch(&place, &clients),
                    };
                    // Fails only if nobody wants to know any longer.
                    let _ = sender.send(Answer { place, generation, writers, outcome });
                };
                if std::thread::Builder::new().name("catalogue".into()).spawn(fetch).is_err() {
                    state.asked = false;
                    state.ask_at_ns = Some(now_ns + AGAIN_NS);
                }
            }
        }
    }
}

impl std::fmt::Debug for Catalogues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalogues").field("states", &self.states).finish_non_exhaustive()
    }
}

fn fetch_elsewhere(place: &Place, source: &Source) -> io::Result<Catalogue> {
    let text = source(place.database.as_deref())?;
    place.kind.read_structure(&text).map_err(io::Error::other)
}

fn fetch(place: &Place, clients: &Clients) -> io::Result<Catalogue> {
    let text = run(place.kind.structure_client(place)?, clients)?;
    place.kind.read_structure(&text).map_err(io::Error::other)
}

fn run(mut command: Command, clients: &Clients) -> io::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only one system call is made, and no memory is allocated.
    unsafe {
        command
            .pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let mut child =
        command.spawn().map_err(|error| io::Error::other(format!("{program}: {error}")))?;
    clients.add(child.id());
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (done, waiting) = channel::<()>();
    let pid = rustix::process::Pid::from_child(&child);
    let guard = std::thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    });
    let read = |from: &mut dyn io::Read| {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text)
    };
    let text = out.as_mut().map_or(Ok(String::new()), |out| read(out))?;
    let complaint = err.as_mut().map_or(Ok(String::new()), |err| read(err)).unwrap_or_default();
    drop(done);
    let _ = guard.join();
    // Its number is another's only after it was waited for.
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), how))?;
    clients.end(child.id(), monotonic_ns());
    let status = child.wait()?;
    if status.success() {
        Ok(text)
    } else {
        Err(io::Error::other(format!("{program}: {}", complaint.trim())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use nicache_sql::{Context, Dialect, TableChange, Target, expand};

    use super::*;
    use crate::databases::kinds::mysql::MySql;
    use crate::databases::kinds::postgres::Postgres;

    #[test]
    fn who_gets_the_number_of_a_client_is_not_one() {
        let catalogues = Catalogues::new();
        let clients = Arc::clone(&catalogues.clients);
        clients.add(5);
        assert!(catalogues.is_own_client(5, 150));
        clients.end(5, 100);
        assert_eq!([50, 150].map(|time_ns| catalogues.is_own_client(5, time_ns)), [true, false]);
        clients.add(5);
        assert!(catalogues.is_own_client(5, 150), "another one");
        for other in 6..6 + CLIENTS_MAX as u32 {
            clients.add(other);
            clients.end(other, u64::from(other));
        }
        assert!(catalogues.is_own_client(5, 150), "those that have ended go first");
        assert_eq!(clients.lock().len(), CLIENTS_MAX);
    }

    #[test]
    fn the_end_of_a_client_is_known_before_its_number_is_free() {
        let clients = Clients::default();
        let before = monotonic_ns();
        run(Command::new("true"), &clients).unwrap();
        run(Command::new("false"), &clients).unwrap_err();
        let ended: Vec<u64> = clients.lock().values().map(|ended| ended.unwrap()).collect();
        assert!(ended.len() == 2 && ended.iter().all(|at| (before..monotonic_ns()).contains(at)));
    }

    /// When a server that never answers was asked in five minutes, when that was warned of first,
    /// and how often it was asked by its own count. `change` is what happens meanwhile.
    fn ask_in_vain(change: impl Fn(&mut Catalogues, u64)) -> (Vec<u64>, Option<u64>, u32) {
        const STEP_NS: u64 = 100_000_000;
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let mut catalogues = Catalogues::elsewhere(Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Err(io::Error::other("it starts"))
        }));
        let place = Place { server: 1, kind: &Postgres, database: None };
        let (mut asked_at, mut warned_at) = (Vec::new(), None);
        for step in 1..=3000 {
            let now_ns = step * STEP_NS;
            change(&mut catalogues, now_ns);
            assert!(catalogues.get(&place, now_ns).is_none());
            catalogues.handle_time(now_ns, |_| true);
            while catalogues.states[&place].asked {
                std::thread::yield_now();
                let before = catalogues.states[&place].asked;
                catalogues.take_answers(now_ns, |_| true);
                if before && !catalogues.states[&place].asked {
                    asked_at.push(now_ns);
                }
            }
            if catalogues.states[&place].warned {
                warned_at.get_or_insert(now_ns);
            }
        }
        (asked_at, warned_at, asked.load(Ordering::Relaxed))
    }

    /// Does the structure at hand say that an INSERT into `app.late` changes that table alone?
    fn knows_late(catalogues: &mut Catalogues, place: &Place) -> Option<bool> {
        let catalogue = catalogues.get(place, 0)?;
        let insert = nicache_sql::parse(Dialect::MySql, b"INSERT INTO app.late VALUES (1)");
        let found = expand(&insert[0], Dialect::MySql, &Context::default(), &[], Some(&catalogue));
        Some(found.everything.is_none())
    }

    /// As [`Catalogues::handle_time`] when it is time to ask, until the answer is there if there is
    /// to be one.
    fn ask_and_wait(catalogues: &mut Catalogues, place: &Place) {
        catalogues.ask(catalogues.states[place].ask_at_ns.unwrap());
        while catalogues.states[place].asked {
            std::thread::yield_now();
            catalogues.take_answers(0, |_| true);
        }
    }

    #[test]
    fn an_answer_that_does_not_know_of_a_change_is_completed() {
        let none = "setting\tautocommit\t31\nend\n";
        let mut catalogues = Catalogues::elsewhere(Arc::new(move |_| Ok(none.to_owned())));
        let place = Place { server: 1, kind: &MySql, database: None };
        assert_eq!(knows_late(&mut catalogues, &place), None);
        ask_and_wait(&mut catalogues, &place);
        assert_eq!(knows_late(&mut catalogues, &place), Some(false));
        let changed = Arc::new(ChangedTables {
            change: TableChange::Made,
            tables: vec![Target::table("app", "late")],
        });
        // Known at once, and asked for again later.
        catalogues.handle_tables(1, 7, &changed, 0);
        assert_eq!(knows_late(&mut catalogues, &place), Some(true));
        assert_eq!(catalogues.states[&place].ask_at_ns, Some(SETTLING_TABLES_NS));
        // The question was asked before the table was there.
        ask_and_wait(&mut catalogues, &place);
        assert_eq!(knows_late(&mut catalogues, &place), Some(true));
        catalogues.end_tables(1, 7, 0);
        assert!(catalogues.states[&place].ask_at_ns.is_some(), "now it may be known there");
        ask_and_wait(&mut catalogues, &place);
        assert_eq!(knows_late(&mut catalogues, &place), Some(false), "it is known to be gone");
        // Of a change that begins and ends while the answer is on its way.
        catalogues.states.get_mut(&place).unwrap().ask_soon(0);
        catalogues.ask(SETTLING_NS);
        catalogues.handle_tables(1, 7, &changed, 0);
        catalogues.end_tables(1, 7, 0);
        while catalogues.states[&place].asked {
            catalogues.take_answers(0, |_| true);
        }
        assert_eq!(knows_late(&mut catalogues, &place), Some(true));
    }

    #[test]
    fn a_connection_that_was_forgotten_changes_nothing_for_ever() {
        let mut catalogues = Catalogues::elsewhere(Arc::new(|_| Ok("end\n".to_owned())));
        let place = Place { server: 1, kind: &MySql, database: None };
        catalogues.get(&place, 0);
        ask_and_wait(&mut catalogues, &place);
        let tables = vec![Target::table("app", "late")];
        let changed = Arc::new(ChangedTables { change: TableChange::Made, tables });
        for connection in 0..CHANGED_MAX as u64 - 1 {
            assert!(catalogues.handle_tables(2, connection, &changed, 0));
        }
        assert!(catalogues.handle_tables(1, 1 << 20, &changed, 0));
        assert!(catalogues.get(&place, 0).is_some());
        assert!(!catalogues.handle_tables(1, 1 << 21, &changed, 0));
        assert!(catalogues.get(&place, 0).is_none() && catalogues.changing.len() == CHANGED_MAX);
        ask_and_wait(&mut catalogues, &place);
        catalogues.forget_changing(|_| true, 0);
        assert!(catalogues.get(&place, 0).is_some());
        catalogues.forget_changing(|_| false, 0);
        assert!(catalogues.get(&place, 0).is_none() && catalogues.changing.is_empty());
    }

    /// Where the structure changes faster than it can be asked for.
    #[test]
    fn an_answer_that_is_late_says_whether_tables_change_by_themselves() {
        let mut catalogues = Catalogues::elsewhere(Arc::new(|_| Ok("end\n".to_owned())));
        let place = Place { server: 1, kind: &Postgres, database: Some("busy".into()) };
        catalogues.get(&place, 0);
        let answered = |catalogues: &mut Catalogues, change: fn(&mut Catalogues, &Place)| {
            catalogues.ask(catalogues.states[&place].ask_at_ns.unwrap());
            change(catalogues, &place);
            while catalogues.states[&place].asked {
                catalogues.take_answers(0, |_| true);
            }
            (catalogues.get(&place, 0).is_some(), catalogues.may_have_hidden_writers(1))
        };
        assert_eq!(
            answered(&mut catalogues, |known, _| known.handle_change(1, false, true, 0)),
            (false, true),
            "it may have made one"
        );
        assert_eq!(
            answered(&mut catalogues, |known, place| known.handle_change_at(place, 0)),
            (false, false)
        );
    }

    #[test]
    fn a_change_of_one_database_leaves_the_others_known() {
        let mut catalogues = Catalogues::elsewhere(Arc::new(|_| Ok("end\n".to_owned())));
        let places = ["one", "other"].map(|name| Place {
            server: 1,
            kind: &Postgres,
            database: Some(name.into()),
        });
        for place in &places {
            catalogues.get(place, 0);
            ask_and_wait(&mut catalogues, place);
        }
        catalogues.handle_change_at(&places[0], 0);
        assert!(catalogues.get(&places[0], 0).is_none() && catalogues.get(&places[1], 0).is_some());
        catalogues.handle_change(1, false, false, 0);
        assert!(catalogues.get(&places[1], 0).is_none());
    }

    #[test]
    fn what_changes_too_often_is_asked_for_as_a_whole() {
        let mut catalogues = Catalogues::elsewhere(Arc::new(|_| Ok("end\n".to_owned())));
        let place = Place { server: 1, kind: &MySql, database: None };
        catalogues.get(&place, 0);
        ask_and_wait(&mut catalogues, &place);
        for number in 0..=CHANGED_MAX {
            let tables = vec![Target::table("app", &number.to_string())];
            let changed = Arc::new(ChangedTables { change: TableChange::Made, tables });
            assert!(catalogues.get(&place, 0).is_some());
            catalogues.handle_tables(1, 7, &changed, 0);
            catalogues.end_tables(1, 7, 0);
        }
        assert!(catalogues.get(&place, 0).is_none() && catalogues.changing.is_empty());
        assert!(catalogues.states[&place].changed.is_empty());
    }

    /// A health check with a wrong name, or one that was dropped: the others of the server are
    /// known nevertheless.
    #[test]
    fn a_database_that_nobody_uses_and_that_cannot_be_asked_is_forgotten() {
        let mut catalogues =
            Catalogues::elsewhere(Arc::new(|_| Err(io::Error::other("it does not exist"))));
        let place = Place { server: 1, kind: &Postgres, database: Some("health".into()) };
        for is_used in [true, false] {
            assert!(catalogues.get(&place, 1).is_none());
            while catalogues.states.get(&place).is_some_and(|state| !state.asked) {
                catalogues.handle_time(u64::MAX / 2, |_| is_used);
            }
            while catalogues.states.get(&place).is_some_and(|state| state.asked) {
                std::thread::yield_now();
                catalogues.take_answers(1, |_| is_used);
            }
            assert_eq!(catalogues.states.contains_key(&place), is_used);
        }
    }

    #[test]
    fn a_server_that_cannot_be_asked_is_not_asked_more_often_because_of_changes() {
        let (usual, ..) = ask_in_vain(|_, _| ());
        let change = |catalogues: &mut Catalogues, now_ns| {
            catalogues.handle_change(1, false, false, now_ns);
            catalogues.refresh(1, now_ns);
        };
        let (asked_at, ..) = ask_in_vain(change);
        assert!(asked_at.len() <= usual.len(), "{} times, {}", asked_at.len(), usual.len());
    }

    #[test]
    fn a_server_that_starts_for_minutes_is_asked_again_soon() {
        let (asked_at, warned_at, asked) = ask_in_vain(|_, _| ());
        assert_eq!(asked as usize, asked_at.len());
        assert!(asked_at.len() < 450, "asked {} times", asked_at.len());
        let longest = asked_at.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(longest <= Some(3_100_000_000), "{longest:?} between two");
        let warned_s = warned_at.map(|at| at / 1_000_000_000);
        assert!((30..32).contains(&warned_s.unwrap_or(0)), "{warned_s:?}");
    }
}
