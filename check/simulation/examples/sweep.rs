//! Runs many seeds: `cargo run -p nicache-simulation --example sweep -- storm 0 1000`.

use std::process::ExitCode;
use std::time::Instant;

use nicache_simulation::{Mode, sweep};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let mode = arguments.get(1).and_then(|name| Mode::from_name(name));
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(mode), Some(from), Some(to)) = (mode, number(2), number(3)) else {
        eprintln!("usage: sweep calm|writers|readers|storm FROM TO");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let result = sweep(mode, from..to);
    println!("{}", result.events);
    println!(
        "{} runs, {} failures, {:.1} s",
        result.runs,
        result.failures.len(),
        start.elapsed().as_secs_f64()
    );
    println!("never: {:?}", result.events.missing());
    if result.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
