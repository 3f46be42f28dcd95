//! The card, segment by segment.

mod handshake;
mod reinstate;
mod repair;
mod script;
mod wait;
