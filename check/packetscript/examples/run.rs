//! Runs scripts: `cargo run -p nicache-packetscript --example run -- FILE... --against
//! ours|host|linux [--trace]`.

use std::process::ExitCode;

use nicache_packetscript::{Host, Linux, Ours, RunError, Script, Side, Trace, parse, run};

fn main() -> ExitCode {
    let mut files = Vec::new();
    let mut side = Side::Ours;
    let mut shows_trace = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--trace" => shows_trace = true,
            "--against" => match arguments.next().as_deref() {
                Some("ours") => side = Side::Ours,
                Some("host") => side = Side::Host,
                Some("linux") => side = Side::Linux,
                _ => return usage(),
            },
            _ if argument.starts_with('-') => return usage(),
            _ => files.push(argument),
        }
    }
    if files.is_empty() {
        return usage();
    }
    let mut failed = false;
    for file in &files {
        match one(file, side) {
            Ok(Some(trace)) => {
                println!("{file}: passed against {}", side.name());
                if shows_trace {
                    print!("{trace}");
                }
            }
            Ok(None) => println!("{file}: not for {}", side.name()),
            Err(error) => {
                failed = true;
                println!("{file}: {error}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn usage() -> ExitCode {
    eprintln!("usage: run FILE... [--against ours|host|linux] [--trace]");
    ExitCode::from(2)
}

fn one(file: &str, side: Side) -> Result<Option<Trace>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let script = parse(&text).map_err(|error| error.to_string())?;
    if script.setup.only.as_ref().is_some_and(|(only, _)| !side.reads(*only)) {
        return Ok(None);
    }
    against(&script, side).map(Some).map_err(|error| error.to_string())
}

fn against(script: &Script, side: Side) -> Result<Trace, RunError> {
    match side {
        Side::Ours => run(script, side, &mut Ours::new(script)?),
        Side::Host => run(script, side, &mut Host::new(script)?),
        Side::Linux => run(script, side, &mut Linux::new(script)?),
    }
}
