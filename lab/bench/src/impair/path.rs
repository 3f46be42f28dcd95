//! The path between client and server: a thread that carries frames between two TAP interfaces and
//! does to them what a condition says.
//!
//! The kernel hands over frames no longer than the interface's MTU (no segmentation offload), so
//! faults meet real packets.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_netns::Namespace;
use nicache_port::{
    Burst, FaultConfig, Faulty, MonotonicClock, Port, Tap, TapConfig, TapQueue, wait,
};

use super::condition::Condition;
use super::lane::lane_of;
use crate::wire::CLIENT_CPU;
use crate::wire::cpu::bind_to;

/// Name of the interface on both sides.
pub(super) const INTERFACE: &str = "path";
/// Frames carried at a time.
const BURST_FRAMES: usize = 64;
/// How long the thread sleeps at most, so it hears of new conditions.
const SLEEP_MAX: Duration = Duration::from_millis(5);

/// A path between two namespaces; it ends when it is dropped.
#[derive(Debug)]
pub(super) struct Path {
    conditions: Option<Sender<FaultConfig>>,
    thread: Option<JoinHandle<()>>,
}

impl Path {
    /// Makes the interface [`INTERFACE`] in both namespaces, up and without addresses, and carries
    /// frames between them.
    ///
    /// # Errors
    /// The interfaces cannot be made.
    pub(super) fn open(client: &Namespace, server: &Namespace) -> Result<Self> {
        let [left, right] = [client, server].map(|side| {
            let config = TapConfig { tso: false, uso: false, ..TapConfig::default() };
            side.run(move || Tap::open_with(INTERFACE, 1, &config))
        });
        let left = left?.pop().context("no queue")?;
        let right = right?.pop().context("no queue")?;
        for side in [client, server] {
            // Windows are longer than the usual queue of 1000 frames.
            side.command(&format!("ip link set {INTERFACE} txqueuelen 20000"))?;
            side.command(&format!("ip link set {INTERFACE} up"))?;
        }
        let (conditions, orders) = channel();
        let body = move || {
            // Anywhere, it would wait for the server's CPU now and then.
            let _ = bind_to(CLIENT_CPU);
            carry(left, right, &orders);
        };
        let thread = std::thread::Builder::new().name("path".into()).spawn(body)?;
        Ok(Self { conditions: Some(conditions), thread: Some(thread) })
    }

    /// From now on the path does that; what is under way is lost.
    pub(super) fn set(&self, faults: FaultConfig) {
        if let Some(conditions) = &self.conditions {
            let _ = conditions.send(faults);
            // The thread has heard of it before the next packet that matters.
            std::thread::sleep(SLEEP_MAX * 2);
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.conditions = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(mut left: TapQueue, mut right: TapQueue, orders: &Receiver<FaultConfig>) {
    let mut burst = Burst::new(BURST_FRAMES);
    let mut client_end =
        Faulty::with_lanes(&mut left, &Condition::perfect(), MonotonicClock, lane_of);
    loop {
        match orders.try_recv() {
            // With new buffers, a gigabyte would be cleared each time.
            Ok(faults) => client_end.restart(&faults),
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        let mut carried = pass(&mut client_end, &mut right, &mut burst);
        carried += pass(&mut right, &mut client_end, &mut burst);
        if carried > 0 {
            continue;
        }
        let due = client_end
            .next_release_ns()
            .map(|due| Duration::from_nanos(due.saturating_sub(now_ns())));
        let timeout = due.unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
        let fds = [client_end.get_ref().wait_fd(), right.wait_fd()];
        if let [Some(a), Some(b)] = fds
            && wait(&[a, b], Some(timeout)).is_err()
        {
            return;
        }
    }
}

fn now_ns() -> u64 {
    nicache_port::Clock::now_ns(&mut MonotonicClock)
}

/// Frames of one direction; how many. An interface that is gone has none.
fn pass(from: &mut impl Port, to: &mut impl Port, burst: &mut Burst) -> usize {
    let count = from.receive(burst).unwrap_or(0);
    for frame in burst.iter() {
        // A queue that is full loses frames, as on any path.
        let _ = to.send(&[std::io::IoSlice::new(frame.data())], frame.offload());
    }
    let _ = to.flush();
    count
}
