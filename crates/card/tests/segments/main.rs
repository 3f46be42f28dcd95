//! The card, segment by segment.

mod attack;
mod expected;
mod forms;
mod handshake;
mod reinstate;
mod repair;
mod script;
mod turns;
mod uses;
mod wait;
