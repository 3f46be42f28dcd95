//! Replays the fuzz corpora in the ordinary test run.

mod exercise;

fn replay(target: &str, exercise: impl Fn(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
}

#[test]
fn superblock_corpus() {
    replay("superblock", exercise::superblock);
}
