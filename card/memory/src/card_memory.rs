//! The bodies in the slots.

use std::io;
use std::ops::Range;

use crate::SLOT_BYTES;
use crate::arena::{Arena, HugePages, Pages};
use crate::body::{AccessError, AllocateError, AppendError, BodyId, PinError, SealError};
use crate::checksum::{self, LINE_BYTES, SLOT_LINES};
use crate::extents::{Extents, INDEX_FANOUT, Layout};
use crate::slots::SlotMap;

/// Bytes hashed at a time while a body grows: enough for BLAKE3 to work on 16 chunks side by side,
/// and still in the second-level cache from the append.
const HASH_STRIDE_BYTES: u64 = 32 << 10;
/// Bytes of the prefix sums of one slot.
const SUMS_BYTES: usize = SLOT_LINES * size_of::<u16>();
const NONE: u32 = u32::MAX;

/// Sizes of a card memory; all of it is allocated and touched at start.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Bytes for data, rounded down to whole slots; at least one slot. The tables come on top: 3.1
    /// % for the prefix sums and about 90 bytes per body.
    pub bytes: usize,
    /// Bodies at once, sealed, filling, or released but pinned. Default: one per slot, so
    /// slots run out first.
    pub bodies_max: u32,
    /// Bodies being filled at once; each costs 2 KiB for its hash in progress. Default: 1024. A
    /// reply that finds none free is not cached.
    pub fills_max: u32,
    /// Whether large pages are asked for.
    pub huge_pages: HugePages,
}

impl MemoryConfig {
    /// The defaults for `bytes` of data.
    pub fn new(bytes: usize, huge_pages: HugePages) -> Self {
        let bodies_max = u32::try_from(bytes / SLOT_BYTES).unwrap_or(u32::MAX - 1).max(1);
        Self { bytes, bodies_max, fills_max: 1024.min(bodies_max), huge_pages }
    }
}

/// Slots, the bodies in them, and their prefix sums. See the crate's documentation for the order of
/// calls.
///
/// Costs: `pin`, `unpin`, `checksum` and the first extent are O(1); `append` is linear in the bytes
/// given; `allocate` and the freeing of a body are linear in its slots with a small factor (one bit
/// operation per 64 slots where they are adjacent, one index entry per slot where they are not).
/// `seal` hashes the last 32 KiB at most.
#[derive(Debug)]
pub struct CardMemory {
    arena: Arena,
    sums: Arena,
    slots: SlotMap,
    bodies: Box<[Body]>,
    /// BLAKE3 of each sealed body; beside `bodies` to keep what the packet path reads dense.
    hashes: Box<[[u8; 32]]>,
    bodies_free: Vec<u32>,
    fills: Box<[Fill]>,
    fills_free: Vec<u32>,
    next_serial: u64,
    pinned_bodies: u32,
    lingering_slots: u32,
}

#[derive(Clone, Debug)]
struct Body {
    /// Serial number of the allocation that owns this place; 0 = free.
    serial: u64,
    len: u64,
    appended: u64,
    layout: Layout,
    pins: u32,
    /// Place in `fills`, or NONE once sealed or released.
    fill: u32,
    sealed: bool,
    released: bool,
}

#[derive(Debug)]
struct Fill {
    hasher: blake3::Hasher,
    hashed: u64,
}

impl Body {
    const FREE: Self = Self {
        serial: 0,
        len: 0,
        appended: 0,
        layout: Layout { root: 0, depth: 0 },
        pins: 0,
        fill: NONE,
        sealed: false,
        released: false,
    };

    fn data_slots(&self) -> u32 {
        data_slots(self.len).unwrap_or(u32::MAX)
    }

    fn slots(&self) -> u32 {
        let data = self.data_slots();
        if self.layout.depth == 0 { data } else { data + Layout::index_slots(data) }
    }
}

fn data_slots(len: u64) -> Option<u32> {
    u32::try_from(len.div_ceil(SLOT_BYTES as u64)).ok()
}

/// Puts bytes behind those that the body has, and sums them up. There must be room.
fn write(body: &mut Body, arena: &mut Arena, sums: &mut Arena, bytes: &[u8]) {
    let slots = body.data_slots();
    let mut rest = bytes;
    while !rest.is_empty() {
        let ordinal = (body.appended / SLOT_BYTES as u64) as u32;
        let offset = (body.appended % SLOT_BYTES as u64) as usize;
        let slot = body.layout.slot(arena.bytes(), ordinal);
        let (piece, after) = rest.split_at(rest.len().min(SLOT_BYTES - offset));
        let end = offset + piece.len();
        let start = slot as usize * SLOT_BYTES;
        let data = &mut arena.bytes_mut()[start..start + SLOT_BYTES];
        data[offset..end].copy_from_slice(piece);

        // A line's sum is added when its last byte arrives, and stands at the start of the next
        // line.
        let (first_line, end_line) = (offset / LINE_BYTES, end / LINE_BYTES);
        let mut sum = sum_at(sums.bytes(), slot, first_line);
        let (lines, _) = data.as_chunks::<LINE_BYTES>();
        for (line, data) in lines.iter().enumerate().take(end_line).skip(first_line) {
            sum = checksum::add(sum, checksum::line_sum(data));
            if line + 1 < SLOT_LINES {
                set_sum(sums.bytes_mut(), slot, line + 1, sum);
            }
        }
        if end == SLOT_BYTES && ordinal + 1 < slots {
            let next = body.layout.slot(arena.bytes(), ordinal + 1);
            set_sum(sums.bytes_mut(), next, 0, sum);
        }
        body.appended += piece.len() as u64;
        rest = after;
    }
}

impl CardMemory {
    /// Maps `bytes` of data memory (rounded down to whole slots) with the default limits of
    /// [`MemoryConfig::new`].
    ///
    /// Errors: those of mmap(2); `InvalidInput` for less than a slot.
    pub fn new(bytes: usize, huge_pages: HugePages) -> io::Result<Self> {
        Self::with_config(&MemoryConfig::new(bytes, huge_pages))
    }

    /// Maps the memory and allocates all tables.
    ///
    /// Errors: those of mmap(2); `InvalidInput` for less than a slot, 2^32 - 1 slots or more, or a
    /// limit of 0.
    pub fn with_config(config: &MemoryConfig) -> io::Result<Self> {
        let slots =
            u32::try_from(config.bytes / SLOT_BYTES).map_err(|_| io::ErrorKind::InvalidInput)?;
        if slots == 0
            || slots == u32::MAX
            || [0, NONE].contains(&config.bodies_max)
            || [0, NONE].contains(&config.fills_max)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bodies = config.bodies_max as usize;
        Ok(Self {
            arena: Arena::new(slots as usize * SLOT_BYTES, config.huge_pages)?,
            sums: Arena::new(slots as usize * SUMS_BYTES, config.huge_pages)?,
            slots: SlotMap::new(slots),
            // Cloning a value with a non-zero field writes, and so touches, every page of the
            // table.
            bodies: vec![Body::FREE; bodies].into_boxed_slice(),
            hashes: vec![[0xFF; 32]; bodies].into_boxed_slice(),
            bodies_free: (0..config.bodies_max).rev().collect(),
            fills: (0..config.fills_max)
                .map(|_| Fill { hasher: blake3::Hasher::new(), hashed: 0 })
                .collect(),
            fills_free: (0..config.fills_max).rev().collect(),
            next_serial: 1,
            pinned_bodies: 0,
            lingering_slots: 0,
        })
    }

    /// Reserves the slots of a body of `len` bytes, adjacent ones if a long enough run is found
    /// soon. It has no bytes yet: [`append`](CardMemory::append) them. A body of 0 bytes takes no
    /// slot.
    pub fn allocate(&mut self, len: u64) -> Result<BodyId, AllocateError> {
        let count = data_slots(len)
            .filter(|&count| count <= self.slots.slots())
            .ok_or(AllocateError::TooLong)?;
        if self.fills_free.is_empty() {
            return Err(AllocateError::TooManyFills);
        }
        if self.bodies_free.is_empty() {
            return Err(AllocateError::NoBodies);
        }
        let layout = self.reserve(count)?;
        let (Some(index), Some(fill)) = (self.bodies_free.pop(), self.fills_free.pop()) else {
            return Err(AllocateError::NoBodies);
        };
        let serial = self.next_serial;
        self.next_serial += 1;
        self.fills[fill as usize].hasher.reset();
        self.fills[fill as usize].hashed = 0;
        self.bodies[index as usize] = Body {
            serial,
            len,
            appended: 0,
            layout,
            pins: 0,
            fill,
            sealed: false,
            released: false,
        };
        if count > 0 {
            let first = layout.slot(self.arena.bytes(), 0);
            set_sum(self.sums.bytes_mut(), first, 0, 0);
        }
        Ok(BodyId { index, serial })
    }

    /// Appends bytes to a body being filled. All or nothing.
    pub fn append(&mut self, id: BodyId, bytes: &[u8]) -> Result<(), AppendError> {
        let Some(body) =
            self.bodies.get_mut(id.index as usize).filter(|body| body.serial == id.serial)
        else {
            return Err(AppendError::Stale);
        };
        if body.fill == NONE {
            return Err(AppendError::NotFilling);
        }
        if bytes.len() as u64 > body.len - body.appended {
            return Err(AppendError::Overrun);
        }
        write(body, &mut self.arena, &mut self.sums, bytes);
        let fill = &mut self.fills[body.fill as usize];
        while body.appended - fill.hashed >= HASH_STRIDE_BYTES {
            fill.hash_up_to(self.arena.bytes(), body.layout, fill.hashed + HASH_STRIDE_BYTES);
        }
        Ok(())
    }

    /// Appends all that another body has. All or nothing.
    pub fn append_from(&mut self, to: BodyId, from: BodyId) -> Result<(), AppendError> {
        let source = self.body(from).ok_or(AppendError::Stale)?;
        let (len, layout) = (source.appended, source.layout);
        let room = self.body(to).map(|body| body.len - body.appended).ok_or(AppendError::Stale)?;
        if len > room {
            return Err(AppendError::Overrun);
        }
        // Says what is wrong with the body before anything is written.
        self.append(to, &[])?;
        let mut piece = [0; SLOT_BYTES];
        for at in (0..len).step_by(SLOT_BYTES) {
            let start = layout.slot(self.arena.bytes(), (at / SLOT_BYTES as u64) as u32) as usize
                * SLOT_BYTES;
            let piece = &mut piece[..(len - at).min(SLOT_BYTES as u64) as usize];
            piece.copy_from_slice(&self.arena.bytes()[start..start + piece.len()]);
            self.append(to, piece)?;
        }
        Ok(())
    }

    /// Ends the filling of a body that has all its bytes, and computes its hash.
    pub fn seal(&mut self, id: BodyId) -> Result<(), SealError> {
        self.seal_with(id, &[])
    }

    /// Ends the filling of a body that lacks only `tail`, which is put behind it and does not count
    /// for the hash, and computes its hash.
    ///
    /// # Errors
    /// The body is gone or is not being filled, or `tail` has not as many bytes as the body lacks.
    pub fn seal_with(&mut self, id: BodyId, tail: &[u8]) -> Result<(), SealError> {
        let Some(body) =
            self.bodies.get_mut(id.index as usize).filter(|body| body.serial == id.serial)
        else {
            return Err(SealError::Stale);
        };
        if body.fill == NONE {
            return Err(SealError::NotFilling);
        }
        let missing = body.len - body.appended;
        if missing != tail.len() as u64 {
            return Err(SealError::Incomplete { missing });
        }
        let fill = &mut self.fills[body.fill as usize];
        fill.hash_up_to(self.arena.bytes(), body.layout, body.appended);
        self.hashes[id.index as usize] = *fill.hasher.finalize().as_bytes();
        write(body, &mut self.arena, &mut self.sums, tail);
        self.fills_free.push(body.fill);
        body.fill = NONE;
        body.sealed = true;
        Ok(())
    }

    /// The length that the body was allocated for; None for a stale id.
    #[inline]
    pub fn body_len(&self, id: BodyId) -> Option<u64> {
        self.body(id).map(|body| body.len)
    }

    /// The bytes appended so far; None for a stale id.
    #[inline]
    pub fn appended(&self, id: BodyId) -> Option<u64> {
        self.body(id).map(|body| body.appended)
    }

    /// BLAKE3 of a sealed body; None for a stale id or one that is not sealed.
    pub fn hash(&self, id: BodyId) -> Option<[u8; 32]> {
        let body = self.body(id)?;
        body.sealed.then(|| self.hashes[id.index as usize])
    }

    /// Where the bytes of `range` lie, of a body sealed or still filling. No piece is empty; a body
    /// in adjacent slots comes in one piece. The pieces stay where they are as long as the body is
    /// not freed.
    #[inline]
    pub fn extents(&self, id: BodyId, range: Range<u64>) -> Result<Extents<'_>, AccessError> {
        let body = self.readable(id, &range)?;
        Ok(Extents::new(self.arena.bytes(), body.layout, range))
    }

    /// The ones'-complement sum of `range` as if it began at an even offset: big-endian words,
    /// 0..=0xFFFE, not complemented, both zeros as 0 (see [`checksum()`](crate::checksum)). O(1)
    /// whatever the length.
    ///
    /// To place the range behind an odd number of bytes, swap the bytes of the result.
    #[inline]
    pub fn checksum(&self, id: BodyId, range: Range<u64>) -> Result<u16, AccessError> {
        let body = self.readable(id, &range)?;
        if range.is_empty() {
            return Ok(0);
        }
        let (arena, sums) = (self.arena.bytes(), self.sums.bytes());
        // The end is looked up by the last byte of the range, so it lies in a slot of the body
        // even if it is the end of the last one.
        let last = range.end - 1;
        let to_end =
            prefix(arena, sums, body.layout, last, (last % LINE_BYTES as u64) as usize + 1);
        let to_start = prefix(
            arena,
            sums,
            body.layout,
            range.start,
            (range.start % LINE_BYTES as u64) as usize,
        );
        let sum = checksum::difference(to_end, to_start);
        // The stored sums are of little-endian words: one swap makes them big-endian, another one
        // moves the range from an odd to an even offset.
        Ok(if range.start.is_multiple_of(2) { sum.swap_bytes() } else { sum })
    }

    /// Keeps the body from being freed until [`unpin`](CardMemory::unpin). Pins are counted.
    #[inline]
    pub fn pin(&mut self, id: BodyId) -> Result<(), PinError> {
        let Some(body) =
            self.bodies.get_mut(id.index as usize).filter(|body| body.serial == id.serial)
        else {
            return Err(PinError::Stale);
        };
        if body.released {
            return Err(PinError::Released);
        }
        body.pins = body.pins.checked_add(1).ok_or(PinError::Unbalanced)?;
        self.pinned_bodies += u32::from(body.pins == 1);
        Ok(())
    }

    /// Takes one pin away; frees the body if it was the last one and the body has been released.
    #[inline]
    pub fn unpin(&mut self, id: BodyId) -> Result<(), PinError> {
        let Some(body) =
            self.bodies.get_mut(id.index as usize).filter(|body| body.serial == id.serial)
        else {
            return Err(PinError::Stale);
        };
        body.pins = body.pins.checked_sub(1).ok_or(PinError::Unbalanced)?;
        if body.pins == 0 {
            self.pinned_bodies -= 1;
            if body.released {
                self.lingering_slots -= body.slots();
                self.free(id.index);
            }
        }
        Ok(())
    }

    /// Gives the body up, filling or sealed: at once if nothing pins it, else when the last pin
    /// goes. Until then who holds a pin may read it. Stale or released ids are refused.
    pub fn release(&mut self, id: BodyId) -> Result<(), PinError> {
        let Some(body) =
            self.bodies.get_mut(id.index as usize).filter(|body| body.serial == id.serial)
        else {
            return Err(PinError::Stale);
        };
        if body.released {
            return Err(PinError::Released);
        }
        body.released = true;
        if body.fill != NONE {
            self.fills_free.push(body.fill);
            body.fill = NONE;
        }
        if body.pins == 0 {
            self.free(id.index);
        } else {
            self.lingering_slots += body.slots();
        }
        Ok(())
    }

    /// Bytes of card memory that a body of `len` bytes takes when its slots are adjacent; what a
    /// policy should count.
    pub fn occupied_bytes(len: u64) -> u64 {
        len.div_ceil(SLOT_BYTES as u64).saturating_mul(SLOT_BYTES as u64)
    }

    /// Slots in all.
    pub fn slots(&self) -> u32 {
        self.slots.slots()
    }

    /// Bytes in free slots.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.slots.free()) * SLOT_BYTES as u64
    }

    /// Bytes in slots taken by bodies and their indexes.
    pub fn used_bytes(&self) -> u64 {
        u64::from(self.slots.slots() - self.slots.free()) * SLOT_BYTES as u64
    }

    /// Bytes in slots of bodies that have been released but are still pinned: they come free by
    /// themselves.
    pub fn lingering_bytes(&self) -> u64 {
        u64::from(self.lingering_slots) * SLOT_BYTES as u64
    }

    /// Bodies in the table: filling, sealed, and released but pinned.
    pub fn bodies(&self) -> usize {
        self.bodies.len() - self.bodies_free.len()
    }

    /// Bodies with at least one pin.
    pub fn pinned(&self) -> u32 {
        self.pinned_bodies
    }

    /// Bodies being filled.
    pub fn filling(&self) -> usize {
        self.fills.len() - self.fills_free.len()
    }

    /// What kind of pages the data lies on.
    pub fn pages(&self) -> Pages {
        self.arena.pages()
    }

    #[inline]
    fn body(&self, id: BodyId) -> Option<&Body> {
        self.bodies.get(id.index as usize).filter(|body| body.serial == id.serial)
    }

    #[inline]
    fn readable(&self, id: BodyId, range: &Range<u64>) -> Result<&Body, AccessError> {
        let body = self.body(id).ok_or(AccessError::Stale)?;
        if range.start > range.end || range.end > body.appended {
            Err(AccessError::Range)
        } else {
            Ok(body)
        }
    }

    fn reserve(&mut self, count: u32) -> Result<Layout, AllocateError> {
        if count == 0 {
            return Ok(Layout::default());
        }
        let free = self.slots.free();
        if count > free {
            return Err(AllocateError::NoSpace { missing: count - free });
        }
        if let Some(root) = self.slots.take_run(count) {
            return Ok(Layout { root, depth: 0 });
        }
        let needed = u64::from(count) + u64::from(Layout::index_slots(count));
        if needed > u64::from(free) {
            return Err(AllocateError::NoSpace {
                missing: (needed - u64::from(free)).min(u64::from(u32::MAX)) as u32,
            });
        }
        let depth = Layout::depth_for(count);
        let root = self.take_one()?;
        let layout = Layout { root, depth };
        let mut ordinal = 0;
        while ordinal < count {
            // `needed` slots were free, so none of these fails.
            let (first, got) = self
                .slots
                .take_some(count - ordinal)
                .ok_or(AllocateError::NoSpace { missing: 1 })?;
            for slot in first..first + got {
                for height in (1..depth).rev() {
                    if u64::from(ordinal) % Layout::span(height) == 0 {
                        let node = self.take_one()?;
                        layout.set_node(self.arena.bytes_mut(), ordinal, height, node);
                    }
                }
                layout.set_node(self.arena.bytes_mut(), ordinal, 0, slot);
                ordinal += 1;
            }
        }
        Ok(layout)
    }

    fn take_one(&mut self) -> Result<u32, AllocateError> {
        self.slots.take_run(1).ok_or(AllocateError::NoSpace { missing: 1 })
    }

    fn free(&mut self, index: u32) {
        let body = &mut self.bodies[index as usize];
        let (layout, count) = (body.layout, body.data_slots());
        *body = Body::FREE;
        self.bodies_free.push(index);
        if layout.depth == 0 {
            if count > 0 {
                self.slots.give(layout.root, count);
            }
            return;
        }
        for ordinal in 0..count {
            for height in (1..layout.depth).rev() {
                if u64::from(ordinal) % Layout::span(height) == 0 {
                    self.slots.give(layout.node(self.arena.bytes(), ordinal, height), 1);
                }
            }
            self.slots.give(layout.slot(self.arena.bytes(), ordinal), 1);
        }
        self.slots.give(layout.root, 1);
    }
}

impl Fill {
    fn hash_up_to(&mut self, arena: &[u8], layout: Layout, end: u64) {
        for piece in Extents::new(arena, layout, self.hashed..end) {
            self.hasher.update(piece);
        }
        self.hashed = end;
    }
}

/// Sum (little-endian words, not folded) of a body up to `len` bytes into the line that holds its
/// byte `at`.
#[inline]
fn prefix(arena: &[u8], sums: &[u8], layout: Layout, at: u64, len: usize) -> u64 {
    let slot = layout.slot(arena, (at / SLOT_BYTES as u64) as u32);
    let line = (at % SLOT_BYTES as u64) as usize / LINE_BYTES;
    let start = slot as usize * SLOT_BYTES + line * LINE_BYTES;
    let Some(data) = arena[start..].first_chunk() else {
        return 0;
    };
    u64::from(sum_at(sums, slot, line)) + checksum::line_head_sum(data, len)
}

#[inline]
fn sum_at(sums: &[u8], slot: u32, line: usize) -> u16 {
    let at = slot as usize * SUMS_BYTES + line * 2;
    let bytes = &sums[at..at + 2];
    u16::from_le_bytes([bytes[0], bytes[1]])
}

#[inline]
fn set_sum(sums: &mut [u8], slot: u32, line: usize, sum: u16) {
    let at = slot as usize * SUMS_BYTES + line * 2;
    sums[at..at + 2].copy_from_slice(&sum.to_le_bytes());
}

const _: () = {
    assert!(SLOT_BYTES.is_power_of_two() && SLOT_BYTES.is_multiple_of(LINE_BYTES));
    assert!(INDEX_FANOUT.is_power_of_two());
    assert!(SUMS_BYTES == 64, "the sums of a slot fill one cache line");
};
