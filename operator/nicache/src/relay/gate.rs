//! A relay's gate: a connection passes before it reaches the target, and whoever must know that
//! nothing is under way closes it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Open at first, with nobody inside.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections that have passed and are still there.
    inside: usize,
    closed: bool,
}

impl Gate {
    /// Waits until the gate is open, and passes. The connection is inside until this is dropped.
    pub(super) fn pass(&self) -> Inside<'_> {
        let state = self.moved.wait_while(self.state(), |state| state.closed);
        state.unwrap_or_else(PoisonError::into_inner).inside += 1;
        Inside(self)
    }

    /// Closes the gate, and waits for so long until nobody is inside. It is open again when this is
    /// dropped, or if somebody stays.
    pub(crate) fn close_when_empty(&self, within: Duration) -> Option<Closed<'_>> {
        let mut state = self.state();
        state.closed = true;
        let closed = Closed(self);
        let waited = self.moved.wait_timeout_while(state, within, |state| state.inside > 0);
        let is_empty = waited.unwrap_or_else(PoisonError::into_inner).0.inside == 0;
        is_empty.then_some(closed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that has passed.
pub(super) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.moved.notify_all();
    }
}

/// Nobody passes.
pub(crate) struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state().closed = false;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn it_closes_when_nobody_is_inside() {
        let gate = Gate::default();
        let inside = gate.pass();
        assert!(gate.close_when_empty(Duration::from_millis(1)).is_none());
        // It is open again.
        drop(gate.pass());
        drop(inside);
        let (closed, passed) =
            (gate.close_when_empty(Duration::ZERO).unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _inside = gate.pass();
                passed.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!passed.load(Ordering::SeqCst));
            drop(closed);
        });
        assert!(passed.load(Ordering::SeqCst));
        assert!(gate.close_when_empty(Duration::ZERO).is_some());
    }
}
