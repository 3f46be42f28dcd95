//! `nicache forwarder`, the process that sees headers and decides.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_bus::{Attachment, Presence, Window};
use nicache_fastpath::Maps;
use nicache_forward::backend::Broken;
use nicache_port::wait;
use nicache_router::config::Plan;
use nicache_router::keep::Keep;
use nicache_router::kernel::{Kernel, Link};
use nicache_router::router::Router;
use nicache_tcp::Time;

use super::messages::{Answer, ForwarderSetup, FromForwarder, Question, ToForwarder};
use crate::engine::monotonic;
use crate::logs;
use crate::serve::channel::Inbox;
use crate::serve::turns::{Turns, take_turns};
use crate::setup::{CARD_NICENESS, child_start, go_first, send_message};

/// Forwards until the supervisor is gone.
pub(crate) fn execute() -> Result<ExitCode> {
    let (setup, files, socket) = child_start::<ForwarderSetup>(c"nicache-forward")?;
    logs::start(setup.log_format);
    go_first(CARD_NICENESS);
    let mut files = files.into_iter();
    let (Some(asked), Some(news), Some(keep)) = (files.next(), files.next(), files.next()) else {
        anyhow::bail!("the setup came without its files");
    };
    let mut plan =
        Plan::make(&setup.config, &setup.links, setup.secret).context("the configuration")?;
    plan.memory = setup.memory.unwrap_or(plan.memory);
    let keep = Keep::map(keep).context("the memory for connections")?;
    let fast = |index: &u32| setup.fast_links.contains(index);
    let interfaces = plan
        .interfaces
        .iter()
        .map(|named| Some(named.index).filter(fast).map(|index| (index, named.vlan)));
    let interfaces: Vec<Option<(u32, Option<u16>)>> = interfaces.collect();
    let mut router = Router::new(plan, Kernel::from_files([asked, news]), Some(keep), monotonic())?;
    if let (Some(handles), Some(take)) = (&setup.fast_path, files.next()) {
        let opened = Maps::open(handles, take, interfaces).map_err(anyhow::Error::from);
        let began = opened.and_then(|maps| Ok(router.set_fast_path(Box::new(maps), monotonic())?));
        if let Err(error) = began {
            tracing::warn!("no fast path: {error:#}");
        }
    }
    let mut inbox = Inbox::new(socket);
    send_message(inbox.socket(), &FromForwarder::Ready, &[])?;
    let ForwarderSetup { links, secret, .. } = setup;
    let random = fastrand::Rng::new();
    let mut process = Process { router, attachment: None, links, secret, random };
    take_turns(&mut process, &mut inbox)?;
    Ok(ExitCode::SUCCESS)
}

struct Process {
    router: Router,
    /// The number of the attachment.
    attachment: Option<u64>,
    /// What the configuration was checked with.
    links: Vec<Link>,
    secret: u64,
    random: fastrand::Rng,
}

impl Turns for Process {
    type Message = ToForwarder;

    fn turn(&mut self, now: Time, supervisor: BorrowedFd<'_>) -> Result<usize> {
        match self.router.turn(now, || self.random.u32(..)) {
            Ok(done) => Ok(done),
            Err(error) => self.tell_broken(error, supervisor).map(|()| 0),
        }
    }

    fn is_beside_card(&mut self) -> bool {
        self.router.is_beside_card()
    }

    fn sleep(&mut self, inbox: &Inbox) -> Result<()> {
        let now = monotonic();
        let may_sleep = match self.router.prepare_sleep(now) {
            Ok(may_sleep) => may_sleep,
            Err(error) => return self.tell_broken(error, inbox.socket()),
        };
        let timeout = self.router.next_due().map(|due| due.since(now));
        if !may_sleep || timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        self.router.presence().map(Presence::sleep);
        let files: Vec<BorrowedFd<'_>> =
            std::iter::once(inbox.socket()).chain(self.router.files()).collect();
        wait(&files, timeout)?;
        self.router.presence().map(Presence::wake);
        Ok(())
    }

    fn handle(
        &mut self,
        message: ToForwarder,
        files: Vec<OwnedFd>,
        supervisor: BorrowedFd<'_>,
    ) -> Result<()> {
        match message {
            ToForwarder::Attach { mode, attachment: number } => {
                let mut files = files.into_iter();
                let window = files.next().context("no window came with the attachment")?;
                let window = Arc::new(Window::map(window).context("the window")?);
                let files: [OwnedFd; 3] = files
                    .collect::<Vec<_>>()
                    .try_into()
                    .ok()
                    .context("an attachment has three files")?;
                let attachment =
                    Attachment::from_files(files).context("an attachment from the supervisor")?;
                let mode = mode.parse().map_err(anyhow::Error::msg)?;
                self.router.attach(attachment.host(), window, mode);
                self.attachment = number;
            }
            ToForwarder::Detach => self.router.detach(),
            ToForwarder::Health { service, back_end, is_up, reason } => {
                let chosen = nicache_router::Chosen { service, back_end };
                self.router.set_health(chosen, is_up, reason);
            }
            ToForwarder::Ask { id, question } => {
                let now = monotonic();
                let answer = match question {
                    Question::Report => Answer::Report(Box::new(self.router.report(now))),
                    Question::Why { asked } => Answer::Why(Box::new(self.router.why(asked, now))),
                    Question::Drain { address, within_ms } => {
                        let within = within_ms.map(Duration::from_millis);
                        Answer::Drained {
                            back_ends: self.router.drain(address, within, now) as u64,
                        }
                    }
                    Question::Rules { config } => {
                        Answer::Rules { taken: self.set_rules(&config, now) }
                    }
                };
                // A supervisor that does not read asks again.
                if let Err(error) =
                    send_message(supervisor.as_fd(), &FromForwarder::Answer { id, answer }, &[])
                {
                    tracing::warn!("an answer that was not sent: {error:#}");
                }
            }
        }
        Ok(())
    }
}

impl Process {
    fn tell_broken(&self, error: Broken, supervisor: BorrowedFd<'_>) -> Result<()> {
        tracing::error!("{error}; waiting for another attachment");
        send_message(supervisor, &FromForwarder::Broken { attachment: self.attachment }, &[])
    }

    fn set_rules(&mut self, config: &str, now: Time) -> Result<u64, String> {
        let plan =
            Plan::make(config, &self.links, self.secret).map_err(|error| error.to_string())?;
        let count = plan.config.rules.len() as u64;
        self.router.set_rules(plan.config.rules, now);
        Ok(count)
    }
}
