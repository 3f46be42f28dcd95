//! MySQL and MariaDB.

pub(crate) mod protocol;
pub(crate) mod turns;
