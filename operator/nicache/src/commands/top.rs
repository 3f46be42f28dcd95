//! `nicache top`.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::TopArgs;
use crate::top;

/// Shows what a running nicache does.
pub(super) fn execute(arguments: &TopArgs) -> Result<ExitCode> {
    top::run(arguments)
}
