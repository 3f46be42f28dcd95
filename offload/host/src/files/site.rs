//! The document root.
//!
//! What a path leads to must lie below the root, whatever links there are on the way. What
//! everybody may read is served, nothing else: the server runs with rights of its own.
//!
//! What was found is remembered with the epoch at which it was right. As long as no watched source
//! has changed, that is one load; after a change, a look at the stamps of what led there.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use nicache_coherence::{Epoch, RefusalReason, RevisionTable, SourceSlot, Stamp};
use nicache_watch::{Identity, Node, Outcome, Resolver, Walk, settle, settle_file};
use rustix::fs::FileType;

use crate::block::{FileNumber, Revision};

/// Paths remembered at most; each costs its length and some 200 bytes, and a descriptor per file.
const PATHS_MAX: usize = 32_768;
/// How often a path is looked up again when it changes meanwhile.
const TRIES: usize = 3;
/// Bits of a directory that others need to look things up in it.
const SEARCHABLE: u16 = 0o111;

/// How old a change must be so another one has another time, whatever the granularity of the
/// file system's times.
const SETTLED_NS: i128 = 1_000_000_000;

/// A file as it was at a revision.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    /// Its number, the same for all of its revisions.
    pub number: FileNumber,
    /// Which revision.
    pub revision: Revision,
    /// Bytes.
    pub bytes: u64,
    /// When it or its attributes changed last, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// Its inode number.
    pub ino: u64,
    /// Whether its bytes may be kept: every change of it is witnessed, and nobody had it open for
    /// writing.
    pub is_kept: bool,
    /// Stores to a mapping may leave its times alone, but no stamp is raised without a change
    /// ([`has_only_times`](nicache_watch::Node::has_only_times)).
    only_times: bool,
    identity: Identity,
    /// The clock before it was looked at.
    since: Stamp,
    /// When it was looked at, in nanoseconds since 1970.
    looked_ns: i128,
}

impl OpenFile {
    /// Whether a change after it was looked at must have given it other times than it has. Nobody
    /// had it open for writing or mapped, so any change sets them.
    fn is_told_by_times(&self) -> bool {
        self.looked_ns - self.changed_ns >= SETTLED_NS
    }

    /// Whether it still seems to be what was looked at, by its times and its witness. For one that
    /// is not kept, so a change of it need not be seen.
    pub fn seems_unchanged(&self, table: Option<&RevisionTable>) -> bool {
        let is_witnessed =
            self.since != Stamp(0) && table.is_some_and(|table| self.has_changed(table));
        let looked = (self.bytes, self.changed_ns);
        let is_same =
            |stat: rustix::fs::Stat| (stat.st_size as u64, last_change_ns(&stat)) == looked;
        !is_witnessed && rustix::fs::fstat(&self.fd).is_ok_and(is_same)
    }

    /// Whether a change was witnessed since it was looked at, of it or of nobody knows what.
    pub fn has_changed(&self, table: &RevisionTable) -> bool {
        !table.is_unchanged(&[self.identity.slot(), SourceSlot::EVERYTHING], self.since)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What a path means.
#[derive(Clone, Debug)]
pub enum Found {
    /// A file.
    File {
        /// Which file it is.
        file: Arc<OpenFile>,
        /// Since when the path has led to it, as far as is known, in nanoseconds since 1970.
        since_ns: i128,
    },
    /// A directory, although the path does not end in a slash.
    Directory,
    /// A directory without an index file, and the names in it if they may be told.
    Listing(Option<Arc<[String]>>),
    /// Nothing.
    Missing,
    /// Something that is not for everybody, or no file.
    Forbidden,
}

nicache_counters::counters! {
    /// What has happened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SiteCounters {
        remembered as "paths_remembered": "Paths that were known.",
        compared as "paths_compared": "Paths that were known, and compared because something had changed.",
        looked_up as "paths_looked_up": "Paths that were looked up in the file system.",
        changed as "files_changed": "Files that had changed.",
        not_kept as "files_not_kept": "Files that are read for each reply.",
    }
}

#[derive(Debug)]
struct Known {
    found: Found,
    slots: Box<[SourceSlot]>,
    since: Stamp,
    epoch: Epoch,
}

/// The document root: what paths lead to, remembered as long as no watched source has changed.
#[derive(Debug)]
pub struct Site {
    root: Vec<u8>,
    index: Vec<String>,
    lists: bool,
    table: Option<Arc<RevisionTable>>,
    coverage: nicache_watch::Coverage,
    paths: HashMap<Box<[u8]>, Known>,
    files: HashMap<Identity, Numbered>,
    files_next: u32,
    revision_next: u64,
    counters: SiteCounters,
}

/// A file by the name that the kernel has for it. The number stays when the file has changed, so
/// blocks of its former revision are known as such.
#[derive(Debug)]
struct Numbered {
    number: FileNumber,
    file: Weak<OpenFile>,
    /// What was looked at again, until somebody asks for it.
    again: Option<Arc<OpenFile>>,
}

/// A file that is looked at.
struct Sight {
    fd: OwnedFd,
    identity: Identity,
    number: FileNumber,
    is_kept: bool,
    only_times: bool,
    since: Stamp,
}

/// What one look came to.
struct Look {
    found: Found,
    slots: Vec<SourceSlot>,
    /// Whether all directories on the way are watched.
    is_watched: bool,
}

impl Site {
    /// Of a folder, whose path may lead through links. Without a `table` nothing is remembered and
    /// no file kept.
    pub fn new(
        root: Vec<u8>,
        index: Vec<String>,
        lists: bool,
        watched: Option<(Arc<RevisionTable>, nicache_watch::Coverage)>,
    ) -> Self {
        let (table, coverage) = match watched {
            Some((table, coverage)) => (Some(table), coverage),
            None => (None, nicache_watch::Coverage::default()),
        };
        Self {
            root,
            index,
            lists,
            table,
            coverage,
            paths: HashMap::new(),
            files: HashMap::new(),
            files_next: 0,
            revision_next: 0,
            counters: SiteCounters::default(),
        }
    }

    /// The table that tells of changes.
    pub fn table(&self) -> Option<&Arc<RevisionTable>> {
        self.table.as_ref()
    }

    /// Files of which a change was witnessed since they were looked at. Each is told as long as it
    /// is not looked at again.
    pub fn changed_files(&self) -> Vec<Arc<OpenFile>> {
        let Some(table) = &self.table else { return Vec::new() };
        self.files().filter(|file| file.has_changed(table)).collect()
    }

    /// Looks at a file again that has changed in place. `None`: it cannot be kept at the moment, as
    /// somebody still has it open for writing.
    pub fn look_again(&mut self, file: &OpenFile) -> Option<Arc<OpenFile>> {
        let table = self.table.clone()?;
        let since = table.advance_clock();
        let fd = file.fd.try_clone().ok()?;
        // Once the times have been asked for, every change to come is told.
        rustix::fs::fstat(&fd).ok()?;
        settle_file(&fd).ok()?;
        let (identity, number, only_times) = (file.identity, file.number, file.only_times);
        let sight = Sight { fd, identity, number, is_kept: true, only_times, since };
        let again = self.observe(sight, Some(file)).ok()?;
        if again.has_changed(&table) {
            return None;
        }
        let kept = Some(Arc::clone(&again));
        self.files.insert(
            file.identity,
            Numbered { number: again.number, file: Arc::downgrade(&again), again: kept },
        );
        Some(again)
    }

    /// What has happened.
    pub fn counters(&self) -> &SiteCounters {
        &self.counters
    }

    /// Files that are open.
    pub fn files(&self) -> impl Iterator<Item = Arc<OpenFile>> {
        self.files.values().filter_map(|numbered| numbered.file.upgrade())
    }

    /// What a path means now. It is decoded, and begins with a slash.
    pub fn find(&mut self, path: &[u8]) -> Found {
        let Some(table) = self.table.clone() else {
            self.counters.looked_up += 1;
            return self.look(path, Stamp(0)).map_or(Found::Missing, |look| look.found);
        };
        if let Some(known) = self.paths.get_mut(path) {
            let epoch = table.epoch();
            if known.epoch == epoch {
                self.counters.remembered += 1;
                return known.found.clone();
            }
            if table.is_unchanged(&known.slots, known.since) {
                known.epoch = epoch;
                self.counters.remembered += 1;
                self.counters.compared += 1;
                return known.found.clone();
            }
        }
        // What was known of the file is wanted once more, to see whether it is really another one.
        let before = self.paths.remove(path);
        self.look_up(path, &table, before.map(|known| known.found))
    }

    fn look_up(&mut self, path: &[u8], table: &RevisionTable, before: Option<Found>) -> Found {
        let mut found = Found::Missing;
        for _ in 0..TRIES {
            self.counters.looked_up += 1;
            let since = table.advance_clock();
            // What cannot be read for a reason that says nothing about the path is not there for
            // anybody.
            let Ok(look) = self.look(path, since) else { return Found::Missing };
            found = since_before(look.found, before.as_ref());
            let epoch = table.epoch();
            let is_certain = table.is_unchanged(&look.slots, since);
            if !is_certain {
                continue;
            }
            let is_kept = look.is_watched
                && match &found {
                    Found::File { file, .. } => file.is_kept,
                    Found::Directory => true,
                    // Anybody could ask for what is not there.
                    Found::Listing(_) | Found::Missing | Found::Forbidden => false,
                };
            if is_kept {
                if self.paths.len() >= PATHS_MAX {
                    self.forget_some();
                }
                let known = Known { found: found.clone(), slots: look.slots.into(), since, epoch };
                self.paths.insert(path.into(), known);
            }
            return found;
        }
        // It changes all the time: its bytes are read for each reply.
        if let Found::File { file, .. } = &found
            && file.is_kept
        {
            drop(self.files.remove(&file.identity));
            return match self.look(path, Stamp(0)) {
                Ok(Look { found, .. }) => unkept(found),
                Err(_) => Found::Missing,
            };
        }
        found
    }

    /// Makes room: an eighth of the paths, whichever come first, and the files that nobody needs
    /// then.
    fn forget_some(&mut self) {
        let some: Vec<Box<[u8]>> = self.paths.keys().take(PATHS_MAX / 8).cloned().collect();
        some.iter().for_each(|path| drop(self.paths.remove(path)));
        self.files.retain(|_, numbered| {
            numbered.again = None;
            numbered.file.strong_count() > 0
        });
    }

    fn look(&mut self, path: &[u8], since: Stamp) -> Result<Look, RefusalReason> {
        let mut resolver = Resolver::new(self.coverage.clone());
        let walk = self.walk(&mut resolver, path)?;
        let mut look =
            Look { found: Found::Missing, slots: walk.slots.clone(), is_watched: walk.watched };
        look.slots.extend([SourceSlot::EVERYTHING, SourceSlot::MOUNTS]);
        look.found = match &walk.outcome {
            Outcome::Missing => Found::Missing,
            _ if !is_for_all(&walk) => Found::Forbidden,
            Outcome::Found(node) if node.kind == FileType::Directory => {
                match path.ends_with(b"/") {
                    false => Found::Directory,
                    true => self.look_for_index(&mut resolver, path, node, since, &mut look)?,
                }
            }
            Outcome::Found(_) if path.ends_with(b"/") => Found::Missing,
            Outcome::Found(node) => self.open(node, since)?,
        };
        Ok(look)
    }

    /// A file as it is now, behind the barrier. `before` is what was known of it.
    fn observe(
        &mut self,
        sight: Sight,
        before: Option<&OpenFile>,
    ) -> rustix::io::Result<Arc<OpenFile>> {
        let Sight { fd, identity, number, is_kept, only_times, since } = sight;
        let stat = rustix::fs::fstat(&fd)?;
        let (bytes, changed_ns) = (stat.st_size as u64, last_change_ns(&stat));
        // A stamp may be raised without a change, as when the file system finds a place for what
        // was written before.
        let is_same = |before: &OpenFile| {
            let times = (before.bytes, before.changed_ns) == (bytes, changed_ns);
            is_kept && before.is_kept && !only_times && before.is_told_by_times() && times
        };
        let revision = match before {
            Some(before) if is_same(before) => before.revision,
            before => {
                self.counters.changed += u64::from(before.is_some());
                self.revision_next += 1;
                Revision(self.revision_next)
            }
        };
        let (ino, looked_ns) = (identity.ino, now_ns());
        Ok(Arc::new(OpenFile {
            fd,
            number,
            revision,
            bytes,
            changed_ns,
            ino,
            is_kept,
            only_times,
            identity,
            since,
            looked_ns,
        }))
    }

    fn walk(&self, resolver: &mut Resolver, path: &[u8]) -> Result<Walk, RefusalReason> {
        let walk = resolver.resolve_below(&self.root, path)?;
        // Before anything is read: a change from now on moves the epoch.
        if let Some(table) = &self.table {
            walk.slots.iter().for_each(|&slot| table.watch(slot));
        }
        Ok(walk)
    }

    fn look_for_index(
        &mut self,
        resolver: &mut Resolver,
        path: &[u8],
        directory: &Node,
        since: Stamp,
        look: &mut Look,
    ) -> Result<Found, RefusalReason> {
        for name in self.index.clone() {
            let walk = self.walk(resolver, &[path, name.as_bytes()].concat())?;
            look.slots.extend(&walk.slots);
            look.is_watched &= walk.watched;
            match &walk.outcome {
                Outcome::Found(_) if !is_for_all(&walk) => return Ok(Found::Forbidden),
                Outcome::Found(node) if node.kind == FileType::RegularFile => {
                    return self.open(node, since);
                }
                _ => {}
            }
        }
        if !self.lists {
            return Ok(Found::Listing(None));
        }
        Ok(Found::Listing(Some(names(directory)?)))
    }

    fn open(&mut self, node: &Node, since: Stamp) -> Result<Found, RefusalReason> {
        if node.kind != FileType::RegularFile || !node.is_readable_by_all() {
            return Ok(Found::Forbidden);
        }
        let mut known = self.files.get_mut(&node.identity);
        let before = known.as_ref().and_then(|known| known.file.upgrade());
        // Whoever asks keeps it from now on.
        if let Some(known) = &mut known {
            known.again = None;
        }
        if let (Some(file), Some(table)) = (&before, &self.table)
            && file.is_kept
            && !file.has_changed(table)
        {
            return Ok(Found::File { file: Arc::clone(file), since_ns: now_ns() });
        }
        let is_new = known.is_none();
        let number = known.map_or(FileNumber(self.files_next), |known| known.number);
        self.files_next += u32::from(is_new);
        // What is told of a file on an overlay is told of the layer's.
        let settled = if node.is_watched() && node.layers().is_empty() {
            settle(node)
        } else {
            Err(RefusalReason::UnwatchedFilesystem)
        };
        let is_kept = settled.is_ok() && self.table.is_some();
        let fd = match settled {
            Ok(fd) => fd,
            Err(_) => node.open().map_err(|_| RefusalReason::Io)?,
        };
        let only_times = node.has_only_times();
        let sight = Sight { fd, identity: node.identity, number, is_kept, only_times, since };
        let file = self.observe(sight, before.as_deref()).map_err(|_| RefusalReason::Io)?;
        if is_kept {
            if self.files.len() >= PATHS_MAX {
                self.forget_some();
            }
            self.files.insert(
                node.identity,
                Numbered { number, file: Arc::downgrade(&file), again: None },
            );
        } else {
            self.counters.not_kept += 1;
        }
        Ok(Found::File { file, since_ns: now_ns() })
    }
}

/// The clock that times of files are of.
fn now_ns() -> i128 {
    nicache_clock::unix_coarse_ns().into()
}

/// A path that leads to the file that it led to before has done so for as long.
fn since_before(found: Found, before: Option<&Found>) -> Found {
    match (found, before) {
        (Found::File { file, .. }, Some(Found::File { file: old, since_ns }))
            if old.identity == file.identity =>
        {
            Found::File { file, since_ns: *since_ns }
        }
        (found, _) => found,
    }
}

/// What was found, with the mark that the bytes of its file are not to be kept.
fn unkept(found: Found) -> Found {
    match found {
        Found::File { file, since_ns } => match Arc::try_unwrap(file) {
            Ok(file) => {
                Found::File { file: Arc::new(OpenFile { is_kept: false, ..file }), since_ns }
            }
            Err(file) => Found::File { file, since_ns },
        },
        other => other,
    }
}

/// Does the way end below the root, through directories that everybody may search?
fn is_for_all(walk: &Walk) -> bool {
    walk.inside && walk.directories.iter().all(|passage| passage.access.let_all(SEARCHABLE))
}

/// The later of the two times: one is set at will by programs that keep the times of what they
/// copy.
fn last_change_ns(stat: &rustix::fs::Stat) -> i128 {
    let ns = |seconds: i64, nanoseconds: u64| {
        i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
    };
    ns(stat.st_mtime, stat.st_mtime_nsec).max(ns(stat.st_ctime, stat.st_ctime_nsec))
}

/// Names in a directory that are not hidden, folders with a slash, in order.
fn names(directory: &Node) -> Result<Arc<[String]>, RefusalReason> {
    let listing = directory.list().map_err(|_| RefusalReason::Io)?;
    let mut names: Vec<String> =
        listing.into_iter().filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    Ok(names.into())
}
