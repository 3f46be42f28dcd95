//! `nicache run`.

use std::process::ExitCode;

use anyhow::Result;

use crate::options::RunOptions;
use crate::supervisor;

/// Runs a server behind the card.
pub(super) fn execute(options: RunOptions) -> Result<ExitCode> {
    supervisor::run(options.resolve()?)
}
