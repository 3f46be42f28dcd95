//! The card, segment by segment.

mod handshake;
mod repair;
mod script;
