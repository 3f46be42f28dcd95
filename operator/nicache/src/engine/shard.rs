//! One card on one thread: polls while there is work, sleeps when there is none, and takes commands
//! in between.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::clock::{monotonic, unix_s};
use super::life::{SLEEP_MAX, Sign};
use super::precedence::Precedence;
use super::rechecker::Rechecker;
use super::strangers;
use anyhow::{Context, Result};
use nicache_card::Card;
use nicache_port::{CpuPressure, Idle, IdlePolicy, IdleStep, NAP, Port, ReceiveSteering, wait};
use rustix::event::{EventfdFlags, eventfd};

/// Work done on the card's thread between two polls.
pub(super) type Command<W, H> = Box<dyn FnOnce(&mut Card<W, H>) + Send>;

/// Wakes a shard that sleeps.
#[derive(Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes one.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes the shard, now or when it falls asleep.
    pub(crate) fn wake(&self) {
        // Fails only when the counter is full: then it is awake.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// The way to a running card.
pub(crate) struct Shard<W, H> {
    commands: Sender<Command<W, H>>,
    waker: Waker,
}

impl<W: Port + Send + 'static, H: Port + Send + 'static> Shard<W, H> {
    /// Starts the thread of `card`, which the kernel's work on its frames follows if there is
    /// `steering`, and which gives its `sign` of life if that is watched. When a port breaks,
    /// `failed` is called with the reason.
    pub(crate) fn start(
        number: usize,
        card: Card<W, H>,
        steering: Option<ReceiveSteering>,
        rechecker: Option<Rechecker>,
        sign: Option<Sign>,
        waker: Waker,
        failed: impl FnOnce(io::Error) + Send + 'static,
    ) -> Result<Self> {
        let (commands, inbox) = channel();
        let shard = Self { commands, waker: waker.clone() };
        let body = move || {
            if let Err(error) =
                run(card, steering, rechecker.as_ref(), sign.as_ref(), &inbox, &waker)
            {
                failed(error);
            }
        };
        std::thread::Builder::new().name(format!("card-{number}")).spawn(body)?;
        Ok(shard)
    }

    /// Runs `work` on the card's thread and waits for its result, at most
    /// [`ANSWER_TIMEOUT`](crate::control::ANSWER_TIMEOUT): for whoever has somebody waiting.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Card<W, H>) -> T + Send + 'static,
    ) -> Result<T> {
        let answer = self.begin(work)?;
        answer
            .recv_timeout(crate::control::ANSWER_TIMEOUT)
            .context("the card's thread does not answer")
    }

    /// Runs `work` on the card's thread and waits for its result, however long it takes: for what
    /// has to be done. An error says that the thread has ended.
    pub(crate) fn ask_patiently<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Card<W, H>) -> T + Send + 'static,
    ) -> Result<T> {
        self.begin(work)?.recv().context("the card's thread has ended")
    }

    fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Card<W, H>) -> T + Send + 'static,
    ) -> Result<Receiver<T>> {
        let (sender, answer) = channel();
        let command: Command<W, H> = Box::new(move |card| {
            let _ = sender.send(work(card));
        });
        self.commands.send(command).ok().context("the card's thread has ended")?;
        self.waker.wake();
        Ok(answer)
    }
}

/// How many polls pass between two looks at the commands under load.
const POLLS_PER_LOOK: u32 = 64;

fn run<W: Port, H: Port>(
    mut card: Card<W, H>,
    mut steering: Option<ReceiveSteering>,
    rechecker: Option<&Rechecker>,
    sign: Option<&Sign>,
    inbox: &Receiver<Command<W, H>>,
    waker: &Waker,
) -> io::Result<()> {
    let mut idle = Idle::new(IdlePolicy::default());
    let mut pressure = CpuPressure::of_machine();
    let mut polls = 0u32;
    let mut precedence = Precedence::new(rustix::process::getpriority_process(None)?);
    loop {
        let now = monotonic();
        let handled = card.poll(now, unix_s())?;
        polls = polls.wrapping_add(1);
        if let Some(sign) = sign {
            sign.give();
        }
        if let Some(niceness) = precedence.step(card.left_to_host())
            && let Err(error) = rustix::process::setpriority_process(None, niceness)
        {
            tracing::warn!(niceness, "the card keeps its place before the server: {error}");
            precedence.give_up();
        }
        if let Some(rechecker) = rechecker {
            while let Some(recheck) = card.poll_recheck() {
                if !rechecker.ask(recheck) {
                    card.count_recheck_dropped();
                }
            }
        }
        if handled > 0 {
            idle.handle_work(now.0, handled);
            if !polls.is_multiple_of(POLLS_PER_LOOK) {
                continue;
            }
        } else {
            idle.set_contended(pressure.is_contended(now.0));
            match idle.poll(now.0) {
                IdleStep::Again => {
                    std::hint::spin_loop();
                    continue;
                }
                IdleStep::Nap => {
                    wait(&[], Some(NAP))?;
                    continue;
                }
                IdleStep::Sleep => sleep(&card, waker, sign.map(|_| SLEEP_MAX))?,
            }
        }
        if let Some(error) = steering.as_mut().and_then(|steering| steering.follow(now.0).err()) {
            tracing::debug!("received frames are not steered to the card's CPU: {error}");
            steering = None;
        }
        strangers::tell(&mut card);
        waker.clear();
        while let Ok(command) = inbox.try_recv() {
            command(&mut card);
        }
    }
}

fn sleep<W: Port, H: Port>(
    card: &Card<W, H>,
    waker: &Waker,
    most: Option<Duration>,
) -> io::Result<()> {
    let due = card.next_due().map(|due| due.since(monotonic()));
    let timeout = due.into_iter().chain(most).min();
    if timeout == Some(Duration::ZERO) {
        return Ok(());
    }
    let fds = [card.wire().wait_fd(), card.host().wait_fd(), Some(waker.0.as_fd())];
    let mut ready = [waker.0.as_fd(); 3];
    let mut count = 0;
    for fd in fds.into_iter().flatten() {
        ready[count] = fd;
        count += 1;
    }
    wait(&ready[..count], timeout).map(|_| ())
}
