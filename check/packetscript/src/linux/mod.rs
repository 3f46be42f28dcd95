//! The kernel's TCP behind a TAP interface in a network namespace of its own, in real time.

mod namespace;
mod program;

use std::io::IoSlice;
use std::time::{Duration, Instant};

use nicache_port::{Burst, Offload, Port, TapQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backend::{Backend, BackendError};
use crate::script::{Script, ServerAction};
use program::Program;

/// How much too early the kernel's timers may be: they count jiffies.
const EARLY: Duration = Duration::from_millis(12);
/// How much too late a packet may be on a machine that does other things, too.
const LATE: Duration = Duration::from_millis(60);

/// The kernel's TCP behind a TAP interface in a network namespace of its own, in real time. The
/// namespace and all in it goes when this is dropped.
pub struct Linux {
    tap: TapQueue,
    program: Program,
    burst: Burst,
    arrived: std::collections::VecDeque<(Duration, Vec<u8>)>,
    start: Instant,
}

impl Linux {
    /// A server as the script wants it.
    ///
    /// # Errors
    /// Not permitted, or the machine lacks something.
    pub fn new(script: &Script) -> Result<Self, BackendError> {
        let (tap, listener) = namespace::create(&script.setup)?;
        let program = Program::start(listener, &script.setup)?;
        Ok(Self {
            tap,
            program,
            burst: Burst::new(64),
            arrived: std::collections::VecDeque::new(),
            start: Instant::now(),
        })
    }
}

impl Backend for Linux {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), BackendError> {
        self.tap.send(&[IoSlice::new(frame)], Offload::default()).map_err(|error| {
            BackendError::Unsupported(format!("the TAP does not take the frame: {error}"))
        })
    }

    fn receive(&mut self, until: Duration) -> Result<Option<(Duration, Vec<u8>)>, BackendError> {
        let broken = |error| BackendError::io("the TAP", error);
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                return Ok(Some(arrival));
            }
            let count = self.tap.receive(&mut self.burst).map_err(broken)?;
            let now = self.now();
            if count > 0 {
                self.arrived.extend(self.burst.iter().map(|frame| (now, frame.data().to_vec())));
                continue;
            }
            if now >= until {
                return Ok(None);
            }
            let left = until - now;
            let timeout =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.tap, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(BackendError::io("waiting for the TAP", errno)),
            }
        }
    }

    fn act(&mut self, action: ServerAction) -> Result<(), BackendError> {
        self.program.act(action)
    }

    fn tolerance(&self, time: Duration) -> (Duration, Duration) {
        // A level of the kernel's timer wheel has a grain of an eighth of its times.
        (EARLY, LATE + time / 8)
    }
}
