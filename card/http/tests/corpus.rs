//! Replays the corpus of the fuzz targets through the same functions.

mod exercise;

fn replay(target: &str, exercise: fn(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
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
