//! Adaptive busy polling: look for frames again and again for a short while after the last one,
//! then sleep until the kernel has some.
//!
//! A wake-up across cores costs about 45 µs round trip, several times a request; spinning for 50 µs
//! saves it while requests keep coming, and an idle port must cost nothing. Where frames come
//! regularly but further apart than spinning can bridge, every spin would be in vain: the window
//! shrinks while sleeps are long, and is back at once when they are short (as in KVM's
//! `halt_poll_ns`, Linux `virt/kvm/kvm_main.c`). And nobody is to wait for a processor that only
//! spins: where programs do ([`CpuPressure`](crate::CpuPressure)), it naps for a moment without
//! listening, and only then sleeps. A sleep that ends with each frame would have a server on the
//! same processor interrupted for each of its replies; after a nap there are several. Where there
//! are not, as with a single connection, a nap only costs time, and the next ones are left out,
//! twice as many each time.
//!
//! [`Idle`] takes the time as an argument; only [`wait`] sleeps. The order of calls, over and over:
//!
//! ```text
//!  receive ─▶ got frames? ─▶ handle_work(now, frames)
//!          ─▶ none        ─▶ poll(now) ─▶ Again: receive
//!                                      ─▶ Nap:   wait(nothing, NAP), then receive
//!                                      ─▶ Sleep: wait(fds, timeout), then receive
//! ```

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Most file descriptors that [`wait`] takes.
pub const WAIT_FDS_MAX: usize = 16;

/// How long a nap is, beside the kernel's slack for timers (50 µs, unless a program asks for less).
pub const NAP: Duration = Duration::from_micros(20);

/// A nap was worth it if so many frames are there after it.
const NAP_FRAMES: usize = 2;
/// Most naps left out after one that was not.
const NAPS_LEFT_OUT_MAX: u32 = 127;

/// A sleep that ends later than this many spins after the last frame counts as long.
const LONG_SPINS: u64 = 4;

/// How long to spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Longest time to look for frames after the last one before sleeping. Default: 50 µs. 0: sleep
    /// at once (one connection is then as slow as through the kernel, 69 µs instead of 15). Danger:
    /// long spins take the core from others.
    pub spin: Duration,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { spin: Duration::from_micros(50) }
    }
}

/// What to do when there was no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleStep {
    /// Look again at once.
    Again,
    /// Look again after [`NAP`].
    Nap,
    /// Sleep; see [`wait`].
    Sleep,
}

/// The state of adaptive polling.
#[derive(Debug, Clone)]
pub struct Idle {
    spin_ns: u64,
    /// How long to spin now, at most `spin_ns`.
    window_ns: u64,
    /// When there was first nothing to do, since the last work.
    idle_since_ns: Option<u64>,
    slept: bool,
    nap: Nap,
    /// Naps to be left out, and how many they were at first.
    left_out: u32,
    left_out_last: u32,
    is_contended: bool,
}

/// The nap since the last work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nap {
    None,
    /// Taken or left out; what comes now does not tell about it.
    Over,
    /// Taken, and not known yet whether it was worth it.
    Taken,
}

impl Idle {
    /// Starts with the full window.
    pub fn new(policy: IdlePolicy) -> Self {
        let spin_ns = u64::try_from(policy.spin.as_nanos()).unwrap_or(u64::MAX);
        Self {
            spin_ns,
            window_ns: spin_ns,
            idle_since_ns: None,
            slept: false,
            nap: Nap::None,
            left_out: 0,
            left_out_last: 0,
            is_contended: false,
        }
    }

    /// There was work: so many frames.
    pub fn handle_work(&mut self, now_ns: u64, frames: usize) {
        if let Some(since_ns) = self.idle_since_ns.take()
            && self.slept
        {
            let gap_ns = now_ns.saturating_sub(since_ns);
            self.window_ns = if gap_ns > self.spin_ns.saturating_mul(LONG_SPINS) {
                self.window_ns / 2
            } else {
                self.spin_ns
            };
        }
        self.slept = false;
        if self.nap == Nap::Taken {
            self.judge_nap(frames);
        }
        self.nap = Nap::None;
    }

    fn judge_nap(&mut self, frames: usize) {
        self.left_out_last = if frames >= NAP_FRAMES {
            0
        } else {
            (2 * self.left_out_last + 1).min(NAPS_LEFT_OUT_MAX)
        };
        self.left_out = self.left_out_last;
    }

    /// Are there programs that wait for a processor? Then there is no spinning until it is said
    /// that there are none.
    pub fn set_contended(&mut self, is_contended: bool) {
        self.is_contended = is_contended;
    }

    /// There was none: spin on or sleep?
    pub fn poll(&mut self, now_ns: u64) -> IdleStep {
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        if self.is_contended && !self.slept {
            match self.nap {
                Nap::None if self.left_out == 0 => {
                    self.nap = Nap::Taken;
                    return IdleStep::Nap;
                }
                Nap::None => self.left_out -= 1,
                Nap::Taken => self.judge_nap(0),
                Nap::Over => {}
            }
            self.nap = Nap::Over;
        }
        // After a sleep without work (a timer, a signal) there is nothing to spin for.
        if self.slept || self.is_contended || now_ns.saturating_sub(since_ns) >= self.window_ns {
            self.slept = true;
            IdleStep::Sleep
        } else {
            IdleStep::Again
        }
    }

    /// How long it would spin now, in nanoseconds.
    pub fn window_ns(&self) -> u64 {
        self.window_ns
    }
}

/// Why [`wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A file descriptor is readable, or broken (the next receive tells).
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal came.
    Interrupted,
}

/// Sleeps until one of the file descriptors is readable, the time is over (`None`: no limit), or a
/// signal comes. Takes no processor time.
///
/// For a port whose [`wait_fd`](crate::Port::wait_fd) is `None`, only the timeout ends the sleep.
///
/// # Errors
/// `InvalidInput` for more than [`WAIT_FDS_MAX`] file descriptors, or for none without a timeout;
/// else what the kernel says.
pub fn wait(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Wake> {
    if fds.len() > WAIT_FDS_MAX || (fds.is_empty() && timeout.is_none()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // A time too long for the kernel (years) is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let ready = match fds {
        [] => poll(&mut [], timeout.as_ref()),
        [first, ..] => {
            let mut list: [PollFd<'_>; WAIT_FDS_MAX] = std::array::from_fn(|at| {
                PollFd::from_borrowed_fd(*fds.get(at).unwrap_or(first), PollFlags::IN)
            });
            poll(&mut list[..fds.len()], timeout.as_ref())
        }
    };
    match ready {
        Ok(0) => Ok(Wake::TimedOut),
        Ok(_) => Ok(Wake::Ready),
        Err(Errno::INTR) => Ok(Wake::Interrupted),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::os::fd::AsFd;
    use std::time::Instant;

    const SPIN_NS: u64 = 50_000;

    fn idle_default() -> Idle {
        Idle::new(IdlePolicy::default())
    }

    /// Work at 0, nothing until `gap_ns`, then work. Tells whether it slept.
    fn gap(idle: &mut Idle, start_ns: u64, gap_ns: u64) -> bool {
        idle.handle_work(start_ns, 1);
        let mut slept = false;
        for now_ns in (start_ns..start_ns + gap_ns).step_by(1000) {
            if idle.poll(now_ns) == IdleStep::Sleep {
                slept = true;
                break;
            }
        }
        idle.handle_work(start_ns + gap_ns, 1);
        slept
    }

    #[test]
    fn spins_for_the_window_then_sleeps() {
        let mut idle = idle_default();
        idle.handle_work(1000, 1);
        assert_eq!(idle.poll(2000), IdleStep::Again);
        assert_eq!(idle.poll(2000 + SPIN_NS - 1), IdleStep::Again);
        assert_eq!(idle.poll(2000 + SPIN_NS), IdleStep::Sleep);
        // Woken without work: sleep again at once.
        assert_eq!(idle.poll(2_000_000), IdleStep::Sleep);
        idle.handle_work(2_000_001, 1);
        assert_eq!(idle.poll(2_000_002), IdleStep::Again);
    }

    #[test]
    fn there_is_no_spinning_while_others_wait() {
        let mut idle = idle_default();
        idle.set_contended(true);
        idle.handle_work(1000, 1);
        assert_eq!(idle.poll(2000), IdleStep::Nap);
        assert_eq!(idle.poll(3000), IdleStep::Sleep);
        assert_eq!(idle.poll(3500), IdleStep::Sleep, "after a sleep without work");
        idle.handle_work(4000, 1);
        idle.set_contended(false);
        assert_eq!(idle.poll(5000), IdleStep::Again);
    }

    #[test]
    fn naps_go_on_while_they_gather_frames() {
        let mut idle = idle_default();
        idle.set_contended(true);
        let mut step = |frames: usize| {
            idle.handle_work(1000, frames);
            idle.poll(2000)
        };
        assert_eq!(step(1), IdleStep::Nap, "the first one is tried");
        assert_eq!(step(NAP_FRAMES), IdleStep::Nap);
        // Ever fewer are tried in vain.
        let mut tried = Vec::new();
        for number in 0..500 {
            if step(1) == IdleStep::Nap {
                tried.push(number);
            }
        }
        assert_eq!(tried[..4], [1, 5, 13, 29]);
        assert!(tried.len() < 12, "{tried:?}");
        while step(1) != IdleStep::Nap {}
        assert_eq!(step(100), IdleStep::Nap, "frames come together again");
        assert_eq!(step(100), IdleStep::Nap);
    }

    #[test]
    fn vain_spins_end_and_come_back() {
        let mut idle = idle_default();
        let mut now_ns = 0;
        for _ in 0..20 {
            assert!(gap(&mut idle, now_ns, 1_000_000));
            now_ns += 1_000_000;
        }
        assert_eq!(idle.window_ns(), 0);
        // The first short gap is slept through, the next is spun through.
        assert!(gap(&mut idle, now_ns, 40_000));
        assert_eq!(idle.window_ns(), SPIN_NS);
        assert!(!gap(&mut idle, now_ns + 40_000, 40_000));
    }

    #[test]
    fn a_window_of_zero_and_a_clock_that_jumps_back() {
        let mut idle = Idle::new(IdlePolicy { spin: Duration::ZERO });
        assert_eq!(idle.poll(5), IdleStep::Sleep);
        let mut idle = idle_default();
        assert_eq!(idle.poll(1_000_000), IdleStep::Again);
        assert_eq!(idle.poll(0), IdleStep::Again);
        idle.handle_work(0, 1);
        assert_eq!(Idle::new(IdlePolicy { spin: Duration::MAX }).poll(0), IdleStep::Again);
    }

    #[test]
    fn sleeping_takes_no_processor_time() {
        let (reader, writer) = pipe().unwrap();
        let cpu = || Duration::from_nanos(nicache_clock::thread_cpu_ns());
        let (start, start_cpu) = (Instant::now(), cpu());
        assert_eq!(
            wait(&[reader.as_fd()], Some(Duration::from_millis(100))).unwrap(),
            Wake::TimedOut
        );
        assert!(start.elapsed() >= Duration::from_millis(100));
        assert!(cpu() - start_cpu < Duration::from_millis(10));

        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(wait(&[reader.as_fd()], None).unwrap(), Wake::Ready);
        let (other, _other_writer) = pipe().unwrap();
        assert_eq!(wait(&[other.as_fd(), reader.as_fd()], None).unwrap(), Wake::Ready);
        assert_eq!(wait(&[other.as_fd()], Some(Duration::ZERO)).unwrap(), Wake::TimedOut);
        assert_eq!(wait(&[], Some(Duration::from_millis(1))).unwrap(), Wake::TimedOut);
        assert!(wait(&[], None).is_err());
        assert!(wait(&[other.as_fd(); WAIT_FDS_MAX + 1], None).is_err());
        drop(writer);
        assert_eq!(
            wait(&[reader.as_fd(), other.as_fd()], Some(Duration::MAX)).unwrap(),
            Wake::Ready
        );
    }
}
