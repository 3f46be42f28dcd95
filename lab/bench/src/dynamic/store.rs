//! How long a cache keeps pages.

/// How long a cache keeps a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Store {
    /// Its time to live.
    pub seconds: u32,
}

impl Store {
    /// The times to live that are measured.
    pub(super) const ALL: [Self; 2] = [Self { seconds: 60 }, Self { seconds: 1 }];
}
