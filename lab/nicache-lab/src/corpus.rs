//! Replays the corpus of the fuzz target through the same function.

#[path = "../tests/exercise/mod.rs"]
mod exercise;

fn replay(target: &str, exercise: fn(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
}

#[test]
fn value() {
    replay("value", exercise::value);
}
