//! The Internet checksum as ones'-complement arithmetic (RFC 1071, RFC 1624).
//!
//! A *sum* is a folded, not complemented 16-bit ones'-complement sum of big-endian words. Sums of
//! parts combine in any order (RFC 1071 section 2), which is what lets a body's sum be kept beside
//! the data. Zero has two spellings, 0x0000 and 0xffff; functions here may return either for
//! a sum, and compare equal through [`same`].
//!
//! This is the only one in the product. Tests have their own, word by word, where they are to find
//! faults of this one.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod gather;
mod sum;

pub use gather::Sum;
pub use sum::{
    add, concat, finish, fold, fold_halves, halves, pseudo_header_v4, pseudo_header_v6, same, sub,
    sum, update,
};
