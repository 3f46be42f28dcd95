//! `nicache top`: a running nicache, live.
//!
//! ```text
//! source.rs    samples from the control socket, by a thread of its own
//! model.rs     what is shown: samples, rates, and what keys have chosen; no I/O, no clock
//! view.rs      the model on a screen of any size
//! lists.rs     the lists of objects, reasons and cards there
//! screen.rs    the terminal: keys in, drawings out, and as it was at the end
//! plain.rs     --once and --json
//! text.rs      numbers for people; what clients chose, without what a terminal would obey
//! ```

mod lists;
mod model;
mod plain;
mod screen;
mod source;
pub(crate) mod text;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cli::TopArgs;

/// Looks more often than this cost more than they tell.
const INTERVAL_MS_MIN: u64 = 100;

/// Shows it until the end.
pub(crate) fn run(arguments: &TopArgs) -> Result<ExitCode> {
    if arguments.interval.0 < INTERVAL_MS_MIN {
        bail!("--interval: at least {INTERVAL_MS_MIN}ms");
    }
    let interval = Duration::from_millis(arguments.interval.0);
    let name = arguments.name.as_deref();
    if arguments.json || arguments.once {
        return plain::run(name, interval, arguments.once, arguments.json);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("nicache top needs a terminal: use --once or --json");
    }
    screen::run(name, interval)
}
