//! The watcher as the supervisor has it: its process, and what is done until it watches.
//!
//! ```text
//!            its report
//!  Starting ────────────▶ Watching        Over (nobody watches, and nobody will)
//!     ▲  │ ends, or        │ ends
//!     │  ▼ cannot watch    │
//!    Waiting ◀─────────────┘
//! ```
//!
//! Nobody but a cache needs a watcher. So a server is not kept waiting for one for long, and none
//! is ended for want of one: requests pass, and cards are told when it watches. How long it may
//! take is not limited: what takes its programs a moment on most machines takes a minute on some.
//!
//! One that has watched takes what it knew of the cards' entries with it at its end. The next one
//! has a witness of its own, and cards begin anew with it. What the server's programs have read
//! before is not known to it: it vouches for files, and for dynamic pages only of programs that
//! have been started since. With `--watch preload` it could not even do that, because the library
//! in the server's programs goes on in the memory of the first one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::children::{Child, Role, describe, wait_readable};
use super::watch_link::{WatchLink, Watching};
use crate::inquiry::ToWatch;
use crate::setup::{WatchReport, WatchSetup, receive_message, send_message};
use crate::vitals::{LOOK_EVERY, Patience};

/// A server is started without a watcher that has taken so long although it works, or has stood
/// still for so long.
const WAIT: Duration = Duration::from_secs(20);
const STILL: Duration = Duration::from_secs(3);
/// Longest pause before a watcher is started again; the first is as long as [`PAUSE`].
const PAUSE_MAX: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(1);
/// Within this time cards have closed the files of a watcher that has ended.
const CLOSING: Duration = Duration::from_secs(30);
/// After a watcher that has watched for so long, the next one is started as the first one was.
const STEADY: Duration = Duration::from_secs(60);

/// The watcher as the supervisor has it: its process, and what is done until it watches.
#[derive(Debug)]
pub(super) struct WatchUnit {
    setup: WatchSetup,
    link: Arc<WatchLink>,
    state: State,
    /// Starts in a row that came to nothing, and what the last one said.
    failures: u32,
    failed: Option<String>,
    /// See [`WatchReport::lacks`].
    lacks: Vec<String>,
    /// Files of the last watcher's kernel witness; empty before there is one. They keep it alive
    /// even if the watcher is killed.
    witness: Arc<Vec<OwnedFd>>,
    /// The server was started before this witness was there.
    server_is_older: bool,
    server_is_started: bool,
}

impl Drop for WatchUnit {
    fn drop(&mut self) {
        // Whoever closes the last file of a program detaches it, which takes its time: let that be
        // the watcher, which nobody waits for.
        self.witness = Arc::default();
    }
}

#[derive(Debug)]
enum State {
    Starting { child: Child, since: Instant },
    Watching { child: Child, since: Instant },
    Waiting { until: Instant },
    Over,
}

impl WatchUnit {
    /// Starts a watcher, without waiting for it. The link tells who watches from now on.
    /// `server_is_started`: the server runs already.
    pub(super) fn start(
        setup: WatchSetup,
        link: Arc<WatchLink>,
        server_is_started: bool,
    ) -> Result<Self> {
        let child = spawn(&setup)?;
        let state = State::Starting { child, since: Instant::now() };
        let unit = Self {
            setup,
            link,
            state,
            failures: 0,
            failed: None,
            lacks: Vec::new(),
            witness: Arc::default(),
            server_is_older: false,
            server_is_started,
        };
        unit.publish();
        Ok(unit)
    }

    /// Nobody watches, and nobody will.
    pub(super) fn nobody(setup: WatchSetup, reason: String, link: Arc<WatchLink>) -> Self {
        tracing::warn!("nothing is cached, every request goes to the server: {reason}");
        let unit = Self {
            setup,
            link,
            state: State::Over,
            failures: 0,
            failed: Some(reason),
            lacks: Vec::new(),
            witness: Arc::default(),
            server_is_older: true,
            server_is_started: true,
        };
        unit.publish();
        unit
    }

    /// Waits until the watcher watches or has failed, as long as it is on its way and not for ever.
    pub(super) fn wait(&mut self) -> Result<()> {
        let State::Starting { child, since } = &self.state else { return Ok(()) };
        let mut patience = Patience::with(child.pid(), STILL).while_it_works();
        while !wait_readable(child.channel.as_fd(), LOOK_EVERY)? {
            if patience.is_over() || since.elapsed() > WAIT {
                tracing::warn!(
                    "the watcher is not ready after {} s: until it is, nothing is cached and every request goes to the server",
                    since.elapsed().as_secs()
                );
                return Ok(());
            }
        }
        self.handle(Instant::now())
    }

    /// The server is about to be started: whoever begins to watch later has not seen what it read
    /// first.
    pub(super) fn note_server_start(&mut self) {
        self.server_is_started = true;
    }

    /// Files of the last watcher's kernel witness; none before there is one. In the order of
    /// [`WatchReport::files`].
    pub(super) fn witness(&self) -> &Arc<Vec<OwnedFd>> {
        &self.witness
    }

    /// Has the watcher serve a card, of whose socket this is the watcher's end. False: not yet, try
    /// again.
    pub(super) fn serve_card(&self, socket: BorrowedFd<'_>) -> bool {
        let message = ToWatch::ServeCard { server_is_older: self.server_is_older };
        matches!(self.state, State::Watching { .. }) && self.link.tell(&message, &[socket]).is_ok()
    }

    /// Readable when something has happened that [`handle`](WatchUnit::handle) is for.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Starting { child, .. } => Some(child.channel.as_fd()),
            State::Watching { child, .. } => Some(child.as_fd()),
            State::Waiting { .. } | State::Over => None,
        }
    }

    /// When [`handle`](WatchUnit::handle) wants to be called at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Waiting { until } => Some(*until),
            _ => None,
        }
    }

    /// Looks after the watcher; does not wait for anything.
    pub(super) fn handle(&mut self, now: Instant) -> Result<()> {
        match &mut self.state {
            State::Starting { child, .. } => {
                if wait_readable(child.channel.as_fd(), Duration::ZERO)? {
                    self.hear(now);
                }
            }
            State::Watching { child, since } => {
                let Some(status) = child.try_wait()? else { return Ok(()) };
                if now.duration_since(*since) > STEADY {
                    self.failures = 0;
                }
                self.end(format!("the watcher {}", describe(status)), now);
            }
            State::Waiting { until } if now >= *until => match spawn(&self.setup) {
                Ok(child) => {
                    self.state = State::Starting { child, since: now };
                    self.publish();
                }
                Err(error) => self.fail(format!("{error:#}"), now),
            },
            State::Waiting { .. } | State::Over => {}
        }
        Ok(())
    }

    /// The first that a watcher says.
    fn hear(&mut self, now: Instant) {
        let State::Starting { child, since } = std::mem::replace(&mut self.state, State::Over)
        else {
            return;
        };
        match first_report(child, &self.link) {
            Ok((child, lacks, files)) => {
                let is_another = !self.witness.is_empty();
                retire(std::mem::replace(&mut self.witness, Arc::new(files)));
                self.lacks = lacks;
                self.server_is_older = self.server_is_started;
                self.failed = None;
                if is_another {
                    tracing::warn!(
                        "another watcher watches: files are cached again, and dynamic pages once the server's programs have been started again, \
                         because what they have read before is not known"
                    );
                } else if self.server_is_started && self.setup.preload.is_some() {
                    tracing::warn!(
                        "the watcher is ready after {} s, too late for a server that was started without --watch preload's library's memory: \
                         nothing is cached until nicache is started again",
                        since.elapsed().as_secs()
                    );
                } else if self.server_is_started {
                    tracing::warn!(
                        "the watcher is ready after {} s: files are cached from now on, and dynamic pages once the server's programs have been \
                         started again, because what they have read before is not known",
                        since.elapsed().as_secs()
                    );
                }
                self.state = State::Watching { child, since: Instant::now() };
                self.publish();
            }
            Err(error) => self.fail(format!("{error:#}"), now),
        }
    }

    /// One that has watched has ended.
    fn end(&mut self, what: String, now: Instant) {
        if self.setup.preload.is_some() {
            tracing::error!(
                "{what}: nothing is cached any longer, every request goes to the server, until nicache is started again"
            );
            self.state = State::Over;
        } else {
            let pause = self.pause();
            tracing::error!(
                "{what}: nothing is cached, every request goes to the server, until another one watches; it is started in {} s",
                pause.as_secs()
            );
            self.state = State::Waiting { until: now + pause };
        }
        self.failed = Some(what);
        self.publish();
    }

    /// Until the next start.
    fn pause(&mut self) -> Duration {
        let pause = PAUSE.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures += 1;
        pause
    }

    fn fail(&mut self, reason: String, now: Instant) {
        let pause = self.pause();
        if self.failed.as_ref() == Some(&reason) {
            tracing::info!(
                "the watcher could not be started for the same reason; the next try is in {} s",
                pause.as_secs()
            );
        } else {
            tracing::warn!(
                "nothing is cached, every request goes to the server: {reason} (the next try is in {} s)",
                pause.as_secs()
            );
        }
        self.failed = Some(reason);
        self.state = State::Waiting { until: now + pause };
        self.publish();
    }

    /// What `status` and others say of it.
    pub(super) fn watching(&self) -> Watching {
        self.link.watching()
    }

    fn publish(&self) {
        let starting = || "not watched yet: the watcher is being started".to_owned();
        let (pid, unavailable) = match &self.state {
            State::Watching { child, .. } => (child.pid(), None),
            State::Starting { child, .. } => {
                (child.pid(), Some(self.failed.clone().unwrap_or_else(starting)))
            }
            State::Waiting { .. } | State::Over => {
                (0, Some(self.failed.clone().unwrap_or_else(starting)))
            }
        };
        self.link.set_watching(Watching { pid, unavailable, lacks: self.lacks.clone() });
    }
}

/// Closes the files of a witness that is no longer used, once cards have closed theirs: whoever
/// closes the last file of a program waits until the kernel has detached it, and there are dozens.
fn retire(witness: Arc<Vec<OwnedFd>>) {
    if witness.is_empty() {
        return;
    }
    let close = move || {
        std::thread::sleep(CLOSING);
        drop(witness);
    };
    // Without a thread they are closed here, which only takes longer.
    let _ = std::thread::Builder::new().name("closing".into()).spawn(close);
}

fn spawn(setup: &WatchSetup) -> Result<Child> {
    let child = Child::start(Role::Watch)?;
    send_message(&child.channel, setup, &[])?;
    Ok(child)
}

/// The report of a watcher that has said something, or has ended. An error says why it does not
/// watch; then its process is gone.
fn first_report(mut child: Child, link: &WatchLink) -> Result<(Child, Vec<String>, Vec<OwnedFd>)> {
    let Some((report, files)) = receive_message::<WatchReport>(&child.channel)? else {
        // Its socket is closed a moment before it has ended.
        let status = child.wait(Duration::from_secs(1))?;
        bail!(
            "the watcher {} at its start",
            status.map_or_else(|| "closed its socket".into(), describe)
        );
    };
    if let Some(reason) = report.unavailable {
        bail!("{reason}");
    }
    if report.files != files.len() || files.is_empty() {
        bail!("the watcher announced {} files and sent {}", report.files, files.len());
    }
    link.connect(child.channel.try_clone()?);
    Ok((child, report.lacks, files))
}
