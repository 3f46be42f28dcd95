//! The network interface data cache: a region of card memory without any structure of its own.

use std::ops::Range;

/// Bytes at offsets that the host chooses.
#[derive(Debug)]
pub struct Cache(Box<[u8]>);

impl Cache {
    /// So many bytes, all 0, touched at once so that none is first touched while packets wait.
    pub fn new(bytes: u32) -> Cache {
        let mut memory = vec![0; bytes as usize].into_boxed_slice();
        memory.chunks_mut(4096).for_each(|page| page[0] = 0);
        Cache(memory)
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn range(&self, offset: u32, len: u32) -> Option<Range<usize>> {
        let (start, end) = (offset as usize, (offset as usize).checked_add(len as usize)?);
        (end <= self.0.len()).then_some(start..end)
    }

    /// Some of its bytes, if they are there.
    pub fn get(&self, offset: u32, len: u32) -> Option<&[u8]> {
        self.range(offset, len).map(|range| &self.0[range])
    }

    /// The same, to be written.
    pub fn get_mut(&mut self, offset: u32, len: u32) -> Option<&mut [u8]> {
        self.range(offset, len).map(|range| &mut self.0[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_past_its_end() {
        let mut cache = Cache::new(10);
        cache.get_mut(8, 2).unwrap().copy_from_slice(b"ab");
        assert_eq!(cache.get(7, 3), Some(&b"\0ab"[..]));
        assert!(cache.get(8, 3).is_none() && cache.get_mut(u32::MAX, u32::MAX).is_none());
        assert_eq!(cache.get(10, 0), Some(&b""[..]));
    }
}
