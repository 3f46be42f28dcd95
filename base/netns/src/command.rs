//! Commands in the network namespace of the calling thread.

use std::io;
use std::process::{Command, Stdio};

/// Runs a command, whose words blanks separate, and returns what it wrote to standard output.
///
/// # Errors
/// It cannot be started, or fails: then with what it said.
pub fn command(words: &str) -> io::Result<String> {
    let (program, arguments) = words.split_once(' ').unwrap_or((words, ""));
    let output = Command::new(program)
        .args(arguments.split_ascii_whitespace())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| not_started(program, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("`{words}` failed ({}): {}", output.status, said.trim())))
}

/// Runs `ip` with arguments that blanks separate, and returns what it wrote to standard output.
///
/// # Errors
/// As [`command`].
pub fn ip(arguments: &str) -> io::Result<String> {
    command(&format!("ip {arguments}"))
}

fn not_started(program: &str, error: &io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return io::Error::new(error.kind(), format!("cannot start {program}: {error}"));
    }
    let package = if program == "ip" { " (package iproute2)" } else { "" };
    io::Error::new(error.kind(), format!("the program {program} is not installed{package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_wrote_is_returned() {
        assert_eq!(command("echo  two   words").unwrap(), "two words\n");
        assert_eq!(command("true").unwrap(), "");
    }

    #[test]
    fn a_command_that_fails_is_an_error_with_what_it_said() {
        let error = command("ls /not/there").unwrap_err().to_string();
        assert!(error.starts_with("`ls /not/there` failed (exit status: 2): ls: "), "{error}");
        assert!(!error.ends_with('\n'));
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = command("nicache-none at all").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), "the program nicache-none is not installed");
        let error = not_started("ip", &io::ErrorKind::NotFound.into());
        assert_eq!(error.to_string(), "the program ip is not installed (package iproute2)");
    }
}
