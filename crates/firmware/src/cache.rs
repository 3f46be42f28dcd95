//! The network interface data cache: a region of card memory without any structure of its own.

use std::io;
use std::ops::Range;

use nicache_memory::{Arena, HugePages};

/// Bytes at offsets that the host chooses.
#[derive(Debug)]
pub struct Cache(Option<Arena>);

impl Cache {
    /// So many bytes, all 0, in large pages if there are any.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn new(bytes: u32) -> io::Result<Cache> {
        if bytes == 0 {
            return Ok(Cache(None));
        }
        Arena::new(bytes as usize, HugePages::Try).map(|arena| Cache(Some(arena)))
    }

    fn memory(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Arena::bytes)
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory().len() as u64
    }

    fn range(&self, offset: u32, len: u32) -> Option<Range<usize>> {
        let (start, end) = (offset as usize, (offset as usize).checked_add(len as usize)?);
        (end <= self.memory().len()).then_some(start..end)
    }

    /// Some of its bytes, if they are there.
    pub fn get(&self, offset: u32, len: u32) -> Option<&[u8]> {
        self.range(offset, len).map(|range| &self.memory()[range])
    }

    /// The same, to be written.
    pub fn get_mut(&mut self, offset: u32, len: u32) -> Option<&mut [u8]> {
        let range = self.range(offset, len)?;
        self.0.as_mut().map(|arena| &mut arena.bytes_mut()[range])
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
}
