//! Files that the server may have in its own memory: whatever it has read since its start, other than to send it on with sendfile.
//!
//! A cache of compiled scripts, of templates or of open files answers from memory, so that a later request looks at none of the files
//! that its reply depends on (docs/coherence.md rule 2). And after a change the server goes on with what it has until it reads the file
//! again. To ask for the file's time is not enough: PHP finds out where a path leads, or a script asks whether a file is there, and both go on
//! with what was compiled before. Until then, and until the grace period of `grace.rs` is over, the file is *dirty*, and no reply may be kept (rule 3).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};

use nicache_coherence::{RevisionTable, Rule, SourceSlot, Stamp};
use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::memory::grace::{Ends, Grace, Reading};
use crate::resolve::resolver::{Node, Resolver, Walk};
use crate::resolve::settled::{SAME_TIME_NS, UNDER_WAY_NS, is_within, may_change_untold, telling_change_ns};
use crate::witnesses::event::{EventKind, Identity, LookupEvent};
use crate::witnesses::mappings::runs;

/// A file whose change time is this close before its opening may be one whose name was being taken away: the witness has fired, and the path led to it for the
/// last time.
const NAMED_NS: i128 = 2_000_000_000;
/// Openings of such files that wait to be looked at.
const UNVERIFIED_MAX: usize = 4096;
/// Processes that may be asked where paths start. Of several one is likely to be there.
const ASKABLE_MAX: usize = 8;
/// Files followed at most. With more of them no dynamic reply is kept.
pub(crate) const RETAINED_MAX: usize = 65_536;
/// A server that has not read a changed file for this long is taken to have no use for it any more; what it still keeps of it is
/// bounded by the age of dynamic entries.
pub(crate) const DIRTY_NS_MAX: u64 = 60_000_000_000;
/// A file that the server reads anew this often within [`VOLATILE_NS`], changed each time, is data that it does not keep, if the same process has also read
/// it as often although it was what it had read before, [`REREAD_NS`] ago or more; or, while somebody has it open for writing, the latter alone.
/// What is compiled from a file is read once per change, or twice in a row; but a file that was changed a moment ago is read for each request, because PHP does not
/// keep what may not be whole yet (`opcache.file_update_protection`, 2 s). So only readings long after the change ([`FRESH_NS`]) tell that it is not kept.
const VOLATILE_CHANGES: u32 = 16;
const VOLATILE_NS: u64 = 60_000_000_000;
const REREAD_NS: u64 = 10_000_000;
const FRESH_NS: i128 = 10_000_000_000;

/// Where glibc finds libraries. It maps this file when a program starts or opens a library, and keeps nothing of it: each package that brings
/// a library changes it, and a program that runs is none the wiser.
const LOADER_CACHE: &[u8] = b"/etc/ld.so.cache";

const O_ACCMODE: u32 = 3;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;

/// The present change time of what a path leads to, if that is still the inode.
fn changed_ns_of(path: &[u8], identity: Identity) -> Option<u64> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    let is_same = stat.stx_ino == identity.ino && stat.stx_dev_major << 20 | stat.stx_dev_minor == identity.dev;
    let seconds = u64::try_from(stat.stx_ctime.tv_sec).ok()?;
    is_same.then(|| seconds * 1_000_000_000 + u64::from(stat.stx_ctime.tv_nsec))
}

/// File systems whose files are made up as they are read (linux/magic.h: proc, sysfs, cgroup, cgroup2). They have no changes that could be seen.
const GENERATED_MAGIC: [u64; 4] = [0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270];

/// Is what the path leads to, if it is on that device, made up as it is read?
fn is_generated(path: &[u8], dev: u32) -> bool {
    let is_there = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)
        .is_ok_and(|stat| stat.stx_dev_major << 20 | stat.stx_dev_minor == dev);
    is_there && rustix::fs::statfs(path).is_ok_and(|stat| GENERATED_MAGIC.contains(&(stat.f_type as u64)))
}

/// Looks up what was opened; if its process is gone, as another one that was there finds it. What is not the same file then is not taken for it.
fn resolve(opening: &LookupEvent, other: Option<&LookupEvent>, resolver: &mut Resolver) -> Option<Walk> {
    if let Ok(walk) = resolver.resolve(opening) {
        return Some(walk);
    }
    let other = other.filter(|_| opening.path.starts_with(b"/"))?;
    let as_other = LookupEvent { tgid: other.tgid, tid: other.tid, of_process: other.of_process, ..opening.clone() };
    resolver.resolve(&as_other).ok()
}

#[derive(Debug)]
struct File {
    path: Option<Box<[u8]>>,
    /// It was opened for reading alone. What a program opens to read and write is its data (a session, a database), which it reads anew each time.
    is_read_only: bool,
    /// Process that opened it, if only one did.
    opener: Option<u32>,
    first_opened_ns: u64,
    /// The clock when it was last opened.
    opened: Stamp,
    /// Its change time then (0: it would tell nothing), and the clock when it was first opened with that.
    changed_ns: u64,
    changed_since: Stamp,
    /// It may have changed after it was opened last, with nobody to tell.
    unsettled: bool,
    /// Changes up to this stamp were none: the change time is the same as before. A file's first reading after it was written moves its
    /// access time, which the kernel's witness cannot tell from a change in every call.
    unchanged_up_to: Stamp,
    /// The stamp that makes it dirty, and since when that is known.
    dirty: Option<(Stamp, u64)>,
    /// When it was read after a change, and who had read it before.
    grace: Grace,
    /// Times that it was found changed when it was opened again, and that the process which had opened it last found it unchanged; since when.
    changes: u32,
    rereads: u32,
    counted_since_ns: u64,
    counted_ns: u64,
    last_opener: u32,
    /// On an overlay, where no change has the file's own slot.
    layered: Option<Layered>,
    /// That is not known yet of what the server has opened last.
    is_to_be_found: bool,
    /// Something on the way has changed: is it another file now?
    is_to_be_seen: bool,
    /// Its path led elsewhere when it was last looked at after a mount.
    is_elsewhere: bool,
    /// It is code that a process runs, and another file has its name now. The process goes on with what it has, and never looks again.
    is_replaced_code: bool,
}

/// What a file on an overlay is.
#[derive(Debug)]
struct Layered {
    /// Those of the way to it in each layer, and its own.
    slots: Box<[SourceSlot]>,
    /// The file that has its bytes, and its change time.
    file: (Identity, i128),
    /// By which it can be looked up again.
    opening: LookupEvent,
}

impl Layered {
    fn new(walk: &Walk, node: &Node, opening: &LookupEvent, table: &RevisionTable) -> Option<Self> {
        let slots: BTreeSet<SourceSlot> = walk.slots.iter().copied().collect();
        for &slot in &slots {
            table.track(slot);
        }
        let file = node.layers().first().map(|file| (file.identity, file.changed_ns))?;
        Some(Self { slots: slots.into_iter().collect(), file, opening: opening.clone() })
    }
}

impl File {
    /// The stamp of the last change that may concern the file.
    fn stamp(&self, identity: Identity, table: &RevisionTable) -> Stamp {
        let layers = self.layered.iter().flat_map(|layered| layered.slots.iter().copied());
        std::iter::once(identity.slot()).chain(layers).map(|slot| table.stamp_of(slot)).max().unwrap_or_default()
    }

    /// Has the file changed since the server read it last, and found nothing there?
    fn is_outdated(&mut self, identity: Identity, missing_at: Stamp, table: &RevisionTable) -> bool {
        let stamp = self.stamp(identity, table);
        let is_unsettled = self.unsettled && missing_at <= self.opened;
        let was_seen = stamp < self.opened.max(missing_at);
        // The stamp may be of the access time that this very reading has moved.
        is_unsettled || !was_seen && !self.is_same_as_opened(identity, stamp, table)
    }

    /// Was it given up by now ([`DIRTY_NS_MAX`])?
    fn is_given_up(&self, now_ns: u64) -> bool {
        self.dirty.is_some_and(|(_, since_ns)| now_ns >= since_ns + DIRTY_NS_MAX) && self.is_kept()
    }

    /// Does the server keep what it reads of it?
    fn is_kept(&self) -> bool {
        self.is_read_only && !self.is_volatile() && !self.is_replaced_code
    }

    /// See [`File::is_replaced_code`]. One that is written in place changes what the process does.
    fn has_become_replaced_code(&self, identity: Identity) -> bool {
        let is_replaced = self.path.as_ref().is_some_and(|path| changed_ns_of(path, identity).is_none());
        is_replaced && runs(self.last_opener, identity)
    }

    fn is_volatile(&self) -> bool {
        // What somebody holds open for writing changes with nobody to tell.
        self.rereads >= VOLATILE_CHANGES && (self.changes >= VOLATILE_CHANGES || self.unsettled)
    }

    /// Is the file the one that was opened, with the change time of that moment? `stamp` was read before.
    fn is_same_as_opened(&mut self, identity: Identity, stamp: Stamp, table: &RevisionTable) -> bool {
        if stamp <= self.unchanged_up_to {
            return true;
        }
        if self.layered.is_some() {
            self.is_to_be_seen = true;
            return false;
        }
        let Some(path) = &self.path else { return false };
        // A change that is under way may have its stamp before its time, and get another stamp once it has that: this clock or a later one.
        let clock = table.clock();
        let is_same = self.changed_ns != 0 && changed_ns_of(path, identity) == Some(self.changed_ns);
        if is_same && stamp < clock {
            self.unchanged_up_to = stamp;
        }
        is_same
    }

    fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.path.as_deref().unwrap_or_default())
    }
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    files: HashMap<Key, File>,
    /// What a path led to, and the clock when the server last found nothing there.
    paths: HashMap<Box<[u8]>, (Key, Stamp)>,
    /// Whether the files of a device are made up as they are read.
    generated: HashMap<u32, bool>,
    overflowed: bool,
    /// A file has been read that was not waited for any more.
    renewed: bool,
    /// Openings after which the path may have led elsewhere, with nobody to tell.
    unverified: Vec<(Key, LookupEvent)>,
    /// The stamp of the last mount that is known: a device's number may be another file system's now.
    mounted: Stamp,
    /// An opening whose process is there to be asked where paths start.
    asked: Option<LookupEvent>,
    /// The last processes that have opened something, for the same.
    askable: VecDeque<LookupEvent>,
}

/// A file that is followed. On an overlay names that are links to one file in a lower layer have its number in common, and each gets a copy of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    identity: Identity,
    /// The name, on an overlay.
    path: Option<Box<[u8]>>,
}

impl Key {
    fn new(identity: Identity, opening: &LookupEvent) -> Self {
        Self { identity, path: opening.on_overlay.then(|| opening.path.clone()) }
    }
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
        let has_content = event.open_flags & O_TRUNC == 0 && event.open_flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
        let Some(identity) = event.inode.filter(|_| event.opens_to_read() && has_content) else { return };
        let earlier = replaced.and_then(|old| match self.files.get(&old)?.path.as_deref() == path {
            true => self.files.remove(&old).map(|file| file.grace),
            false => Some(self.files.get(&old)?.grace.clone()),
        });
        if path == Some(LOADER_CACHE) {
            return;
        }
        if let Some(path) = path
            && *self.generated.entry(identity.dev).or_insert_with(|| is_generated(path, identity.dev))
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
        if event.starter == 0 && !self.askable.iter().any(|asked| asked.tgid == event.tgid) {
            self.askable.truncate(ASKABLE_MAX - 1);
            self.askable.push_front(LookupEvent { path: Box::default(), ..event.clone() });
        }
        let Some(file) = self.files.get_mut(&key) else { return };
        if let Some(earlier) = earlier {
            file.grace.inherit(earlier);
        }
        file.grace.read(reading, is_changed, ends);
        if event.changed_ns != 0 && !is_within(NAMED_NS, event.changed_ns.into(), event.time_ns) && !is_to_be_found {
            return;
        }
        file.is_to_be_found = is_to_be_found;
        if self.unverified.len() < UNVERIFIED_MAX {
            self.unverified.push((key, event.clone()));
        } else {
            file.unsettled = true;
        }
    }

    /// Makes dirty what the server has opened by a path that leads elsewhere by now. `resolver` remembers nothing from before: it waits for whoever is
    /// changing names, so what has its witness has its effect.
    pub(crate) fn verify(&mut self, resolver: &mut Resolver, table: &RevisionTable) {
        for (key, event) in std::mem::take(&mut self.unverified) {
            let identity = key.identity;
            // What has its stamp by now and not its time gets another stamp, of this clock or a later one.
            let clock = table.clock();
            let walk = self.resolve(&event, resolver);
            let node = walk.as_ref().and_then(Walk::found);
            let is_there = node.is_some_and(|node| node.identity == identity || !node.is_watched());
            let Some(file) = self.files.get_mut(&key).filter(|file| file.opened == event.clock) else { continue };
            if !is_there {
                tracing::debug!(path = %file.name(), "the server has opened a file whose name was being taken away");
                (file.unsettled, file.dirty) = (true, None);
            }
            let is_on_overlay = |node: &&Node| node.identity == identity && node.is_layered() && node.is_watched();
            let (Some(walk), Some(node)) = (&walk, node.filter(is_on_overlay)) else { continue };
            file.layered = Layered::new(walk, node, &event, table);
            (file.is_to_be_found, file.is_to_be_seen) = (false, false);
            // What the server has opened may be the file before its copy came into the upper layer. Then that has a new time, or its way has changed since.
            let is_same = telling_change_ns(&event) != 0 && i128::from(telling_change_ns(&event)) == node.changed_ns;
            let may_be_copy = node.is_in_several_layers() && is_within(UNDER_WAY_NS, node.changed_ns, event.time_ns);
            // One that is in one layer only is not a copy, whatever else its folders get.
            let is_still = |file: &Layered| table.stamp_of(file.file.0.slot()) < event.clock;
            let is_alone = !node.is_in_several_layers() && file.layered.as_ref().is_some_and(is_still);
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
            let (clock, stamp) = (table.clock(), file.stamp(key.identity, table));
            let Some(walk) = resolve(&layered.opening, self.asked.as_ref(), resolver) else { continue };
            let Some(node) = walk.found().filter(|node| node.identity == key.identity && node.is_watched()) else {
                continue;
            };
            let Some(now) = Layered::new(&walk, node, &layered.opening, table) else { continue };
            // Another change may have the same time as the last one before the opening; that is one of the file itself.
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

    fn resolve(&mut self, opening: &LookupEvent, resolver: &mut Resolver) -> Option<Walk> {
        let walk = resolve(opening, self.asked.as_ref(), resolver);
        if walk.is_some() {
            // The next one asks another process, if that of the one before is gone.
            self.asked = Some(LookupEvent { path: Box::default(), ..opening.clone() });
        }
        walk
    }

    /// Something has been mounted, or is no longer. Files whose paths lead elsewhere now have changed: the server may have the old ones in its memory.
    /// `resolver` remembers nothing from before.
    pub(crate) fn see_mounts(&mut self, resolver: &mut Resolver, table: &RevisionTable) {
        let Some(asked) = self.askable.iter().find(|asked| resolver.root_of(asked).is_ok()) else {
            if !self.files.is_empty() {
                table.record_change(SourceSlot::EVERYTHING);
            }
            return;
        };
        for (key, file) in &mut self.files {
            let leads_there = file.path.as_ref().is_some_and(|path| {
                let event = LookupEvent { path: path.clone(), ..asked.clone() };
                let walk = resolver.resolve(&event);
                walk.is_ok_and(|walk| walk.found().is_some_and(|node| node.identity == key.identity))
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
        let mounted = table.stamp_of(SourceSlot::MOUNTS).max(table.stamp_of(SourceSlot::EVERYTHING));
        // With this clock there may be another one.
        if mounted != self.mounted || mounted >= table.clock() {
            self.generated.clear();
            self.mounted = mounted;
        }
    }

    /// Are there openings to [verify](Retained::verify)?
    pub(crate) fn has_new(&self) -> bool {
        !self.unverified.is_empty()
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
        // Where times are the only witness no reading looks like a change, and a store to a mapping may leave the time alone (tmpfs).
        let changed_ns = if event.stillness.only_times { 0 } else { telling_change_ns(event) };
        let file = self.files.entry(key).or_insert_with(|| {
            table.track(identity.slot());
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

    /// A process has ended that nobody asks for anything: what it alone had in its memory is nowhere.
    pub(crate) fn forget_reader(&mut self, process: u32) {
        let paths = &mut self.paths;
        self.files.retain(|_, file| {
            let is_gone = file.opener == Some(process);
            if let (true, Some(path)) = (is_gone, &file.path) {
                paths.remove(path);
            }
            !is_gone
        });
    }

    /// Has the server read a changed file after [`DIRTY_NS_MAX`]? What was kept meanwhile may be of what it had before. True once.
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

    /// Has a file changed that the server has not read since, or was what it had read before still of use when a request was forwarded to it, whatever
    /// another request had it read meanwhile?
    pub(crate) fn is_dirty(&mut self, table: &RevisionTable, ends: Ends<'_>, forwarded_ns: u64, now_ns: u64) -> bool {
        let mut dirty = false;
        if !Rule::Dirty.holds() {
            return false;
        }
        for (key, file) in &mut self.files {
            let missing_at = file.path.as_ref().and_then(|path| self.paths.get(path)).map_or(Stamp(0), |(_, at)| *at);
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

    /// Is any file changed since the clock was `since` that the server had read before `read_before_ns`? What it read only later is
    /// not in a reply that was ready before.
    pub(crate) fn has_changed(&mut self, table: &RevisionTable, since: Stamp, read_before_ns: u64) -> bool {
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

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::attribution::requests::Attribution;
    use crate::memory::grace::Pace;
    use crate::witnesses::event::Stillness;

    /// A disk's.
    const DISK: u32 = 8 << 20;
    const CODE: Identity = Identity { dev: DISK, ino: 10 };
    /// A request that was forwarded after all that happened.
    const LATER: u64 = u64::MAX;
    /// For which an opening counts whose end is not known.
    const OPENING_NS: u64 = 100_000_000;

    /// Of no process it is known when it has ended what it was at.
    fn unknown() -> Ends<'static> {
        static NOBODY: LazyLock<(Attribution, Pace)> = LazyLock::new(Default::default);
        Ends { attribution: &NOBODY.0, pace: &NOBODY.1 }
    }

    fn opened(identity: Identity, path: &[u8], clock: Stamp, tgid: u32) -> LookupEvent {
        LookupEvent {
            clock,
            ret: 3,
            tgid,
            inode: Some(identity),
            mode: libc::S_IFREG as u16,
            size: 1,
            // Long ago.
            changed_ns: 1,
            path: path.into(),
            // What is done with one clock is over with the next.
            ..LookupEvent::blank(clock.0 * OPENING_NS)
        }
    }

    fn looked_at(path: &[u8], clock: Stamp) -> LookupEvent {
        LookupEvent { inode: None, mode: 0, ret: 0, ..opened(CODE, path, clock, 1) }
    }

    #[test]
    fn a_changed_file_is_dirty_until_it_is_read() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
        table.record_change(CODE.slot());
        assert!(retained.is_dirty(&table, unknown(), LATER, 0));
        // With the same clock the reading may have been before the change.
        retained.observe(&opened(CODE, b"/a.php", table.clock(), 1), &table, unknown());
        assert!(retained.is_dirty(&table, unknown(), LATER, 0));
        retained.observe(
            &opened(Identity { dev: DISK, ino: 11 }, b"/b.php", table.advance_clock(), 1),
            &table,
            unknown(),
        );
        assert!(retained.is_dirty(&table, unknown(), LATER, 0));
        retained.observe(&looked_at(b"/a.php", table.clock()), &table, unknown());
        assert!(retained.is_dirty(&table, unknown(), LATER, 0));
        retained.observe(&opened(CODE, b"/a.php", table.clock(), 1), &table, unknown());
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
    }

    #[test]
    fn what_only_starts_programs_is_never_dirty() {
        let own = rustix::fs::stat("/proc/self/exe").unwrap();
        let dev = rustix::fs::major(own.st_dev) << 20 | rustix::fs::minor(own.st_dev);
        let program = Identity { dev, ino: own.st_ino };
        let name = std::env::current_exe().unwrap();
        let is_dirty = |identity: Identity, path: &[u8]| {
            let table = RevisionTable::on_heap();
            let mut retained = Retained::default();
            let opening = opened(identity, path, table.advance_clock(), std::process::id());
            retained.observe(&opening, &table, unknown());
            table.record_change(identity.slot());
            retained.is_dirty(&table, unknown(), LATER, 0)
        };
        // Another file has its name, or none.
        assert!(!is_dirty(program, b"/nowhere/libz.so.1") && !is_dirty(program, b"/etc/passwd"));
        // It is written while it runs.
        assert!(is_dirty(program, name.as_os_str().as_encoded_bytes()));
        // Nobody runs it.
        assert!(is_dirty(CODE, b"/nowhere/libz.so.1"));
        assert!(!is_dirty(CODE, LOADER_CACHE));
    }

    #[test]
    fn what_was_given_up_and_is_read_after_all_voids() {
        for waited in [DIRTY_NS_MAX - 1, DIRTY_NS_MAX] {
            let table = RevisionTable::on_heap();
            let mut retained = Retained::default();
            retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
            table.record_change(CODE.slot());
            assert!(retained.is_dirty(&table, unknown(), LATER, 1000));
            let late = waited >= DIRTY_NS_MAX;
            assert_eq!(retained.is_dirty(&table, unknown(), LATER, 1000 + waited), !late);
            assert!(!retained.take_renewed());
            let again = LookupEvent { time_ns: 1000 + waited, ..opened(CODE, b"/a.php", table.advance_clock(), 1) };
            retained.observe(&again, &table, unknown());
            assert_eq!((retained.take_renewed(), retained.take_renewed()), (late, false));
        }
    }

    #[test]
    fn a_removed_file_is_dirty_until_the_server_finds_nothing_there() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
        table.record_change(CODE.slot());
        let look = |errno: i32, clock| LookupEvent { ret: -i64::from(errno), ..looked_at(b"/a.php", clock) };
        retained.observe(&look(libc::EACCES, table.advance_clock()), &table, unknown());
        assert!(retained.is_dirty(&table, unknown(), LATER, 0));
        retained.observe(&look(libc::ENOENT, table.advance_clock()), &table, unknown());
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
    }

    /// Another request had the server read the file while this one was being answered from the server's memory.
    #[test]
    fn a_request_that_came_while_a_file_was_dirty_is_worth_nothing() {
        let table = RevisionTable::on_heap();
        for new in [CODE, Identity { dev: DISK, ino: 11 }] {
            let mut retained = Retained::default();
            retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
            table.record_change(CODE.slot());
            let look = opened(new, b"/a.php", table.advance_clock(), 1);
            retained.observe(&look, &table, unknown());
            assert!(retained.is_dirty(&table, unknown(), look.time_ns - 1, 0));
            assert!(retained.is_dirty(&table, unknown(), look.time_ns + OPENING_NS - 1, 0));
            assert!(!retained.is_dirty(&table, unknown(), look.time_ns + OPENING_NS, 0));
            // Looks that find nothing new make nothing dirty.
            let again = opened(new, b"/a.php", table.advance_clock(), 1);
            retained.observe(&again, &table, unknown());
            assert!(!retained.is_dirty(&table, unknown(), look.time_ns + OPENING_NS, 0));
        }
    }

    #[test]
    fn a_replaced_file_is_dirty_until_its_path_is_read() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
        // A rename over it removes its name.
        table.record_change(CODE.slot());
        let since = table.advance_clock();
        let new = Identity { dev: DISK, ino: 11 };
        retained.observe(&opened(new, b"/a.php", since, 1), &table, unknown());
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
        assert!(!retained.has_changed(&table, since, u64::MAX));
        table.record_change(new.slot());
        assert!(retained.has_changed(&table, since, u64::MAX));
    }

    #[test]
    fn what_is_made_up_as_it_is_read_is_not_retained() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let stat = rustix::fs::stat("/proc/self/maps").unwrap();
        let dev = rustix::fs::major(stat.st_dev) << 20 | rustix::fs::minor(stat.st_dev);
        let identity = Identity { dev, ino: stat.st_ino };
        retained.observe(&opened(identity, b"/proc/self/maps", table.advance_clock(), 1), &table, unknown());
        table.record_change(identity.slot());
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0) && !retained.has(identity));
    }

    #[test]
    fn what_is_never_read_again_does_not_block_for_ever() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
        table.record_change(CODE.slot());
        assert!(retained.is_dirty(&table, unknown(), LATER, 5));
        assert!(retained.is_dirty(&table, unknown(), LATER, 5 + DIRTY_NS_MAX - 1));
        assert!(!retained.is_dirty(&table, unknown(), LATER, 5 + DIRTY_NS_MAX));
    }

    #[test]
    fn what_was_only_sent_is_not_retained() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let open = opened(CODE, b"/a.css", table.advance_clock(), 1);
        let sent = LookupEvent { kind: EventKind::Sendfile, path: Box::default(), ..open.clone() };
        retained.observe(&open, &table, unknown());
        retained.observe(&sent, &table, unknown());
        table.record_change(CODE.slot());
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
        // But not if another process has read it, too.
        retained.observe(&opened(CODE, b"/a.css", table.clock(), 2), &table, unknown());
        retained.observe(&open, &table, unknown());
        retained.observe(&sent, &table, unknown());
        table.record_change(CODE.slot());
        assert!(retained.is_dirty(&table, unknown(), LATER, 0));
    }

    #[test]
    fn a_change_concerns_only_replies_after_the_first_reading() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let since = table.advance_clock();
        let open = opened(CODE, b"/a.txt", since, 1);
        retained.observe(&open, &table, unknown());
        table.record_change(CODE.slot());
        assert!(!retained.has_changed(&table, since, open.time_ns - 1));
        assert!(retained.has_changed(&table, since, open.time_ns));
    }

    /// A file on disk, and its opening as it is there.
    fn on_disk(folder: &tempfile::TempDir) -> (std::path::PathBuf, impl Fn(Stamp) -> LookupEvent) {
        use std::os::unix::ffi::OsStrExt;
        let path = folder.path().join("a.php");
        std::fs::write(&path, "old").unwrap();
        let there = path.clone();
        let open = move |clock| {
            let stat = rustix::fs::stat(&there).unwrap();
            let dev = rustix::fs::major(stat.st_dev) << 20 | rustix::fs::minor(stat.st_dev);
            let changed_ns = stat.st_ctime as u64 * 1_000_000_000 + stat.st_ctime_nsec as u64;
            let identity = Identity { dev, ino: stat.st_ino };
            let stillness = Stillness { asked: true, ..Stillness::default() };
            LookupEvent { changed_ns, stillness, ..opened(identity, there.as_os_str().as_bytes(), clock, 1) }
        };
        (path, open)
    }

    /// The kernel stamps a file that is made shorter before it moves its change time, and again when that is done.
    #[test]
    fn a_change_that_has_a_stamp_before_it_has_a_time_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let (path, open) = on_disk(&folder);
        let identity = open(Stamp(0)).inode.unwrap();
        retained.observe(&open(table.advance_clock()), &table, unknown());
        let since = table.advance_clock();
        table.record_change(identity.slot());
        assert!(!retained.has_changed(&table, since, u64::MAX) && !retained.is_dirty(&table, unknown(), LATER, 0));
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, "new").unwrap();
        table.record_change(identity.slot());
        assert!(retained.has_changed(&table, since, u64::MAX) && retained.is_dirty(&table, unknown(), LATER, 0));
    }

    #[test]
    fn a_reading_that_moves_the_access_time_is_a_reading() {
        let folder = tempfile::tempdir().unwrap();
        for is_late in [false, true] {
            let table = RevisionTable::on_heap();
            let mut retained = Retained::default();
            let (path, open) = on_disk(&folder);
            let identity = open(Stamp(0)).inode.unwrap();
            retained.observe(&open(table.advance_clock()), &table, unknown());
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::write(&path, "new").unwrap();
            table.record_change(identity.slot());
            assert!(retained.is_dirty(&table, unknown(), LATER, 0));
            let read_ns = if is_late { DIRTY_NS_MAX } else { 10 * OPENING_NS };
            let reading = LookupEvent { time_ns: read_ns, ..open(table.advance_clock()) };
            table.record_change(identity.slot());
            retained.observe(&reading, &table, unknown());
            assert_eq!(retained.take_renewed(), is_late);
            assert!(retained.is_dirty(&table, unknown(), read_ns - 1, read_ns));
            assert!(!retained.is_dirty(&table, unknown(), read_ns + OPENING_NS, read_ns));
        }
    }

    #[test]
    fn what_was_read_while_somebody_wrote_it_is_dirty_until_it_is_read_again() {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let stillness = Stillness { being_written: true, ..Stillness::default() };
        let open = |clock: Stamp, stillness| LookupEvent { stillness, ..opened(CODE, b"/a.php", clock, 1) };
        retained.observe(&open(table.advance_clock(), stillness), &table, unknown());
        assert!(
            retained.is_dirty(&table, unknown(), LATER, 0)
                && retained.is_dirty(&table, unknown(), LATER, DIRTY_NS_MAX - 1)
        );
        assert!(!retained.is_dirty(&table, unknown(), LATER, DIRTY_NS_MAX));
        // It is waited for anew.
        let again = open(table.advance_clock(), stillness);
        retained.observe(&again, &table, unknown());
        assert!(retained.is_dirty(&table, unknown(), LATER, DIRTY_NS_MAX));
        let settled = open(table.advance_clock(), Stillness::default());
        retained.observe(&settled, &table, unknown());
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
        assert!(retained.is_dirty(&table, unknown(), settled.time_ns, 0));
        // What is read for each request although nothing is told of it is not kept.
        for _ in 0..=VOLATILE_CHANGES {
            assert!(
                !retained.is_dirty(&table, unknown(), LATER, 0)
                    || retained.files[&Key { identity: CODE, path: None }].unsettled
            );
            retained.observe(&open(table.advance_clock(), stillness), &table, unknown());
        }
        assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
    }

    /// An overlay with `a.php` in its lower layer, in a mount namespace of the test's own.
    struct OnOverlay {
        folder: tempfile::TempDir,
        table: std::sync::Arc<RevisionTable>,
    }

    impl OnOverlay {
        fn new() -> Self {
            crate::ground::own_mounts();
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            for name in ["lower", "upper", "work", "merged"] {
                std::fs::create_dir(folder.path().join(name)).unwrap();
            }
            std::fs::write(folder.path().join("lower/a.php"), "old").unwrap();
            let path = folder.path().display();
            let options = format!("lowerdir={path}/lower,upperdir={path}/upper,workdir={path}/work");
            let options = std::ffi::CString::new(options).unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("overlay", folder.path().join("merged"), "overlay", flags, Some(options.as_c_str()))
                .unwrap();
            Self { folder, table: RevisionTable::on_heap() }
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.folder.path().join(name)
        }

        /// The server opens the file now, long after it was changed.
        fn open(&self) -> LookupEvent {
            self.open_name("merged/a.php")
        }

        fn open_name(&self, name: &str) -> LookupEvent {
            use std::os::unix::ffi::OsStrExt;
            use std::os::unix::fs::MetadataExt;
            std::thread::sleep(std::time::Duration::from_millis(150));
            let path = self.path(name);
            let file = std::fs::File::open(&path).unwrap();
            let ino = crate::resolve::layers::inode_number(&file).unwrap();
            let dev = self.path("merged").metadata().unwrap().dev();
            let dev = rustix::fs::major(dev) << 20 | rustix::fs::minor(dev);
            let stat = file.metadata().unwrap();
            let clock = self.table.advance_clock();
            LookupEvent {
                time_ns: crate::clock::now_ns(),
                tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
                changed_ns: stat.ctime() as u64 * 1_000_000_000 + stat.ctime_nsec() as u64,
                on_overlay: true,
                ..opened(Identity { dev, ino }, path.as_os_str().as_bytes(), clock, 1)
            }
        }

        /// Is what was opened dirty, once it has been looked at?
        fn is_dirty(&self, retained: &mut Retained) -> bool {
            let coverage = crate::Coverage { ext4: true, ..Default::default() };
            retained.verify(&mut Resolver::new(coverage.clone()), &self.table);
            // What has changed on the way shows at the first look, and is looked at behind it.
            let _ = retained.is_dirty(&self.table, unknown(), LATER, 0);
            retained.verify(&mut Resolver::new(coverage), &self.table);
            retained.is_dirty(&self.table, unknown(), LATER, 0)
        }

        fn change(&self, name: &str) {
            use std::os::unix::fs::MetadataExt;
            let stat = self.path(name).metadata().unwrap();
            let dev = rustix::fs::major(stat.dev()) << 20 | rustix::fs::minor(stat.dev());
            self.table.record_change(Identity { dev, ino: stat.ino() }.slot());
            self.table.advance_clock();
        }
    }

    /// All was told before the opening, and took effect after it.
    #[test]
    fn a_file_that_is_copied_up_right_after_the_server_opened_it_is_dirty() {
        let overlay = OnOverlay::new();
        let opening = overlay.open();
        let mut retained = Retained::default();
        retained.observe(&opening, &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
        std::fs::File::options().write(true).open(overlay.path("merged/a.php")).unwrap();
        let mut retained = Retained::default();
        retained.observe(&opening, &overlay.table, unknown());
        assert!(overlay.is_dirty(&mut retained));
        retained.observe(&overlay.open(), &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
    }

    #[test]
    fn a_device_may_be_another_after_a_mount() {
        let table = RevisionTable::on_heap();
        table.advance_clock();
        let mut retained = Retained::default();
        // There was something by this number whose files are made up.
        retained.generated.insert(DISK, true);
        retained.observe(&opened(CODE, b"/a.php", table.clock(), 1), &table, unknown());
        assert!(!retained.has(CODE));
        table.record_change(SourceSlot::MOUNTS);
        retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
        assert!(retained.has(CODE));
    }

    #[test]
    fn what_is_mounted_over_a_file_changes_it_and_what_is_mounted_elsewhere_does_not() {
        use std::os::unix::fs::MetadataExt;
        crate::ground::own_mounts();
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["code", "elsewhere"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let path = folder.path().join("code/a.php");
        std::fs::write(&path, "old").unwrap();
        let file = std::fs::metadata(&path).unwrap();
        let dev = (rustix::fs::major(file.dev()) << 20) | rustix::fs::minor(file.dev());
        let identity = Identity { dev, ino: file.ino() };
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let table = RevisionTable::on_heap();
        table.advance_clock();
        let mut retained = Retained::default();
        let resolver = || Resolver::new(crate::witnesses::witness::Coverage { ext4: true, ..Default::default() });
        let see = |retained: &mut Retained| {
            let since = table.advance_clock();
            retained.see_mounts(&mut resolver(), &table);
            table.stamp_of(identity.slot()) >= since
        };
        // Nobody can be asked where the paths start.
        let read = opened(identity, path.as_os_str().as_encoded_bytes(), table.clock(), 1);
        let nobody = u32::MAX >> 1;
        retained.observe(&LookupEvent { tgid: nobody, tid: nobody, ..read.clone() }, &table, unknown());
        let everything = table.stamp_of(SourceSlot::EVERYTHING);
        see(&mut retained);
        assert!(table.stamp_of(SourceSlot::EVERYTHING) > everything);
        retained.observe(&LookupEvent { tgid: thread, tid: thread, ..read }, &table, unknown());
        let mount = |name: &str| {
            let (place, flags) = (folder.path().join(name), rustix::mount::MountFlags::empty());
            rustix::mount::mount("none", place, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
        };
        mount("elsewhere");
        assert!(!see(&mut retained));
        mount("code");
        assert!(see(&mut retained));
        // Once: it is known by then.
        assert!(!see(&mut retained));
        for name in ["code", "elsewhere"] {
            rustix::mount::unmount(folder.path().join(name), rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        assert!(!see(&mut retained));
    }

    /// In the lower layer they are one file, and share a number on the overlay; each gets a copy of its own.
    #[test]
    fn names_of_one_file_in_a_lower_layer_are_followed_each_by_itself() {
        let overlay = OnOverlay::new();
        let mut retained = Retained::default();
        std::fs::create_dir(overlay.path("lower/b")).unwrap();
        std::fs::hard_link(overlay.path("lower/a.php"), overlay.path("lower/b/b.php")).unwrap();
        let (one, other) = (overlay.open(), overlay.open_name("merged/b/b.php"));
        assert_eq!(one.inode, other.inode);
        retained.observe(&other, &overlay.table, unknown());
        retained.observe(&one, &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
        std::fs::write(overlay.path("merged/b/b.php"), "new").unwrap();
        overlay.change("upper");
        assert!(overlay.is_dirty(&mut retained));
        // To read the other one again says nothing of this.
        retained.observe(&overlay.open(), &overlay.table, unknown());
        assert!(overlay.is_dirty(&mut retained));
    }

    /// It is asked how another process finds the file.
    #[test]
    fn a_process_that_is_gone_leaves_what_it_has_read() {
        let overlay = OnOverlay::new();
        let gone = LookupEvent { tid: u32::MAX >> 1, tgid: u32::MAX >> 1, ..overlay.open() };
        let mut retained = Retained::default();
        retained.observe(&overlay.open(), &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
        let mut later = Retained { asked: retained.asked.take(), ..Retained::default() };
        later.observe(&gone, &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut later));
        std::fs::write(overlay.path("merged/a.php"), "new").unwrap();
        overlay.change("upper");
        assert!(overlay.is_dirty(&mut later));
    }

    /// The path of its lower layer leads to the overlay itself.
    #[test]
    fn an_overlay_that_hides_its_own_layer_is_not_vouched_for() {
        let overlay = OnOverlay::new();
        let lower = overlay.path("lower");
        let path = overlay.folder.path().display();
        std::fs::create_dir(overlay.path("upper2")).unwrap();
        std::fs::create_dir(overlay.path("work2")).unwrap();
        let options = format!("lowerdir={path}/lower,upperdir={path}/upper2,workdir={path}/work2");
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("overlay", &lower, "overlay", flags, Some(options.as_c_str())).unwrap();
        let event = LookupEvent { path: lower.join("a.php").to_str().unwrap().as_bytes().into(), ..overlay.open() };
        let coverage = crate::Coverage { ext4: true, ..Default::default() };
        let walk = Resolver::new(coverage).resolve(&event).unwrap();
        assert!(!walk.watched && !walk.found().unwrap().is_watched());
    }

    /// For how long the file had been changed when it was opened.
    fn opening_delay_ns(opening: &LookupEvent) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) - opening.changed_ns
    }

    /// The server opens it between two changes that the kernel's clock does not tell apart.
    #[test]
    fn a_second_change_with_the_same_time_on_an_overlay_is_seen() {
        let overlay = OnOverlay::new();
        // In one layer only.
        std::fs::write(overlay.path("merged/c.php"), "half").unwrap();
        let opening = overlay.open_name("merged/c.php");
        let opening = LookupEvent { time_ns: opening.time_ns - opening_delay_ns(&opening), ..opening };
        let mut retained = Retained::default();
        retained.observe(&opening, &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
        // Something else in its folder says nothing of it.
        std::fs::write(overlay.path("merged/b.php"), "other").unwrap();
        overlay.change("upper");
        assert!(!overlay.is_dirty(&mut retained));
        // Its time is as it was.
        overlay.change("upper/c.php");
        assert!(overlay.is_dirty(&mut retained));
    }

    #[test]
    fn what_changes_on_the_way_to_a_file_on_an_overlay_is_looked_at() {
        let overlay = OnOverlay::new();
        let mut retained = Retained::default();
        retained.observe(&overlay.open(), &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
        // Another name in its folder, and then its copy.
        std::fs::write(overlay.path("merged/b.php"), "new").unwrap();
        overlay.change("upper");
        assert!(!overlay.is_dirty(&mut retained));
        std::fs::write(overlay.path("merged/a.php"), "new").unwrap();
        overlay.change("upper");
        assert!(overlay.is_dirty(&mut retained));
        retained.observe(&overlay.open(), &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
        // In place.
        std::fs::write(overlay.path("merged/a.php"), "newer").unwrap();
        overlay.change("upper/a.php");
        assert!(overlay.is_dirty(&mut retained));
        retained.observe(&overlay.open(), &overlay.table, unknown());
        assert!(!overlay.is_dirty(&mut retained));
        std::fs::remove_file(overlay.path("merged/a.php")).unwrap();
        overlay.change("upper");
        assert!(overlay.is_dirty(&mut retained));
    }

    #[test]
    fn data_that_changes_all_the_time_is_not_retained() {
        for (reads_per_change, gap_ns, is_fresh, is_kept) in [
            (1, REREAD_NS, false, true),
            (2, REREAD_NS - 1, false, true),
            (2, REREAD_NS, false, false),
            (2, REREAD_NS, true, true),
        ] {
            let table = RevisionTable::on_heap();
            let mut retained = Retained::default();
            let mut now_ns = 0;
            for _ in 0..=VOLATILE_CHANGES {
                for _ in 0..reads_per_change {
                    now_ns += gap_ns;
                    let event = opened(CODE, b"/data", table.advance_clock(), 1);
                    // Of the year 2100, or of 1970.
                    let changed_ns = if is_fresh { 4_102_444_800_000_000_000 } else { 1 };
                    retained.observe(&LookupEvent { time_ns: now_ns, changed_ns, ..event }, &table, unknown());
                }
                table.record_change(CODE.slot());
            }
            assert_eq!(retained.is_dirty(&table, unknown(), LATER, now_ns), is_kept);
            assert_eq!(retained.has_changed(&table, Stamp(0), u64::MAX), is_kept);
        }
    }
}
