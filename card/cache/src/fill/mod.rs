//! Fills: replies that are copied into card memory as they pass, and become entries when the
//! watcher agrees.
//!
//! A reply whose length is not known before its end (chunked, or ended by the connection's end) is
//! collected in a body that grows, and copied once more into one that fits. A chunked one is kept
//! as one chunk.
//!
//! What the operator has set for its path is looked up before it begins.
//!
//! A fill notes the clock before its request is forwarded. It never holds a frame back: bytes are
//! copied after the frame was sent on. When the reply is whole, the watcher is asked for its
//! sources; until the verdict comes, the key misses.

mod one;
mod receive;
mod table;
mod verdict;
mod words;

pub use one::FillId;
pub use receive::Answered;
pub use table::{Asked, Fills, Unanswered};
pub use words::{host_of, target_of};
