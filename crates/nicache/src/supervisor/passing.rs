//! Plain connectivity while there is no card: frames pass between its two interfaces as they are.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_port::{Burst, Port, send_with_fallback, wait};
use rustix::event::{EventfdFlags, eventfd};

/// Frames taken at a time.
const BURST_FRAMES: usize = 16;
/// Longest sleep.
const PAUSE: Duration = Duration::from_millis(100);

/// Somebody passes frames: a thread here, or programs in the kernel. Dropping it ends the thread; afterwards nobody reads the ports.
#[derive(Debug)]
pub struct Passing {
    _thread: Option<PassingThread>,
}

#[derive(Debug)]
struct PassingThread {
    stop: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Passing {
    /// Programs in the kernel do, as they see no card.
    pub fn in_kernel() -> Passing {
        Passing { _thread: None }
    }

    /// Passes frames between the ports of each pair from now on.
    pub fn start<P: Port + Send + 'static>(pairs: Vec<(P, P)>) -> Result<Passing> {
        let stop = Arc::new(AtomicBool::new(false));
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (stopped, rung) = (Arc::clone(&stop), Arc::clone(&bell));
        let body = move || {
            if let Err(error) = pass(pairs, &stopped, &rung) {
                tracing::error!("frames do not pass while there is no card: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("passing".into()).spawn(body).context("cannot start a thread")?;
        Ok(Passing { _thread: Some(PassingThread { stop, bell, thread: Some(thread) }) })
    }
}

impl Drop for PassingThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pass<P: Port>(mut pairs: Vec<(P, P)>, stop: &AtomicBool, bell: &OwnedFd) -> io::Result<()> {
    let mut burst = Burst::new(BURST_FRAMES);
    while !stop.load(Ordering::Acquire) {
        let mut passed = 0;
        for (one, other) in &mut pairs {
            passed += pass_burst(one, other, &mut burst)?;
            passed += pass_burst(other, one, &mut burst)?;
        }
        if passed == 0 {
            let ports = pairs.iter().flat_map(|(one, other)| [one.wait_fd(), other.wait_fd()]).flatten();
            let files: Vec<_> = ports.chain([bell.as_fd()]).collect();
            wait(&files, Some(PAUSE))?;
        }
    }
    Ok(())
}

/// What a port does not take is lost, as on a wire.
fn pass_burst<P: Port>(from: &mut P, to: &mut P, burst: &mut Burst) -> io::Result<usize> {
    let received = from.receive(burst)?;
    for frame in burst.iter() {
        let _ = send_with_fallback(to, &[IoSlice::new(frame.data())], frame.offload());
    }
    to.flush()?;
    Ok(received)
}

#[cfg(test)]
mod tests {
    use nicache_port::{Capabilities, Offload, memory_wire};

    use super::*;

    #[test]
    fn frames_pass_both_ways_until_it_ends() {
        let (wire, mut client) = memory_wire(16, Capabilities::FULL, Capabilities::FULL);
        let (host, mut server) = memory_wire(16, Capabilities::FULL, Capabilities::FULL);
        let passing = Passing::start(vec![(wire, host)]).unwrap();
        let frame = [7; 60];
        let mut burst = Burst::new(4);
        for _ in 0..3 {
            client.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
            while server.receive(&mut burst).unwrap() == 0 {}
            assert_eq!(burst.frames()[0].data(), frame);
            server.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
            while client.receive(&mut burst).unwrap() == 0 {}
            assert_eq!(burst.frames()[0].data(), frame);
        }
        drop(passing);
        assert!(
            client.send(&[IoSlice::new(&frame)], Offload::default()).is_err()
                || server.receive(&mut burst).is_err()
                || burst.is_empty()
        );
    }
}
