//! Card memory as a cache of replies: key → entry, coherence, eviction and pinning.
//!
//! An entry that is purged or evicted leaves the index at once, and its memory when the last reply
//! that was begun from it has been acknowledged (I2). Whether an entry may be served is decided by
//! one load of the epoch; only when that moved since the entry was last looked at are the stamps of
//! its sources compared.

mod again;
mod agreement;
mod ahead;
mod class_headers;
mod credit;
mod distrust;
mod entry;
mod find;
mod index;
mod insert;
mod learn;
mod learned;
mod life;
mod pace;
mod pages;
mod purges;
mod reinstate;
mod remembered;
mod seen;
mod site_classes;
mod splits;
mod standing;
mod suspects;
mod uses;
mod usual_time;
mod vary;
mod who;
mod worth;

pub(crate) use agreement::Execution;
pub use ahead::LOOK_AHEAD;
pub use entry::{Entry, EntryId, EntryState};
pub use find::Found;
pub use index::Store;
pub(crate) use index::source_of;
pub(crate) use insert::{Inserted, NewEntry, NotInserted};
pub use learn::{Lesson, LessonForm};
pub use learned::{Learned, LearnedParts, Validators};
pub use pages::PutAside;
pub use seen::Traits;
pub use uses::{MostUsed, Used};
pub use vary::VaryRules;
pub use who::{Executor, Proxy, Who};
