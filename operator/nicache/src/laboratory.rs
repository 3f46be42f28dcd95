//! Commands of the laboratory, which is a program of its own: `nicache trace` becomes `nicache-lab
//! trace`, as git and cargo do it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// The program, and the package that has it.
const NAME: &str = "nicache-lab";

/// Becomes the laboratory's program beside this one, or else the first one in `PATH`. Returns only
/// an error, which says how to get it.
pub(crate) fn become_it(command: &str, arguments: &[OsString]) -> Result<ExitCode> {
    let beside =
        std::env::current_exe().ok().and_then(|own| own.parent().map(|folder| folder.join(NAME)));
    let program = beside.filter(|file| file.is_file()).unwrap_or_else(|| PathBuf::from(NAME));
    let error = Command::new(&program).arg(command).args(arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!("`nicache {command}` needs {NAME}: install the package {NAME}, or run `make lab`");
    }
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
