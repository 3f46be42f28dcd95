//! The network interface data cache: a region of card memory without any structure of its own, but
//! that each block knows which load it has.

use std::io;
use std::ops::Range;

use nicache_bus::descriptor::{GENERATION_BLOCK_BYTES, Refusal};
use nicache_memory::{Arena, HugePages};

/// Bytes at offsets that the host chooses.
#[derive(Debug)]
pub(crate) struct Cache {
    arena: Option<Arena>,
    /// Of each block; 0: none.
    generations: Box<[u16]>,
}

impl Cache {
    /// So many bytes, all 0, in large pages if there are any.
    ///
    /// # Errors
    /// There is no such memory.
    pub(crate) fn new(bytes: u32) -> io::Result<Self> {
        let generations =
            vec![0; bytes.div_ceil(GENERATION_BLOCK_BYTES) as usize].into_boxed_slice();
        let arena =
            if bytes == 0 { None } else { Some(Arena::new(bytes as usize, HugePages::Try)?) };
        Ok(Self { arena, generations })
    }

    /// Whatever it has is void.
    pub(crate) fn clear(&mut self) {
        self.generations.fill(0);
    }

    fn blocks(offset: u32, len: u32) -> Range<usize> {
        let end = u64::from(offset) + u64::from(len);
        (offset / GENERATION_BLOCK_BYTES) as usize
            ..end.div_ceil(u64::from(GENERATION_BLOCK_BYTES)) as usize
    }

    /// Some of its bytes, if all of them are of a generation; 0: of any.
    ///
    /// # Errors
    /// [`Refusal::Cache`] if they are not there, [`Refusal::Stale`] if they are of another load.
    pub(crate) fn get_of(&self, offset: u32, len: u32, generation: u16) -> Result<&[u8], Refusal> {
        let bytes = self.get(offset, len).ok_or(Refusal::Cache)?;
        let is_right = |block: &u16| *block == generation;
        if generation != 0 && !self.generations[Self::blocks(offset, len)].iter().all(is_right) {
            return Err(Refusal::Stale);
        }
        Ok(bytes)
    }

    /// Room for another load of some of its bytes, if they are there.
    pub(crate) fn load(&mut self, offset: u32, len: u32, generation: u16) -> Option<&mut [u8]> {
        self.range(offset, len)?;
        self.generations[Self::blocks(offset, len)].fill(generation);
        self.get_mut(offset, len)
    }

    fn memory(&self) -> &[u8] {
        self.arena.as_ref().map_or(&[], Arena::bytes)
    }

    /// Its size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory().len() as u64
    }

    fn range(&self, offset: u32, len: u32) -> Option<Range<usize>> {
        let (start, end) = (offset as usize, (offset as usize).checked_add(len as usize)?);
        (end <= self.memory().len()).then_some(start..end)
    }

    /// Some of its bytes, if they are there.
    pub(crate) fn get(&self, offset: u32, len: u32) -> Option<&[u8]> {
        self.range(offset, len).map(|range| &self.memory()[range])
    }

    /// Some of the cache's bytes, to be written, if they are there.
    pub(crate) fn get_mut(&mut self, offset: u32, len: u32) -> Option<&mut [u8]> {
        let range = self.range(offset, len)?;
        self.arena.as_mut().map(|arena| &mut arena.bytes_mut()[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_past_its_end() {
        let mut cache = Cache::new(10).unwrap();
        cache.get_mut(8, 2).unwrap().copy_from_slice(b"ab");
        assert_eq!(cache.get(7, 3), Some(&b"\0ab"[..]));
        assert!(cache.get(8, 3).is_none() && cache.get_mut(u32::MAX, u32::MAX).is_none());
        assert_eq!(cache.get(10, 0), Some(&b""[..]));
    }

    #[test]
    fn another_load_is_found() {
        let mut cache = Cache::new(3 * 4096).unwrap();
        cache.load(4096, 4096, 7).unwrap().fill(1);
        assert!(
            cache.get_of(4096, 4096, 7).is_ok()
                && cache.get_of(4196, 10, 7).is_ok()
                && cache.get_of(4000, 4096, 0).is_ok()
        );
        for (offset, len, generation) in [(4096, 1, 8), (4095, 2, 7), (8191, 2, 7), (0, 1, 7)] {
            assert_eq!(cache.get_of(offset, len, generation), Err(Refusal::Stale));
        }
        assert_eq!(cache.get_of(12_288, 1, 7), Err(Refusal::Cache));
        assert!(cache.load(12_287, 2, 9).is_none());
        cache.clear();
        assert_eq!(cache.get_of(4096, 1, 7), Err(Refusal::Stale));
    }
}
