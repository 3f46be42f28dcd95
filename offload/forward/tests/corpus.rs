//! Replays the corpora of the fuzz targets through the same functions.

mod exercise;

fn replay(target: &str, exercise: fn(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
}

#[test]
fn packet() {
    replay("packet", exercise::packets);
}

#[test]
fn names() {
    replay("names", exercise::names);
}

#[test]
fn switching() {
    replay("switching", exercise::switching);
}

#[test]
fn receipts() {
    replay("receipts", exercise::receipts);
}
