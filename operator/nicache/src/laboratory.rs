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
/// The commands that it has.
const COMMANDS: [&str; 6] = ["bench", "demo", "prove", "replay", "sim", "trace"];

/// What the laboratory's program is asked if this is a command line that asks for help with one of
/// its commands: `nicache help trace advise` is `nicache-lab trace advise --help`.
pub(crate) fn asked_for_help(line: &[OsString]) -> Option<(&'static str, Vec<OsString>)> {
    let [_, help, command, rest @ ..] = line else { return None };
    let known = COMMANDS.into_iter().find(|known| command == known && help == "help")?;
    Some((known, rest.iter().cloned().chain(["--help".into()]).collect()))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<(&'static str, Vec<OsString>)> {
        asked_for_help(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn help_with_a_command_of_the_laboratory_is_its_own() {
        assert_eq!(asked("nicache help trace"), Some(("trace", vec!["--help".into()])));
        assert_eq!(
            asked("nicache help trace advise"),
            Some(("trace", vec!["advise".into(), "--help".into()]))
        );
        for line in ["nicache", "nicache help", "nicache help run", "nicache trace help"] {
            assert_eq!(asked(line), None, "{line}");
        }
    }

    #[test]
    fn every_command_of_the_laboratory_is_known() {
        let stubs = crate::cli::command();
        let stubs = stubs.get_subcommands().filter(|command| {
            command
                .get_about()
                .is_some_and(|about| about.to_string().ends_with("in the laboratory"))
        });
        let mut names: Vec<_> = stubs.map(|command| command.get_name().to_owned()).collect();
        names.sort();
        assert_eq!(names, COMMANDS);
    }
}
