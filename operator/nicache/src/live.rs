//! What the user sees while nicache runs: a line that is redrawn twice a second on a terminal, a
//! log entry every 10 s elsewhere.

use std::io::IsTerminal;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::control::Counters;
use crate::logs;
use crate::numbers::{bytes, grouped};
use crate::options::LogFormat;
use crate::supervisor::cards::Cards;
use crate::supervisor::hint::Hints;

const REDRAW: Duration = Duration::from_millis(500);
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Shows the counters until dropped.
#[derive(Debug)]
pub(crate) struct Live {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Starts showing.
    pub(crate) fn start(card: Arc<Cards>, format: LogFormat) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let line = format == LogFormat::Text && std::io::stderr().is_terminal();
        let every = if line { REDRAW } else { LOG_EVERY };
        let body = move || {
            let (mut last, mut hints) = (None, Hints::default());
            while stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                let Ok(counters) = card.counters() else {
                    continue;
                };
                if let Some(hint) = hints.handle(&counters, Instant::now()) {
                    tracing::warn!("{hint}");
                }
                card.set_hint(hints.current());
                if line {
                    logs::show_live_line(&fit(&render(&counters)));
                } else if last.as_ref() != Some(&counters) {
                    log(&counters);
                    last = Some(counters);
                }
            }
        };
        let thread = std::thread::Builder::new().name("live".into()).spawn(body)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        logs::clear_live_line();
    }
}

fn log(counters: &Counters) {
    tracing::info!(
        hits = counters.hits,
        misses = counters.misses,
        bypasses = counters.bypasses,
        hit_rate = (counters.hit_rate() * 1000.0).round() / 1000.0,
        bus_saved_bytes = counters.bus_saved_bytes,
        entries = counters.entries,
        memory_used_bytes = counters.memory_used_bytes,
        not_caching = counters.not_caching,
        "counters"
    );
}

/// The live line for some counters.
pub(crate) fn render(counters: &Counters) -> String {
    let mut line = format!(
        "hits {}  misses {}  bypasses {}  hit rate {:.1} %  bus saved {}",
        grouped(counters.hits),
        grouped(counters.misses),
        grouped(counters.bypasses),
        counters.hit_rate() * 100.0,
        bytes(counters.bus_saved_bytes)
    );
    if counters.bypass_on {
        line.push_str("  BYPASS ON");
    } else if let Some(reason) = &counters.not_caching {
        line.push_str("  not caching: ");
        line.push_str(reason);
    }
    line
}

/// Cuts the line to the terminal's width, so redrawing never leaves lines behind.
pub(crate) fn fit(line: &str) -> String {
    // A terminal that does not know its width says 0.
    let columns =
        rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    let columns = if columns == 0 { 80 } else { columns };
    line.chars().take(columns.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_why_nothing_is_cached() {
        let counters = Counters {
            hits: 3,
            misses: 1,
            not_caching: Some("no witness".into()),
            ..Counters::default()
        };
        let line = render(&counters);
        assert!(
            line.contains("hit rate 75.0 %") && line.ends_with("not caching: no witness"),
            "{line}"
        );
    }
}
