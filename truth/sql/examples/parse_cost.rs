//! What it costs to parse the statements of `tests/statements` and to expand them without a
//! catalogue.

use std::hint::black_box;
use std::time::Instant;

use nicache_sql::{Context, Dialect, expand, parse};

fn main() {
    for (dialect, text) in [
        (Dialect::MySql, include_str!("../tests/statements/mysql.txt")),
        (Dialect::Postgres, include_str!("../tests/statements/postgres.txt")),
    ] {
        let texts: Vec<&str> = text.lines().filter(|line| !line.starts_with('\t')).collect();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        let mut slowest = (0.0, "");
        let rounds = 200;
        let began = Instant::now();
        for _ in 0..rounds {
            for text in &texts {
                black_box(parse(dialect, black_box(text.as_bytes())));
            }
        }
        let mean = began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / texts.len() as f64;
        for text in &texts {
            let began = Instant::now();
            for _ in 0..rounds {
                black_box(parse(dialect, black_box(text.as_bytes())));
            }
            let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds);
            if each > slowest.0 {
                slowest = (each, text);
            }
        }
        let statements: Vec<_> =
            texts.iter().flat_map(|text| parse(dialect, text.as_bytes())).collect();
        let began = Instant::now();
        for _ in 0..rounds {
            for statement in &statements {
                black_box(expand(statement, dialect, &Context::default(), &[], None));
            }
        }
        let expanded =
            began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / statements.len() as f64;
        println!(
            "{dialect:?}: {} texts of {} bytes on average: parse {mean:.1} µs, expand {expanded:.2} µs; slowest {:.1} µs: {}",
            texts.len(),
            bytes / texts.len(),
            slowest.0,
            &slowest.1[..slowest.1.len().min(80)]
        );
    }
}
