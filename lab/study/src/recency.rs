//! Objects in the order of their last uses, and how much room all have that were used since one
//! was.
//!
//! A use takes the next slot of a row; the object's slot before is free again. Room is summed up in
//! blocks of slots, and the blocks in a [`Fenwick`] row that is small enough for a processor's
//! cache. When the row is full, the slots in use are moved together, which is paid for by at least
//! as many uses as there are objects.

use crate::fenwick::Fenwick;

const NEVER: u32 = u32::MAX;

/// The order.
#[derive(Debug)]
pub(crate) struct Recency<S> {
    /// Slot of each object.
    slot_of: Vec<u32>,
    /// Object of each slot in use.
    object_at: Vec<u32>,
    slots: S,
    next: u32,
    total: u64,
}

/// What an object found at its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// Room of all objects that were used since its last use.
    pub since: u64,
    /// Its room then.
    pub room: u64,
}

impl<S: Slots> Recency<S> {
    /// None of so many objects has been used.
    pub(crate) fn new(objects: u32, mut slots: S) -> Self {
        let length = 2 * objects as usize + 64;
        slots.clear(length);
        Self {
            slot_of: vec![NEVER; objects as usize],
            object_at: vec![0; length],
            slots,
            next: 0,
            total: 0,
        }
    }

    /// An object is used, and has so much room now.
    #[inline]
    pub(crate) fn access(&mut self, object: u32, room: u64) -> Option<Before> {
        if self.next as usize == self.object_at.len() {
            self.move_together();
        }
        let slot = std::mem::replace(&mut self.slot_of[object as usize], self.next);
        let before = (slot != NEVER).then(|| {
            let since = self.total - self.slots.sum_through(slot as usize);
            let room = self.slots.take(slot as usize);
            self.total -= room;
            Before { since, room }
        });
        self.object_at[self.next as usize] = object;
        self.slots.put(self.next as usize, room);
        self.total += room;
        self.next += 1;
        before
    }

    /// An object is as if it had never been used.
    pub(crate) fn forget(&mut self, object: u32) {
        let slot = std::mem::replace(&mut self.slot_of[object as usize], NEVER);
        if slot != NEVER {
            self.total -= self.slots.take(slot as usize);
        }
    }

    #[cold]
    fn move_together(&mut self) {
        let mut next = 0;
        let mut rooms = Vec::new();
        for slot in 0..self.object_at.len() {
            let object = self.object_at[slot];
            if self.slot_of[object as usize] == slot as u32 {
                self.slot_of[object as usize] = next;
                self.object_at[next as usize] = object;
                rooms.push(self.slots.take(slot));
                next += 1;
            }
        }
        self.slots.clear(self.object_at.len());
        for (slot, room) in rooms.into_iter().enumerate() {
            self.slots.put(slot, room);
        }
        self.next = next;
    }
}

/// Room by slot.
pub(crate) trait Slots {
    /// So many empty slots.
    fn clear(&mut self, length: usize);
    /// Fills an empty slot.
    fn put(&mut self, slot: usize, room: u64);
    /// Empties a slot in use; its room.
    fn take(&mut self, slot: usize) -> u64;
    /// Room of all slots up to this one, which is in use, with it.
    fn sum_through(&self, slot: usize) -> u64;
}

/// All slots in use have room 1: a bit each.
#[derive(Debug, Default)]
pub(crate) struct Ones {
    blocks: Vec<u64>,
    sums: Fenwick,
}

impl Slots for Ones {
    fn clear(&mut self, length: usize) {
        let blocks = length.div_ceil(64);
        self.blocks = vec![0; blocks];
        self.sums = Fenwick::new(blocks);
    }

    #[inline]
    fn put(&mut self, slot: usize, _room: u64) {
        self.blocks[slot / 64] |= 1 << (slot % 64);
        self.sums.add(slot / 64, 1);
    }

    #[inline]
    fn take(&mut self, slot: usize) -> u64 {
        self.blocks[slot / 64] &= !(1 << (slot % 64));
        self.sums.add(slot / 64, 1u64.wrapping_neg());
        1
    }

    #[inline]
    fn sum_through(&self, slot: usize) -> u64 {
        let in_block = self.blocks[slot / 64] << (63 - slot % 64);
        self.sums.sum_before(slot / 64) + u64::from(in_block.count_ones())
    }
}

/// Slots of a block of [`Sums`].
const BLOCK: usize = 32;

/// Each slot has a room of its own.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    rooms: Vec<u64>,
    sums: Fenwick,
}

impl Slots for Sums {
    fn clear(&mut self, length: usize) {
        let blocks = length.div_ceil(BLOCK);
        self.rooms = vec![0; blocks * BLOCK];
        self.sums = Fenwick::new(blocks);
    }

    #[inline]
    fn put(&mut self, slot: usize, room: u64) {
        self.rooms[slot] = room;
        self.sums.add(slot / BLOCK, room);
    }

    #[inline]
    fn take(&mut self, slot: usize) -> u64 {
        let room = std::mem::take(&mut self.rooms[slot]);
        self.sums.add(slot / BLOCK, room.wrapping_neg());
        room
    }

    #[inline]
    fn sum_through(&self, slot: usize) -> u64 {
        let first = slot / BLOCK * BLOCK;
        self.sums.sum_before(slot / BLOCK) + self.rooms[first..=slot].iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORGETS: u32 = 7;

    fn behaves_like_a_list<S: Slots>(slots: S, uses: &[(u32, u64)]) -> Result<(), TestCaseError> {
        let mut recency = Recency::new(12, slots);
        let mut model: Vec<(u32, u64)> = Vec::new();
        for &(object, room) in uses {
            if object == FORGETS {
                recency.forget(object);
                model.retain(|used| used.0 != object);
                continue;
            }
            let at = model.iter().position(|used| used.0 == object);
            let expected = at.map(|at| Before {
                since: model[at + 1..].iter().map(|used| used.1).sum(),
                room: model.remove(at).1,
            });
            prop_assert_eq!(recency.access(object, room), expected);
            model.push((object, room));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn behaves_like_a_list_of_rooms(
            uses in prop::collection::vec((0u32..12, 0u64..1000), 0..400),
        ) {
            behaves_like_a_list(Sums::default(), &uses)?;
        }

        #[test]
        fn behaves_like_a_list_of_ones(
            uses in prop::collection::vec((0u32..12, Just(1u64)), 0..400),
        ) {
            behaves_like_a_list(Ones::default(), &uses)?;
        }
    }
}
