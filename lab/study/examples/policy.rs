//! Which policy has most hits on a log: `cargo run -p nicache-study --example policy access.log`.

use nicache_study::{Choice, LoadConfig, Loader, Size, sweep};
use nicache_trace::Reader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = std::env::args_os().nth(1).ok_or("usage: policy LOG")?;
    let (mut reader, mut loader) =
        (Reader::open(log.as_ref(), None)?, Loader::new(&LoadConfig::default()));
    while let Some(record) = reader.read()? {
        loader.push(&record)?;
    }
    let (workload, _) = loader.finish()?;
    let choices = ["lru", "gdsf", "s3-fifo"].map(str::parse::<Choice>);
    let choices = choices.into_iter().collect::<Result<Vec<_>, _>>()?;
    for curve in sweep(&[workload], &choices, &[Size(8 << 20)], 2, &|_| ()) {
        let hits = 1.0 - curve.points[0].counts.miss_ratio();
        println!(
            "{}: {:.1} % of what a cache may hold, with 8 MB",
            curve.choice.title(),
            100.0 * hits
        );
    }
    Ok(())
}
