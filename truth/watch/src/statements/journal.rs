//! What was read and what was changed, as far as it is remembered.
//!
//! A change is in doubt from [`Journal::push_change`] to [`Journal::settle`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use nicache_coherence::{RefusalReason, Rule, SourceSlot, Stamp};
use nicache_sql::{Access, conflicts};

use crate::statements::client::Client;
use crate::witnesses::history::HISTORY_NS;

/// Changes remembered; an entry that is older than the oldest of them cannot be judged.
const CHANGES_MAX: usize = 16_384;
/// Reads remembered, of the last seconds.
const READS_MAX: usize = 65_536;

/// The first process of a database server, or a number that no process has for one on another
/// machine; 0: unknown, which may be any.
pub(crate) type Server = u32;

/// What a page was made from: something of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseRead {
    /// Whose it is.
    pub(crate) server: Server,
    /// What changes with it.
    pub(crate) slot: SourceSlot,
    /// What was read.
    pub(crate) access: Access,
}

/// What a statement has read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) time_ns: u64,
    pub(super) server: Server,
    /// What a change of the server's tables stamps.
    pub(super) slot: SourceSlot,
    pub(super) client: Client,
    /// The state that was read was that of this moment (CLOCK_MONOTONIC); 0: unknown.
    pub(super) as_of_ns: u64,
    /// Others' uncommitted changes may be in it.
    pub(super) dirty: bool,
    /// What changes without a statement is in it.
    pub(super) foreign: bool,
    pub(super) reads: Arc<[Access]>,
}

/// What a statement may change.
#[derive(Debug)]
pub(super) struct Change {
    number: u64,
    time_ns: u64,
    server: Server,
    client: Client,
    /// The clock when it was over; `None`: it is in doubt.
    done: Option<Stamp>,
    pub(super) writes: Arc<[Access]>,
}

/// What statements have read and changed, as far as it is remembered. A change is in doubt from
/// [`Journal::push_change`] to [`Journal::settle`].
#[derive(Debug, Default)]
pub(super) struct Journal {
    reads: VecDeque<Read>,
    /// When servers received anything, or saw a client end, and of whom; of the last seconds.
    heard: VecDeque<(u64, Client)>,
    pub(super) changes: VecDeque<Change>,
    /// Number of the first of `changes`.
    first: u64,
    /// Changes that were over before this are not remembered.
    remembers_since: Stamp,
    /// What a server had before this is not remembered, unless it has run on since it was said.
    contents_since: Stamp,
    /// Servers that have run on when the last of others began, and the same for each of them.
    ran_on: HashMap<Server, Stamp>,
    /// Of the reads, those since.
    reads_since_ns: u64,
}

impl Journal {
    /// What was read and changed before is not known any longer; what is in doubt goes on to be.
    pub(super) fn begin(&mut self, now_ns: u64, clock: Stamp) {
        self.reads.clear();
        self.heard.clear();
        self.reads_since_ns = now_ns;
        self.remembers_since = Stamp(clock.0 + 1);
    }

    /// Forgets what was changed; nobody has numbers of it any longer.
    pub(super) fn clear_changes(&mut self) {
        self.changes.clear();
    }

    /// Something is in doubt that is never over.
    pub(super) fn doubt_everything(&mut self) {
        self.remembers_since = Stamp(u64::MAX);
    }

    /// A database server begins anew: what it had in memory alone is gone, and its files may be
    /// others. It may be any that was known by another number, but none of those that are `running`
    /// meanwhile.
    pub(super) fn forget_contents(
        &mut self,
        running: impl IntoIterator<Item = Server>,
        clock: Stamp,
    ) {
        self.ran_on =
            running.into_iter().map(|server| (server, self.contents_of(server))).collect();
        self.contents_since = self.contents_since.max(Stamp(clock.0 + 1));
    }

    /// Did another server begin while this one was running?
    pub(super) fn has_run_on(&self, server: Server) -> bool {
        self.ran_on.contains_key(&server)
    }

    fn contents_of(&self, server: Server) -> Stamp {
        self.ran_on.get(&server).copied().unwrap_or(self.contents_since)
    }

    /// Notes that something was received of a client, whatever it was.
    pub(super) fn note_heard(&mut self, now_ns: u64, client: Client) {
        self.heard.push_back((now_ns, client));
        while self.heard.len() > READS_MAX
            || self.heard.front().is_some_and(|(first_ns, _)| first_ns + HISTORY_NS < now_ns)
        {
            self.heard.pop_front();
        }
    }

    /// Was anything received between the two moments of a client that may have done it for the
    /// request?
    pub(super) fn was_heard(
        &self,
        from_ns: u64,
        to_ns: u64,
        mut is_of_request: impl FnMut(Client, u64) -> bool,
    ) -> bool {
        let mut during = self.heard_during(from_ns, to_ns);
        during.any(|&(time_ns, client)| is_of_request(client, time_ns))
    }

    /// Clients of whom something was received through a network between the two moments.
    pub(super) fn heard_by_network(
        &self,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = Client> + '_ {
        let clients = self.heard_during(from_ns, to_ns).map(|&(_, client)| client);
        clients.filter(|client| client.by_network.is_some())
    }

    fn heard_during(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &(u64, Client)> {
        let begin = self.heard.partition_point(|(time_ns, _)| *time_ns < from_ns);
        self.heard.range(begin..).take_while(move |(time_ns, _)| *time_ns <= to_ns)
    }

    /// Notes what is read at this moment.
    pub(super) fn push_read(&mut self, read: Read) {
        let now_ns = read.time_ns;
        self.reads.push_back(read);
        while self.reads.len() > READS_MAX
            || self.reads.front().is_some_and(|first| first.time_ns + HISTORY_NS < now_ns)
        {
            if let Some(dropped) = self.reads.pop_front() {
                self.reads_since_ns = self.reads_since_ns.max(dropped.time_ns + 1);
            }
        }
    }

    /// Notes a change that is in doubt from this time and clock on. Returns its number.
    pub(super) fn push_change(
        &mut self,
        now_ns: u64,
        clock: Stamp,
        server: Server,
        client: Client,
        writes: Arc<[Access]>,
    ) -> u64 {
        let number = self.first + self.changes.len() as u64;
        self.changes.push_back(Change {
            number,
            time_ns: now_ns,
            server,
            client,
            done: None,
            writes,
        });
        while self.changes.len() > CHANGES_MAX
            && let Some(dropped) = self.changes.pop_front()
        {
            self.first += 1;
            // One in doubt is not forgotten before everything that it may void.
            self.remembers_since =
                self.remembers_since.max(Stamp(dropped.done.unwrap_or(clock).0 + 1));
        }
        number
    }

    /// The change is done.
    pub(super) fn settle(&mut self, number: u64, clock: Stamp) {
        let at = number.checked_sub(self.first).and_then(|at| self.changes.get_mut(at as usize));
        if let Some(change) = at {
            change.done = Some(clock);
        }
    }

    /// The structure of this server (0: of any) becomes another than when the statements that are
    /// still in doubt were received. Whoever waits, or takes long, and writes any of this may write
    /// all of it: by a trigger or a foreign key that nobody knew of then, or rows that were told
    /// apart by a column that is another.
    pub(super) fn doubt_also(&mut self, server: Server, also: &[Access]) {
        let is_there = |of: Server| of == server || of == 0 || server == 0;
        for change in self.changes.iter_mut().filter(|change| change.done.is_none()) {
            let new = also.iter().filter(|access| !change.writes.contains(access));
            if is_there(change.server) && conflicts(also, &change.writes) {
                change.writes = change.writes.iter().chain(new).cloned().collect();
            }
        }
    }

    /// Was anything received between the two moments that can be remembered?
    pub(super) fn has_received(&self, from_ns: u64, to_ns: u64) -> bool {
        self.reads
            .iter()
            .rev()
            .take_while(|read| read.time_ns >= from_ns)
            .any(|read| read.time_ns <= to_ns)
    }

    /// What was read between the two moments, by clients that may have done it for the
    /// request, at those times. `may_change_unseen`: may the server change tables
    /// without a statement?
    ///
    /// # Errors
    /// It cannot be told, or is not what is committed.
    pub(super) fn reads(
        &self,
        from_ns: u64,
        to_ns: u64,
        mut is_of_request: impl FnMut(Client, u64) -> bool,
        may_change_unseen: impl Fn(Server) -> bool,
    ) -> Result<Vec<DatabaseRead>, RefusalReason> {
        if from_ns < self.reads_since_ns {
            return Err(RefusalReason::EventsLost);
        }
        let mut all: Vec<DatabaseRead> = Vec::new();
        for read in self.reads_during(from_ns, to_ns) {
            if !is_of_request(read.client, read.time_ns) {
                continue;
            }
            if read.dirty
                || read.foreign
                || read.as_of_ns < from_ns
                || may_change_unseen(read.server)
            {
                return Err(RefusalReason::DatabaseUnclear);
            }
            let (server, slot) = (read.server, read.slot);
            for access in read.reads.iter() {
                let is_same = |known: &DatabaseRead| {
                    known.server == server && known.slot == slot && known.access == *access
                };
                if !all.iter().any(is_same) {
                    all.push(DatabaseRead { server, slot, access: access.clone() });
                }
            }
        }
        Ok(all)
    }

    /// Did a client that may have done it for the request ask for anything between the two moments?
    pub(super) fn was_asked(
        &self,
        from_ns: u64,
        to_ns: u64,
        mut is_of_request: impl FnMut(Client, u64) -> bool,
    ) -> bool {
        self.reads_during(from_ns, to_ns).any(|read| is_of_request(read.client, read.time_ns))
    }

    fn reads_during(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Read> {
        let begin = self.reads.partition_point(|read| read.time_ns < from_ns);
        self.reads.range(begin..).take_while(move |read| read.time_ns <= to_ns)
    }

    /// Did a client that may have done it for the request change anything between the two moments?
    pub(super) fn has_written(
        &self,
        from_ns: u64,
        to_ns: u64,
        mut is_of_request: impl FnMut(Client, u64) -> bool,
    ) -> bool {
        let during = |change: &&Change| (from_ns..=to_ns).contains(&change.time_ns);
        self.changes
            .iter()
            .rev()
            .take_while(|change| change.time_ns >= from_ns)
            .filter(during)
            .any(|change| is_of_request(change.client, change.time_ns))
    }

    /// May anything of it have changed since the clock was `since`?
    pub(super) fn has_changed(&self, reads: &[DatabaseRead], since: Stamp) -> bool {
        if reads.is_empty() {
            return false;
        }
        if since < self.remembers_since
            || reads.iter().any(|read| since < self.contents_of(read.server))
        {
            tracing::debug!(
                ?since,
                "a database may have begun anew, or too much has changed since to be remembered"
            );
            return true;
        }
        let in_time = |change: &&Change| {
            change.done.map_or_else(|| Rule::Doubt.holds(), |done| done >= since)
        };
        let meets = |change: &&Change| {
            let is_there =
                |server: Server| server == change.server || server == 0 || change.server == 0;
            reads.iter().any(|read| {
                is_there(read.server)
                    && conflicts(std::slice::from_ref(&read.access), &change.writes)
            })
        };
        let culprit = self.changes.iter().filter(in_time).find(meets);
        if let Some(change) = culprit {
            tracing::debug!(number = change.number, done = ?change.done, writes = ?change.writes,
                "a database has changed");
        }
        culprit.is_some()
    }
}

#[cfg(test)]
mod tests {
    use nicache_sql::Target;

    use super::*;

    fn table(name: &str) -> Access {
        Access::whole(Target { name: Some(name.into()), ..Target::schema("site") })
    }

    #[test]
    fn what_waits_while_the_structure_changes_writes_more_than_was_known() {
        let is_changed = |also: &[Access], server| {
            let mut journal = Journal::default();
            let written: Arc<[Access]> = [table("a")].into();
            let number =
                journal.push_change(1, Stamp(1), 7, Client::default(), Arc::clone(&written));
            let done = journal.push_change(1, Stamp(1), 7, Client::default(), written);
            journal.settle(done, Stamp(2));
            journal.doubt_also(server, also);
            journal.settle(number, Stamp(5));
            let read =
                |name| DatabaseRead { server: 7, slot: SourceSlot::DATABASES, access: table(name) };
            ["a", "b"].map(|name| journal.has_changed(&[read(name)], Stamp(4)))
        };
        assert_eq!(is_changed(&[Access::EVERYTHING], 7), [true, true]);
        assert_eq!(is_changed(&[Access::EVERYTHING], 0), [true, true]);
        assert_eq!(is_changed(&[Access::EVERYTHING], 8), [true, false]);
        assert_eq!(is_changed(&[table("a"), table("b")], 7), [true, true]);
        assert_eq!(is_changed(&[table("b")], 7), [true, false], "it has nothing to do with that");
    }
}
