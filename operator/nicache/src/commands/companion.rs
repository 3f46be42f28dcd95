//! `nicache companion`, the parent of a program that runs beside the server: starts it, hands
//! signals on, collects its orphans.
//!
//! One for each `--with`. Because the program's orphans come here, the server's parent can tell
//! them from the server's, and a program that puts itself in the background is still asked to end,
//! and missed when it does.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, Result};
use nicache_watch::is_php_fpm;
use rustix::process::{Signal, set_child_subreaper};

use crate::cli::CompanionArgs;
use crate::following::{self, Collected, Recipient, Signals, collect, is_to_end, own_children};

/// Runs the program to its end. Standard input is a socket on which one byte says that it has been
/// started.
pub(super) fn execute(arguments: &CompanionArgs) -> Result<ExitCode> {
    rustix::thread::set_name(c"nicache-with")?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = Signals::catch()?;
    let argv = &arguments.command;
    let variable =
        |set: &String| set.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment: Vec<(String, String)> = arguments.set.iter().filter_map(variable).collect();
    let program = following::start(argv, &environment)
        .with_context(|| format!("cannot start `{}`", argv[0]))?;
    let mut recipient = Recipient::new(&program);
    let left = || own_children().unwrap_or_default();
    UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?).write_all(b".")?;
    loop {
        loop {
            match collect()? {
                Collected::Ended(pid, code) => {
                    if recipient.ended(pid, left) && code != 0 {
                        return Ok(ExitCode::from(code));
                    }
                }
                Collected::Running => break,
                Collected::None => return Ok(ExitCode::SUCCESS),
            }
        }
        signals.wait(None, None)?;
        for signal in signals.take() {
            let known = |signal| recipient.knows(left, signal);
            if let Some(signal) = signal_for(&argv[0], signal, known) {
                recipient.pass_on(left, signal);
            }
        }
    }
}

/// What a program is told when nicache gets a signal: that it shall end, that it shall reload
/// (SIGHUP), that it shall reopen its log (SIGUSR1). PHP-FPM has signals of its own for that;
/// others get SIGHUP if they know it, because it would end them otherwise.
fn signal_for(program: &str, signal: Signal, is_known: impl Fn(Signal) -> bool) -> Option<Signal> {
    let name = program.rsplit('/').next().unwrap_or_default();
    let is_php = is_php_fpm(name);
    match signal {
        signal if is_to_end(signal) => Some(signal),
        Signal::HUP if is_php => Some(Signal::USR2),
        Signal::USR1 if is_php => Some(Signal::USR1),
        Signal::HUP if is_known(Signal::HUP) => Some(Signal::HUP),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_hear_what_they_know() {
        let (yes, no) = (|_| true, |_| false);
        assert_eq!(signal_for("/usr/sbin/php-fpm8.2", Signal::HUP, no), Some(Signal::USR2));
        assert_eq!(signal_for("php-fpm", Signal::USR1, no), Some(Signal::USR1));
        assert_eq!(signal_for("mariadbd", Signal::HUP, yes), Some(Signal::HUP));
        assert_eq!(signal_for("sleep", Signal::HUP, no), None);
        assert_eq!(signal_for("mariadbd", Signal::USR2, yes), None);
        assert_eq!(signal_for("sleep", Signal::TERM, no), Some(Signal::TERM));
    }
}
