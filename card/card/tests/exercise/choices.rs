//! Bytes as a list of choices: when they are used up, every further one is 0.

/// What is left of the bytes.
pub(super) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// All of them.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Choices(bytes)
    }

    /// Whether none is left.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A number below `limit`, which is at most 256.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    /// Two bytes, low one first.
    pub(super) fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next `len` bytes, or as many as there are.
    pub(super) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
