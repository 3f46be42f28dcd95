//! Replays the fuzz corpora in the ordinary test run.

mod exercise;

use std::path::Path;

fn replay(target: &str, exercise: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        exercise(&std::fs::read(entry.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen > 0, "no corpus in {}", folder.display());
}

#[test]
fn superblock_corpus() {
    replay("superblock", exercise::superblock);
}
