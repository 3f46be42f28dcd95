//! Some hundred runs of each mode; none may break an invariant, and together they must have seen
//! everything.
//!
//! `SEEDS=2000 cargo test -p nicache-simulation --test sweep` runs more. What fails prints the
//! command that repeats it.

use nicache_simulation::{Mode, Sweep, sweep};

fn seeds(default: u64) -> u64 {
    std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs half of the seeds on a thread of its own: the machine that tests run on has at least two
/// processors.
fn sweep_on_two_threads(mode: Mode, count: u64) -> Sweep {
    let first = std::thread::spawn(move || sweep(mode, 0..count / 2));
    let mut second = sweep(mode, count / 2..count);
    second.merge(first.join().expect("a run panicked"));
    second
}

#[test]
fn no_run_breaks_an_invariant_and_all_kinds_of_events_occur() {
    let mut all = Sweep::default();
    let counts = [100, 150, 50, 250].map(seeds);
    for (mode, count) in Mode::ALL.into_iter().zip(counts) {
        all.merge(sweep_on_two_threads(mode, count));
    }
    println!("{}", all.events);
    assert!(
        all.failures.is_empty(),
        "{} of {} runs failed: {:#?}",
        all.failures.len(),
        all.runs,
        all.failures
    );
    assert!(all.events.missing().is_empty(), "never happened: {:?}", all.events.missing());
}
