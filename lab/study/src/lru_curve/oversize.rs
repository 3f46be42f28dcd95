//! Objects that are larger than some of the caches, in the order of their last uses: how much of
//! the room used since a time was used by objects that a cache does not store.

/// The order, for each cache that is smaller than the largest object.
#[derive(Debug)]
pub(super) struct Oversize {
    /// Ascending.
    sizes: Vec<u64>,
    /// For each object, how many slots had been taken at its last use, with its own if it took one.
    taken: Vec<u32>,
    /// Object and room of each slot; no room: not in use.
    slots: Vec<(u32, u64)>,
    /// A row of sums over the slots for each size, as in a Fenwick row, those of a slot beside each
    /// other.
    sums: Vec<u64>,
    total: Vec<u64>,
    next: u32,
    found: Vec<u64>,
}

impl Oversize {
    /// For caches of these sizes (ascending) and objects with these rooms at their largest.
    pub(super) fn new(sizes: &[u64], rooms: &[u64]) -> Self {
        let largest = rooms.iter().copied().max().unwrap_or(0);
        let sizes: Vec<u64> = sizes.iter().copied().take_while(|&size| size < largest).collect();
        let oversize =
            sizes.first().map_or(0, |&least| rooms.iter().filter(|&&room| room > least).count());
        let slots = if sizes.is_empty() { 0 } else { 2 * oversize + 64 };
        Self {
            taken: vec![0; if sizes.is_empty() { 0 } else { rooms.len() }],
            slots: vec![(0, 0); slots],
            sums: vec![0; (slots + 1) * sizes.len()],
            total: vec![0; sizes.len()],
            next: 0,
            found: vec![0; sizes.len()],
            sizes,
        }
    }

    /// Number of caches that are smaller than the largest object: the first ones.
    pub(super) fn sizes(&self) -> usize {
        self.sizes.len()
    }

    /// The first cache that can hold an object, if there are so many that are smaller than the
    /// largest object.
    #[inline]
    pub(super) fn first_with(&self, room: u64) -> usize {
        self.sizes.partition_point(|&size| size < room)
    }

    /// An object is used, and has so much room now. For each cache, the room of objects which it
    /// cannot hold that were used since the object's last use, if it had one; None if there are
    /// none for any cache.
    #[inline]
    pub(super) fn access(&mut self, object: u32, room: u64) -> Option<&[u64]> {
        if self.sizes.is_empty() {
            return None;
        }
        if self.next as usize == self.slots.len() {
            self.move_together();
        }
        let taken = self.taken[object as usize];
        let is_any = taken != self.next;
        if is_any {
            self.find_since(taken as usize);
        }
        if let Some(slot) = (taken as usize).checked_sub(1)
            && self.slots[slot].0 == object
            && self.slots[slot].1 != 0
        {
            let room = std::mem::take(&mut self.slots[slot].1);
            self.add(slot, room, u64::wrapping_sub);
        }
        if self.sizes[0] < room {
            let slot = self.next as usize;
            self.slots[slot] = (object, room);
            self.add(slot, room, u64::wrapping_add);
            self.next += 1;
        }
        self.taken[object as usize] = self.next;
        is_any.then_some(&self.found)
    }

    fn add(&mut self, slot: usize, room: u64, apply: impl Fn(u64, u64) -> u64) {
        let width = self.sizes.len();
        let without = self.first_with(room);
        let mut place = slot + 1;
        while place <= self.slots.len() {
            for sum in &mut self.sums[place * width..][..without] {
                *sum = apply(*sum, room);
            }
            place += place & place.wrapping_neg();
        }
        for sum in &mut self.total[..without] {
            *sum = apply(*sum, room);
        }
    }

    fn find_since(&mut self, taken: usize) {
        let width = self.sizes.len();
        self.found.copy_from_slice(&self.total);
        let mut place = taken;
        while place > 0 {
            for (found, sum) in self.found.iter_mut().zip(&self.sums[place * width..][..width]) {
                *found = found.wrapping_sub(*sum);
            }
            place &= place - 1;
        }
    }

    #[cold]
    fn move_together(&mut self) {
        // How many of the first slots are in use.
        let mut used = Vec::with_capacity(self.slots.len() + 1);
        used.push(0);
        let mut kept = Vec::new();
        for &(object, room) in &self.slots {
            if room != 0 {
                kept.push((object, room));
            }
            used.push(kept.len() as u32);
        }
        for taken in &mut self.taken {
            *taken = used[*taken as usize];
        }
        self.slots.fill((0, 0));
        self.sums.fill(0);
        self.total.fill(0);
        self.next = kept.len() as u32;
        for (slot, (object, room)) in kept.into_iter().enumerate() {
            self.slots[slot] = (object, room);
            self.add(slot, room, u64::wrapping_add);
        }
    }
}
