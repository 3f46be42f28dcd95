//! One access of a workload: eight bytes, because a simulation is bound by memory.

/// What a request does to one object or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    word: u32,
    bytes: u32,
}

const CHANGED: u32 = 1 << 31;
const NO_FILL: u32 = 1 << 30;
const ENDS: u32 = 1 << 29;

impl Access {
    /// Most objects (or blocks) that can be told apart.
    pub const OBJECTS_MAX: u32 = ENDS - 1;

    /// An access to an object that was numbered in the order of first accesses; `bytes` of it are
    /// sent (a larger number counts as 4 GiB - 1).
    ///
    /// # Panics
    /// In debug builds, if the number is larger than [`Access::OBJECTS_MAX`].
    pub fn new(object: u32, bytes: u64) -> Self {
        debug_assert!(object <= Self::OBJECTS_MAX);
        Self { word: object, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }

    /// Marks an access before which what is cached of the object goes, because it is out of date.
    #[must_use]
    pub fn changed(self, changed: bool) -> Self {
        if changed { Self { word: self.word | CHANGED, ..self } } else { self }
    }

    /// Marks an access whose reply cannot become an entry: it has no body, or not the whole.
    #[must_use]
    pub fn without_fill(self, without: bool) -> Self {
        if without { Self { word: self.word | NO_FILL, ..self } } else { self }
    }

    /// Marks the last access of a request.
    #[must_use]
    pub fn ending(self, ends: bool) -> Self {
        if ends { Self { word: self.word | ENDS, ..self } } else { self }
    }

    /// The access with another object's number; `None`: the number is above
    /// [`Access::OBJECTS_MAX`].
    #[must_use]
    pub fn with_object(self, object: u32) -> Option<Self> {
        (object <= Self::OBJECTS_MAX)
            .then_some(Self { word: self.word & !Self::OBJECTS_MAX | object, ..self })
    }

    /// The object's number.
    #[inline]
    pub fn object(self) -> u32 {
        self.word & Self::OBJECTS_MAX
    }

    /// Bytes that are sent; if the reply can become an entry, the object's size.
    #[inline]
    pub fn bytes(self) -> u64 {
        u64::from(self.bytes)
    }

    /// Whether an entry of the object is out of date.
    #[inline]
    pub fn is_changed(self) -> bool {
        self.word & CHANGED != 0
    }

    /// Whether the reply can become an entry.
    #[inline]
    pub fn fills(self) -> bool {
        self.word & NO_FILL == 0
    }

    /// Whether it is the last access of its request.
    #[inline]
    pub fn ends_request(self) -> bool {
        self.word & ENDS != 0
    }
}

/// A trace has more objects or blocks than can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace has more than {} objects or blocks; take a sample of it", Access::OBJECTS_MAX)]
pub struct TooManyObjects;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_apart_from_the_number() {
        let plain = Access::new(Access::OBJECTS_MAX, 7);
        assert_eq!((plain.object(), plain.bytes()), (Access::OBJECTS_MAX, 7));
        assert_eq!((plain.is_changed(), plain.fills(), plain.ends_request()), (false, true, false));
        let marked = Access::new(5, 1 << 40).changed(true).without_fill(true).ending(true);
        assert_eq!((marked.object(), marked.bytes()), (5, u64::from(u32::MAX)));
        assert_eq!(
            (marked.is_changed(), marked.fills(), marked.ends_request()),
            (true, false, true)
        );
    }
}
