//! T: how old what nobody can see may be in a reply, at first and at last.

use nicache_cache::AgeBounds;
use serde::{Deserialize, Serialize};

use super::Milliseconds;

/// How old what nobody can see may be, unless the operator says otherwise.
pub(super) const RECHECK_DEFAULT: Milliseconds = Milliseconds(1000);
/// T as it is earned, at most.
pub(super) const RECHECK_MAX_DEFAULT: Milliseconds = Milliseconds(60_000);

/// `recheck` and `recheck-max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rechecks {
    /// At first; 0: only files are kept.
    pub first: Milliseconds,
    /// T at most, as it is earned. If `first` is more, that counts.
    pub most: Milliseconds,
}

impl Rechecks {
    /// Are dynamic replies kept?
    pub(crate) fn wants_dynamic(self) -> bool {
        self.first.0 > 0
    }

    /// The least and the largest T, for the card. Files have a T, too, where nothing else is kept.
    pub(crate) fn bounds(self) -> AgeBounds {
        let first = if self.wants_dynamic() { self.first } else { RECHECK_DEFAULT };
        AgeBounds { first: first.into(), most: self.most.max(first).into() }
    }
}
