//! Waiting for the end, and the end.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use super::card_unit::{CardUnit, upgrade_all};
use super::children::{describe, wait_readable};
use super::notify;
use super::orders::Order;
use super::ready::LOOK_EVERY;
use super::running::Running;
use super::signals::Signals;
use crate::logs;
use crate::publish::Nft;
use crate::setup::{CompanionFailure, GRACE, LastWord, receive_message};

/// Why it is over.
#[derive(Debug)]
pub(crate) enum End {
    /// Ctrl-C or SIGTERM.
    Asked,
    /// The server ended by itself.
    Died(ExitStatus),
    /// A program beside the server failed.
    CompanionFailed(CompanionFailure),
    /// The owner of the translation rules ended.
    RulesGone,
}

impl Running<'_> {
    /// Waits for the end, announcing the server once it is ready.
    pub(super) fn supervise(&mut self, signals: &Signals) -> Result<End> {
        self.begin_service()?;
        loop {
            self.wait(signals)?;
            if let Some(status) = self.server.try_wait()? {
                return Ok(self
                    .companion_failure()?
                    .map_or(End::Died(status), End::CompanionFailed));
            }
            self.watch.handle(Instant::now())?;
            self.card_units.iter_mut().try_for_each(|card| card.handle(Instant::now()))?;
            while let Some(Order::Upgrade { program, reply }) = self.orders.take() {
                upgrade_all(&mut self.card_units, &program, reply)?;
            }
            self.card_units.iter_mut().for_each(|card| card.join(&self.watch));
            if self.published.nfts.iter_mut().any(Nft::has_ended) {
                return Ok(End::RulesGone);
            }
            while let Some(number) = signals.take() {
                match number {
                    SIGINT | SIGTERM => return Ok(End::Asked),
                    other => self.pass_on(other),
                }
            }
            if !self.readiness.is_ready() && self.readiness.became_ready(&self.namespace) {
                self.announce()?;
            }
        }
    }

    /// What the server's first process said at its end.
    fn companion_failure(&self) -> Result<Option<CompanionFailure>> {
        let channel = &self.server.channel;
        if !wait_readable(channel.as_fd(), Duration::ZERO)? {
            return Ok(None);
        }
        Ok(match receive_message(channel)?.map(|(word, _)| word) {
            Some(LastWord::CompanionFailed(failure)) => Some(failure),
            Some(LastWord::CompanionStays(argv)) => {
                tracing::warn!(
                    "the server has ended, and the program `{}` beside it (--with) did not within {} s: it is killed",
                    argv[0],
                    GRACE.as_secs()
                );
                None
            }
            None => None,
        })
    }

    /// Sleeps until something happens, or until it is time to look at the server again.
    fn wait(&self, signals: &Signals) -> Result<()> {
        let mut fds: Vec<PollFd<'_>> =
            signals.files().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let processes = [self.server.as_fd()].into_iter().chain(self.watch.file());
        fds.extend(processes.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
        let files = self.card_units.iter().flat_map(CardUnit::files).chain([self.orders.as_fd()]);
        fds.extend(files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
        fds.extend(
            self.published
                .nfts
                .iter()
                .map(|nft| PollFd::from_borrowed_fd(nft.as_fd(), PollFlags::IN)),
        );
        let look = if self.readiness.is_ready() { None } else { Some(LOOK_EVERY) };
        let due = self
            .card_units
            .iter()
            .filter_map(CardUnit::due)
            .chain(self.watch.due())
            .min()
            .map(|due| due.saturating_duration_since(Instant::now()));
        let limit = look.into_iter().chain(due).min().map(Timespec::try_from).transpose()?;
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn pass_on(&self, number: i32) {
        let signal = match number {
            SIGHUP => Signal::HUP,
            SIGUSR1 => Signal::USR1,
            _ => Signal::USR2,
        };
        if signal == Signal::USR1
            && let Some(log) = &self.access_log
            && let Err(error) = log.reopen()
        {
            tracing::warn!("{error:#}");
        }
        tracing::info!("{} handed on to the server and the programs beside it", name(signal));
        self.server.signal(signal);
    }

    /// Takes everything down and says why.
    pub(super) fn stop(&mut self, end: End, signals: &Signals) -> ExitCode {
        notify::tell("STOPPING=1");
        self.live = None;
        self.admin = None;
        let failed = match &end {
            End::Asked => false,
            End::Died(status) if status.success() && self.readiness.is_ready() => {
                tracing::info!("the server ended by itself");
                false
            }
            End::Died(status) if !self.readiness.is_ready() => {
                tracing::error!(
                    "the server {} before it listened on port {}: its own messages are above; the command was `{}`",
                    describe(*status),
                    self.plan.http_ports[0],
                    self.argv.join(" ")
                );
                true
            }
            End::Died(status) => {
                tracing::error!(
                    "the server {}: everything else is stopped, too",
                    describe(*status)
                );
                true
            }
            End::CompanionFailed(failure) => {
                tracing::error!(
                    "the program `{}`, which runs beside the server (--with), {}: its own messages are above; everything else is \
                     stopped, too. The command was `{}`",
                    failure.argv[0],
                    describe(ExitStatus::from_raw(i32::from(failure.status) << 8)),
                    failure.argv.join(" ")
                );
                true
            }
            End::RulesGone => {
                tracing::error!(
                    "the nft process that holds the translation rules ended: everything else is stopped, too"
                );
                true
            }
        };
        // With the server or the rules gone, nobody reaches the server any longer, so there is
        // nothing to wait for.
        if matches!(end, End::Asked) {
            self.stop_server(signals);
            self.card_units.iter_mut().for_each(CardUnit::stop);
        }
        if self.plan.json {
            logs::print(&serde_json::json!({ "event": "ended", "failed": failed }).to_string());
        }
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn stop_server(&mut self, signals: &Signals) {
        let deadline = Instant::now() + GRACE;
        self.server.signal(stop_signal(&self.argv));
        loop {
            match self.server.wait(Duration::from_millis(50)) {
                Ok(None) => {}
                _ => return,
            }
            if Instant::now() > deadline {
                tracing::warn!(
                    "the server, or a program beside it, did not end within {} s and is killed",
                    GRACE.as_secs()
                );
                return;
            }
            if signals.take().is_some_and(|number| matches!(number, SIGINT | SIGTERM)) {
                return;
            }
        }
    }
}

fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::HUP => "SIGHUP",
        Signal::USR1 => "SIGUSR1",
        _ => "SIGUSR2",
    }
}

/// nginx ends gracefully on SIGQUIT, on which others would dump core or threads; for them SIGTERM
/// means the same.
fn stop_signal(argv: &[String]) -> Signal {
    let program = argv[0].rsplit('/').next().unwrap_or_default();
    if program == "nginx" { Signal::QUIT } else { Signal::TERM }
}
