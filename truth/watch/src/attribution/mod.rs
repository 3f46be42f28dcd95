//! Which of the things that were seen belong to which request.

pub(crate) mod fastcgi;
pub(crate) mod hiding;
pub(crate) mod listeners;
pub(crate) mod offspring;
pub(crate) mod older;
pub(crate) mod peers;
pub(crate) mod requests;
