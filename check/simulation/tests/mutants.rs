//! The checkers can fail: each fault in a model is found by some seed.

use nicache_simulation::{Mode, Mutant, run};

/// The seeds that are tried; the rarest mutant is found by several of them.
const SEEDS: u64 = 600;

/// Runs that find the mutants that are rare, tried before all others. If one no longer does, the
/// search goes on, and the test prints what found it.
const KNOWN: &[(Mode, u64)] =
    &[(Mode::Storm, 83), (Mode::Writers, 95), (Mode::Storm, 4), (Mode::Readers, 4)];

/// The first run that finds it, if any does.
fn found(mutant: Mutant) -> Option<(Mode, u64)> {
    let known = KNOWN.iter().copied();
    let all = (0..SEEDS).flat_map(|seed| {
        [Mode::Storm, Mode::Writers, Mode::Readers].into_iter().map(move |mode| (mode, seed))
    });
    known
        .chain(all)
        .find(|(mode, seed)| !run(*mode, *seed, Some(mutant), false).violations.is_empty())
}

#[test]
fn every_mutant_is_found() {
    let searches = Mutant::ALL.map(|mutant| (mutant, std::thread::spawn(move || found(mutant))));
    for (mutant, search) in searches {
        let run = search.join().expect("a run panicked");
        let (mode, seed) =
            run.unwrap_or_else(|| panic!("no run of {SEEDS} seeds found {mutant:?}"));
        println!("{mutant:?} was found by (Mode::{mode:?}, {seed})");
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
