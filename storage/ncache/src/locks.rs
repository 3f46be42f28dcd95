//! One writer or many readers of a file, by stripes: two files may share a lock, and nobody holds
//! two.

use std::hash::{BuildHasher as _, Hash};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::FixedState;

const STRIPES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Locks {
    stripes: Box<[RwLock<()>]>,
    state: FixedState,
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
            state: FixedState::default(),
        }
    }

    pub(crate) fn read(&self, of: impl Hash) -> RwLockReadGuard<'_, ()> {
        self.stripe(of).read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self, of: impl Hash) -> RwLockWriteGuard<'_, ()> {
        self.stripe(of).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock if nobody has it.
    pub(crate) fn try_write(&self, of: impl Hash) -> Option<RwLockWriteGuard<'_, ()>> {
        self.stripe(of).try_write().ok()
    }

    fn stripe(&self, of: impl Hash) -> &RwLock<()> {
        &self.stripes[self.state.hash_one(of) as usize % STRIPES]
    }
}
