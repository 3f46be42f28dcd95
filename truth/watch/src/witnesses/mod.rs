//! What is seen: the witnesses, and the events that they tell.

pub(crate) mod event;
pub(crate) mod folders;
pub(crate) mod gaps;
pub(crate) mod history;
pub(crate) mod kernel;
pub(crate) mod mappings;
pub(crate) mod members;
pub(crate) mod notes;
pub(crate) mod overseer;
pub(crate) mod preload;
pub(crate) mod ring;
pub(crate) mod shared_ring;
pub(crate) mod tracefs;
pub(crate) mod witness;
