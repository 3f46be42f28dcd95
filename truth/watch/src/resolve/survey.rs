//! Which of the server's look-ups belong to a request, and what they depend on.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use nicache_coherence::{FillRequest, RefusalReason, Rule, SourceSlot};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::resolve::node::Node;
use crate::resolve::resolver::{Outcome, Passage, Resolver, Walk};
use crate::resolve::settled::may_change_untold;
use crate::resolve::unwatched;
use crate::witnesses::event::{EventKind, Identity, LookupEvent};
use crate::witnesses::history::History;

/// A change time that is older than this is not one of a write that is under way.
const SETTLED_S: i64 = 2;
/// How long after a reply's end the end of its sendfile may be told. One that is told later counts
/// as a source of the fill, which is safe.
const SENT_LATE_NS: u64 = 2_000_000;

/// An event of the request's time.
#[derive(Clone, Copy)]
pub(crate) struct Selected<'a> {
    pub(crate) event: &'a LookupEvent,
    /// The file was opened and then sent with sendfile.
    pub(crate) sent: bool,
}

/// The events between forward and end; and which opened files were then sent.
pub(crate) fn select<'a>(history: &'a History, request: &FillRequest<'_>) -> Vec<Selected<'a>> {
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
            _ => {}
        }
    }
    selected
}

/// A file when the server opened it.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) len: u64,
    /// Somebody else had it open for writing.
    pub(crate) being_written: bool,
    /// See [`may_change_untold`].
    pub(crate) may_change_untold: bool,
}

/// A file that a reply may be.
pub(crate) struct Candidate {
    pub(crate) node: Rc<Node>,
    /// The server opened it to read.
    pub(crate) is_opened: bool,
    /// Processes that looked it up.
    pub(crate) processes: Vec<u32>,
}

/// What the look-ups of a request depend on.
#[derive(Default)]
pub(crate) struct Survey<'a> {
    /// Slots of the entry.
    pub(crate) sources: BTreeSet<SourceSlot>,
    /// Sources that are not directories in which something was looked up.
    pub(crate) fixed: BTreeSet<SourceSlot>,
    /// Sources that are directories in which something was looked up, and who may search them.
    pub(crate) directories: BTreeSet<Passage>,
    /// Slots of look-ups that belong to other replies: to be unchanged, but no sources.
    pub(crate) others: BTreeSet<SourceSlot>,
    /// Files as long as the body.
    pub(crate) candidates: Vec<Candidate>,
    /// All files that were found, and what they were when they were opened, if they were.
    pub(crate) files: Vec<(Rc<Node>, Option<Opened>)>,
    /// All directories that were found at the end of a path.
    pub(crate) folders: Vec<Rc<Node>>,
    /// Directories whose times the server has seen, or could have: device, inode, change time and
    /// size.
    pub(crate) folder_times: BTreeSet<(u32, u64, i128, u64)>,
    /// Is any of it on an overlay whose layers' changes show in their change times alone?
    pub(crate) timed_layers: bool,
    /// The events that the sources come from.
    pub(crate) kept: Vec<&'a LookupEvent>,
}

impl Survey<'_> {
    fn add_candidate(&mut self, node: &Rc<Node>, event: &LookupEvent) {
        let known =
            self.candidates.iter_mut().find(|candidate| candidate.node.identity == node.identity);
        if let Some(candidate) = known {
            candidate.is_opened |= event.opens_to_read();
            candidate.processes.push(event.tgid);
        } else {
            let (is_opened, processes) = (event.opens_to_read(), vec![event.tgid]);
            self.candidates.push(Candidate { node: node.clone(), is_opened, processes });
        }
    }

    /// The files, and when each was last changed.
    pub(crate) fn change_times(&self) -> BTreeSet<(u32, u64, i128)> {
        self.files
            .iter()
            .map(|(node, _)| (node.identity.dev, node.identity.ino, node.changed_ns))
            .collect()
    }
}

/// What a survey is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// A reply of this many bytes may be one of the files.
    FindFile(u64),
    /// A reply may depend on all of them.
    FindSources,
}

/// Does the look-ups again.
pub(crate) fn survey<'a>(
    events: impl Iterator<Item = Selected<'a>>,
    resolver: &mut Resolver,
    purpose: Purpose,
) -> Result<Survey<'a>, RefusalReason> {
    let mut survey = Survey::default();
    survey.fixed.insert(SourceSlot::EVERYTHING);
    survey.sources.insert(SourceSlot::MOUNTS);
    let settled_before_s = unix_s() - SETTLED_S;
    let (mut listed, mut layers) = (Vec::new(), BTreeSet::new());
    for Selected { event, sent } in events {
        let is_missing = event.ret < 0 && !Rule::MissingPaths.holds();
        let is_only_looked_at =
            event.ret >= 0 && event.inode.is_none() && !Rule::Attributes.holds();
        if is_missing || is_only_looked_at {
            continue;
        }
        if event.kind == EventKind::Readdir {
            let Some(identity) = event.inode else { return Err(RefusalReason::Io) };
            listed.push(identity.slot());
            survey.kept.push(event);
            continue;
        }
        let walk = resolver.resolve(event).inspect_err(|reason| log(event, *reason))?;
        check_outcome(event, &walk).inspect_err(|reason| {
            log(event, *reason);
            tell_if_unwatched(event, &walk, *reason);
        })?;
        let mut is_others = false;
        match &walk.outcome {
            Outcome::Found(node) if node.is_harmless_device() => continue,
            Outcome::Found(node) if node.kind == FileType::RegularFile => {
                if !node.is_watched() {
                    tell_if_unwatched(event, &walk, RefusalReason::UnwatchedFilesystem);
                    return Err(RefusalReason::UnwatchedFilesystem);
                }
                match purpose {
                    Purpose::FindFile(body_len) if body_len == node.size && event.ret >= 0 => {
                        survey.add_candidate(node, event);
                    }
                    Purpose::FindFile(_) => is_others = sent && node.changed_s < settled_before_s,
                    Purpose::FindSources => {
                        let opened = event.inode.map(|_| Opened {
                            len: event.size,
                            being_written: event.stillness.being_written,
                            may_change_untold: may_change_untold(event),
                        });
                        survey.files.push((node.clone(), opened));
                    }
                }
            }
            Outcome::Found(node)
                if node.kind == FileType::Directory && matches!(purpose, Purpose::FindSources) =>
            {
                survey.folders.push(node.clone());
                if event.shows_times() {
                    let Identity { dev, ino } = node.identity;
                    survey.folder_times.insert((dev, ino, node.changed_ns, node.size));
                }
            }
            _ => {}
        }
        if !walk.watched {
            log(event, RefusalReason::UnwatchedFilesystem);
            tell_if_unwatched(event, &walk, RefusalReason::UnwatchedFilesystem);
            return Err(RefusalReason::UnwatchedFilesystem);
        }
        survey.timed_layers |= walk.timed_layers;
        if is_others {
            survey.others.extend(&walk.slots);
            continue;
        }
        if event.is_relative() {
            survey.fixed.insert(SourceSlot::WORKING_DIRECTORY);
        }
        survey.sources.extend(&walk.slots);
        layers.extend(&walk.layers);
        survey.directories.extend(&walk.directories);
        survey.kept.push(event);
        if let Outcome::Found(node) = &walk.outcome
            && node.kind != FileType::Directory
        {
            survey.fixed.extend(node.slots());
        }
    }
    // A directory that was opened before the request has no path to wait in.
    if !listed.iter().all(|slot| survey.sources.contains(slot)) {
        return Err(RefusalReason::Io);
    }
    // The names of a directory on an overlay are those in its layers.
    survey
        .fixed
        .extend(layers.iter().filter(|(own, _)| listed.contains(own)).map(|(_, layer)| layer));
    survey.fixed.extend(listed);
    survey.sources.extend(&survey.fixed);
    Ok(survey)
}

fn log(event: &LookupEvent, reason: RefusalReason) {
    let path = String::from_utf8_lossy(&event.path);
    tracing::debug!(%path, call = event.nr, outcome = event.ret, reason = reason.label(),
        "a look-up speaks against it");
}

fn tell_if_unwatched(event: &LookupEvent, walk: &Walk, reason: RefusalReason) {
    if let (RefusalReason::UnwatchedFilesystem, Outcome::Found(node)) = (reason, &walk.outcome) {
        unwatched::tell_once(node, &event.path);
    }
}

/// Does the path lead where it led the server?
fn check_outcome(event: &LookupEvent, walk: &Walk) -> Result<(), RefusalReason> {
    let errno = (event.ret < 0).then(|| Errno::from_raw_os_error(-event.ret as i32));
    match (&walk.outcome, errno) {
        (Outcome::Found(node), None) => match event.inode {
            // On some (btrfs, overlay) the kernel's numbers and those that programs are told
            // differ.
            Some(identity) if identity != node.identity && !node.is_watched() => {
                Err(RefusalReason::UnwatchedFilesystem)
            }
            Some(identity) if identity != node.identity => Err(RefusalReason::Changed),
            _ => Ok(()),
        },
        (Outcome::Missing, None) => Err(RefusalReason::Changed),
        // The server may be refused what the watcher is not; modes and owners are sources like
        // anything else. The others depend on what was asked for (a link that is none, a directory
        // wanted, an attribute).
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
        // Out of descriptors, out of memory, interrupted ...: says nothing that would hold the next
        // time.
        (_, Some(_)) => Err(RefusalReason::Io),
    }
}

fn unix_s() -> i64 {
    (nicache_clock::unix_ns() / 1_000_000_000) as i64
}
