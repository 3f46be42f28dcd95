//! Outputs that are kept in `tests/snapshots`, so a change of them is seen and looked at.

use std::path::Path;

/// Compares with the file that is kept. `NICACHE_SNAPSHOTS=write` writes it anew.
pub(crate) fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var("NICACHE_SNAPSHOTS").is_ok_and(|it| it == "write") {
        std::fs::write(&path, text).expect("the snapshot can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "{name} is not as kept; if that is right, set NICACHE_SNAPSHOTS=write once. Now:\n{text}"
    );
}
