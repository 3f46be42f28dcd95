//! Files that the server may have in its own memory: whatever it has read since its start, other
//! than to send it on with sendfile.
//!
//! A cache of compiled scripts, of templates or of open files answers from memory, so a later
//! request looks at none of the files that its reply depends on (docs/coherence.md rule 2). And
//! after a change the server goes on with what it has until it reads the file again. To ask for the
//! file's time is not enough: PHP finds out where a path leads, or a script asks whether a file is
//! there, and both go on with what was compiled before. Until then, and until the grace period of
//! `grace.rs` is over, the file is *dirty*, and no reply may be kept (rule 3).

mod file;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use nicache_coherence::{RevisionTable, Rule, SourceSlot, Stamp};
use rustix::fs::{AtFlags, CWD, StatxFlags};

pub(crate) use self::file::DIRTY_NS_MAX;
use self::file::{FRESH_NS, File, Key, Layered, REREAD_NS, VOLATILE_NS};
use crate::memory::grace::{Ends, Grace, Reading};
use crate::processes::parent_of;
use crate::resolve::node::Node;
use crate::resolve::resolver::{Resolver, Walk};
use crate::resolve::settled::{
    SAME_TIME_NS, UNDER_WAY_NS, is_within, may_change_untold, telling_change_ns,
};
use crate::witnesses::event::{EventKind, Identity, LookupEvent};

/// A file whose change time is this close before its opening may be one whose name was being taken
/// away: the witness has fired, and the path led to it for the last time.
const NAMED_NS: i128 = 2_000_000_000;
/// Openings of such files that wait to be looked at.
const UNVERIFIED_MAX: usize = 4096;
/// Processes that may be asked where paths start. Of several one is likely to be there.
const ASKABLE_MAX: usize = 8;
/// Files followed at most. With more of them no dynamic reply is kept.
pub(crate) const RETAINED_MAX: usize = 65_536;
/// Where glibc finds libraries. It maps this file when a program starts or opens a library, and
/// keeps nothing of it: each package that brings a library changes it, and a program that runs is
/// none the wiser.
const LOADER_CACHE: &[u8] = b"/etc/ld.so.cache";

const O_ACCMODE: u32 = 3;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;

/// File systems whose files are made up as they are read (linux/magic.h: proc, sysfs, cgroup,
/// cgroup2). They have no changes that could be seen.
const GENERATED_MAGIC: [u64; 4] = [0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270];

/// Is what the path leads to, if it is on that device, made up as it is read?
fn is_generated(path: &[u8], dev: u32) -> bool {
    let is_there = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)
        .is_ok_and(|stat| stat.stx_dev_major << 20 | stat.stx_dev_minor == dev);
    is_there
        && rustix::fs::statfs(path)
            .is_ok_and(|stat| GENERATED_MAGIC.contains(&(stat.f_type as u64)))
}

/// Looks up what was opened; if its process is gone, as another one that is there finds it: the
/// first that comes to the same file, or else the last. What is not the same file then is not taken
/// for it.
fn resolve(
    opening: &LookupEvent,
    askable: &VecDeque<LookupEvent>,
    resolver: &mut Resolver,
) -> Option<Walk> {
    if let Ok(walk) = resolver.resolve(opening) {
        return Some(walk);
    }
    if !opening.path_from_folder().is_some_and(|path| path.starts_with(b"/")) {
        return None;
    }
    let mut found = None;
    for other in askable {
        let as_other = LookupEvent {
            tgid: other.tgid,
            tid: other.tid,
            of_process: other.of_process,
            ..opening.clone()
        };
        let Ok(walk) = resolver.resolve(&as_other) else { continue };
        let is_same = walk.found().map(|node| node.identity) == opening.inode;
        found = Some(walk);
        if is_same {
            break;
        }
    }
    found
}

/// A look at where paths lead. The resolver remembers nothing from before the clock. It waits for
/// whoever is changing names, but only once in each directory: what has its stamp before the clock
/// has its effect for all files, and what has that or a later one may have it for some of them.
pub(crate) struct Look {
    pub(crate) clock: Stamp,
    pub(crate) resolver: Resolver,
}

/// Files that the server may have in its own memory: whatever it has read since its start, other
/// than to send it on with sendfile; and which of them are dirty.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    files: HashMap<Key, File>,
    /// All processes that are [`File::opener`] of a file, and some that no longer are.
    openers: HashSet<u32>,
    /// What a path led to, and the clock when the server last found nothing there.
    paths: HashMap<Box<[u8]>, (Key, Stamp)>,
    /// Whether the files of a device are made up as they are read.
    generated: HashMap<u32, bool>,
    overflowed: bool,
    /// A file has been read that was not waited for any longer.
    renewed: bool,
    /// Openings after which the path may have led elsewhere, with nobody to tell.
    unverified: Vec<(Key, LookupEvent)>,
    /// The stamp of the last mount that is known: a device's number may be another file system's
    /// now.
    mounted: Stamp,
    /// The last processes that have opened something, and those that have started them. They are
    /// asked where paths start.
    askable: VecDeque<LookupEvent>,
    /// Those of them whose parents are not known yet.
    orphans: VecDeque<LookupEvent>,
}

impl Retained {
    /// Takes note of what the server did.
    pub(crate) fn observe(&mut self, event: &LookupEvent, table: &RevisionTable, ends: Ends<'_>) {
        if !Rule::Retained.holds() {
            return;
        }
        match event.kind {
            EventKind::Lookup => {}
            EventKind::Sendfile => return self.forget_sent(event),
            _ => return,
        }
        self.forget_devices(table);
        let reading = Reading { process: event.tgid, time_ns: event.time_ns };
        let path = (event.path.starts_with(b"/") && !event.incomplete).then_some(&*event.path);
        let known = path.and_then(|path| self.paths.get_mut(path));
        let mut is_changed = false;
        let is_missing = [libc::ENOENT, libc::ENOTDIR].map(i64::from).contains(&-event.ret);
        if let Some((key, missing_at)) = &known
            && let Some(file) = self.files.get_mut(key)
            && (event.inode.is_some() || is_missing)
            && file.is_outdated(key.identity, *missing_at, table)
        {
            self.renewed |= file.is_given_up(event.time_ns);
            is_changed = true;
            if is_missing {
                file.grace.read(reading, true, ends);
            }
        }
        let mut replaced = None;
        if let Some((key, missing_at)) = known {
            if is_missing {
                *missing_at = (*missing_at).max(event.clock);
            }
            if event.inode.is_some_and(|now| now != key.identity) {
                replaced = Some(key.clone());
                is_changed |= *missing_at != Stamp(0);
            }
        }
        // What it has just made or emptied has nothing to read.
        let has_content = event.open_flags & O_TRUNC == 0
            && event.open_flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
        let Some(identity) = event.inode.filter(|_| event.opens_to_read() && has_content) else {
            return;
        };
        let earlier =
            replaced.and_then(|old| match self.files.get(&old)?.path.as_deref() == path {
                true => self.files.remove(&old).map(|file| file.grace),
                false => Some(self.files.get(&old)?.grace.clone()),
            });
        if path == Some(LOADER_CACHE) {
            return;
        }
        if let Some(path) = path
            && *self
                .generated
                .entry(identity.dev)
                .or_insert_with(|| is_generated(path, identity.dev))
        {
            return;
        }
        let key = Key::new(identity, event);
        // It may be known by another name.
        if !is_changed && let Some(file) = self.files.get_mut(&key) {
            let own = file.path.as_ref().and_then(|path| self.paths.get(path));
            let missing_at = own.map_or(Stamp(0), |(_, missing_at)| *missing_at);
            is_changed = file.is_outdated(identity, missing_at, table);
            self.renewed |= is_changed && file.is_given_up(event.time_ns);
        }
        // Nothing has changed since it was looked at on the overlay.
        let is_known = |file: &File| {
            file.layered.is_some()
                && !file.is_to_be_found
                && !file.unsettled
                && file.stamp(identity, table) < file.opened
        };
        let is_to_be_found = event.on_overlay && !self.files.get(&key).is_some_and(is_known);
        self.add(key.clone(), path, event, table);
        self.may_ask(event);
        let Some(file) = self.files.get_mut(&key) else { return };
        if let Some(earlier) = earlier {
            file.grace.inherit(earlier);
        }
        file.grace.read(reading, is_changed, ends);
        if event.changed_ns != 0
            && !is_within(NAMED_NS, event.changed_ns.into(), event.time_ns)
            && !is_to_be_found
        {
            return;
        }
        file.is_to_be_found = is_to_be_found;
        if self.unverified.len() < UNVERIFIED_MAX {
            self.unverified.push((key, event.clone()));
        } else {
            file.unsettled = true;
        }
    }

    /// This process may be asked where paths start, as long as it is there.
    fn may_ask(&mut self, event: &LookupEvent) {
        if event.starter == 0 && !self.is_askable(event.tgid) {
            let asked = LookupEvent { path: Box::default(), ..event.clone() };
            self.orphans.truncate(ASKABLE_MAX - 1);
            self.orphans.push_front(asked.clone());
            self.ask_first(asked);
        }
    }

    fn is_askable(&self, process: u32) -> bool {
        self.askable.iter().any(|asked| asked.tgid == process)
    }

    fn ask_first(&mut self, asked: LookupEvent) {
        self.askable.truncate(ASKABLE_MAX - 1);
        self.askable.push_front(asked);
    }

    /// Whoever has started a process outlives it where processes end after a few requests (PHP-FPM,
    /// Apache prefork). It is asked, too, if its paths start at the same place.
    fn ask_parents(&mut self, resolver: &mut Resolver) {
        if self.orphans.is_empty() {
            return;
        }
        self.askable.retain(|asked| resolver.root_of(asked).is_ok());
        for child in std::mem::take(&mut self.orphans) {
            let Some(parent) = parent_of(child.tgid) else { continue };
            let parent = LookupEvent { tgid: parent, tid: parent, ..LookupEvent::blank(0) };
            let root = resolver.root_of(&child);
            if !self.is_askable(parent.tgid) && root.is_ok() && root == resolver.root_of(&parent) {
                self.ask_first(parent);
            }
        }
    }

    /// Makes dirty what the server has opened by a path that leads elsewhere by now. `begin` is
    /// called again for a file on whose way something has changed since the last look began.
    pub(crate) fn verify(&mut self, begin: &mut dyn FnMut() -> Look, table: &RevisionTable) {
        let Look { mut clock, mut resolver } = begin();
        self.ask_parents(&mut resolver);
        for (key, event) in std::mem::take(&mut self.unverified) {
            let identity = key.identity;
            let walk = resolve(&event, &self.askable, &mut resolver);
            let node = walk.as_ref().and_then(Walk::found);
            let is_there = node.is_some_and(|node| node.identity == identity || !node.is_watched());
            let Some(file) = self.files.get_mut(&key).filter(|file| file.opened == event.clock)
            else {
                continue;
            };
            if !is_there {
                tracing::debug!(path = %file.name(), "the server has opened a file whose name was being taken away");
                (file.unsettled, file.dirty) = (true, None);
            }
            let is_on_overlay =
                |node: &&Node| node.identity == identity && node.is_layered() && node.is_watched();
            let (Some(walk), Some(node)) = (&walk, node.filter(is_on_overlay)) else { continue };
            file.layered = Layered::new(walk, node, &event, table);
            (file.is_to_be_found, file.is_to_be_seen) = (false, false);
            // What the server has opened may be the file before its copy came into the upper layer.
            // Then that has a new time, or its way has changed since.
            let is_same = telling_change_ns(&event) != 0
                && i128::from(telling_change_ns(&event)) == node.changed_ns;
            let may_be_copy = node.is_in_several_layers()
                && is_within(UNDER_WAY_NS, node.changed_ns, event.time_ns);
            // One that is in one layer only is not a copy, whatever else its folders get.
            let is_still = |file: &Layered| table.stamp_of(file.file.0.slot()) < event.clock;
            let is_alone =
                !node.is_in_several_layers() && file.layered.as_ref().is_some_and(is_still);
            let stamp = file.stamp(identity, table);
            if is_same || is_alone {
                if stamp < clock {
                    file.unchanged_up_to = stamp;
                }
            } else if may_be_copy || stamp >= event.clock {
                tracing::debug!(path = %file.name(), "a file on an overlay may have been copied while the server opened it");
                (file.unsettled, file.dirty) = (true, None);
            }
        }
        for (key, file) in self.files.iter_mut().filter(|(_, file)| file.is_to_be_seen) {
            file.is_to_be_seen = false;
            let Some(layered) = &file.layered else { continue };
            let mut stamp = file.stamp(key.identity, table);
            if stamp >= clock {
                Look { clock, resolver } = begin();
                stamp = file.stamp(key.identity, table);
            }
            let Some(walk) = resolve(&layered.opening, &self.askable, &mut resolver) else {
                continue;
            };
            let Some(node) =
                walk.found().filter(|node| node.identity == key.identity && node.is_watched())
            else {
                continue;
            };
            let Some(now) = Layered::new(&walk, node, &layered.opening, table) else { continue };
            // Another change may have the same time as the last one before the opening; that is one
            // of the file itself.
            let is_told = !is_within(SAME_TIME_NS, now.file.1, layered.opening.time_ns)
                || table.stamp_of(now.file.0.slot()) < file.opened;
            if now.file == layered.file && is_told {
                file.layered = Some(now);
                if stamp < clock && file.stamp(key.identity, table) == stamp {
                    file.unchanged_up_to = stamp;
                }
            }
        }
    }

    /// Something has been mounted, or is no longer. Files whose paths lead elsewhere now have
    /// changed: the server may have the old ones in its memory. `resolver` remembers nothing from
    /// before.
    pub(crate) fn see_mounts(&mut self, resolver: &mut Resolver, table: &RevisionTable) {
        let Some(asked) = self.askable.iter().find(|asked| resolver.root_of(asked).is_ok()) else {
            if !self.files.is_empty() {
                tracing::debug!("no process is there that a mount can be looked at with");
                table.record_change(SourceSlot::EVERYTHING);
            }
            return;
        };
        for (key, file) in &mut self.files {
            let leads_there = file.path.as_ref().is_some_and(|path| {
                let event = LookupEvent { path: path.clone(), ..asked.clone() };
                let walk = resolver.resolve(&event);
                walk.is_ok_and(|walk| {
                    walk.found().is_some_and(|node| node.identity == key.identity)
                })
            });
            if !leads_there && !file.is_elsewhere {
                tracing::debug!(path = %file.name(), "a file that the server has read is no longer found there after a mount");
                table.record_change(key.identity.slot());
            }
            file.is_elsewhere = !leads_there;
        }
    }

    /// What is known of devices is known until something is mounted.
    fn forget_devices(&mut self, table: &RevisionTable) {
        let mounted =
            table.stamp_of(SourceSlot::MOUNTS).max(table.stamp_of(SourceSlot::EVERYTHING));
        // With this clock there may be another one.
        if mounted != self.mounted || mounted >= table.clock() {
            self.generated.clear();
            self.mounted = mounted;
        }
    }

    /// Are there openings to [verify](Retained::verify), or processes whose parents are to be asked
    /// for as long as they are there?
    pub(crate) fn has_new(&self) -> bool {
        !self.unverified.is_empty() || !self.orphans.is_empty()
    }

    /// Is there anything to verify?
    pub(crate) fn has_unverified(&self) -> bool {
        self.has_new() || self.files.values().any(|file| file.is_to_be_seen)
    }

    fn add(&mut self, key: Key, path: Option<&[u8]>, event: &LookupEvent, table: &RevisionTable) {
        let identity = key.identity;
        if self.files.len() >= RETAINED_MAX && !self.files.contains_key(&key) {
            self.overflowed = true;
            return;
        }
        if let Some(path) = path {
            self.paths.insert(path.into(), (key.clone(), Stamp(0)));
        }
        // Where times are the only witness no reading looks like a change, and a store to a mapping
        // may leave the time alone (tmpfs).
        let changed_ns = if event.stillness.only_times { 0 } else { telling_change_ns(event) };
        let file = self.files.entry(key).or_insert_with(|| {
            table.track(identity.slot());
            self.openers.insert(event.tgid);
            File {
                path: path.map(Box::from),
                is_read_only: false,
                opener: Some(event.tgid),
                first_opened_ns: event.time_ns,
                opened: event.clock,
                changed_ns,
                changed_since: event.clock,
                unsettled: false,
                unchanged_up_to: Stamp(0),
                dirty: None,
                grace: Grace::default(),
                changes: 0,
                rereads: 0,
                counted_since_ns: event.time_ns,
                counted_ns: event.time_ns,
                last_opener: 0,
                layered: None,
                is_to_be_found: false,
                is_to_be_seen: false,
                is_elsewhere: false,
                is_replaced_code: false,
            }
        });
        let stamp = file.stamp(identity, table);
        if event.time_ns > file.counted_since_ns + VOLATILE_NS {
            (file.changes, file.rereads, file.counted_since_ns) = (0, 0, event.time_ns);
        }
        if stamp >= file.opened && event.clock > file.opened {
            file.changes += 1;
            file.counted_ns = event.time_ns;
        } else if stamp < file.opened
            && file.last_opener == event.tgid
            && event.time_ns >= file.counted_ns + REREAD_NS
            && event.changed_ns != 0
            && !is_within(FRESH_NS, event.changed_ns.into(), event.time_ns)
        {
            file.rereads += 1;
            file.counted_ns = event.time_ns;
        }
        file.last_opener = event.tgid;
        if file.path.is_none() {
            file.path = path.map(Box::from);
        }
        file.opened = file.opened.max(event.clock);
        (file.is_elsewhere, file.is_replaced_code) = (false, false);
        file.is_read_only |= event.open_flags & O_ACCMODE == 0;
        if file.changed_ns != changed_ns {
            // A request with this clock may have been answered before.
            (file.changed_ns, file.changed_since) = (changed_ns, Stamp(event.clock.0 + 1));
        }
        file.unsettled = may_change_untold(event);
        if file.unsettled {
            // It is to be waited for from now on.
            file.dirty = None;
        }
        if file.opener != Some(event.tgid) {
            file.opener = None;
        }
    }

    /// A file that was opened only to be sent is not in the server's memory.
    fn forget_sent(&mut self, event: &LookupEvent) {
        let Some(identity) = event.inode else { return };
        let key = match event.on_overlay {
            false => Key { identity, path: None },
            // Of several names it is not known which one was sent.
            true => {
                let mut keys = self.files.keys().filter(|key| key.identity == identity);
                let (Some(key), None) = (keys.next(), keys.next()) else { return };
                key.clone()
            }
        };
        if self.files.get(&key).is_some_and(|file| file.opener == Some(event.tgid))
            && let Some(path) = self.files.remove(&key).and_then(|file| file.path)
        {
            self.paths.remove(&path);
        }
    }

    /// A process has ended that nobody asks for anything: what it alone had in its memory is
    /// nowhere.
    pub(crate) fn forget_reader(&mut self, process: u32) {
        if !self.openers.remove(&process) {
            return;
        }
        let paths = &mut self.paths;
        self.files.retain(|_, file| {
            let is_gone = file.opener == Some(process);
            if let (true, Some(path)) = (is_gone, &file.path) {
                paths.remove(path);
            }
            !is_gone
        });
    }

    /// A process of the server has ended, or another one has its number. What it had in its memory
    /// others may have, too, and no process of that number can say otherwise.
    pub(crate) fn disown(&mut self, process: u32) {
        if self.openers.remove(&process) {
            for file in self.files.values_mut().filter(|file| file.opener == Some(process)) {
                file.opener = None;
            }
        }
    }

    /// Ends of processes may have gone unseen.
    pub(crate) fn disown_all(&mut self) {
        self.openers.clear();
        self.files.values_mut().for_each(|file| file.opener = None);
    }

    /// Has the server read a changed file after [`DIRTY_NS_MAX`]? What was kept meanwhile may be of
    /// what it had before. True once.
    pub(crate) fn take_renewed(&mut self) -> bool {
        std::mem::take(&mut self.renewed)
    }

    /// Files followed.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// May the server have this file in its memory?
    pub(crate) fn has(&self, identity: Identity) -> bool {
        self.files.keys().any(|key| key.identity == identity)
    }

    /// Are there more files than can be followed?
    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Has a file changed that the server has not read since, or was what it had read before still
    /// of use when a request was forwarded to it, whatever another request had it read meanwhile?
    pub(crate) fn is_dirty(
        &mut self,
        table: &RevisionTable,
        ends: Ends<'_>,
        forwarded_ns: u64,
        now_ns: u64,
    ) -> bool {
        let mut dirty = false;
        if !Rule::Dirty.holds() {
            return false;
        }
        for (key, file) in &mut self.files {
            let missing_at = file
                .path
                .as_ref()
                .and_then(|path| self.paths.get(path))
                .map_or(Stamp(0), |(_, at)| *at);
            if !file.is_kept() {
                file.dirty = None;
                continue;
            }
            if !file.is_outdated(key.identity, missing_at, table)
                && let Some(over_ns) = file.grace.over_ns(ends)
            {
                self.renewed |= file.is_given_up(over_ns);
                file.dirty = None;
                if forwarded_ns < over_ns {
                    tracing::debug!(path = %file.name(), "the server has read a changed file only after the request came");
                    dirty = true;
                }
                continue;
            }
            if file.dirty.is_none() && file.has_become_replaced_code(key.identity) {
                file.is_replaced_code = true;
                continue;
            }
            let stamp = file.stamp(key.identity, table);
            let (_, since_ns) = *file.dirty.get_or_insert((stamp, now_ns));
            if now_ns < since_ns + DIRTY_NS_MAX {
                tracing::debug!(path = %file.name(), "the server has not read a changed file");
                dirty = true;
            }
        }
        dirty
    }

    /// Is any file changed since the clock was `since` that the server had read before
    /// `read_before_ns`? What it read only later is not in a reply that was ready before.
    pub(crate) fn has_changed(
        &mut self,
        table: &RevisionTable,
        since: Stamp,
        read_before_ns: u64,
    ) -> bool {
        for (key, file) in &mut self.files {
            let stamp = file.stamp(key.identity, table);
            if stamp < since || file.first_opened_ns > read_before_ns || file.is_volatile() {
                continue;
            }
            if file.changed_since <= since && file.is_same_as_opened(key.identity, stamp, table) {
                continue;
            }
            tracing::debug!(path = %file.name(), "a file that the server may have in its memory has changed");
            return true;
        }
        false
    }
}
