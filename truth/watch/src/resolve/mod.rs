//! Where look-ups lead: paths are resolved again, behind the locks of directories and files.

pub(crate) mod components;
pub(crate) mod contents;
pub(crate) mod copies;
pub(crate) mod layers;
pub(crate) mod node;
pub(crate) mod openings;
pub(crate) mod resolver;
pub(crate) mod settled;
pub(crate) mod survey;
pub(crate) mod unwatched;
