//! Sources by slot, and the two counters that order their changes.
//!
//! A source is anything whose change makes a reply wrong: a file, a directory, a symbolic link, or
//! the server group itself. The table has no room for every inode of a machine, so a source is
//! known by a hash; two sources that share a slot purge each other's entries, which costs hits and
//! never correctness.

/// Revision words in the table, a power of two. A page of a large application depends on a thousand
/// files, so there is room for the files of many without too many that share a slot.
pub const SOURCE_SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 20;
/// Slots of database servers. Two that share one make each other's pages suspect.
const DATABASE_SLOTS: u32 = 64;

/// Slots that one entry may depend on. A larger set is refused ([`TooManySources`]), never
/// truncated.
pub const SOURCES_MAX: usize = 64;

/// Index of a source's revision word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceSlot(pub u32);

impl SourceSlot {
    /// The server group and everything that cannot be named more narrowly (a process started in the
    /// server's namespace, a purge of all). Every source set contains it.
    pub const EVERYTHING: Self = Self(0);

    /// Everything that any dynamic entry depends on, but for databases: it changes with each of
    /// these sources ([`RevisionTable::track`](crate::RevisionTable::track)). A dynamic entry has
    /// far more sources than a card would want to compare; it depends on this one, and the watcher
    /// knows the others.
    pub const DYNAMIC: Self = Self(1);

    /// All databases that are watched: what changes one of them alone changes the slot of its
    /// server ([`SourceSlot::of_database`]).
    pub const DATABASES: Self = Self(2);

    /// Where relative paths of the server's processes start.
    pub const WORKING_DIRECTORY: Self = Self(3);

    /// Access control lists of files: by it the watcher knows whether who may read a file can have
    /// changed although mode and owner have not. Where a change cannot be told more narrowly it is
    /// one of everything.
    pub const ACCESS_LISTS: Self = Self(4);

    /// What is mounted where, anywhere on the machine. Every path depends on it; the watcher looks
    /// whether it leads elsewhere.
    pub const MOUNTS: Self = Self(5);

    const FIRST_DATABASE: u32 = 6;
    const RESERVED: u32 = Self::FIRST_DATABASE + DATABASE_SLOTS;

    /// Slot of an inode; never one of the named ones.
    ///
    /// `dev` is the kernel's own encoding of `s_dev` (`major << 20 | minor`), not what `stat`
    /// returns; see [`SourceSlot::of_device_inode`] for that. `ebpf/witness.bpf.c` computes the
    /// same function: multiplicative (Fibonacci) hashing, whose top bits spread consecutive inode
    /// numbers evenly.
    pub const fn of_inode(dev: u32, ino: u64) -> Self {
        let mut mixed = ino.wrapping_add((dev as u64).wrapping_mul(DEVICE_MULTIPLIER));
        mixed ^= mixed >> 32;
        let slot = (mixed.wrapping_mul(INODE_MULTIPLIER) >> (64 - SLOT_BITS)) as u32;
        if slot < Self::RESERVED { Self(slot + Self::RESERVED) } else { Self(slot) }
    }

    /// Slot of an inode whose device is given as major and minor number, as user space sees it.
    pub const fn of_device_inode(major: u32, minor: u32, ino: u64) -> Self {
        Self::of_inode(major << 20 | minor, ino)
    }

    /// Slot of a database server: by its first process, for which `ebpf/sql.h` computes the same,
    /// or, of one on another machine, by a number that no process has.
    pub const fn of_database(process: u32) -> Self {
        Self(Self::FIRST_DATABASE + process % DATABASE_SLOTS)
    }

    /// Slot of something that is not an inode, by a uniformly spread hash of its name; never one of
    /// the named ones.
    pub const fn of_hash(hash: u64) -> Self {
        let slot = (hash >> (64 - SLOT_BITS)) as u32;
        if slot < Self::RESERVED { Self(slot + Self::RESERVED) } else { Self(slot) }
    }

    /// Position in the table.
    pub const fn index(self) -> usize {
        self.0 as usize & (SOURCE_SLOTS - 1)
    }
}

const DEVICE_MULTIPLIER: u64 = 0xff51_afd7_ed55_8ccd;
const INODE_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A value of the table's clock. A source's stamp is the clock at its last change; an entry's stamp
/// is the clock right after the card advanced it to forward the miss. The entry is valid while
/// every source's stamp is smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// How often any watched source has changed. Unequal epochs say "look again", equal ones "nothing
/// happened".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The set would have needed more than [`SOURCES_MAX`] slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {SOURCES_MAX} sources")]
pub struct TooManySources;

/// The sources of an entry: at most [`SOURCES_MAX`] distinct slots, kept in place (no allocation),
/// always with [`SourceSlot::EVERYTHING`].
#[derive(Clone, Copy)]
pub struct SourceSet {
    slots: [SourceSlot; SOURCES_MAX],
    len: u8,
}

impl SourceSet {
    /// A set of [`SourceSlot::EVERYTHING`] alone.
    pub const fn new() -> Self {
        Self { slots: [SourceSlot::EVERYTHING; SOURCES_MAX], len: 1 }
    }

    /// Adds a slot unless it is there already.
    ///
    /// # Errors
    /// The set is full and the slot is not in it. The set is as before, hence incomplete: refuse
    /// the fill.
    pub fn insert(&mut self, slot: SourceSlot) -> Result<(), TooManySources> {
        if self.as_slice().contains(&slot) {
            return Ok(());
        }
        let free = self.slots.get_mut(self.len as usize).ok_or(TooManySources)?;
        *free = slot;
        self.len += 1;
        Ok(())
    }

    /// The slots, the first of which is [`SourceSlot::EVERYTHING`].
    pub fn as_slice(&self) -> &[SourceSlot] {
        &self.slots[..self.len as usize]
    }
}

impl Default for SourceSet {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for SourceSet {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SourceSet {}

impl std::fmt::Debug for SourceSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.as_slice().iter().map(|slot| slot.0)).finish()
    }
}

const _: () = assert!(SOURCES_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_never_takes_a_slot_with_a_name() {
        for ino in 0..3_000_000 {
            assert!(SourceSlot::of_inode(8 << 20 | 1, ino).0 >= SourceSlot::RESERVED);
        }
    }

    #[test]
    fn a_hash_never_takes_a_slot_with_a_name() {
        for high in 0..64u64 {
            assert!(SourceSlot::of_hash(high << 40).0 >= SourceSlot::RESERVED);
        }
        assert_eq!(SourceSlot::of_hash(u64::MAX).index(), SOURCE_SLOTS - 1);
    }

    #[test]
    fn consecutive_inodes_spread_evenly() {
        let mut load = vec![0_u32; SOURCE_SLOTS];
        for ino in 0..SOURCE_SLOTS as u64 {
            load[SourceSlot::of_inode(254 << 20, 1_000_000 + ino).index()] += 1;
        }
        let used = load.iter().filter(|&&n| n > 0).count();
        assert!(used > SOURCE_SLOTS * 6 / 10, "only {used} slots used");
        assert!(load.iter().all(|&n| n < 12), "a slot holds {}", load.iter().max().unwrap());
    }

    #[test]
    fn a_full_set_refuses_a_new_slot_and_accepts_a_known_one() {
        let mut set = SourceSet::new();
        for slot in 1..SOURCES_MAX as u32 {
            set.insert(SourceSlot(slot)).unwrap();
        }
        assert_eq!(set.insert(SourceSlot(SOURCES_MAX as u32)), Err(TooManySources));
        assert_eq!(set.insert(SourceSlot(5)), Ok(()));
        assert_eq!(set.as_slice().len(), SOURCES_MAX);
        assert_eq!(set.as_slice()[0], SourceSlot::EVERYTHING);
    }
}
