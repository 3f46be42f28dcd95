//! `nicache serve`.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::options::ServeOptions;
use crate::serve;

/// Serves a folder from card memory.
pub(super) fn execute(options: ServeOptions) -> Result<ExitCode> {
    if options.root.starts_with("iscsi:") {
        bail!(
            "the files of a logical unit are served out of the cache of `nicache nfs`: nicache nfs iscsi://HOST/IQN/LUN --http 80=/FOLDER"
        );
    }
    serve::run(&options)
}
