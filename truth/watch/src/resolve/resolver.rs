//! Resolves a path as the server would, and names every source that the answer depends on: each
//! directory on the way, each directory that holds a symbolic link of the way, and what is found at
//! the end.
//!
//! Read first: path_resolution(7), proc(5) on /proc/PID/root and /proc/PID/cwd.
//!
//! Why component by component: a look-up depends on each of its directories (a rename of any of
//! them changes what the path means), and only its own walk shows them all. The walk also is a
//! barrier: it waits, in each directory, for whoever is changing it. Listing a directory takes its
//! lock, so a change whose witness has fired but whose effect is not yet visible is over before the
//! next component is looked up.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use nicache_coherence::{RefusalReason, SourceSlot};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, StatxFlags};
use rustix::io::Errno;

use crate::resolve::components::Components;
use crate::resolve::layers::{Mounts, inode_number};
use crate::resolve::node::{Node, Permissions};
use crate::witnesses::event::{Identity, LookupEvent};
use crate::witnesses::witness::Coverage;

/// `f_type` of ext2, ext3 and ext4.
const EXT4_MAGIC: u64 = 0xef53;
const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683e;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const OVERLAY_MAGIC: u64 = 0x794c_7630;
/// Of `stx_attributes`: something is mounted there (linux/stat.h).
const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;
/// `f_type` of further file systems that one machine alone changes: XFS, Btrfs, F2FS, ZFS,
/// bcachefs, overlay, tmpfs.
const LOCAL_MAGIC: [u64; 7] =
    [XFS_MAGIC, BTRFS_MAGIC, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e, OVERLAY_MAGIC, TMPFS_MAGIC];
/// Symbolic links on one path, as in the kernel (`MAXSYMLINKS`).
const SYMLINKS_MAX: usize = 40;

/// Directories remembered at most: each one holds a descriptor.
const DIRECTORIES_MAX: usize = 256;

/// Where absolute paths start: directory and mount.
pub(crate) type Root = (Identity, u64);

/// A directory that a path leads through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Passage {
    /// The directory.
    pub slot: SourceSlot,
    /// Who may search it.
    pub access: Permissions,
    /// What its mount lets nobody do (`f_flags` of statfs(2): no links, no programs, no writing).
    pub mount_flags: u64,
}

/// What a path leads to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Something.
    Found(Rc<Node>),
    /// Nothing.
    Missing,
}

/// A resolved path.
#[derive(Clone, Debug)]
pub struct Walk {
    /// What it leads to.
    pub outcome: Outcome,
    /// Directories on the way and what was found; repeats possible.
    pub slots: Vec<SourceSlot>,
    /// The directories among them; repeats possible.
    pub directories: Vec<Passage>,
    /// The directories on the way that are on an overlay, each with one of its layers.
    pub layers: Vec<(SourceSlot, SourceSlot)>,
    /// Is every directory on the way on a watched file system?
    pub watched: bool,
    /// Is any of the way on an overlay whose layers' changes show in their change times alone?
    pub timed_layers: bool,
    /// Whether the end of the way is below the folder that it began in
    /// ([`Resolver::resolve_below`]).
    pub inside: bool,
}

impl Walk {
    /// What it leads to, if that is anything.
    pub(crate) fn found(&self) -> Option<&Node> {
        match &self.outcome {
            Outcome::Found(node) => Some(node),
            Outcome::Missing => None,
        }
    }
}

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    Root(Identity, u64),
    /// [Owner](LookupEvent::owner) and descriptor.
    Process(u32, i32),
}

/// Where a process's paths start.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    root: Rc<Node>,
    start: Rc<Node>,
}

/// Resolves many paths, looking up common directories once. What it remembers is as of its
/// beginning: good for the questions that had been asked by then.
pub struct Resolver {
    coverage: Coverage,
    bases: HashMap<(u32, i32), Base>,
    directories: HashMap<(Origin, Vec<u8>), Walk>,
    devices: HashMap<u32, Device>,
    mounts: Mounts,
    mount_flags: HashMap<u64, u64>,
    /// Where absolute paths start for processes that are gone.
    stand_in: Option<Base>,
}

/// A file system, or a subvolume of one.
#[derive(Clone, Copy)]
struct Device {
    watched: bool,
    only_times: bool,
    tells_writes: bool,
    is_overlay: bool,
}

/// A step that failed for a reason that says nothing about the path.
fn io_refused(_: impl Into<io::Error>) -> RefusalReason {
    RefusalReason::Io
}

impl Resolver {
    /// A resolver that remembers nothing yet.
    pub fn new(coverage: Coverage) -> Self {
        Self {
            coverage,
            bases: HashMap::new(),
            directories: HashMap::new(),
            devices: HashMap::new(),
            mounts: Mounts::default(),
            mount_flags: HashMap::new(),
            stand_in: None,
        }
    }

    /// Absolute paths of processes that are gone start at this root from now on, if one of these
    /// processes still has it: all of a set of look-ups had it when they were made. Without a root,
    /// they start nowhere.
    pub(crate) fn stand_in(&mut self, root: Option<Root>, processes: impl Iterator<Item = u32>) {
        self.stand_in = None;
        let Some(root) = root else { return };
        for process in processes {
            let link = format!("/proc/{process}/root");
            let Ok(file) = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            else {
                continue;
            };
            if let Ok(node) = self.node(file)
                && (node.identity, node.mount) == root
            {
                self.mounts.add_process(process);
                let node = Rc::new(node);
                self.stand_in = Some(Base { root: Rc::clone(&node), start: node });
                return;
            }
        }
    }

    /// Resolves the path of an event in its process's own root and directory. If it starts at a
    /// descriptor that is closed, it is resolved from the folder that this was, as long as the path
    /// by which the process had opened that leads there still.
    ///
    /// # Errors
    /// [`RefusalReason::Io`] if the process is gone, its `dirfd` means something else by now, or
    /// something could not be read: then nobody can tell what the server saw.
    pub fn resolve(&mut self, event: &LookupEvent) -> Result<Walk, RefusalReason> {
        if event.incomplete || event.own_root {
            return Err(RefusalReason::Io);
        }
        let dirfd = if event.path.starts_with(b"/") { libc::AT_FDCWD } else { event.dirfd };
        let Some(folder) = &event.folder else {
            return self.resolve_at(event, dirfd, &event.path);
        };
        if dirfd != libc::AT_FDCWD && self.base(event, dirfd).is_ok() {
            return self.resolve_at(event, dirfd, &event.path);
        }
        let path = event.path_from_folder().ok_or(RefusalReason::Io)?;
        let now = self.resolve_at(event, libc::AT_FDCWD, &[folder, &b"/"[..]].concat())?;
        if now.found().map(|node| node.identity) != event.directory {
            return Err(RefusalReason::Io);
        }
        self.resolve_at(event, libc::AT_FDCWD, &path)
    }

    fn resolve_at(
        &mut self,
        event: &LookupEvent,
        dirfd: i32,
        path: &[u8],
    ) -> Result<Walk, RefusalReason> {
        let base = self.base(event, dirfd)?;
        let Some(split) =
            path.iter().rposition(|&byte| byte == b'/').filter(|&at| at + 1 < path.len())
        else {
            let walk = self.start(&base, path)?;
            return self.walk(&base, walk, path, event.nofollow);
        };
        let (prefix, name) = path.split_at(split + 1);
        let origin = match prefix.starts_with(b"/") {
            true => Origin::Root(base.root.identity, base.root.mount),
            false => Origin::Process(event.owner(), dirfd),
        };
        let directory = self.directory(origin, &base, prefix)?;
        self.step(&base, directory, name, event.nofollow)
    }

    /// Resolves a path of this process below the folder that another one leads to. What a link or
    /// `..` leads to outside of it is not [inside](Walk::inside). Of the directories only those
    /// below the folder are told; the slots are all.
    ///
    /// # Errors
    /// [`RefusalReason::Io`] if something could not be read.
    pub fn resolve_below(&mut self, folder: &[u8], path: &[u8]) -> Result<Walk, RefusalReason> {
        let open = |link: &str| {
            rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(io_refused)
        };
        let base = Base {
            root: Rc::new(self.node(open("/")?).map_err(io_refused)?),
            start: Rc::new(self.node(open(".")?).map_err(io_refused)?),
        };
        let walk = self.start(&base, folder)?;
        let walk = self.walk(&base, walk, folder, false)?;
        let root = match &walk.outcome {
            Outcome::Found(node) if node.kind == FileType::Directory => Rc::clone(node),
            _ => return Ok(Walk { outcome: Outcome::Missing, ..walk }),
        };
        let walk = Walk { directories: Vec::new(), inside: true, ..walk };
        let below = Base { root: base.root, start: Rc::clone(&root) };
        self.walk_within(&below, Some(&root), walk, path.strip_prefix(b"/").unwrap_or(path), false)
    }

    /// A path's directory part, with its final slash. Each is walked once, from the one above, so
    /// a thousand files cost as many steps as there are directories.
    fn directory(
        &mut self,
        origin: Origin,
        base: &Base,
        prefix: &[u8],
    ) -> Result<Walk, RefusalReason> {
        let key = (origin, prefix.to_vec());
        if let Some(walk) = self.directories.get(&key) {
            return Ok(walk.clone());
        }
        let above = prefix[..prefix.len() - 1].iter().rposition(|&byte| byte == b'/');
        let walk = match above {
            Some(at) => {
                let (above, name) = prefix.split_at(at + 1);
                let above = self.directory(origin, base, above)?;
                // A slash after a slash is not a component, and not the root.
                if name == b"/" { above } else { self.step(base, above, name, false)? }
            }
            None => {
                let walk = self.start(base, prefix)?;
                self.walk(base, walk, prefix, false)?
            }
        };
        if self.directories.len() >= DIRECTORIES_MAX {
            self.directories.clear();
        }
        self.directories.insert(key, walk.clone());
        Ok(walk)
    }

    /// Goes on from a directory that was walked to.
    fn step(
        &mut self,
        base: &Base,
        directory: Walk,
        name: &[u8],
        nofollow: bool,
    ) -> Result<Walk, RefusalReason> {
        match &directory.outcome {
            Outcome::Missing => Ok(directory),
            Outcome::Found(node) if node.kind != FileType::Directory => {
                Ok(Walk { outcome: Outcome::Missing, ..directory })
            }
            Outcome::Found(node) => {
                let base = Base { root: base.root.clone(), start: node.clone() };
                self.walk(&base, directory, name, nofollow)
            }
        }
    }

    /// Where the absolute paths of the event's process start.
    ///
    /// # Errors
    /// [`RefusalReason::Io`] if the process is gone.
    pub fn root_of(&mut self, event: &LookupEvent) -> Result<Root, RefusalReason> {
        let base = self.base(event, libc::AT_FDCWD)?;
        Ok((base.root.identity, base.root.mount))
    }

    /// What a link of the kernel leads to, such as a descriptor's in `/proc`.
    pub(crate) fn node_of(&mut self, link: &str) -> rustix::io::Result<Node> {
        self.node(rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn base(&mut self, event: &LookupEvent, dirfd: i32) -> Result<Base, RefusalReason> {
        let owner = event.owner();
        let key = (owner, dirfd);
        if let Some(base) = self.bases.get(&key) {
            // The descriptor may have meant something else before.
            let is_same = dirfd == libc::AT_FDCWD || event.directory == Some(base.start.identity);
            return if is_same { Ok(base.clone()) } else { Err(RefusalReason::Io) };
        }
        let open = |link: String| {
            rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(io_refused)
        };
        self.mounts.add_process(owner);
        let root = match (open(format!("/proc/{owner}/root")), &self.stand_in) {
            (Err(_), Some(base)) if dirfd == libc::AT_FDCWD && !event.is_relative() => {
                return Ok(base.clone());
            }
            (root, _) => root?,
        };
        let root = Rc::new(self.node(root).map_err(io_refused)?);
        let start = match dirfd {
            libc::AT_FDCWD => open(format!("/proc/{owner}/cwd"))?,
            _ => open(format!("/proc/{owner}/fd/{dirfd}"))?,
        };
        let start = Rc::new(self.node(start).map_err(io_refused)?);
        // The descriptor may have been closed and its number used again since.
        if dirfd != libc::AT_FDCWD && event.directory != Some(start.identity) {
            return Err(RefusalReason::Io);
        }
        let base = Base { root, start };
        self.bases.insert(key, base.clone());
        Ok(base)
    }

    /// A walk that has entered the directory where the path starts.
    fn start(&mut self, base: &Base, path: &[u8]) -> Result<Walk, RefusalReason> {
        let first = if path.starts_with(b"/") { &base.root } else { &base.start };
        let mut walk = Walk {
            outcome: Outcome::Missing,
            slots: Vec::with_capacity(8),
            directories: Vec::with_capacity(8),
            watched: true,
            layers: Vec::new(),
            timed_layers: false,
            inside: true,
        };
        self.enter(first, &mut walk)?;
        Ok(walk)
    }

    /// Goes on with a walk that has entered the directory where the path starts.
    fn walk(
        &mut self,
        base: &Base,
        walk: Walk,
        path: &[u8],
        nofollow: bool,
    ) -> Result<Walk, RefusalReason> {
        self.walk_within(base, None, walk, path, nofollow)
    }

    /// Goes on with a walk that has entered the directory where the path starts; `anchor` is the
    /// folder that the way is to end below, if there is one.
    fn walk_within(
        &mut self,
        base: &Base,
        anchor: Option<&Node>,
        mut walk: Walk,
        path: &[u8],
        nofollow: bool,
    ) -> Result<Walk, RefusalReason> {
        // Directories below the anchor that the way is in.
        let mut depth = 0usize;
        let mut current =
            if path.starts_with(b"/") { base.root.clone() } else { base.start.clone() };
        let mut rest = Components::new(path);
        let mut symlinks = 0;
        walk.outcome = Outcome::Missing;
        while let Some(component) = rest.next() {
            if component == b"." {
                continue;
            }
            let is_up = component == b"..";
            if is_up && is_same_directory(&current, &base.root) {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd =
                match rustix::fs::openat(&current.fd, component.as_slice(), flags, Mode::empty()) {
                    Ok(fd) => fd,
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL) => {
                        return Ok(walk);
                    }
                    Err(_) => return Err(RefusalReason::Io),
                };
            let node = Rc::new(self.node_in(fd, Some((&current, &component))).map_err(io_refused)?);
            let is_last = rest.is_empty();
            match node.kind {
                FileType::Symlink if !is_last || !nofollow || rest.wants_directory => {
                    symlinks += 1;
                    if symlinks > SYMLINKS_MAX {
                        return Ok(walk);
                    }
                    let target =
                        rustix::fs::readlinkat(&node.fd, c"", Vec::new()).map_err(io_refused)?;
                    if target.as_bytes().starts_with(b"/") {
                        current = base.root.clone();
                        walk.inside =
                            anchor.is_none_or(|anchor| is_same_directory(&current, anchor));
                        depth = 0;
                        self.enter(&current, &mut walk)?;
                    }
                    rest.prepend(target.as_bytes());
                }
                FileType::Directory => {
                    match (walk.inside, is_up) {
                        (true, true) if depth == 0 && anchor.is_some() => walk.inside = false,
                        (true, true) => depth = depth.saturating_sub(1),
                        (true, false) => depth += 1,
                        (false, _) => {}
                    }
                    if anchor.is_some_and(|anchor| is_same_directory(&node, anchor)) {
                        (walk.inside, depth) = (true, 0);
                    }
                    self.enter(&node, &mut walk)?;
                    current = node;
                }
                _ if is_last && !rest.wants_directory => {
                    walk.slots.extend(node.slots());
                    walk.timed_layers |= node.has_timed_layers();
                    walk.outcome = Outcome::Found(node);
                    return Ok(walk);
                }
                _ => return Ok(walk),
            }
        }
        walk.outcome = Outcome::Found(current);
        Ok(walk)
    }

    /// Notes a directory as a source of the walk, and waits for whoever is changing it.
    fn enter(&mut self, directory: &Node, walk: &mut Walk) -> Result<(), RefusalReason> {
        walk.slots.extend(directory.slots());
        walk.timed_layers |= directory.has_timed_layers();
        let own = directory.identity.slot();
        walk.layers.extend(directory.layers.iter().map(|layer| (own, layer.identity.slot())));
        walk.watched &= directory.watched;
        for node in std::iter::once(directory).chain(&directory.layers) {
            if walk.inside {
                let mount_flags = self.mount_flags(node).map_err(io_refused)?;
                walk.directories.push(Passage {
                    slot: node.identity.slot(),
                    access: node.access,
                    mount_flags,
                });
            }
            if directory.watched {
                wait_for_directory(node.fd.as_fd()).map_err(io_refused)?;
            }
        }
        Ok(())
    }

    fn mount_flags(&mut self, node: &Node) -> rustix::io::Result<u64> {
        if let Some(flags) = self.mount_flags.get(&node.mount) {
            return Ok(*flags);
        }
        let flags = rustix::fs::fstatfs(&node.fd)?.f_flags as u64;
        self.mount_flags.insert(node.mount, flags);
        Ok(flags)
    }

    fn device(&self, magic: u64) -> Device {
        let coverage = &self.coverage;
        let of =
            |watched| Device { watched, only_times: false, tells_writes: false, is_overlay: false };
        // Programs that tell of their changes tell of any.
        if coverage.local {
            return of(magic == EXT4_MAGIC || LOCAL_MAGIC.contains(&magic));
        }
        match magic {
            EXT4_MAGIC => Device { tells_writes: coverage.ext4, ..of(coverage.ext4) },
            XFS_MAGIC => of(coverage.xfs),
            BTRFS_MAGIC => Device { only_times: true, ..of(coverage.btrfs) },
            TMPFS_MAGIC => Device { only_times: true, ..of(coverage.tmpfs) },
            OVERLAY_MAGIC => Device { is_overlay: true, ..of(false) },
            _ => of(false),
        }
    }

    fn node(&mut self, fd: OwnedFd) -> rustix::io::Result<Node> {
        self.node_in(fd, None)
    }

    /// What was found in a directory by that name, or anything.
    fn node_in(&mut self, fd: OwnedFd, place: Option<(&Node, &[u8])>) -> rustix::io::Result<Node> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, wanted)?;
        let identity =
            Identity { dev: stat.stx_dev_major << 20 | stat.stx_dev_minor, ino: stat.stx_ino };
        let device = match self.devices.get(&identity.dev) {
            Some(device) => *device,
            None => {
                let device = self.device(rustix::fs::fstatfs(&fd)?.f_type as u64);
                self.devices.insert(identity.dev, device);
                device
            }
        };
        let mut node = Node {
            fd,
            identity,
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            size: stat.stx_size,
            modified_s: stat.stx_mtime.tv_sec,
            changed_s: stat.stx_ctime.tv_sec,
            changed_ns: i128::from(stat.stx_ctime.tv_sec) * 1_000_000_000
                + i128::from(stat.stx_ctime.tv_nsec),
            access: Permissions { mode: stat.stx_mode, uid: stat.stx_uid, gid: stat.stx_gid },
            rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
            mount: stat.stx_mnt_id,
            watched: device.watched,
            only_times: device.only_times,
            tells_writes: device.tells_writes,
            is_overlay: device.is_overlay,
            is_upper: false,
            layers: Vec::new(),
            is_in_several: false,
        };
        if device.is_overlay {
            let is_root = stat.stx_attributes.bits() & STATX_ATTR_MOUNT_ROOT != 0;
            self.look_into_layers(&mut node, place, is_root)?;
        }
        Ok(node)
    }

    /// Finds out what the node is in the layers of its overlay. It stays unwatched if that is not
    /// certain.
    fn look_into_layers(
        &mut self,
        node: &mut Node,
        place: Option<(&Node, &[u8])>,
        is_root: bool,
    ) -> rustix::io::Result<()> {
        let Some(mount) = self.mounts.get(node.mount).cloned() else { return Ok(()) };
        let Some(ino) = inode_number(&node.fd) else { return Ok(()) };
        node.identity = Identity { dev: mount.device, ino };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut opened = Vec::new();
        match place {
            Some((above, name)) if above.mount == node.mount && !is_root => {
                for layer in above.layers.iter().filter(|layer| layer.kind == FileType::Directory) {
                    match rustix::fs::openat(&layer.fd, name, flags, Mode::empty()) {
                        Ok(fd) => opened.push((fd, layer.is_upper, Some(layer.mount))),
                        Err(Errno::NOENT) => {}
                        Err(errno) => return Err(errno),
                    }
                }
            }
            _ if is_root => {
                for (index, layer) in mount.layers.iter().enumerate() {
                    // The paths of layers may go through links; below they do not.
                    match rustix::fs::open(layer, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                        Ok(fd) => opened.push((fd, index == 0 && mount.has_upper, None)),
                        // A folder that is mounted by itself need not be in each layer; where a
                        // layer's own path leads nowhere, the first has other times.
                        Err(Errno::NOENT) => {}
                        Err(_) => return Ok(()),
                    }
                }
            }
            _ => return Ok(()),
        }
        node.is_in_several = opened.len() > 1;
        let mut layers = Vec::new();
        for (fd, is_upper, mount) in opened {
            // Another overlay is not vouched for; and one that is mounted over a layer of its own
            // hides that, and is there itself.
            if rustix::fs::fstatfs(&fd)?.f_type as u64 == OVERLAY_MAGIC {
                return Ok(());
            }
            let real = Node { is_upper, ..self.node_in(fd, None)? };
            let is_whiteout = real.kind == FileType::CharacterDevice && real.rdev == (0, 0);
            if is_whiteout || !layers.is_empty() && real.kind != FileType::Directory {
                break;
            }
            // Something is mounted there, or an overlay's mark leads to another file.
            let is_elsewhere = mount.is_some_and(|mount| mount != real.mount)
                || node.kind != FileType::Directory && !is_upper && real.identity.ino != ino;
            if !real.watched || is_elsewhere || real.kind != node.kind {
                return Ok(());
            }
            layers.push(real);
            if node.kind != FileType::Directory {
                break;
            }
        }
        // What an overlay shows has the times of the uppermost; others mean that something is being
        // changed, or that these are not its layers.
        let Some(first) = layers.first() else { return Ok(()) };
        let is_same = first.changed_ns == node.changed_ns
            && first.modified_s == node.modified_s
            && (first.kind == FileType::Directory || first.size == node.size);
        if !is_same {
            return Err(Errno::AGAIN);
        }
        node.watched = true;
        node.only_times = first.only_times;
        node.layers = layers;
        Ok(())
    }
}

fn is_same_directory(one: &Node, other: &Node) -> bool {
    one.identity == other.identity && one.mount == other.mount
}

/// Takes and releases the directory's lock: at its end there is nothing to list, and yet the lock
/// is taken.
fn wait_for_directory(directory: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
    let listing = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
    // Only saves time.
    let _ = rustix::fs::seek(&listing, SeekFrom::End(0));
    let mut buffer = [MaybeUninit::uninit(); 1024];
    match RawDir::new(&listing, &mut buffer).next() {
        Some(Err(errno)) => Err(errno),
        _ => Ok(()),
    }
}
