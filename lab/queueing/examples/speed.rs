//! Simulated requests per second of this machine's time: `cargo run --release -p nicache-queueing
//! --example speed`.

use std::error::Error;
use std::time::Instant;

use nicache_queueing::{Config, run};

fn main() -> Result<(), Box<dyn Error>> {
    let crowded = "[requests]\ncount = 5_000_000\narrivals = 'poisson'\nfrequency_per_s = 600_000\n[bus]\ncontention = true";
    let zipf = "[requests]\ncount = 5_000_000\ndifferent = 1_000_000\nidentifiers = 'zipf'";
    let cases = [
        ("short, no memory", "extends = 'ShortBaseline'\n[requests]\ncount = 5_000_000".to_owned()),
        ("short, 8 MB", "extends = 'Short8MB'\n[requests]\ncount = 5_000_000".to_owned()),
        ("short, 16 MB", "extends = 'Short16MB'\n[requests]\ncount = 5_000_000".to_owned()),
        ("8 MB, Poisson, contention", format!("extends = 'Short8MB'\n{crowded}")),
        ("32 MB, Zipf, 1,000,000 identifiers", format!("extends = 'Short32MB'\n{zipf}")),
    ];
    for (name, text) in cases {
        let config = Config::from_toml(&text)?;
        let start = Instant::now();
        let outcome = run(&config, 1)?;
        let speed = outcome.requests as f64 / start.elapsed().as_secs_f64();
        println!(
            "{name:<36} {:>6.2} million requests/s, hit ratio {:.3}",
            speed / 1e6,
            outcome.hit_ratio
        );
    }
    Ok(())
}
