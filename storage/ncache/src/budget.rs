//! Bounded memory: whatever holds payload holds a charge, and gives it back when the last reference
//! goes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};

/// Bytes that may be held at once.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    bytes_most: usize,
    waiting: usize,
}

/// Bytes of a budget. Dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, state: Mutex::default(), given_back: Condvar::new() })
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// The most that was ever held.
    pub(crate) fn bytes_most(&self) -> usize {
        self.lock().bytes_most
    }

    /// Requests that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Takes bytes if they are there. More than the whole budget never are.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let mut state = self.lock();
        if self.bytes_max - state.bytes < bytes {
            return None;
        }
        state.bytes += bytes;
        state.bytes_most = state.bytes_most.max(state.bytes);
        Some(Charge { budget: Arc::clone(self), bytes })
    }

    /// Waits until something is given back, or until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) {
        let mut state = self.lock();
        state.waiting += 1;
        let left = deadline.saturating_duration_since(Instant::now());
        // Woken for nothing is fine: the caller tries again.
        let (mut state, _) =
            self.given_back.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// A part of it, as a charge of its own.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: Arc::clone(&self.budget), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.bytes -= self.bytes;
        if state.waiting > 0 {
            self.budget.given_back.notify_all();
        }
    }
}

/// Memory with its charge.
struct Charged<B> {
    bytes: B,
    _charge: Charge,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Charged<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Bytes that give their charge back when the last reference to any part of them goes.
pub(crate) fn charged(bytes: Bytes, charge: Charge) -> Bytes {
    Bytes::from_owner(Charged { bytes, _charge: charge })
}

/// Bytes that were just filled, and give their charge back when the last reference to any part of
/// them goes.
pub(crate) fn charged_mut(bytes: BytesMut, charge: Charge) -> Bytes {
    Bytes::from_owner(Charged { bytes, _charge: charge })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_reference_gives_back() {
        let budget = Budget::new(10);
        let bytes = charged(Bytes::from_static(b"01234567"), budget.take(8).unwrap());
        assert!(budget.take(3).is_none() && budget.take(11).is_none());
        let part = bytes.slice(2..4);
        drop(bytes);
        assert_eq!(budget.bytes(), 8);
        drop(part);
        assert_eq!((budget.bytes(), budget.bytes_most()), (0, 8));
    }

    #[test]
    fn those_who_wait_are_woken() {
        let budget = Budget::new(10);
        let charge = budget.take(10).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                loop {
                    if let Some(charge) = budget.take(10) {
                        return charge.bytes;
                    }
                    budget.wait(Instant::now() + Duration::from_secs(60));
                }
            });
            while budget.waiting() == 0 {
                std::thread::yield_now();
            }
            drop(charge);
            assert_eq!(waiter.join().unwrap(), 10);
        });
    }
}
