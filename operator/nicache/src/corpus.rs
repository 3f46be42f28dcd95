//! Replays the corpus of the fuzz targets through the same functions.

#[path = "../tests/exercise/mod.rs"]
mod exercise;

fn replay(target: &str, exercise: fn(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
}

#[test]
fn configuration() {
    replay("configuration", exercise::configuration);
}

#[test]
fn value() {
    replay("value", exercise::value);
}

#[test]
fn setup() {
    replay("setup", exercise::setup);
}
