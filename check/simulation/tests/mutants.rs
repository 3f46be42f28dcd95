//! The checkers can fail: each fault in a model is found by some seed.

use nicache_simulation::{Mode, Mutant, run};

/// The seeds that are tried; the rarest mutant is found by several of them.
const SEEDS: u64 = 600;

fn found(mutant: Mutant) -> bool {
    let finds = |mode, seed| !run(mode, seed, Some(mutant), false).violations.is_empty();
    (0..SEEDS).any(|seed| {
        [Mode::Storm, Mode::Writers, Mode::Readers].into_iter().any(|mode| finds(mode, seed))
    })
}

#[test]
fn every_mutant_is_found() {
    let searches = Mutant::ALL.map(|mutant| (mutant, std::thread::spawn(move || found(mutant))));
    for (mutant, search) in searches {
        assert!(
            search.join().expect("a run panicked"),
            "{mutant:?} was not found by {SEEDS} seeds"
        );
    }
}

#[test]
fn a_seed_repeats_its_run() {
    for mode in Mode::ALL {
        let (first, second) = (run(mode, 7, None, false), run(mode, 7, None, false));
        assert_eq!(
            (first.ended_ns, first.events.to_string()),
            (second.ended_ns, second.events.to_string())
        );
    }
}
