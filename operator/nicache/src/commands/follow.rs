//! `nicache follow`: runs a command whose changes of files a running nicache sees at once, also
//! with `--watch preload`.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::cli::FollowArgs;
use crate::control::ask_server_status;

/// Becomes the command.
pub(super) fn execute(arguments: &FollowArgs) -> Result<ExitCode> {
    let status = ask_server_status(arguments.name.as_deref())?;
    if arguments.print {
        for (name, value) in &status.writer_environment {
            println!("{name}={value}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some(program) = arguments.command.first() else {
        bail!("no command to run: nicache follow -- COMMAND")
    };
    let mut command = Command::new(program);
    command.args(&arguments.command[1..]);
    // With the kernel's witness there is nothing to add: it sees every program.
    for (name, value) in &status.writer_environment {
        match (name.as_str(), std::env::var("LD_PRELOAD")) {
            ("LD_PRELOAD", Ok(others)) if !others.is_empty() => {
                command.env(name, format!("{value}:{others}"))
            }
            _ => command.env(name, value),
        };
    }
    Err(command.exec()).with_context(|| format!("cannot run `{program}`"))
}
