//! For tests: what fuzz targets call, with the inputs that are committed and with some that are
//! made from these.
//!
//! Each target has a function in its crate's `tests/exercise`, or the like. `tools/fuzz` looks for
//! inputs that reach more code, and needs a nightly compiler; here the same functions get a second
//! of blind mutations with every run of the tests.
#![forbid(unsafe_code)]

mod mutation;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutation::Mutations;

/// Hands every file of `fuzz/corpus/TARGET` in a crate's folder (`env!("CARGO_MANIFEST_DIR")`) to
/// `exercise`, in the order of their names, and prints each name before: the test's output ends
/// with the one that failed. Then, for a second, inputs that are made of these files.
/// `FUZZ_SECONDS` says how many seconds otherwise. The inputs are drawn by `PROPTEST_RNG_SEED` if
/// that is set, else new ones each time.
///
/// # Panics
/// If the folder cannot be read, or is empty, or as `exercise` does. An input that is not committed
/// is written to the folder for temporary files first, and its path is printed.
pub fn replay(krate: impl AsRef<Path>, target: &str, mut exercise: impl FnMut(&[u8])) {
    let folder = krate.as_ref().join("fuzz/corpus").join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds in {}", folder.display());
    let read = |file: &PathBuf| {
        std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let seeds: Vec<Vec<u8>> = files.iter().map(read).collect();
    for (file, seed) in files.iter().zip(&seeds) {
        println!("{}", file.display());
        exercise(seed);
    }
    mutate(target, seeds, exercise);
}

fn mutate(target: &str, seeds: Vec<Vec<u8>>, mut exercise: impl FnMut(&[u8])) {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let random = set("PROPTEST_RNG_SEED").map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
    let time = Duration::from_secs(set("FUZZ_SECONDS").unwrap_or(1));
    let (begun, mut count) = (Instant::now(), 0);
    for input in Mutations::new(seeds, random) {
        if begun.elapsed() >= time {
            break;
        }
        count += 1;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| exercise(&input))) {
            let path = std::env::temp_dir()
                .join(format!("nicache-{target}-{}-{count}", std::process::id()));
            match std::fs::write(&path, &input) {
                Ok(()) => println!("{target}: the input that failed is in {}", path.display()),
                Err(error) => println!(
                    "{target}: the input that failed is {input:02x?} ({}: {error})",
                    path.display()
                ),
            }
            resume_unwind(panic);
        }
    }
    println!("{target}: {count} inputs made of these");
}
