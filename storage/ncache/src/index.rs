//! The two indexes and how chunks move between them: no I/O and no clock.
//!
//! A chunk that a client wrote is found by file and block (FHO) until its key arrives at the
//! device; then by block of the device (LBN). The move is *remapping* (Peng et al., section 3.4).
//! Chunks by FHO are pinned; chunks by LBN are what the logical unit has, and go when the policy
//! says so.
//!
//! A read that fills the LBN index and a write of the same block may overlap. A fill that a write
//! overtook is not kept, and of two writes of one block at once neither is, because nobody knows
//! their order.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nicache_initiator::BLOCK_BYTES;
use nicache_payload::FileId;
use nicache_policy::{Admission, Incoming, Key, Policy, Removal};

use crate::block_state::{BlockState, Place};
use crate::departures::{Departure, Departures};
use crate::key::Sequence;
use crate::places::{Lbn, Places};

/// Files of which it is remembered that a write failed. Their writers learn it from the verifier,
/// too.
const FAILED_MAX: usize = 1 << 14;

type Map<K, V> = HashMap<K, V, RandomState>;

/// A key that is in the file system and has not arrived at the device, and its payload.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) file: FileId,
    pub(crate) block: u64,
    pub(crate) valid_bytes: u32,
    pub(crate) chunk: Bytes,
}

/// What a block that a client wrote is in the file system.
#[derive(Clone, Debug)]
pub(crate) enum Dirty {
    /// A key.
    Keyed(Sequence),
    /// The block's bytes, because there are fewer than a key has. Nothing tells when they arrive,
    /// so they stay until a flush of the file ends.
    Literal(Bytes),
}

/// Where a block of a file is.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Here.
    Chunk(Bytes),
    /// On the device.
    At(Lbn),
    /// The file system has to say.
    Unknown,
}

#[derive(Debug, Default)]
struct FileEntry {
    dirty: BTreeMap<u64, Dirty>,
    places: Places,
    has_failed: bool,
}

/// Writes of a block that are under way.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    count: u32,
    is_contested: bool,
}

/// Reads of a block that are under way.
#[derive(Clone, Copy, Debug, Default)]
struct Fills {
    count: u32,
    is_stale: bool,
}

/// For whom blocks are looked up and read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// A client asks for them.
    Client,
    /// A client is expected to.
    Ahead,
}

/// A chunk that the logical unit has, too.
struct Clean {
    chunk: Bytes,
    /// The lapse in which the policy was last told of its use.
    told: u64,
    /// It was read ahead, and nobody has asked for it so far.
    is_ahead: bool,
}

/// Who decides which chunks stay.
pub(crate) struct Keeping {
    pub(crate) policy: Box<dyn Policy>,
    /// Insertions that there have to be before the policy is told of another use of a chunk:
    /// between two uses without many insertions, nothing could have made room. 0: it is told of
    /// each, but for the one that a chunk was read ahead for, because reading it was that.
    pub(crate) lapse: u64,
    /// Chunks at which a new one has to be worth more than another. What memory there is beyond
    /// them is for what comes and goes.
    pub(crate) chunks_max: usize,
}

pub(crate) struct Index {
    files: Map<FileId, FileEntry>,
    pending: Map<Sequence, Pending>,
    clean: Map<Lbn, Clean>,
    keeping: Keeping,
    /// Insertions so far.
    inserted: u64,
    /// When the policy's period ends, if it has periods and one has begun.
    period_end: Option<Instant>,
    departures: Departures,
    writes: Map<Lbn, Writes>,
    fills: Map<Lbn, Fills>,
    next_sequence: u64,
    runs: usize,
    runs_max: usize,
    failed: usize,
    pub(crate) hits_fho: u64,
    pub(crate) hits_lbn: u64,
    pub(crate) misses: u64,
    pub(crate) remapped: u64,
    pub(crate) evicted: u64,
    pub(crate) declined: u64,
}

impl Index {
    /// `runs_max` bounds what is known of files' places, `departures` what is remembered of blocks
    /// that went.
    pub(crate) fn new(keeping: Keeping, runs_max: usize, departures: usize) -> Self {
        Self {
            files: Map::default(),
            pending: Map::default(),
            clean: Map::default(),
            keeping,
            inserted: 0,
            period_end: None,
            departures: Departures::new(departures),
            writes: Map::default(),
            fills: Map::default(),
            next_sequence: 1,
            runs: 0,
            runs_max,
            failed: 0,
            hits_fho: 0,
            hits_lbn: 0,
            misses: 0,
            remapped: 0,
            evicted: 0,
            declined: 0,
        }
    }

    // Reads.

    /// Where `blocks` blocks of a file are; chunks that a client uses count as used.
    pub(crate) fn find(
        &mut self,
        file: FileId,
        block: u64,
        blocks: u64,
        reader: Reader,
        mut see: impl FnMut(Found),
    ) {
        let lapse = self.lapse();
        let Some(entry) = self.files.get(&file) else {
            (0..blocks).for_each(|_| see(Found::Unknown));
            return;
        };
        let mut run = None::<(Lbn, u64)>;
        for block in block..block + blocks {
            run = run.and_then(|(lbn, behind)| (behind > 1).then(|| (Lbn(lbn.0 + 1), behind - 1)));
            if !entry.dirty.is_empty() {
                let chunk = match entry.dirty.get(&block) {
                    Some(Dirty::Keyed(sequence)) => {
                        self.pending.get(sequence).map(|pending| pending.chunk.clone())
                    }
                    Some(Dirty::Literal(chunk)) => Some(chunk.clone()),
                    None => None,
                };
                if let Some(chunk) = chunk {
                    self.hits_fho += 1;
                    see(Found::Chunk(chunk));
                    continue;
                }
            }
            run = run.or_else(|| entry.places.find(block));
            let Some((lbn, _)) = run else {
                see(Found::Unknown);
                continue;
            };
            let policy = &mut *self.keeping.policy;
            see(look_up(&mut self.clean, policy, lapse, &mut self.hits_lbn, lbn, reader));
        }
    }

    /// The chunk of a block of the device.
    pub(crate) fn find_lbn(&mut self, lbn: Lbn, reader: Reader) -> Found {
        let lapse = self.lapse();
        let policy = &mut *self.keeping.policy;
        look_up(&mut self.clean, policy, lapse, &mut self.hits_lbn, lbn, reader)
    }

    /// The present lapse; None: the policy is told of each use.
    fn lapse(&self) -> Option<u64> {
        self.inserted.checked_div(self.keeping.lapse)
    }

    /// What the kernel reads, which is not use in the policy's sense.
    pub(crate) fn peek_lbn(&self, lbn: Lbn) -> Option<Bytes> {
        self.clean.get(&lbn).map(|clean| clean.chunk.clone())
    }

    /// A block is about to be read from the logical unit.
    pub(crate) fn begin_fill(&mut self, lbn: Lbn) {
        self.misses += 1;
        let fills = self.fills.entry(lbn).or_default();
        fills.count += 1;
        fills.is_stale |= self.writes.contains_key(&lbn);
    }

    /// Whether a block is being read from the logical unit.
    pub(crate) fn is_filling(&self, lbn: Lbn) -> bool {
        self.fills.contains_key(&lbn)
    }

    /// It was read (or not).
    pub(crate) fn end_fill(&mut self, lbn: Lbn, chunk: Option<Bytes>, reader: Reader) {
        let Some(fills) = self.fills.get_mut(&lbn) else { return };
        fills.count -= 1;
        let is_stale = fills.is_stale;
        if fills.count == 0 {
            self.fills.remove(&lbn);
        }
        match chunk {
            Some(chunk) if !is_stale => self.insert_clean(lbn, chunk, reader),
            Some(_) => self.departures.note(lbn, Departure::Contested),
            None => {}
        }
    }

    /// Where a block is that the file system has at `place`: for operators, without using it.
    pub(crate) fn state(&self, file: FileId, block: u64, place: Place) -> BlockState {
        match self.files.get(&file).and_then(|entry| entry.dirty.get(&block)) {
            Some(Dirty::Keyed(_)) => return BlockState::ByFile,
            Some(Dirty::Literal(_)) => return BlockState::ByFileShort,
            None => {}
        }
        let lbn = match place {
            Place::Nowhere => return BlockState::Hole,
            Place::Reserved => return BlockState::Reserved,
            Place::At(lbn) => lbn,
        };
        if self.clean.contains_key(&lbn) {
            return BlockState::ByBlock;
        }
        if self.fills.contains_key(&lbn) {
            return BlockState::Coming;
        }
        match self.departures.of(lbn) {
            Some(Departure::Evicted) => BlockState::Evicted,
            Some(Departure::Overwritten) => BlockState::Overwritten,
            Some(Departure::Contested) => BlockState::Contested,
            Some(Departure::Declined) => BlockState::Declined,
            None => BlockState::Unread,
        }
    }

    /// The file system said where blocks are.
    pub(crate) fn handle_places(&mut self, file: FileId, block: u64, lbn: Lbn, blocks: u64) {
        if self.runs >= self.runs_max {
            self.forget_places();
        }
        let entry = self.files.entry(file).or_default();
        let before = entry.places.runs();
        entry.places.insert(block, lbn, blocks);
        self.runs = self.runs + entry.places.runs() - before;
    }

    // Writes by clients.

    /// Names a new key for a block's payload. It is pinned from now on.
    pub(crate) fn register(&mut self, pending: Pending) -> Sequence {
        let sequence = Sequence(self.next_sequence);
        self.next_sequence += 1;
        self.pending.insert(sequence, pending);
        sequence
    }

    /// The file system did not take the key.
    pub(crate) fn unregister(&mut self, sequence: Sequence) {
        self.pending.remove(&sequence);
    }

    /// The file system has the key: reads see its payload.
    pub(crate) fn publish(&mut self, file: FileId, block: u64, sequence: Sequence) {
        // It may have arrived already.
        let is_pending = self.pending.contains_key(&sequence);
        let entry = self.files.entry(file).or_default();
        let before = match is_pending {
            true => entry.dirty.insert(block, Dirty::Keyed(sequence)),
            false => entry.dirty.remove(&block),
        };
        self.drop_pending(before);
    }

    /// The file system has the bytes of a short block.
    pub(crate) fn publish_literal(&mut self, file: FileId, block: u64, chunk: Bytes) {
        let before = self.files.entry(file).or_default().dirty.insert(block, Dirty::Literal(chunk));
        self.drop_pending(before);
    }

    /// The file ends after `blocks` blocks: what was behind is gone.
    pub(crate) fn cut(&mut self, file: FileId, blocks: u64) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        let gone = entry.dirty.split_off(&blocks);
        let before = entry.places.runs();
        entry.places.remove(blocks, u64::MAX - blocks);
        self.runs = self.runs + entry.places.runs() - before;
        for dirty in gone.into_values() {
            self.drop_pending(Some(dirty));
        }
        self.forget_if_empty(file);
    }

    /// Forgets short blocks that have been written, but for those that were replaced meanwhile.
    pub(crate) fn handle_literals_written(&mut self, file: FileId, written: &[(u64, Bytes)]) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        for (block, chunk) in written {
            // A later write has another chunk.
            if matches!(entry.dirty.get(block),
                Some(Dirty::Literal(current)) if current.as_ptr() == chunk.as_ptr())
            {
                entry.dirty.remove(block);
            }
        }
        self.forget_if_empty(file);
    }

    /// The blocks that have not arrived, and their keys.
    pub(crate) fn keys_of(&self, file: FileId) -> Vec<(u64, Sequence, u32)> {
        let Some(entry) = self.files.get(&file) else { return Vec::new() };
        let keyed = entry.dirty.iter().filter_map(|(block, dirty)| match dirty {
            Dirty::Keyed(sequence) => {
                Some((*block, *sequence, self.pending.get(sequence)?.valid_bytes))
            }
            Dirty::Literal(_) => None,
        });
        keyed.collect()
    }

    /// The short blocks that are not known to have arrived.
    pub(crate) fn literals_of(&self, file: FileId) -> Vec<(u64, Bytes)> {
        let Some(entry) = self.files.get(&file) else { return Vec::new() };
        let literals = entry.dirty.iter().filter_map(|(block, dirty)| match dirty {
            Dirty::Literal(chunk) => Some((*block, chunk.clone())),
            Dirty::Keyed(_) => None,
        });
        literals.collect()
    }

    pub(crate) fn dirty_blocks(&self, file: FileId) -> usize {
        self.files.get(&file).map_or(0, |entry| entry.dirty.len())
    }

    /// A write of this file failed at the logical unit.
    fn fail(&mut self, file: FileId) {
        if self.has_failed(file) {
            return;
        }
        if self.failed >= FAILED_MAX {
            self.forget_failed();
        }
        self.files.entry(file).or_default().has_failed = true;
        self.failed += 1;
    }

    /// Whether a write of this file failed since somebody was told.
    pub(crate) fn has_failed(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.has_failed)
    }

    /// Whether a write of this file failed since somebody was told, and forgets it: somebody is
    /// told.
    pub(crate) fn take_failed(&mut self, file: FileId) -> bool {
        let failed =
            self.files.get_mut(&file).is_some_and(|entry| std::mem::take(&mut entry.has_failed));
        self.failed -= usize::from(failed);
        self.forget_if_empty(file);
        failed
    }

    // Writes by the kernel.

    /// The payload of a key that came to the device.
    pub(crate) fn payload(&self, sequence: Sequence) -> Option<&Pending> {
        self.pending.get(&sequence)
    }

    /// A key's block was refused together with another: it did not arrive.
    pub(crate) fn handle_refused(&mut self, sequence: Sequence) {
        if let Some(file) = self.pending.get(&sequence).map(|pending| pending.file) {
            self.fail(file);
        }
    }

    /// A block is about to be written to the logical unit.
    pub(crate) fn begin_write(&mut self, lbn: Lbn) {
        let writes = self.writes.entry(lbn).or_default();
        writes.count += 1;
        writes.is_contested |= writes.count > 1;
        if let Some(fills) = self.fills.get_mut(&lbn) {
            fills.is_stale = true;
        }
        self.remove_clean(lbn);
    }

    /// It was written; `key` if it was payload.
    pub(crate) fn end_write(&mut self, lbn: Lbn, key: Option<Sequence>, is_written: bool) {
        let Some(writes) = self.writes.get_mut(&lbn) else { return };
        writes.count -= 1;
        let is_contested = writes.is_contested;
        if writes.count == 0 {
            self.writes.remove(&lbn);
        }
        let Some(sequence) = key else {
            self.departures.note(lbn, Departure::Overwritten);
            return;
        };
        if !is_written {
            // It stays pinned, and is written again.
            if let Some(file) = self.pending.get(&sequence).map(|pending| pending.file) {
                self.fail(file);
            }
            return;
        }
        let Some(Pending { file, block, chunk, .. }) = self.pending.remove(&sequence) else {
            return;
        };
        self.remapped += 1;
        self.handle_places(file, block, lbn, 1);
        if let Some(entry) = self.files.get_mut(&file)
            && matches!(entry.dirty.get(&block),
                Some(Dirty::Keyed(current)) if *current == sequence)
        {
            entry.dirty.remove(&block);
        }
        if is_contested {
            self.departures.note(lbn, Departure::Contested);
        } else {
            self.insert_clean(lbn, chunk, Reader::Client);
        }
    }

    // Memory.

    /// Evicts a chunk that the logical unit has, too. None: there is none.
    pub(crate) fn evict(&mut self) -> Option<Bytes> {
        let victim = self.keeping.policy.evict(None)?;
        self.forget_victim(victim)
    }

    fn forget_victim(&mut self, victim: Key) -> Option<Bytes> {
        let victim = Lbn(unmix(victim.0));
        self.departures.note(victim, Departure::Evicted);
        self.evicted += 1;
        self.clean.remove(&victim).map(|clean| clean.chunk)
    }

    /// Ends the policy's period if it is over.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        let Some(period) = self.keeping.policy.period() else { return };
        if self.period_end.is_some_and(|end| now < end) {
            return;
        }
        if self.period_end.is_some() {
            self.keeping.policy.handle_period_end();
        }
        self.period_end = now.checked_add(period);
    }

    pub(crate) fn clean_chunks(&self) -> usize {
        self.clean.len()
    }

    pub(crate) fn pending_chunks(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    fn insert_clean(&mut self, lbn: Lbn, chunk: Bytes, reader: Reader) {
        self.remove_clean(lbn);
        let (key, bytes) = (policy_key(lbn), BLOCK_BYTES as u64);
        let policy = &mut self.keeping.policy;
        // The request was counted when it was looked up; a policy learns of a miss before an
        // insertion.
        let is_admitted = policy.handle_miss(key, Some(bytes)) == Admission::Admit
            && policy.handle_reply(key, bytes) == Admission::Admit;
        // What is read ahead was read to be kept; only for room it has to be worth it.
        let is_wanted = is_admitted || reader == Reader::Ahead;
        if is_wanted
            && self.make_room(Incoming { key, bytes })
            && self.keeping.policy.handle_insert(key, bytes).is_ok()
        {
            self.inserted += 1;
            let told = self.lapse().unwrap_or_default();
            self.clean.insert(lbn, Clean { chunk, told, is_ahead: reader == Reader::Ahead });
            return;
        }
        if is_wanted {
            self.keeping.policy.handle_remove(key, Removal::Refused);
        }
        self.declined += 1;
        self.departures.note(lbn, Departure::Declined);
    }

    /// Whether there is room for one more chunk, or the policy holds it for worth more than others,
    /// which are evicted then.
    fn make_room(&mut self, incoming: Incoming) -> bool {
        while self.clean.len() >= self.keeping.chunks_max {
            let Some(victim) = self.keeping.policy.evict(Some(incoming)) else { return false };
            self.forget_victim(victim);
        }
        true
    }

    fn remove_clean(&mut self, lbn: Lbn) {
        if self.clean.remove(&lbn).is_some() {
            self.keeping.policy.handle_remove(policy_key(lbn), Removal::Purged);
        }
    }

    fn drop_pending(&mut self, dirty: Option<Dirty>) {
        if let Some(Dirty::Keyed(sequence)) = dirty {
            self.pending.remove(&sequence);
        }
    }

    fn forget_if_empty(&mut self, file: FileId) {
        if let Some(entry) = self.files.get(&file)
            && entry.dirty.is_empty()
            && !entry.has_failed
            && entry.places.runs() == 0
        {
            self.files.remove(&file);
        }
    }

    /// Forgets which files' writes failed.
    fn forget_failed(&mut self) {
        self.files.retain(|_, entry| {
            entry.has_failed = false;
            !entry.dirty.is_empty() || entry.places.runs() > 0
        });
        self.failed = 0;
    }

    /// Forgets what the file system can say again.
    fn forget_places(&mut self) {
        self.files.retain(|_, entry| {
            entry.places = Places::default();
            entry.has_failed || !entry.dirty.is_empty()
        });
        self.runs = 0;
    }
}

fn look_up(
    clean: &mut Map<Lbn, Clean>,
    policy: &mut dyn Policy,
    lapse: Option<u64>,
    hits: &mut u64,
    lbn: Lbn,
    reader: Reader,
) -> Found {
    let Some(found) = clean.get_mut(&lbn) else { return Found::At(lbn) };
    match lapse {
        Some(lapse) if lapse == found.told => {}
        Some(lapse) => {
            policy.handle_hit(policy_key(lbn));
            found.told = lapse;
        }
        None if reader == Reader::Ahead || std::mem::take(&mut found.is_ahead) => {}
        None => policy.handle_hit(policy_key(lbn)),
    }
    *hits += 1;
    Found::Chunk(found.chunk.clone())
}

/// An odd factor and its inverse modulo 2^64: keys of policies are spread, and say their block
/// again.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
const UNMIX: u64 = 0xF1DE_83E1_9937_733D;

fn policy_key(lbn: Lbn) -> Key {
    Key(lbn.0.wrapping_mul(MIX))
}

fn unmix(key: u64) -> u64 {
    key.wrapping_mul(UNMIX)
}

#[cfg(test)]
mod tests;
