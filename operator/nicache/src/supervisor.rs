//! What `nicache run` does: builds everything up, waits for an end or a signal, takes everything
//! down.
//!
//! Order of the start: reservations, namespaces, TAPs, watcher, card, publishing and sharing,
//! programs beside the server, server. The watcher comes before the server so it sees the
//! server's first file; the card before the server so no frame is lost.
//!
//! A card that ends or stands still is started again, and requests pass to the server meanwhile
//! ([`card_unit`]); without the watcher they pass until it is there ([`watch_unit`]). Whatever of
//! supervisor and server ends, the others end within a second. Children are killed by the kernel
//! when the supervisor dies ([`children`]), the server's own children by the guard ([`guard`]),
//! interfaces with the card's open files, rules with the process that owns them.

pub(crate) mod attach;
pub(crate) mod card_link;
mod card_setup;
mod card_unit;
pub(crate) mod cards;
pub(crate) mod children;
mod control;
mod databases;
mod end;
pub(crate) mod guard;
pub(crate) mod hint;
pub(crate) mod instance;
mod listening;
pub(crate) mod netlink;
pub(crate) mod notify;
mod orders;
mod outsiders;
mod passing;
mod place;
mod preload_files;
mod ready;
pub(crate) mod requirements;
mod running;
pub(crate) mod sampler;
pub(crate) mod signals;
mod standing;
pub(crate) mod tap;
mod watch_link;
mod watch_unit;
mod watchdog;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::demo::Demo;
use crate::document_roots::document_roots;
use crate::logs;
use crate::options::{RunPlan, WatchKind};
use requirements::{check_privilege, check_program, is_in_path};
use running::Running;
use signals::Signals;

/// Runs until the end; the status for the shell.
pub(crate) fn run(plan: RunPlan) -> Result<ExitCode> {
    logs::start(plan.log_format);
    check_privilege("run")?;
    let demo = if plan.server.is_empty() { Some(Demo::unpack(plan.http_ports[0])?) } else { None };
    let argv = demo.as_ref().map_or_else(|| plan.server.clone(), Demo::command);
    check_program(&argv[0], demo.is_some())?;
    for command in &plan.with {
        if !is_in_path(&command[0]) {
            bail!(
                "the program `{}` (--with) was not found: is it installed, and in PATH?",
                command[0]
            );
        }
    }
    let signals = Signals::catch()?;
    warn_of_roots(&plan, &argv);
    let mut running = Running::start(&plan, argv)?;
    if let Some(demo) = &demo {
        tracing::info!(folder = %demo.site().display(), "serving the demonstration site; edit its files and load them again");
    }
    let end = running.supervise(&signals);
    let code = running.stop(end?, &signals);
    drop(running);
    drop(demo);
    Ok(code)
}

/// Says which of the server's folders are on file systems that nobody watches: nothing of them will
/// be kept.
fn warn_of_roots(plan: &RunPlan, argv: &[String]) {
    if plan.watch == WatchKind::Preload {
        return;
    }
    for root in document_roots(argv, &plan.with) {
        if let Some(kind) = root.unwatched {
            tracing::warn!(
                "the server's folder {} is on {kind}, where nobody sees every change: nothing of it is kept (docs/filesystems.md)",
                root.path.display()
            );
        }
    }
}
