//! What card, watcher and simulator agree on: the shared revision table and the messages about
//! entries.
//!
//! * [`RevisionTable`] (`table.rs`): who changed what, in memory that the kernel's witnesses write
//!   and every card reads.
//! * [`SourceSlot`], [`Stamp`], [`Epoch`] (`source.rs`): the names of the things in the table.
//! * [`FillRequest`], [`ReinstateRequest`] (`messages/`): the card asks the watcher whether a reply
//!   may become an entry, and whether an entry may stay.
//! * [`fold`] (`client.rs`): how clients are called.
//! * [`Rule`] (`rule.rs`): the rules as switches for tests.
//!
//! Deliberately absent: how changes are witnessed and how a fill is judged. That is the watcher's
//! business (`nicache-watch`), and the card must not depend on it.
#![deny(clippy::disallowed_methods)]

mod client;
mod messages;
mod rule;
mod source;
mod table;

pub use client::fold;
pub use messages::{
    Answer, BODY_HASH_BYTES, Class, DecodeError, FILL_REQUEST_BYTES_MAX, FILL_VERDICT_BYTES_MAX,
    FillRequest, FillVerdict, MESSAGE_BYTES_MAX, Question, REINSTATE_REQUEST_BYTES,
    REINSTATE_VERDICT_BYTES, RecordNumber, RefusalReason, ReinstateRequest, ReinstateVerdict,
    Reinstatement, TARGET_BYTES_MAX, Verdict,
};
pub use rule::{RULE_OFF, Rule};
pub use source::{Epoch, SOURCE_SLOTS, SOURCES_MAX, SourceSet, SourceSlot, Stamp, TooManySources};
pub use table::{
    CONTROL_BYTES, ControlWord, LEASE_NS, LEASE_RENEWAL_NS, REVISIONS_BYTES, RevisionTable,
};
