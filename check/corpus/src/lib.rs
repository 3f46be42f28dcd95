//! For tests: replays the committed corpus of a crate's fuzz targets through the function that the target calls.
#![forbid(unsafe_code)]

use std::path::Path;

/// Hands every file of `fuzz/corpus/TARGET` in a crate's folder (`env!("CARGO_MANIFEST_DIR")`) to `exercise`, in the order of their names,
/// and prints each name before: the test's output ends with the one that failed.
///
/// # Panics
/// If the folder cannot be read, or is empty.
pub fn replay(krate: impl AsRef<Path>, target: &str, mut exercise: impl FnMut(&[u8])) {
    let folder = krate.as_ref().join("fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds in {}", folder.display());
    for file in files {
        println!("{}", file.display());
        exercise(&std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
}
