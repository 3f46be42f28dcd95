//! Follows a reply's content to its end (RFC 9112 sections 6.3 and 7.1), whatever the pieces in
//! which it comes.
//!
//! Chunked coding is read strictly: hexadecimal digits, CR LF after each line, bounded extensions
//! and trailers. These are followed (the client gets the bytes anyhow) but remembered, because a
//! body that had any is not stored.

use crate::framing::Framing;
use crate::limits::{CHUNK_EXTENSION_BYTES_MAX, CHUNK_SIZE_DIGITS_MAX, TRAILER_BYTES_MAX};

/// What is wrong with a body's framing. The rest of the connection is opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// A chunk size without digits, with too many, or followed by something else than CR LF or an
    /// extension.
    ChunkSize,
    /// Chunk data or a line that does not end in CR LF, or a control byte.
    LineBreak,
    /// An extension or a trailer section that is too long.
    TooLong,
}

impl core::fmt::Display for BodyFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::ChunkSize => "the size of a chunk is none",
            Self::LineBreak => "a chunk does not end with CR LF",
            Self::TooLong => "an extension or a trailer is too long",
        })
    }
}

/// What [`Follower::follow`] found in one piece of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The reply ended after this many bytes of the piece; what follows is the next reply's.
    pub finished_at: Option<usize>,
    /// The framing is broken; the piece's remaining bytes were not looked at.
    pub fault: Option<BodyFault>,
}

/// Follows the content of one reply.
#[derive(Clone, Debug)]
pub struct Follower {
    state: State,
    body_bytes: u64,
    plain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes of a body with Content-Length are to come.
    Length(u64),
    /// Everything until the connection ends.
    Close,
    /// In a chunk-size line.
    Size {
        size: u64,
        digits: u8,
    },
    /// In a chunk-ext.
    Extension {
        size: u64,
        len: usize,
    },
    /// Behind the CR of a chunk-size line.
    SizeLf {
        size: u64,
    },
    /// In chunk-data.
    Data {
        left: u64,
    },
    /// Behind chunk-data.
    DataCr,
    /// Behind the CR behind chunk-data.
    DataLf,
    /// In the trailer section: `line` bytes into a line, `len` bytes into the section.
    Trailer {
        line: usize,
        len: usize,
    },
    /// Behind a CR in the trailer section.
    TrailerLf {
        line: usize,
        len: usize,
    },
    Finished,
    Broken(BodyFault),
}

impl Follower {
    /// A follower of content that is framed like this and begins with the first byte behind the
    /// head.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Finished,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::Close => State::Close,
        };
        Self { state, body_bytes: 0, plain: true }
    }

    /// Takes the next piece of input and hands its content bytes to `body`, in order and without
    /// chunk framing. A follower that is finished takes nothing: `finished_at` is 0.
    pub fn follow(&mut self, bytes: &[u8], mut body: impl FnMut(&[u8])) -> Followed {
        let mut at = 0;
        loop {
            match self.state {
                State::Finished => {
                    return Followed { finished_at: Some(at), fault: None };
                }
                State::Broken(fault) => {
                    return Followed { finished_at: None, fault: Some(fault) };
                }
                _ if at == bytes.len() => {
                    return Followed { finished_at: None, fault: None };
                }
                State::Length(left) | State::Data { left } => {
                    let taken = take(&bytes[at..], left);
                    body(taken);
                    at += taken.len();
                    self.body_bytes += taken.len() as u64;
                    self.state = self.state.after_data(left - taken.len() as u64);
                }
                State::Close => {
                    body(&bytes[at..]);
                    self.body_bytes = self.body_bytes.saturating_add((bytes.len() - at) as u64);
                    at = bytes.len();
                }
                _ => {
                    self.state = self.state.step(bytes[at]);
                    self.plain &= !matches!(
                        self.state,
                        State::Extension { .. } | State::TrailerLf { line: 1.., .. }
                    );
                    at += 1;
                }
            }
        }
    }

    /// The connection ended: is the content complete?
    pub fn handle_close(&mut self) -> bool {
        if self.state == State::Close {
            self.state = State::Finished;
        }
        self.is_finished()
    }

    /// Has the content ended?
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Had it neither chunk extensions nor trailers so far?
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Content bytes so far, without chunk framing.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }
}

impl State {
    fn after_data(self, left: u64) -> Self {
        match self {
            Self::Length(_) if left > 0 => Self::Length(left),
            Self::Length(_) => Self::Finished,
            _ if left > 0 => Self::Data { left },
            _ => Self::DataCr,
        }
    }

    /// One byte of chunk framing.
    fn step(self, byte: u8) -> Self {
        match (self, byte) {
            (
                Self::Size { digits: CHUNK_SIZE_DIGITS_MAX, .. },
                b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F',
            ) => Self::Broken(BodyFault::ChunkSize),
            (Self::Size { size, digits }, b'0'..=b'9') => Self::digit(size, digits, byte - b'0'),
            (Self::Size { size, digits }, b'a'..=b'f') => {
                Self::digit(size, digits, byte - b'a' + 10)
            }
            (Self::Size { size, digits }, b'A'..=b'F') => {
                Self::digit(size, digits, byte - b'A' + 10)
            }
            (Self::Size { size, digits: 1.. }, b'\r') => Self::SizeLf { size },
            (Self::Size { size, digits: 1.. }, b';') => Self::Extension { size, len: 1 },
            (Self::Size { .. }, _) => Self::Broken(BodyFault::ChunkSize),
            (Self::Extension { size, .. }, b'\r') => Self::SizeLf { size },
            (Self::Extension { len: CHUNK_EXTENSION_BYTES_MAX.., .. }, _) => {
                Self::Broken(BodyFault::TooLong)
            }
            (Self::Extension { .. }, byte) if is_control(byte) => {
                Self::Broken(BodyFault::LineBreak)
            }
            (Self::Extension { size, len }, _) => Self::Extension { size, len: len + 1 },
            (Self::SizeLf { size: 0 }, b'\n') => Self::Trailer { line: 0, len: 0 },
            (Self::SizeLf { size }, b'\n') => Self::Data { left: size },
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size { size: 0, digits: 0 },
            (Self::Trailer { len: TRAILER_BYTES_MAX.., .. }, _) => Self::Broken(BodyFault::TooLong),
            (Self::Trailer { line, len }, b'\r') => Self::TrailerLf { line, len: len + 1 },
            // A folded trailer line, or one without a name (RFC 9112 sections 5.1 and 5.2).
            (Self::Trailer { line: 0, .. }, b' ' | b'\t' | b':') => {
                Self::Broken(BodyFault::LineBreak)
            }
            (Self::Trailer { .. }, byte) if is_control(byte) => Self::Broken(BodyFault::LineBreak),
            (Self::Trailer { line, len }, _) => Self::Trailer { line: line + 1, len: len + 1 },
            (Self::TrailerLf { line: 0, .. }, b'\n') => Self::Finished,
            (Self::TrailerLf { len, .. }, b'\n') => Self::Trailer { line: 0, len: len + 1 },
            _ => Self::Broken(BodyFault::LineBreak),
        }
    }

    fn digit(size: u64, digits: u8, digit: u8) -> Self {
        Self::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
    }
}

/// The first `left` bytes, or all if they are fewer.
fn take(bytes: &[u8], left: u64) -> &[u8] {
    &bytes[..usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()))]
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}
