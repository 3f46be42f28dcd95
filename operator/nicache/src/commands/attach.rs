//! `nicache attach`.

use std::process::ExitCode;

use anyhow::Result;

use crate::options::RunOptions;
use crate::supervisor;

/// Stands between two interfaces.
pub(super) fn execute(options: RunOptions) -> Result<ExitCode> {
    supervisor::attach::run(&options.resolve_attach()?)
}
