//! Which running nicache is meant, and how it answers.

use clap::Args;

/// Which running nicache a command means.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Name of the running nicache; needed only when several run
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
}
