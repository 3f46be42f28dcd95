//! Dynamic replies: from what, and whether it was only asked (docs/coherence.md).
//!
//! The sources are all files and directories that the server looked at between forward and end of
//! the request, but for what is proven to be other requests' (`attribution/requests.rs`), and all
//! that it may have in its own memory from before
//! ([`Retained`](crate::memory::retained::Retained)), and what it read from databases. What cannot
//! be seen (the clock, chance, what a program of the group remembers) is for the card: it compares
//! two executions, and lets no entry grow old.
//!
//! Unlike a file's bytes, what a program made cannot be compared with its sources. A change that
//! was witnessed before the request was forwarded, but took effect only after the server had read
//! the old state, must show in another way: no file may have a change time that close, none may be
//! open for writing, now or when the server opened it, each must be as long as it was when it was
//! opened, and the look-ups must lead where they led; and so for directories' times. Where times
//! are the only witness, a file that the server has not opened must have been at rest before
//! (`settled.rs`).

use std::collections::HashSet;
use std::sync::Arc;

use nicache_clock::monotonic_ns;
use nicache_coherence::{Class, FillRequest, RefusalReason, RevisionTable, Rule};

use crate::attribution::peers::{Known, Peers};
use crate::attribution::requests::{Attribution, Others};
use crate::processes::parent_of;
use crate::resolve::contents;
use crate::resolve::resolver::Resolver;
use crate::resolve::settled::{AtRest, UNDER_WAY_NS, is_within};
use crate::resolve::survey::{Purpose, Selected, Survey, survey};
use crate::resolve::unwatched;
use crate::statements::asked::Asked;
use crate::statements::client::Client;
use crate::statements::databases::Databases;
use crate::statements::journal::DatabaseRead;
use crate::statements::remote::RemoteDatabase;
use crate::verdicts::records::{Looked, Record};
use crate::verdicts::reused::{common_root, reuse};
use crate::witnesses::event::{EventKind, Identity, LookupEvent, Peer, Sent};
use crate::witnesses::history::History;
use crate::witnesses::witness::Witness;

const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;

/// File systems that the kernel makes up as it is asked. Nothing says when they change; the age of
/// dynamic entries bounds what they say.
const MADE_UP: [&[u8]; 3] = [b"/proc/", b"/sys/", b"/dev/"];

/// What a dynamic reply depends on.
pub(crate) struct DynamicSources {
    /// Files and directories.
    pub(crate) looked: Arc<Looked>,
    /// The files and directories were known from an earlier reply.
    pub(crate) is_reused: bool,
    /// What was read from databases; `None` if none was asked.
    pub(crate) reads: Option<Vec<DatabaseRead>>,
    /// What was read from databases has changed since the request was forwarded.
    pub(crate) reads_changed: bool,
}

/// What was seen of the server.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) history: &'a History,
    pub(crate) databases: &'a Databases,
    pub(crate) remotes: &'a [Arc<RemoteDatabase>],
    pub(crate) attribution: &'a Attribution,
    pub(crate) witness: &'a dyn Witness,
    pub(crate) table: &'a RevisionTable,
}

/// Finds out what a dynamic reply depends on. `earlier`: what another reply to the same request
/// did. `asked` gets the databases that its programs have asked through a network, also if the
/// reply may not be kept.
///
/// # Errors
/// Why it may not be kept.
pub(crate) fn survey_dynamic(
    seen: Seen<'_>,
    request: &FillRequest<'_>,
    earlier: Option<&Record>,
    resolver: &mut Resolver,
    peers: &mut Peers<'_>,
    at_rest: &mut AtRest,
    asked: &mut Asked,
) -> Result<DynamicSources, RefusalReason> {
    let Seen { history, databases, remotes, attribution, witness, table } = seen;
    let mut events: Vec<&LookupEvent> = history
        .since(request.forwarded_ns)
        .take_while(|event| event.time_ns <= request.finished_ns)
        .collect();
    let (from_ns, to_ns) = (request.forwarded_ns, request.finished_ns);
    let others = attribution
        .others(request.client, from_ns, to_ns)
        .filter(|others| !has_called(&events, others, peers));
    let everything = events.len();
    if let Some(others) = &others {
        events.retain(|event| !others.has(event));
    }
    tracing::trace!(
        everything,
        kept = events.len(),
        exact = others.is_some(),
        "what the server did"
    );
    // What is sent from a file that was opened before is in no look-up, and the file may have
    // another name by now, or none.
    let is_opened = |sent: &LookupEvent| {
        events.iter().any(|event| {
            event.kind == EventKind::Lookup && event.tgid == sent.tgid && event.inode == sent.inode
        })
    };
    if events.iter().any(|event| event.kind == EventKind::Sendfile && !is_opened(event)) {
        return Err(RefusalReason::NotLookedUp);
    }
    let scratch = Scratch::find(&events);
    // A sending is told when its call has returned, which a thread beside it need not wait for.
    for event in history.since(to_ns).filter(|event| event.time_ns > to_ns) {
        if let EventKind::Sent(sent) = event.kind
            && !matches!(sent.to, Peer::Local(_))
            && !peers.is_reply(event, sent)
        {
            match peers.check(event, sent) {
                Ok(Known::Database(server)) => asked.note_late(server),
                _ => asked.note_late(0),
            }
        }
    }
    let mut asked_database = false;
    let mut takers = Company::default();
    let mut asked_remotes = HashSet::new();
    for event in &events {
        match event.kind {
            EventKind::Sent(sent) => {
                let known = peers.check(event, sent)?;
                match known {
                    Known::Application => {}
                    Known::Database(_) => asked_database = true,
                    Known::Remote(address) => drop(asked_remotes.insert(address)),
                }
                match known {
                    Known::Database(server) if !matches!(sent.to, Peer::Local(_)) => {
                        asked.note(sent.port, server);
                    }
                    _ if may_ask_by_network(
                        event,
                        sent,
                        known,
                        &mut takers,
                        attribution,
                        peers,
                    ) =>
                    {
                        asked.note_anybody();
                    }
                    _ => {}
                }
            }
            EventKind::Unseen => {
                tracing::debug!(
                    process = event.tgid,
                    call = event.nr,
                    "looked at what the witness does not see"
                );
                return Err(RefusalReason::EventsLost);
            }
            EventKind::Wrote if !scratch.is_content(event) => return Err(wrote(event)),
            EventKind::Removed if !scratch.is_path(event) => return Err(wrote(event)),
            _ => {}
        }
    }
    asked.compare(databases.heard_by_network(from_ns, to_ns));
    let lookups: Vec<&LookupEvent> = events
        .into_iter()
        .filter(|event| matches!(event.kind, EventKind::Lookup | EventKind::Readdir))
        .filter(|event| !scratch.is_path(event) && !scratch.is_content(event) && !is_made_up(event))
        .collect();
    let reused = earlier
        .filter(|record| record.class == Class::Dynamic)
        .and_then(|record| reuse(record, &lookups, from_ns, table, resolver));
    let is_reused = reused.is_some();
    let looked = match reused {
        Some(looked) => looked,
        None => {
            let root = common_root(lookups.iter().copied(), resolver);
            let selected = lookups.into_iter().map(|event| Selected { event, sent: false });
            let survey = survey(selected, resolver, Purpose::FindSources)?;
            // When the server opened a file, its change time was not known to tell of changes to
            // come: the event names the overlay's file system.
            if survey.timed_layers {
                unwatched::tell_of_overlays();
                return Err(RefusalReason::UnwatchedFilesystem);
            }
            ensure_settled(&survey, request, at_rest, table, witness)?;
            Arc::new(Looked::new(survey, root, monotonic_ns()))
        }
    };
    let mut is_of_request = |client: Client, time_ns| {
        !others.as_ref().is_some_and(|others| others.has_statement(client.process, time_ns))
            && asked.may_be(client)
            && peers.may_be_server(client)
    };
    if databases.has_written(from_ns, to_ns, &mut is_of_request) {
        return Err(RefusalReason::Wrote);
    }
    // By a connection that is not known for one of the server's (somebody else has made it), or to
    // one of the database's programs that is not followed.
    if asked_database && !databases.was_heard(from_ns, to_ns, &mut is_of_request) {
        tracing::debug!("what was sent to a database is not what it was seen to receive");
        return Err(RefusalReason::DatabaseUnclear);
    }
    let mut reads = databases.reads(from_ns, to_ns, is_of_request)?;
    for remote in remotes.iter().filter(|remote| asked_remotes.contains(&remote.address())) {
        reads.extend(remote.reads(from_ns, to_ns)?);
    }
    let since = if Rule::Forwarded.holds() { request.stamp } else { request.asked };
    let reads_changed = databases.has_changed(&reads, since)
        || remotes.iter().any(|remote| remote.has_changed(&reads, since));
    let has_asked = asked_database || !asked_remotes.is_empty() || !reads.is_empty();
    Ok(DynamicSources { looked, is_reused, reads: has_asked.then_some(reads), reads_changed })
}

/// May what was sent lead to a statement by a network? It was sent by one, be it to a program that
/// is taken for a part of the application; or to a program that takes no requests, which may have
/// the kernel pass it on without a call (sockmap).
fn may_ask_by_network(
    event: &LookupEvent,
    sent: Sent,
    known: Known,
    takers: &mut Company,
    attribution: &Attribution,
    peers: &mut Peers<'_>,
) -> bool {
    match sent.to {
        Peer::Local(process) if process == event.tgid || process == event.worker() => false,
        // A socket is of whoever began to listen: of PHP-FPM, the one that starts its processes.
        Peer::Local(process) => {
            !matches!(known, Known::Database(_)) && !takers.starts_or_takes(process, attribution)
        }
        Peer::Ipv4(..) | Peer::Other(_) => !peers.is_reply(event, sent),
    }
}

/// May anything but the files that the server looked at have decided which file it sends, and
/// whether (docs/coherence.md rule 22)? `is_alone`: the server has its network for itself;
/// otherwise only what programs did counts that take requests, were started together with one that
/// does, or looked at files meanwhile.
pub(crate) fn may_be_decided(
    seen: Seen<'_>,
    request: &FillRequest<'_>,
    peers: &mut Peers<'_>,
    is_alone: bool,
) -> bool {
    if !Rule::Decisions.holds() {
        return false;
    }
    let Seen { history, databases, attribution, .. } = seen;
    let (from_ns, to_ns) = (request.forwarded_ns, request.finished_ns);
    let mut events: Vec<&LookupEvent> = history
        .since(from_ns)
        .take_while(|event| event.time_ns <= to_ns)
        .filter(|event| decides(event))
        .collect();
    // A client of another service of the server's has asked; it does not answer.
    events.retain(
        |event| !matches!(event.kind, EventKind::Sent(sent) if peers.is_reply(event, sent)),
    );
    let others = attribution
        .others(request.client, from_ns, to_ns)
        .filter(|others| !has_called(&events, others, peers));
    if let Some(others) = &others {
        events.retain(|event| !others.has(event));
    }
    let during = history.since(from_ns).take_while(|event| event.time_ns <= to_ns);
    let lookups = during.filter(|event| !is_alone && event.kind == EventKind::Lookup);
    let lookers: HashSet<u32> = lookups.map(|event| event.tgid).collect();
    let mut company = Company::default();
    let mut may_serve = |process: u32| {
        is_alone
            || process == 0
            || attribution.takes_requests(process)
            || lookers.contains(&process)
            || company.has(process, attribution)
    };
    if let Some(event) = events.iter().find(|event| may_serve(event.tgid)) {
        tracing::debug!(kind = ?event.kind, process = event.tgid, "something may have decided that a file be sent");
        return true;
    }
    let mut is_of_request = |client: Client, time_ns| {
        !others.as_ref().is_some_and(|others| others.has_statement(client.process, time_ns))
            // Who asks through a network has sent something by one: see above.
            && client.by_network.is_none()
            && may_serve(client.process)
            && peers.may_be_server(client)
    };
    databases.was_asked(from_ns, to_ns, &mut is_of_request)
        || databases.has_written(from_ns, to_ns, is_of_request)
}

/// Programs that were started by whoever has started one that takes requests.
#[derive(Default)]
struct Company {
    parents: Option<HashSet<u32>>,
}

impl Company {
    /// Does the process take requests, or has it started one that does?
    fn starts_or_takes(&mut self, process: u32, attribution: &Attribution) -> bool {
        // The first process takes over those that have lost theirs.
        let parent = |process| parent_of(process).filter(|parent| *parent > 1);
        let parents = self.parents.get_or_insert_with(|| {
            let takers = attribution.takers().flat_map(|taker| [Some(taker), parent(taker)]);
            takers.flatten().collect()
        });
        parents.contains(&process)
    }

    fn has(&mut self, process: u32, attribution: &Attribution) -> bool {
        // One that is gone is not known.
        self.starts_or_takes(process, attribution)
            || parent_of(process).is_none_or(|parent| self.starts_or_takes(parent, attribution))
    }
}

fn decides(event: &LookupEvent) -> bool {
    /// Frames of a raw socket (AF_PACKET) are not questions.
    const RAW: Peer = Peer::Other(17);
    match event.kind {
        // A program that was started for it may have said anything.
        _ if event.starter != 0 => true,
        EventKind::Sent(sent) => sent.to != Peer::Local(event.tgid) && sent.to != RAW,
        EventKind::Wrote | EventKind::Removed | EventKind::Unseen => true,
        _ => false,
    }
}

/// Has the request's own execution talked to a program other than a database? What that did then
/// may be anything.
fn has_called(events: &[&LookupEvent], others: &Others<'_>, peers: &mut Peers<'_>) -> bool {
    events.iter().any(|event| match event.kind {
        EventKind::Sent(sent) if sent.to != Peer::Local(event.tgid) => {
            others.is_call(event, sent)
                && !matches!(peers.check(event, sent), Ok(Known::Database(_) | Known::Remote(_)))
        }
        _ => false,
    })
}

fn wrote(event: &LookupEvent) -> RefusalReason {
    tracing::debug!(
        process = event.tgid,
        call = event.nr,
        inode = ?event.inode,
        path = %String::from_utf8_lossy(&event.path),
        "the server changed something"
    );
    RefusalReason::Wrote
}

fn is_made_up(event: &LookupEvent) -> bool {
    let climbs = || event.path.windows(2).any(|two| two == b"..");
    // Memory that programs share as files is like any other file system without a witness.
    let is_shared_memory = event.path.starts_with(b"/dev/shm");
    MADE_UP.iter().any(|prefix| event.path.starts_with(prefix)) && !climbs() && !is_shared_memory
}

/// Files that the server made for itself during the request: parts of a reply that it could not
/// send at once, and the like.
struct Scratch<'a> {
    contents: HashSet<Identity>,
    paths: HashSet<&'a [u8]>,
}

impl<'a> Scratch<'a> {
    fn find(events: &[&'a LookupEvent]) -> Self {
        let mut scratch = Scratch { contents: HashSet::new(), paths: HashSet::new() };
        for event in events.iter().filter(|event| event.kind == EventKind::Lookup) {
            if event.open_flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL
                && event.ret >= 0
                && let Some(inode) = event.inode
            {
                scratch.contents.insert(inode);
                scratch.paths.insert(&event.path);
            }
        }
        // Only what is gone by the end was scratch.
        let removed: HashSet<&[u8]> = events
            .iter()
            .filter(|event| event.kind == EventKind::Removed)
            .map(|event| &*event.path)
            .collect();
        if !scratch.paths.iter().all(|path| removed.contains(path)) {
            return Scratch { contents: HashSet::new(), paths: HashSet::new() };
        }
        scratch
    }

    fn is_content(&self, event: &LookupEvent) -> bool {
        event.inode.is_some_and(|inode| self.contents.contains(&inode))
    }

    fn is_path(&self, event: &LookupEvent) -> bool {
        !event.path.is_empty() && self.paths.contains(&*event.path)
    }
}

/// Makes sure that no change which was witnessed before the request was forwarded took effect only
/// after the server had read the old state: by change times, open writers, lengths and look-ups.
fn ensure_settled(
    survey: &Survey<'_>,
    request: &FillRequest<'_>,
    at_rest: &mut AtRest,
    table: &RevisionTable,
    witness: &dyn Witness,
) -> Result<(), RefusalReason> {
    let mut seen = HashSet::new();
    let mut restless = false;
    for (node, opened) in &survey.files {
        let is_under_way = is_within(UNDER_WAY_NS, node.changed_ns, request.forwarded_ns)
            && Rule::Forwarded.holds();
        if is_under_way || opened.is_some_and(|opened| opened.len != node.size) {
            tracing::debug!(inode = ?node.identity, len = node.size, "a file is being changed");
            return Err(RefusalReason::Changed);
        }
        if opened.is_some_and(|opened| opened.being_written) && Rule::OpenForWriting.holds() {
            tracing::debug!(inode = ?node.identity, "a file was open for writing");
            return Err(RefusalReason::OpenForWriting);
        }
        if opened.is_some_and(|opened| opened.may_change_untold) {
            tracing::debug!(inode = ?node.identity, "a file may have changed once more");
            return Err(RefusalReason::Changed);
        }
        // Somebody may have been making it longer when the server looked.
        if opened.is_none()
            && node.has_only_times()
            && !at_rest.has(node.identity, request.forwarded_ns, table)
        {
            tracing::debug!(inode = ?node.identity, "whether a file was at rest before is not known");
            restless = true;
        }
        if seen.insert(node.identity) {
            let file = match contents::settle(node) {
                // A database that is a file is open for writing while a page is made of it.
                Err(RefusalReason::OpenForWriting)
                    if node.tells_writes() && witness.sees_writers_of(node.identity) =>
                {
                    contents::settle_with_writers(node)?
                }
                settled => settled?,
            };
            let now = rustix::fs::fstat(&file).map_err(|_| RefusalReason::Io)?;
            if u64::try_from(now.st_size) != Ok(node.size) || changed_ns(&now) != node.changed_ns {
                return Err(RefusalReason::Changed);
            }
            if node.has_only_times() {
                // The look-up has asked for the time, after the clock was this.
                at_rest.note(node.identity, request.asked, monotonic_ns(), table);
            }
        }
    }
    // Their times and lengths can be asked for while they are being changed; the walk has waited
    // for that.
    for node in &survey.folders {
        let now = rustix::fs::fstat(&node.fd).map_err(|_| RefusalReason::Io)?;
        if is_within(UNDER_WAY_NS, changed_ns(&now), request.forwarded_ns)
            && Rule::Forwarded.holds()
        {
            tracing::debug!(inode = ?node.identity, "a directory is being changed");
            return Err(RefusalReason::Changed);
        }
    }
    if restless { Err(RefusalReason::Changed) } else { Ok(()) }
}

/// Change time in nanoseconds since 1970.
fn changed_ns(stat: &rustix::fs::Stat) -> i128 {
    i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec)
}
