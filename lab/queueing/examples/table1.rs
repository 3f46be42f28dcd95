//! Table 1 of koch2002, simulated: `cargo run --release -p nicache-queueing --example table1
//! [REPETITIONS]`.

use std::error::Error;

use nicache_queueing::table1::{Comparison, reproduce};

fn main() -> Result<(), Box<dyn Error>> {
    let repetitions = std::env::args().nth(1).map_or(Ok(100), |argument| argument.parse())?;
    let progress = |done: usize, runs: usize| {
        if done.is_multiple_of(50) || done == runs {
            eprint!("\r{done} of {runs} runs");
        }
    };
    let rows = reproduce(repetitions, &progress)?;
    eprintln!();
    println!(
        "| | throughput: paper | ours | residual | band | traffic: paper | ours | residual | band |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        println!("| {} | {} | {} |", row.name, cells(row.throughput), cells(row.traffic));
    }
    Ok(())
}

fn cells(comparison: Option<Comparison>) -> String {
    let Some(Comparison { paper, ours, interval, band, within, fitted }) = comparison else {
        return "| | | ".into();
    };
    let (fitted, out) = (if fitted { " (fit)" } else { "" }, if within { "" } else { " **out**" });
    let ours = format!("{ours:.2} ± {:.2}{fitted}", interval.half_width);
    format!("{paper:.2} | {ours} | {:+.2} | ±{band:.2}{out}", paper - interval.mean)
}
