//! Where the two sides run: whoever shares a processor with the other must not spin while that one
//! has something to do.
//!
//! ```text
//! bits  0..31  the processor, counted from 1; 0: not known
//! bit      32  asleep
//! ```
//!
//! Only a hint: a word that is out of date, or a lie, costs time and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::thread::sched_getcpu;

use crate::window::Window;

const ASLEEP: u64 = 1 << 32;

/// Where one side runs and where its peer does, to spin only if the two share no processor. The
/// [module](self) has the layout of the words.
#[derive(Debug)]
pub struct Presence {
    shared: Arc<Window>,
    own_at: usize,
    peer_at: usize,
}

/// Where the other side is, as far as it has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It runs, or wants to, on the processor of this side.
    Here,
    /// It sleeps, and will be woken on the processor of this side.
    HereAsleep,
    /// On another processor, or nobody knows.
    Elsewhere,
}

impl Presence {
    /// With a word for each side, at these bytes.
    pub(crate) fn new(shared: Arc<Window>, own_at: usize, peer_at: usize) -> Self {
        Self { shared, own_at, peer_at }
    }

    fn own() -> u64 {
        sched_getcpu() as u64 + 1
    }

    /// This side has nothing to do at this moment, but does not sleep. Returns where the other is.
    pub fn pause(&self) -> Peer {
        let own = Self::own();
        self.shared.word(self.own_at).store(own, Ordering::Relaxed);
        match self.shared.word(self.peer_at).load(Ordering::Relaxed) {
            peer if peer == own => Peer::Here,
            peer if peer == own | ASLEEP => Peer::HereAsleep,
            _ => Peer::Elsewhere,
        }
    }

    /// The other side has been rung for, and counts as awake from now on.
    pub fn rouse(&self) {
        let peer = self.shared.word(self.peer_at);
        peer.store(peer.load(Ordering::Relaxed) & !ASLEEP, Ordering::Relaxed);
    }

    /// This side goes to sleep.
    pub fn sleep(&self) {
        self.shared.word(self.own_at).store(Self::own() | ASLEEP, Ordering::Relaxed);
    }

    /// It is awake again.
    pub fn wake(&self) {
        self.shared.word(self.own_at).store(Self::own(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_see_each_other() {
        let shared = Arc::new(Window::create("presence", 4096).unwrap());
        let card = Presence::new(Arc::clone(&shared), 128, 192);
        let host = Presence::new(Arc::clone(&shared), 192, 128);
        assert_eq!(card.pause(), Peer::Elsewhere, "the host has told nothing yet");
        // The thread may move between any two of these.
        for _ in 0..1000 {
            host.wake();
            let awake = card.pause();
            host.sleep();
            let asleep = card.pause();
            card.rouse();
            if (awake, asleep, card.pause()) == (Peer::Here, Peer::HereAsleep, Peer::Here) {
                return;
            }
        }
        panic!("never on the same processor as itself");
    }

    #[test]
    fn any_word_is_understood() {
        let shared = Arc::new(Window::create("presence", 4096).unwrap());
        let card = Presence::new(Arc::clone(&shared), 128, 192);
        for word in [0, u64::MAX, ASLEEP, 1 << 33, 1 << 63] {
            shared.word(192).store(word, Ordering::Relaxed);
            assert_eq!(card.pause(), Peer::Elsewhere);
        }
    }
}
