//! Files: what a path of the document root means, and which bytes it has.
//!
//! ```text
//! site.rs    path ─▶ file with revision, valid as long as nothing that led there has changed
//! reader.rs  blocks of a file ─▶ pages
//! ```
//!
//! The rule is the card's (docs/coherence.md): the clock of the revision table is advanced, the
//! path is walked behind barriers, its directories and the file are marked, and what was found
//! holds as long as none of them has a stamp from then on. So a file's revision changes no later
//! than the call that changed it returns.

mod reader;
mod site;

pub use reader::{Gone, LoadError, load, load_private};
pub use site::{Found, OpenFile, Site, SiteCounters};
