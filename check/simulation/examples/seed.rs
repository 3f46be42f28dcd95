//! Repeats one seed and prints every frame: `cargo run -p nicache-simulation --example seed --
//! storm 17`.

use std::process::ExitCode;

use nicache_simulation::{Mode, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let mode = arguments.get(1).and_then(|name| Mode::from_name(name));
    let seed = arguments.get(2).and_then(|seed| seed.parse().ok());
    let (Some(mode), Some(seed)) = (mode, seed) else {
        eprintln!("usage: seed calm|writers|readers|storm SEED [quiet]");
        return ExitCode::from(2);
    };
    let outcome = run(mode, seed, None, arguments.get(3).is_none_or(|quiet| quiet != "quiet"));
    println!("{}ended after {:.3} s", outcome.events, outcome.ended_ns as f64 / 1e9);
    for violation in &outcome.violations {
        println!("VIOLATION {violation}");
    }
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
