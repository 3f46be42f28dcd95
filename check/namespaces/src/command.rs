//! Commands in the namespace of the calling thread.

use std::process::{Command, Output};

/// Runs `ip` with arguments that blanks separate, and returns what it said. Panics if it fails.
pub fn ip(arguments: impl AsRef<str>) -> String {
    run("ip", arguments)
}

/// Runs a program with arguments that blanks separate, and returns what it said. Panics if it
/// fails.
pub fn run(program: &str, arguments: impl AsRef<str>) -> String {
    let words = format!("{program} {}", arguments.as_ref());
    nicache_netns::command(&words).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a program with arguments that blanks separate, and returns what came of it, failure or not.
/// Panics if there is no such program.
pub fn output(program: &str, arguments: &str) -> Output {
    Command::new(program)
        .args(arguments.split_ascii_whitespace())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}
