//! What the server has in its own memory, and for how long its files may be older there.

pub(crate) mod data;
pub(crate) mod grace;
pub(crate) mod retained;
pub(crate) mod sessions;
