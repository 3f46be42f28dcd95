//! Numbers for names, in the order in which they come up.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Names numbered so far; a name is a hash or a number of its own.
#[derive(Debug, Default)]
pub struct Numbers {
    numbers: HashMap<u64, u32, FixedState>,
}

impl Numbers {
    /// The number of a name: the next one, if it is new. None if there are `u32::MAX` already.
    #[inline]
    pub fn number(&mut self, name: u64) -> Option<u32> {
        let next = u32::try_from(self.numbers.len()).ok().filter(|next| *next != u32::MAX)?;
        Some(*self.numbers.entry(name).or_insert(next))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
}
