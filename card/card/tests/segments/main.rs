//! The card, segment by segment.

mod ages;
mod allocations;
mod attack;
mod classes;
mod ends;
mod first;
mod forms;
mod handshake;
mod keep_alive;
mod log;
mod prediction;
mod preface;
mod proxies;
mod races;
mod reinstate;
mod repair;
mod script;
mod turns;
mod uses;
mod visitors;
mod wait;
