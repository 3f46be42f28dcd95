//! Replays the fuzz corpora in the ordinary test run.

mod exercise;

fn replay(target: &str, exercise: impl Fn(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
}

#[test]
fn url_corpus() {
    replay("url", exercise::url);
}

#[test]
fn sense_corpus() {
    replay("sense", exercise::sense);
}

#[test]
fn response_corpus() {
    replay("response", exercise::response);
}
