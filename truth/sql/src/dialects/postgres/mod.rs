//! PostgreSQL.

pub(crate) mod protocol;
pub(crate) mod turns;
