//! The directory of one card's cache: which blocks are in it, and where (Kim et al. 2002, section
//! 4.2).
//!
//! The cache is cut into places of one block each. Which block goes when there is no room is the
//! policy's to say; the paper's is LRU.
//!
//! A block that the packet under construction refers to is held until the packet is sent, because
//! the card takes its bytes at the packet's end.

use hashbrown::HashMap;
use nicache_policy::{Admission, Incoming, Key, Policy, Removal};

use crate::block::{BLOCK_BYTES, Block, FileNumber, Revision};

/// When the directory forgets a block whose file has changed (Kim et al. 2002, section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coherence {
    /// When it is looked for with another revision. The paper's.
    #[default]
    Lazy,
    /// It forgets the block as soon as the host knows of the change.
    Eager,
    /// It does not: what is in the cache is replaced by what the file has become.
    Update,
}

/// What the directory says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is in the cache, from this offset on.
    Here(u32),
    /// It was, in another revision, and is forgotten.
    Outdated,
    /// A younger revision is in the cache, which stays: whoever asks sends again what a client has
    /// begun to receive.
    Younger,
    /// It is not there.
    Missing,
}

nicache_counters::counters! {
    /// What has happened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DirectoryCounters {
        hits as "block_hits": "Blocks that were found in the card's cache.",
        misses as "block_misses": "Blocks that were not found in the card's cache, whatever the reason.",
        inserted as "blocks_inserted": "Blocks put into the cache.",
        evicted as "blocks_evicted": "Blocks evicted to make room for others.",
        invalidated as "blocks_invalidated": "Blocks forgotten because their file had changed.",
        updated as "blocks_updated": "Blocks that were replaced by what their file has become.",
        excluded as "blocks_excluded": "Blocks forgotten because their page went.",
        refused as "blocks_refused": "Blocks that were not put into the cache: the policy did not want them, or what would have had to go was in use.",
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    block: Block,
    revision: Revision,
    /// Number of the packet that referred to it last.
    packet: u64,
}

/// Which blocks are in one card's cache, and where (Kim et al. 2002, section 4.2). Everything is
/// allocated at construction, but for what the policy does.
pub struct Directory {
    /// By place; `None`: it is free.
    entries: Box<[Option<Entry>]>,
    index: HashMap<Block, u32, foldhash::fast::RandomState>,
    /// The place that was found last.
    found_last: u32,
    free: Vec<u32>,
    policy: Box<dyn Policy>,
    packet: u64,
    counters: DirectoryCounters,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory")
            .field("blocks", &self.entries.len())
            .field("policy", &self.policy.name())
            .finish()
    }
}

impl Directory {
    /// Blocks of a cache of so many bytes.
    pub fn places_of(cache_bytes: u64) -> u32 {
        u32::try_from(cache_bytes / BLOCK_BYTES).unwrap_or(u32::MAX / BLOCK_BYTES as u32)
    }

    /// Of an empty cache with room for `places` blocks. The policy must be for as many, of
    /// [`BLOCK_BYTES`] each.
    pub fn new(places: u32, policy: Box<dyn Policy>) -> Self {
        let mut index = HashMap::with_hasher(foldhash::fast::RandomState::default());
        index.reserve(places as usize);
        let entries = vec![None; places as usize].into_boxed_slice();
        let free = (0..places).rev().collect();
        Self {
            entries,
            index,
            found_last: 0,
            free,
            policy,
            packet: 0,
            counters: DirectoryCounters::default(),
        }
    }

    /// What has happened.
    pub fn counters(&self) -> &DirectoryCounters {
        &self.counters
    }

    /// Blocks in the cache.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether a block is in the cache, in whatever revision.
    pub fn knows(&self, block: Block) -> bool {
        self.index.contains_key(&block)
    }

    /// Blocks in the cache, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = (Block, Revision)> {
        self.entries.iter().flatten().map(|entry| (entry.block, entry.revision))
    }

    /// A period of the policy is over.
    pub fn handle_period_end(&mut self) {
        self.policy.handle_period_end();
    }

    /// A new packet begins: blocks of the one before may go.
    pub fn begin_packet(&mut self) {
        self.packet += 1;
    }

    /// The place of a block, and what is there. Blocks that follow each other were often inserted
    /// one after the other, and a look there costs less than one in the index.
    fn entry(&mut self, block: Block) -> Option<(u32, &mut Entry)> {
        let is_at = |place: u32| {
            self.entries
                .get(place as usize)
                .is_some_and(|entry| entry.is_some_and(|entry| entry.block == block))
        };
        let last = self.found_last;
        let near = [last, last.wrapping_add(1)].into_iter().find(|&place| is_at(place));
        let place = match near {
            Some(place) => place,
            None => *self.index.get(&block)?,
        };
        self.found_last = place;
        self.entries[place as usize].as_mut().map(|entry| (place, entry))
    }

    /// Looks for a block for the packet under construction. That counts as its use, and holds it if
    /// it is there.
    pub fn find(&mut self, block: Block, revision: Revision) -> Found {
        let packet = self.packet;
        let found = match self.entry(block) {
            Some((place, entry)) if entry.revision == revision => {
                entry.packet = packet;
                Found::Here(place * BLOCK_BYTES as u32)
            }
            Some((_, entry)) if entry.revision > revision => Found::Younger,
            Some(_) => Found::Outdated,
            None => Found::Missing,
        };
        match found {
            Found::Here(_) => {
                self.counters.hits += 1;
                self.policy.handle_hit(key_of(block));
                return found;
            }
            Found::Outdated => {
                self.counters.invalidated += 1;
                self.remove(block, Removal::Purged);
            }
            Found::Younger | Found::Missing => {}
        }
        self.counters.misses += 1;
        found
    }

    /// A place for a block that is not in the cache: its offset there. Its bytes are to be inserted
    /// before anything else refers to it. `None`: it is not worth it, or what would have to go is
    /// in use.
    pub fn insert(&mut self, block: Block, revision: Revision) -> Option<u32> {
        let key = key_of(block);
        let is_wanted = self.policy.handle_miss(key, Some(BLOCK_BYTES)) == Admission::Admit
            && self.policy.handle_reply(key, BLOCK_BYTES) == Admission::Admit;
        if !is_wanted || self.knows(block) || !self.make_room(key) {
            self.counters.refused += 1;
            self.policy.handle_remove(key, Removal::Refused);
            return None;
        }
        if self.policy.handle_insert(key, BLOCK_BYTES).is_err() {
            self.counters.refused += 1;
            return None;
        }
        let place = self.free.pop()?;
        self.entries[place as usize] = Some(Entry { block, revision, packet: self.packet });
        self.index.insert(block, place);
        self.found_last = place;
        self.counters.inserted += 1;
        Some(place * BLOCK_BYTES as u32)
    }

    fn make_room(&mut self, key: Key) -> bool {
        if !self.free.is_empty() {
            return true;
        }
        let Some(victim) = self.policy.poll_victim(Some(Incoming { key, bytes: BLOCK_BYTES }))
        else {
            return false;
        };
        let block = block_of(victim);
        let packet = self.packet;
        if self.entry(block).is_none_or(|(_, entry)| entry.packet == packet) {
            return false;
        }
        self.counters.evicted += 1;
        self.remove(block, Removal::Evicted);
        true
    }

    /// The page of a block has gone: so has the block (invariant I8).
    pub fn exclude(&mut self, block: Block) {
        if self.remove(block, Removal::Purged) {
            self.counters.excluded += 1;
        }
    }

    /// The file of a block has changed.
    pub fn invalidate(&mut self, block: Block) {
        if self.remove(block, Removal::Purged) {
            self.counters.invalidated += 1;
        }
    }

    /// Forgets a block whose file has changed, if what is in the cache is older than this revision.
    pub fn invalidate_older(&mut self, block: Block, revision: Revision) {
        if self.entry(block).is_some_and(|(_, entry)| entry.revision < revision) {
            self.invalidate(block);
        }
    }

    /// A block that is in the cache gets another revision, whose bytes are to be inserted at the
    /// offset that is returned before anything else refers to it. `None`: it is not there, or
    /// younger.
    pub fn update(&mut self, block: Block, revision: Revision) -> Option<u32> {
        let (place, entry) = self.entry(block).filter(|(_, entry)| entry.revision < revision)?;
        entry.revision = revision;
        self.counters.updated += 1;
        Some(place * BLOCK_BYTES as u32)
    }

    /// The card has lost everything.
    pub fn clear(&mut self) {
        let blocks: Vec<Block> = self.index.keys().copied().collect();
        for block in blocks {
            self.remove(block, Removal::Purged);
        }
        // Blocks of a file that follow each other are to do so in the cache.
        self.free.sort_unstable_by(|one, other| other.cmp(one));
    }

    fn remove(&mut self, block: Block, removal: Removal) -> bool {
        let Some(place) = self.index.remove(&block) else { return false };
        self.entries[place as usize] = None;
        self.free.push(place);
        self.policy.handle_remove(key_of(block), removal);
        true
    }
}

/// The policy's name of a block. Numbers of files are the host's, so no client can choose
/// them.
fn key_of(block: Block) -> Key {
    Key(u64::from(block.file.0) << 32 | u64::from(block.index))
}

fn block_of(key: Key) -> Block {
    Block { file: FileNumber((key.0 >> 32) as u32), index: key.0 as u32 }
}

#[cfg(test)]
mod tests {
    use nicache_policy::Lru;

    use super::*;

    fn directory(places: u32) -> Directory {
        Directory::new(places, Box::new(Lru::new(u64::from(places) * BLOCK_BYTES, places)))
    }

    fn block(index: u32) -> Block {
        Block { file: FileNumber(7), index }
    }

    #[test]
    fn the_least_recently_used_goes() {
        let mut directory = directory(2);
        for index in 0..2 {
            directory.begin_packet();
            assert_eq!(directory.find(block(index), Revision(1)), Found::Missing);
            assert!(directory.insert(block(index), Revision(1)).is_some());
        }
        directory.begin_packet();
        assert!(matches!(directory.find(block(0), Revision(1)), Found::Here(_)));
        assert!(directory.insert(block(2), Revision(1)).is_some());
        assert!(directory.knows(block(0)) && !directory.knows(block(1)));
        assert_eq!((directory.counters().evicted, directory.len()), (1, 2));
    }

    #[test]
    fn places_are_each_given_to_one_block() {
        let mut directory = directory(3);
        let mut offsets: Vec<u32> =
            (0..3).filter_map(|index| directory.insert(block(index), Revision(1))).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0, 4096, 8192]);
    }

    #[test]
    fn a_block_that_has_changed_is_forgotten_when_it_is_looked_for() {
        let mut directory = directory(2);
        directory.insert(block(0), Revision(5)).unwrap();
        assert_eq!(
            directory.find(block(0), Revision(4)),
            Found::Younger,
            "somebody still sends the former one"
        );
        assert!(matches!(directory.find(block(0), Revision(5)), Found::Here(_)));
        assert_eq!(directory.find(block(0), Revision(6)), Found::Outdated);
        assert_eq!(directory.find(block(0), Revision(6)), Found::Missing);
        assert_eq!(directory.counters().invalidated, 1);
    }

    #[test]
    fn a_block_gets_another_revision_where_it_is() {
        let mut directory = directory(2);
        let offset = directory.insert(block(0), Revision(5)).unwrap();
        assert_eq!(directory.update(block(0), Revision(4)), None);
        assert_eq!(directory.update(block(1), Revision(6)), None);
        assert_eq!(directory.update(block(0), Revision(6)), Some(offset));
        assert_eq!(directory.find(block(0), Revision(5)), Found::Younger);
        assert_eq!(directory.find(block(0), Revision(6)), Found::Here(offset));
    }

    #[test]
    fn what_the_packet_refers_to_stays() {
        let mut directory = directory(1);
        directory.begin_packet();
        let first = directory.insert(block(0), Revision(1)).unwrap();
        assert_eq!(directory.insert(block(1), Revision(1)), None);
        directory.begin_packet();
        assert!(matches!(directory.find(block(0), Revision(1)), Found::Here(_)));
        assert_eq!(directory.insert(block(1), Revision(1)), None);
        directory.begin_packet();
        assert_eq!(directory.insert(block(1), Revision(1)), Some(first));
        assert_eq!(directory.counters().refused, 2);
    }

    #[test]
    fn a_card_that_begins_anew_has_nothing() {
        let mut directory = directory(2);
        directory.insert(block(0), Revision(1)).unwrap();
        directory.insert(block(1), Revision(1)).unwrap();
        directory.exclude(block(1));
        directory.exclude(block(1));
        assert_eq!((directory.len(), directory.counters().excluded), (1, 1));
        directory.clear();
        assert!(directory.is_empty());
        assert!(
            directory.insert(block(2), Revision(1)).is_some()
                && directory.insert(block(3), Revision(1)).is_some()
        );
    }
}
