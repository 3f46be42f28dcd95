//! The dialects: a folder each.

mod limits;
pub(crate) mod mysql;
pub(crate) mod postgres;
