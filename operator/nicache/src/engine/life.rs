//! Shows the kernel that all threads of the card work, so frames come to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use nicache_xdp::{HEARTBEAT_INTERVAL, Heartbeat, LEASE};

use super::clock::monotonic;

/// Longest sleep of a thread whose life is watched.
pub(super) const SLEEP_MAX: Duration = HEARTBEAT_INTERVAL;
/// Looks between two beats: a thread has moved in each of them.
const LOOKS: u32 = 2;

/// Counts the rounds of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sign(Arc<AtomicU64>);

impl Sign {
    /// The thread has come round.
    #[inline]
    pub(crate) fn give(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn rounds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The heart.
pub(crate) struct Life {
    heartbeat: Arc<Heartbeat>,
    retired: Arc<AtomicBool>,
}

impl Life {
    /// Beats from now on, as long as all threads come round.
    pub(crate) fn start(heartbeat: Heartbeat, signs: Vec<Sign>) -> Result<Self> {
        let heartbeat = Arc::new(heartbeat);
        let beating = Arc::clone(&heartbeat);
        beating.beat(monotonic().0, LEASE);
        let retired = Arc::new(AtomicBool::new(false));
        let is_retired = Arc::clone(&retired);
        let body = move || {
            let mut seen: Vec<u64> = signs.iter().map(Sign::rounds).collect();
            let mut still = vec![0u32; signs.len()];
            while !is_retired.load(Ordering::Relaxed) {
                std::thread::sleep(HEARTBEAT_INTERVAL / LOOKS);
                for ((sign, seen), still) in signs.iter().zip(&mut seen).zip(&mut still) {
                    let rounds = sign.rounds();
                    *still = if rounds == *seen { *still + 1 } else { 0 };
                    *seen = rounds;
                }
                // One that sleeps comes round once in the time of some looks.
                if still.iter().all(|&looks| looks <= 2 * LOOKS) {
                    beating.beat(monotonic().0, LEASE);
                }
            }
        };
        std::thread::Builder::new().name("heart".into()).spawn(body)?;
        Ok(Self { heartbeat, retired })
    }

    /// Another card beats from now on.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// From the next frame on the card is passed by, unless another one beats.
    pub(crate) fn stop(&self) {
        if self.retired.swap(true, Ordering::Relaxed) {
            return;
        }
        self.heartbeat.stop();
    }
}
