//! `nicache upgrade`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cli::UpgradeArgs;
use crate::control::{Request, Response, ask_within, unexpected};

/// A card with much memory needs a while to start.
const LIMIT: Duration = Duration::from_secs(130);

/// Has another card take over.
pub(super) fn execute(arguments: &UpgradeArgs) -> Result<ExitCode> {
    let program = match &arguments.program {
        Some(program) => std::fs::canonicalize(program)
            .with_context(|| format!("cannot find {}", program.display()))?,
        None => std::env::current_exe().context("cannot find this program's own file")?,
    };
    match ask_within(arguments.target.name.as_deref(), &Request::Upgrade { program }, LIMIT)? {
        Response::Upgraded { card_pid } if arguments.target.json => {
            println!("{}", serde_json::json!({ "card_pid": card_pid }));
        }
        Response::Upgraded { card_pid } => println!("another card serves (process {card_pid})"),
        _ => return Err(unexpected()),
    }
    Ok(ExitCode::SUCCESS)
}
