//! What is to be learned from a reply of the server for an entry: how it says the same in another form.

use nicache_http::{ByteRange, PartsAsked};

use crate::store::{EntryId, Validators};

/// A request for an entry in a form that the card has not seen the server's reply in.
#[derive(Clone, Copy, Debug)]
pub struct Lesson {
    /// The entry.
    pub entry: EntryId,
    /// In which form it was asked for.
    pub form: LessonForm,
}

/// A form of a reply.
#[derive(Clone, Copy, Debug)]
pub enum LessonForm {
    /// 304, asked for by these.
    NotModified(Validators),
    /// 206 with this range.
    Range(ByteRange),
    /// 206 with several ranges.
    Parts(PartsAsked),
}
