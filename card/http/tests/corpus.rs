//! Replays the corpus of the fuzz targets through the same functions.

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
fn request() {
    replay("request", exercise::request);
}

#[test]
fn preface() {
    replay("preface", exercise::preface);
}

#[test]
fn reply() {
    replay("reply", exercise::reply);
}

#[test]
fn body() {
    replay("body", exercise::body);
}

#[test]
fn conditional() {
    replay("conditional", exercise::conditional);
}

#[test]
fn ranges() {
    replay("ranges", exercise::ranges);
}
