//! How long a cache keeps pages.

/// How long a cache keeps a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store {
    /// Its time to live.
    pub seconds: u32,
}

impl Store {
    /// Those that are measured.
    pub const ALL: [Store; 2] = [Store { seconds: 60 }, Store { seconds: 1 }];
}
