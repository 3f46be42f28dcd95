//! Whole HTTP in the card, with real servers: ranges, preconditions, codings, interim replies,
//! methods that change something, collapsed misses, Cache-Status. What a client gets must be what
//! the same server gives it with `nicache bypass on`.
#![allow(unsafe_code)]

mod changes;
mod codings;
mod collapse;
#[path = "../common/mod.rs"]
mod common;
mod conditions;
mod interim;
mod ranges;
mod stage;
mod status;
