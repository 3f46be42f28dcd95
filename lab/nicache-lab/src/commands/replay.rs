//! `nicache replay`.

mod changes;
mod show;
mod speed;

use std::process::ExitCode;

use anyhow::Result;
use nicache_replay::{SyntheticConfig, Trace, synthetic};

use crate::cli::ReplayArgs;
pub(super) use show::show_trace;

/// Replays a log and prints what came of it.
pub(super) fn execute(arguments: &ReplayArgs) -> Result<ExitCode> {
    let trace = match &arguments.log {
        Some(log) => {
            let trace = Trace::open(log, arguments.format)?;
            if let Some(cut_off) = &trace.cut_off {
                eprintln!(
                    "{}: {cut_off}; the {} requests before that are replayed",
                    log.display(),
                    trace.requests.len()
                );
            }
            trace
        }
        None => synthetic(&SyntheticConfig { seed: arguments.seed, ..SyntheticConfig::default() }),
    };
    if arguments.speed.target.is_empty() {
        changes::execute(arguments, &trace)
    } else {
        speed::execute(arguments, &trace)
    }
}
