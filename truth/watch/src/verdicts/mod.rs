//! The verdicts on replies: may one become an entry, may an entry stay?

pub(crate) mod dynamic;
pub(crate) mod explain;
mod lease;
pub(crate) mod records;
pub(crate) mod registrar;
pub(crate) mod reused;
pub(crate) mod service;
