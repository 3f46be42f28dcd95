//! Replays the corpora of the fuzz targets through the same functions.

mod exercise;

fn replay(target: &str, exercise: fn(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
}

#[test]
fn configuration() {
    replay("configuration", exercise::configuration);
}

#[test]
fn snapshot() {
    replay("snapshot", exercise::snapshot);
}
