//! The report as text.

use std::fmt;

use super::{How, Latency, Peak, Queued, Report};

fn name(how: How) -> &'static str {
    match how {
        How::Copy => "copy",
        How::Pcache => "PCACHE",
        How::Direct => "DIRECT",
    }
}

fn percent(model: f64, paper: f64) -> String {
    format!("{:+.1} %", (model / paper - 1.0) * 100.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Table 2: latency of UDP through a forwarder, in microseconds\n")?;
        writeln!(f, "{:>8}  {:8} {:>9} {:>9} {:>9}", "bytes", "", "paper", "model", "")?;
        for Latency { bytes, how, paper_us, model_us } in &self.latencies {
            let off = percent(*model_us, *paper_us);
            writeln!(f, "{bytes:>8}  {:8} {paper_us:>9.2} {model_us:>9.2} {off:>9}", name(*how))?;
        }
        writeln!(f, "\nFigure 6: the most that is forwarded, in MB/s\n")?;
        writeln!(f, "{:>8}  {:8} {:>9} {:>9} {:>9} {:>7}", "bytes", "", "paper", "model", "", "CPU")?;
        for Peak { bytes, how, paper_mb_per_s, model_mb_per_s, cpu } in &self.peaks {
            let paper = paper_mb_per_s.map_or("-".into(), |paper| format!("{paper:.0}"));
            let off = paper_mb_per_s.map_or(String::new(), |paper| percent(*model_mb_per_s, paper));
            let cpu = cpu * 100.0;
            writeln!(f, "{bytes:>8}  {:8} {paper:>9} {model_mb_per_s:>9.1} {off:>9} {cpu:>5.0} %", name(*how))?;
        }
        writeln!(f, "\nFigure 5: 25 MB/s of packets of 4 KB, {} in each row, seed {}\n", self.packets, self.seed)?;
        writeln!(
            f,
            "{:>8} {:>9} {:>9} {:>9} {:>15} {:>9} {:>9} {:>7}",
            "entries", "demand us", "queue", "hits", "E[min(1,K/N)]", "K/mean N", "dropped", "CPU"
        )?;
        for Queued { entries, demand_us, outcome } in &self.queues {
            writeln!(
                f,
                "{entries:>8} {demand_us:>9.0} {:>9.1} {:>9.3} {:>15.3} {:>9.3} {:>9.3} {:>5.0} %",
                outcome.queue_mean,
                outcome.hit_rate,
                outcome.law,
                outcome.estimate,
                outcome.dropped,
                outcome.busy * 100.0
            )?;
        }
        Ok(())
    }
}
