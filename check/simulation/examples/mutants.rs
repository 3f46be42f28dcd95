//! Runs every mutant over some seeds and tells how many seeds find it: `cargo run -p
//! nicache-simulation --example mutants -- 50`.

use nicache_simulation::{Mode, Mutant, run};

fn main() {
    let seeds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(50);
    for mutant in Mutant::ALL {
        for mode in [Mode::Storm, Mode::Writers, Mode::Readers] {
            let found: Vec<String> = (0..seeds)
                .filter_map(|seed| {
                    run(mode, seed, Some(mutant), false).violations.into_iter().next()
                })
                .collect();
            let first = found.first().map_or("", |text| &text[..text.len().min(60)]);
            println!(
                "{mutant:?}: found by {} of {seeds} seeds ({}): {first}",
                found.len(),
                mode.name()
            );
        }
    }
}
