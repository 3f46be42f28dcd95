//! What was learned from the server's own replies about an entry in other forms than the whole. A form that was not learned is not
//! served: nothing is made up.

use nicache_http::{HeadTemplate, PartFormat, PartialTemplate};

/// The server's other replies for an entry.
#[derive(Default)]
pub struct Learned {
    /// Head of its 304.
    pub not_modified: Option<HeadTemplate>,
    /// Head of its 206 with one range.
    pub range: Option<PartialTemplate>,
    /// Its 206 with several ranges.
    pub parts: Option<Box<LearnedParts>>,
}

/// A 206 with several ranges.
pub struct LearnedParts {
    /// Its head.
    pub template: PartialTemplate,
    /// What stands around the parts.
    pub format: PartFormat,
    /// So many parts the server has been seen to send; it may have a limit.
    pub count_max: u8,
}
