//! What the block server below the file system and the payload above it share.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use nicache_initiator::{BLOCK_BYTES, Lun, LunError};
use nicache_policy::{ChosenPolicy, PolicyName};

use crate::budget::{Budget, Charge, charged_mut};
use crate::copies::Copies;
use crate::index::{Found, Index, Keeping, Reader};
use crate::key::Keyring;
use crate::places::Lbn;

/// The smallest cache: a few of the longest requests.
const BYTES_LEAST: usize = 4 << 20;

/// A chunk that was used while less than this part of the memory was filled anew counts as used
/// now.
const LAPSES: u32 = 16;
/// The part of the memory that is for what comes and goes, where a policy weighs a new chunk
/// against the others: without it, room for the bytes would have been made before the policy is
/// asked.
const PASSING_PARTS: usize = 16;

/// How much the cache may hold, and how long requests wait for room.
pub struct CacheOptions {
    /// Payload in memory: cached, dirty, and on its way to clients. At least 4 MiB.
    pub bytes_max: usize,
    /// Dirty payload at which files are written back.
    pub dirty_bytes_max: usize,
    /// How long a request waits for memory before it fails.
    pub patience: Duration,
    /// Runs of blocks whose places are remembered; some 80 bytes each.
    pub runs_max: usize,
    /// Which chunks go.
    pub policy: ChosenPolicy,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            bytes_max: 256 << 20,
            dirty_bytes_max: 64 << 20,
            patience: Duration::from_secs(60),
            runs_max: 1 << 20,
            policy: ChosenPolicy::LRU,
        }
    }
}

/// What the cache did and holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Blocks found by file and block.
    pub hits_fho: u64,
    /// Blocks found by block of the device.
    pub hits_lbn: u64,
    /// Blocks read from the logical unit.
    pub misses: u64,
    /// Chunks that moved from one index to the other.
    pub remapped: u64,
    /// Chunks that gave way to others.
    pub evicted: u64,
    /// Chunks that the policy did not keep, because others were worth more.
    pub declined: u64,
    /// Chunks that the logical unit has, too.
    pub clean_chunks: usize,
    /// Chunks whose keys have not arrived.
    pub dirty_chunks: usize,
    /// Files of which something is known.
    pub files: usize,
    /// Payload in memory, in bytes.
    pub bytes: usize,
    /// The most that it ever was.
    pub bytes_most: usize,
    /// Keys that were refused at the device.
    pub refused_keys: u64,
}

/// The network-ready cache of one logical unit.
pub struct Cache {
    index: Mutex<Index>,
    /// A fill of some block has ended.
    fill_ended: Condvar,
    pub(crate) budget: Arc<Budget>,
    pub(crate) keyring: Keyring,
    pub(crate) lun: Arc<dyn Lun>,
    pub(crate) options: Limits,
    copies: Arc<Copies>,
    verifier: AtomicU64,
    is_lost: AtomicBool,
    pub(crate) refused_keys: AtomicU64,
    pressure: (Mutex<bool>, Condvar),
}

/// The options that stay.
pub(crate) struct Limits {
    pub(crate) dirty_bytes_max: usize,
    pub(crate) patience: Duration,
}

/// Least recently used takes all that comes, so it may have all of the memory, and it needs no more
/// than to know of uses within a part of it. Others see each use, and are asked about what comes.
fn keeping(policy: ChosenPolicy, bytes_max: usize, objects_max: u32) -> Keeping {
    let seed = u64::from(std::process::id());
    if policy.name() == PolicyName::Lru {
        let policy = policy.build(bytes_max as u64, objects_max, seed);
        let lapse = u64::from(objects_max / LAPSES).max(1);
        return Keeping { policy, lapse, chunks_max: usize::MAX };
    }
    let chunks_max = (bytes_max - bytes_max / PASSING_PARTS) / BLOCK_BYTES;
    let bytes = (chunks_max * BLOCK_BYTES) as u64;
    let objects_max = u32::try_from(chunks_max).unwrap_or(u32::MAX);
    Keeping { policy: policy.build(bytes, objects_max, seed), lapse: 0, chunks_max }
}

impl Cache {
    /// An empty cache of a logical unit, with secrets of its own. The kernel must answer for random
    /// bytes.
    pub fn new(lun: Arc<dyn Lun>, options: CacheOptions) -> io::Result<Arc<Self>> {
        let bytes_max = options.bytes_max.max(BYTES_LEAST);
        let objects_max = u32::try_from(bytes_max / BLOCK_BYTES + 1).unwrap_or(u32::MAX);
        let keeping = keeping(options.policy, bytes_max, objects_max);
        let limits = Limits {
            dirty_bytes_max: options.dirty_bytes_max.min(bytes_max / 2),
            patience: options.patience,
        };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Arc::new(Self {
            index: Mutex::new(Index::new(
                keeping,
                options.runs_max.max(16),
                objects_max as usize * 4,
            )),
            fill_ended: Condvar::new(),
            budget: Budget::new(bytes_max),
            keyring: Keyring::random()?,
            lun,
            options: limits,
            copies: Arc::default(),
            verifier: AtomicU64::new(since_epoch.as_nanos() as u64),
            is_lost: AtomicBool::new(false),
            refused_keys: AtomicU64::new(0),
            pressure: (Mutex::new(false), Condvar::new()),
        }))
    }

    /// What is copied, by class.
    pub fn copies(&self) -> &Arc<Copies> {
        &self.copies
    }

    /// The secrets, for those who look for tags where none must be.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// The logical unit.
    pub fn lun(&self) -> &Arc<dyn Lun> {
        &self.lun
    }

    /// What it did and holds.
    pub fn figures(&self) -> Figures {
        let index = self.index();
        Figures {
            hits_fho: index.hits_fho,
            hits_lbn: index.hits_lbn,
            misses: index.misses,
            remapped: index.remapped,
            evicted: index.evicted,
            declined: index.declined,
            clean_chunks: index.clean_chunks(),
            dirty_chunks: index.pending_chunks(),
            files: index.files(),
            bytes: self.budget.bytes(),
            bytes_most: self.budget.bytes_most(),
            refused_keys: self.refused_keys.load(Ordering::Relaxed),
        }
    }

    /// Drops every chunk that the logical unit has, too.
    pub fn evict_all(&self) {
        let mut index = self.index();
        while index.evict().is_some() {}
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }

    /// Unstable writes may have been lost: every client sends its own again.
    pub(crate) fn change_verifier(&self) {
        self.verifier.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes what an error of a write or a flush at the logical unit means for everything else.
    pub(crate) fn handle_lun_error(&self, error: &LunError) {
        self.change_verifier();
        if error.is_final() {
            self.is_lost.store(true, Ordering::Release);
        }
    }

    /// As [`Self::handle_lun_error`], of a read: only if the unit is lost, writes are, too.
    pub(crate) fn handle_read_error(&self, error: &LunError) {
        if error.is_final() {
            self.handle_lun_error(error);
        }
    }

    /// Fails closed: without the logical unit nobody knows whether what is here is still true.
    pub(crate) fn check_lun(&self) -> io::Result<()> {
        if !self.is_lost.load(Ordering::Acquire)
            && let Some(error) = self.lun.lost()
        {
            self.handle_lun_error(&error);
        }
        if self.is_lost.load(Ordering::Acquire) {
            return Err(io::Error::other(format!(
                "{}: the logical unit was given up",
                self.lun.name()
            )));
        }
        Ok(())
    }

    /// Memory for payload: evicts, asks for write-back, and waits. The caller holds no lock.
    pub(crate) fn charge(&self, bytes: usize) -> io::Result<Charge> {
        if let Some(charge) = self.budget.take(bytes) {
            return Ok(charge);
        }
        if bytes > self.budget.bytes_max() {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the request is longer than the cache",
            ));
        }
        let deadline = Instant::now() + self.options.patience;
        loop {
            if let Some(charge) = self.budget.take(bytes) {
                return Ok(charge);
            }
            self.check_lun()?;
            let evicted = self.index().evict();
            if evicted.is_some() {
                continue;
            }
            self.ask_for_write_back();
            let now = Instant::now();
            if now >= deadline {
                let waited_s = self.options.patience.as_secs();
                let message = format!(
                    "no memory for payload after {waited_s} s: the logical unit is too slow, or replies are not taken"
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            // Chunks that come free by remapping are not given back: look again soon.
            self.budget.wait(deadline.min(now + Duration::from_millis(20)));
        }
    }

    /// A chunk's memory, zeroed and without charge so far.
    pub(crate) fn new_block() -> BytesMut {
        BytesMut::zeroed(BLOCK_BYTES)
    }

    /// Fills chunks with neighbouring blocks of the logical unit, and keeps them.
    pub(crate) fn fill(&self, first: Lbn, count: usize, reader: Reader) -> io::Result<Vec<Bytes>> {
        let mut charge = self.charge(count * BLOCK_BYTES)?;
        let lbns = || (first.0..).take(count).map(Lbn);
        {
            let mut index = self.index();
            index.handle_time(Instant::now());
            lbns().for_each(|lbn| index.begin_fill(lbn));
        }
        let mut buffers: Vec<BytesMut> = (0..count).map(|_| Self::new_block()).collect();
        let result = self.lun.read(first.0 * BLOCK_BYTES as u64, &mut buffers);
        let is_whole =
            buffers.len() == count && buffers.iter().all(|buffer| buffer.len() == BLOCK_BYTES);
        if result.is_err() || !is_whole {
            let mut index = self.index();
            lbns().for_each(|lbn| index.end_fill(lbn, None, reader));
            drop(index);
            self.fill_ended.notify_all();
            result.inspect_err(|error| self.handle_read_error(error))?;
            return Err(io::Error::other(format!(
                "{}: a read came back in other pieces",
                self.lun.name()
            )));
        }
        let keep = |buffer| charged_mut(buffer, charge.split(BLOCK_BYTES));
        let chunks: Vec<Bytes> = buffers.into_iter().map(keep).collect();
        let mut index = self.index();
        for (lbn, chunk) in lbns().zip(&chunks) {
            index.end_fill(lbn, Some(chunk.clone()), reader);
        }
        drop(index);
        self.fill_ended.notify_all();
        Ok(chunks)
    }

    /// If somebody reads a block from the logical unit at the moment: waits for that, and gives the
    /// block if it was kept.
    pub(crate) fn wait_for_fill(&self, lbn: Lbn, reader: Reader) -> Option<Bytes> {
        let mut index = self.index();
        if !index.is_filling(lbn) {
            return None;
        }
        while index.is_filling(lbn) {
            index = self.fill_ended.wait(index).unwrap_or_else(PoisonError::into_inner);
        }
        if let Found::Chunk(chunk) = index.find_lbn(lbn, reader) { Some(chunk) } else { None }
    }

    /// Whether files should be written back.
    pub(crate) fn is_pressed(&self) -> bool {
        self.budget.waiting() > 0
            || self.index().pending_chunks() * BLOCK_BYTES > self.options.dirty_bytes_max
    }

    pub(crate) fn ask_for_write_back(&self) {
        let (asked, condition) = &self.pressure;
        *asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condition.notify_one();
    }

    /// Waits until write-back is asked for, at most for `time`.
    pub(crate) fn wait_for_pressure(&self, time: Duration) {
        let (asked, condition) = &self.pressure;
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut asked, _) = condition
            .wait_timeout_while(asked, time, |asked| !*asked)
            .unwrap_or_else(PoisonError::into_inner);
        *asked = false;
    }
}
