//! What the first line of a message says besides its target.

/// A request's method, as far as it matters for framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD: its reply has no content whatever the head says.
    Head,
    /// Any other but CONNECT, which has no known extent.
    Other,
}

/// A message's HTTP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Version {
    pub(crate) fn from_minor(minor: Option<u8>) -> Self {
        if minor == Some(1) { Self::Http11 } else { Self::Http10 }
    }
}
