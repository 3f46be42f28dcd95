//! `nicache serve`.

use std::process::ExitCode;

use anyhow::Result;

use crate::options::ServeOptions;
use crate::serve;

/// Serves a folder from card memory.
pub fn execute(options: ServeOptions) -> Result<ExitCode> {
    serve::run(&options)
}
