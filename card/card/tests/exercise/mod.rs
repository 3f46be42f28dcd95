//! What the fuzz targets, the replay of their corpus and the property test have in common:
//! arbitrary bytes decide what happens around a card, and what must hold whatever happens is
//! checked.

mod choices;
mod client;
mod content;
mod host;
mod line;
mod oracle;
mod raw;
mod traffic;
mod watcher;
mod world;

pub(crate) use raw::frames;
pub(crate) use world::connections;
