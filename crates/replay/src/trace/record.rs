//! One request as a log tells it, whatever its format.

/// A request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, in seconds since an epoch of the log's own.
    pub second: u64,
    /// Who: a hash of the client's name, or its number.
    pub client: u64,
    /// What: a hash of the target, or of the object's number.
    pub object: u64,
    /// The method.
    pub verb: Verb,
    /// Status of the reply.
    pub status: u16,
    /// Bytes of the reply's body, if the log tells.
    pub bytes: Option<u64>,
}

/// A method, as far as a replay goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// Any other.
    Other,
}

impl Verb {
    /// The method of this name; `None` if it cannot be one.
    pub(crate) fn of(name: &[u8]) -> Option<Verb> {
        match name {
            b"GET" => Some(Verb::Get),
            b"HEAD" => Some(Verb::Head),
            _ => (!name.is_empty() && name.iter().all(u8::is_ascii_uppercase)).then_some(Verb::Other),
        }
    }
}
