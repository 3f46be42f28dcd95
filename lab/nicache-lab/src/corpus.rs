//! Replays the corpus of the fuzz target through the same function.

#[path = "../tests/exercise/mod.rs"]
mod exercise;

use std::path::Path;

fn replay(target: &str, exercise: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).expect("a corpus").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{} seeds in {}", files.len(), folder.display());
    for file in files {
        println!("{}", file.display());
        exercise(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn value() {
    replay("value", exercise::value);
}
