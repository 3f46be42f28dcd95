//! Files that are open because clients have lately asked for them.
//!
//! A request has a handle, and the kernel needs a descriptor. To open one for each request would
//! cost more than most requests do.

use std::fs::File;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use hashbrown::HashMap;
use nicache_payload::FileId;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::attributes::Wcc;
use crate::export::Export;
use crate::handle::{HandleBytes, file_id, is_of_inode};
use crate::impersonation::Impersonation;
use crate::kernel::{KernelHandle, open_handle};
use crate::protocol::Status;

/// A file of an export that is open.
#[derive(Debug)]
pub(crate) struct Node {
    /// The file's handle in the protocol.
    pub handle: HandleBytes,
    /// Which of the server's exports it belongs to.
    pub export: usize,
    /// What kind of file it is.
    pub kind: FileType,
    /// What tells it from other files.
    pub id: FileId,
    /// Which device its file system is on.
    pub device: u64,
    kernel: KernelHandle,
    /// `O_PATH`: it stands for the file and was opened for nothing.
    path: OwnedFd,
    reader: OnceLock<File>,
    writer: OnceLock<File>,
    /// Changes that are under way, and above 32 bits those that have begun.
    changes: AtomicU64,
    /// Held while attributes are compared with a guard and set.
    guard: Mutex<()>,
    was_used: AtomicBool,
}

/// A change that is under way.
#[derive(Debug)]
#[must_use]
pub(crate) struct Change {
    look: Look,
}

/// What was seen of a file at the beginning of something.
#[derive(Debug)]
#[must_use]
pub(crate) struct Look {
    before: Option<Stat>,
    /// Of the last change that had begun.
    number: u64,
    was_alone: bool,
}

impl Look {
    fn end(self, after: Option<Stat>, changes: u64) -> Wcc {
        let was_alone = self.was_alone && changes >> 32 == self.number;
        Wcc { before: self.before.filter(|_| was_alone), after }
    }
}

const ONE_CHANGE: u64 = 1 << 32 | 1;
const UNDER_WAY: u64 = 0xffff_ffff;

impl Node {
    /// Opens the file of a handle. The thread becomes root's for it.
    pub(crate) fn open(
        export: &Export,
        index: usize,
        handle: HandleBytes,
        kernel: KernelHandle,
        thread: &mut Impersonation,
    ) -> Result<Self, Status> {
        thread.act_as_root()?;
        let path = open_handle(export.root.as_fd(), &kernel, OFlags::PATH | OFlags::CLOEXEC)?;
        Self::of(index, handle, kernel, path)
    }

    /// A file that is open already, for whatever purpose.
    pub(crate) fn of(
        index: usize,
        handle: HandleBytes,
        kernel: KernelHandle,
        path: OwnedFd,
    ) -> Result<Self, Status> {
        let stat = fstat(&path)?;
        Ok(Self {
            handle,
            export: index,
            kind: FileType::from_raw_mode(stat.st_mode),
            id: file_id(&kernel, stat.st_ino),
            device: stat.st_dev,
            kernel,
            path,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            changes: AtomicU64::new(0),
            guard: Mutex::new(()),
            was_used: AtomicBool::new(true),
        })
    }

    /// It, open for reading and writing, because it was just made.
    pub(crate) fn with_writer(self, file: File) -> Self {
        Self { writer: OnceLock::from(file), ..self }
    }

    /// Its attributes. `NFS3ERR_STALE` if it has no name any longer: that the server has it open
    /// must keep no handle alive.
    pub(crate) fn stat(&self) -> Result<Stat, Status> {
        let stat = fstat(&self.path)?;
        if stat.st_nlink == 0 { Err(Status::Stale) } else { Ok(stat) }
    }

    /// The descriptor that stands for it. It can be neither read nor written.
    pub(crate) fn path(&self) -> &OwnedFd {
        &self.path
    }

    /// A path that leads to the node, for system calls that take no descriptor.
    #[must_use]
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.path))
    }

    /// It, open for reading. Permission is the caller's to check; the thread may become root's.
    pub(crate) fn reader(
        &self,
        export: &Export,
        thread: &mut Impersonation,
    ) -> Result<&File, Status> {
        self.open_as(&self.reader, export, thread, OFlags::RDONLY)
    }

    /// It, open for reading and writing. Permission is the caller's to check; the thread may become
    /// root's.
    pub(crate) fn writer(
        &self,
        export: &Export,
        thread: &mut Impersonation,
    ) -> Result<&File, Status> {
        self.open_as(&self.writer, export, thread, OFlags::RDWR)
    }

    fn open_as<'a>(
        &self,
        place: &'a OnceLock<File>,
        export: &Export,
        thread: &mut Impersonation,
        flags: OFlags,
    ) -> Result<&'a File, Status> {
        if let Some(file) = place.get() {
            return Ok(file);
        }
        // To open anything else may block, or be an order to a device.
        if !matches!(self.kind, FileType::RegularFile | FileType::Directory) {
            return Err(Status::Inval);
        }
        thread.act_as_root()?;
        let file = open_handle(
            export.root.as_fd(),
            &self.kernel,
            flags | OFlags::CLOEXEC | OFlags::NONBLOCK,
        )?;
        Ok(place.get_or_init(|| File::from(file)))
    }

    /// A directory can be used: it is one, and it has not been moved out of its export. The kernel
    /// finds no way up from a directory that is not below its mount's root. The thread may become
    /// root's.
    pub(crate) fn check_directory(
        &self,
        export: &Export,
        thread: &mut Impersonation,
    ) -> Result<(), Status> {
        if self.kind != FileType::Directory {
            return Err(Status::NotDir);
        }
        if !export.is_subtree {
            return Ok(());
        }
        let look_up = || openat(&self.path, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let mut found = look_up();
        if found.as_ref().err() == Some(&Errno::ACCESS) {
            thread.act_as_root()?;
            found = look_up();
        }
        if found.is_ok() { Ok(()) } else { Err(Status::Stale) }
    }

    /// Its attributes before a change, which begins. End it with [`end_change`](Self::end_change).
    pub(crate) fn begin_change(&self) -> Change {
        let old = self.changes.fetch_add(ONE_CHANGE, Ordering::SeqCst);
        let number = (old >> 32).wrapping_add(1) & UNDER_WAY;
        Change {
            look: Look { before: fstat(&self.path).ok(), number, was_alone: old & UNDER_WAY == 0 },
        }
    }

    /// Its attributes before and after a change. Those before are left out if another change was
    /// under way at any time in between: the client would take that for its own.
    pub(crate) fn end_change(&self, change: Change) -> Wcc {
        let after = fstat(&self.path).ok();
        let old = self.changes.fetch_sub(1, Ordering::SeqCst);
        change.look.end(after, old)
    }

    /// Its attributes before something that changes none of them. End it with
    /// [`end_look`](Self::end_look).
    pub(crate) fn begin_look(&self) -> Look {
        let old = self.changes.load(Ordering::SeqCst);
        Look { before: fstat(&self.path).ok(), number: old >> 32, was_alone: old & UNDER_WAY == 0 }
    }

    /// Its attributes before and after. Those before are left out if a change was under way at any
    /// time in between.
    pub(crate) fn end_look(&self, look: Look) -> Wcc {
        let after = fstat(&self.path).ok();
        look.end(after, self.changes.load(Ordering::SeqCst))
    }

    /// While it is held, nobody else compares and sets attributes.
    pub(crate) fn hold_guard(&self) -> MutexGuard<'_, ()> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SHARDS: usize = 16;

/// The open files, up to a number. Those that were not used for a while are closed.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: [Mutex<Shard>; SHARDS],
    /// By export and inode number, those whose inode number says which file of its device it is.
    by_inode: [Mutex<Inodes>; SHARDS],
    hasher: foldhash::fast::RandomState,
    shard_max: usize,
}

type Inodes = HashMap<(usize, u64), Weak<Node>, foldhash::fast::RandomState>;

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<HandleBytes, usize, foldhash::fast::RandomState>,
    nodes: Vec<Arc<Node>>,
    hand: usize,
}

impl Shard {
    fn remove(&mut self, at: usize) -> Arc<Node> {
        let node = self.nodes.swap_remove(at);
        self.places.remove(&node.handle);
        if let Some(moved) = self.nodes.get(at) {
            self.places.insert(moved.handle.clone(), at);
        }
        node
    }

    /// The next one that was not used since the hand passed it.
    fn evict(&mut self) -> Arc<Node> {
        loop {
            self.hand = (self.hand + 1) % self.nodes.len();
            if !self.nodes[self.hand].was_used.swap(false, Ordering::Relaxed) {
                return self.remove(self.hand);
            }
        }
    }
}

impl Nodes {
    /// Keeps at most `nodes_max` files open; each has up to three descriptors.
    #[must_use]
    pub(crate) fn new(nodes_max: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            by_inode: std::array::from_fn(|_| Mutex::default()),
            hasher: foldhash::fast::RandomState::default(),
            shard_max: nodes_max.div_ceil(SHARDS).max(1),
        }
    }

    fn shard(&self, handle: &[u8]) -> MutexGuard<'_, Shard> {
        let shard = self.hasher.hash_one(handle) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file of a handle.
    #[must_use]
    pub(crate) fn get(&self, handle: &[u8]) -> Option<Arc<Node>> {
        let shard = self.shard(handle);
        let node = &shard.nodes[*shard.places.get(handle)?];
        node.was_used.store(true, Ordering::Relaxed);
        Some(node.clone())
    }

    fn inodes(&self, inode: u64) -> MutexGuard<'_, Inodes> {
        self.by_inode[inode as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file that an entry of a directory leads to, which is on the same device. While a
    /// file with a name is open, no other one has its inode number.
    #[must_use]
    pub(crate) fn get_by_inode(&self, directory: &Node, inode: u64) -> Option<Arc<Node>> {
        let node = self.inodes(inode).get(&(directory.export, inode))?.upgrade()?;
        (node.device == directory.device).then_some(node)
    }

    /// A file is no longer kept.
    fn close(&self, node: Arc<Node>) {
        let mut inodes = self.inodes(node.id.inode);
        let key = (node.export, node.id.inode);
        if inodes.get(&key).is_some_and(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(&node))) {
            inodes.remove(&key);
        }
        drop(inodes);
        // Closing may take its time: the last reference to a file without a name frees its blocks.
        drop(node);
    }

    /// Keeps an open file. If somebody else has opened it meanwhile, that one is the file.
    pub(crate) fn insert(&self, node: Node) -> Arc<Node> {
        let mut shard = self.shard(&node.handle);
        if let Some(&at) = shard.places.get(&node.handle) {
            return shard.nodes[at].clone();
        }
        let evicted = (shard.nodes.len() >= self.shard_max).then(|| shard.evict());
        let node = Arc::new(node);
        let at = shard.nodes.len();
        shard.nodes.push(node.clone());
        shard.places.insert(node.handle.clone(), at);
        drop(shard);
        if let Some(evicted) = evicted {
            self.close(evicted);
        }
        if is_of_inode(&node.kernel, node.id.inode) == Some(true) {
            self.inodes(node.id.inode).insert((node.export, node.id.inode), Arc::downgrade(&node));
        }
        node
    }

    /// Closes the file of a handle.
    pub(crate) fn forget(&self, handle: &[u8]) {
        let mut shard = self.shard(handle);
        let node = shard.places.get(handle).copied().map(|at| shard.remove(at));
        drop(shard);
        if let Some(node) = node {
            self.close(node);
        }
    }

    /// Closes what was not used since the last time.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            let mut closed = Vec::new();
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for at in (0..shard.nodes.len()).rev() {
                if !shard.nodes[at].was_used.swap(false, Ordering::Relaxed) {
                    closed.push(shard.remove(at));
                }
            }
            drop(shard);
            closed.into_iter().for_each(|node| self.close(node));
        }
    }

    /// How many are open.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).nodes.len())
            .sum()
    }
}
