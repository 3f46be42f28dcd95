//! Whether a card goes before the server's processes on a CPU that they share.
//!
//! It usually does, as the kernel's own network stack would: it needs little, and hits go on beside
//! a hundred busy processes. But what it passes on makes work for the server: each connection whose
//! handshake is the host's has to be accepted and closed there, also if the card has answered all
//! of it. A card that always goes first takes on connections faster than the server gets to accept
//! them, until the server's queue is full and SYNs are lost, each for a second. So while many wait,
//! it goes like anybody else.

use crate::setup::CARD_NICENESS;

/// Connections left to the server ([`nicache_card::Card::left_to_host`]) from which on the card no
/// longer goes first. Listening sockets have room for 128 at least, as a rule (Apache and nginx:
/// 511).
const BEHIND: usize = 64;
/// Connections left to the server up to which it goes first again.
const CAUGHT_UP: usize = 16;
/// Niceness of everybody.
const NICENESS_OF_OTHERS: i32 = 0;

/// Who goes first.
#[derive(Debug)]
pub(crate) struct Precedence {
    is_first: bool,
    /// It may go first again once it has not.
    can_return: bool,
}

impl Precedence {
    /// For a thread of this niceness, which stays as it is if it is not what was meant to be: then
    /// it was not allowed.
    pub(crate) fn new(niceness: i32) -> Self {
        Self { is_first: true, can_return: niceness == CARD_NICENESS }
    }

    /// The niceness to take on, if it is another, with so many connections left to the server.
    #[inline]
    pub(crate) fn step(&mut self, left_to_host: usize) -> Option<i32> {
        let is_first =
            if self.is_first { left_to_host < BEHIND } else { left_to_host <= CAUGHT_UP };
        if is_first == self.is_first || !self.can_return {
            return None;
        }
        self.is_first = is_first;
        Some(if is_first { CARD_NICENESS } else { NICENESS_OF_OTHERS })
    }

    /// The niceness could not be changed: it stays.
    pub(crate) fn give_up(&mut self) {
        self.can_return = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_the_server_behind_goes_first_again_once_it_has_caught_up() {
        let mut precedence = Precedence::new(CARD_NICENESS);
        let steps = [0, 63, 64, 500, 64, 17, 16, 17, 63, 64].map(|left| precedence.step(left));
        let expected =
            [None, None, Some(0), None, None, None, Some(CARD_NICENESS), None, None, Some(0)];
        assert_eq!(steps, expected);
    }

    #[test]
    fn who_may_not_change_it_keeps_its_niceness() {
        assert_eq!(Precedence::new(0).step(1000), None);
        let mut precedence = Precedence::new(CARD_NICENESS);
        precedence.give_up();
        assert_eq!(precedence.step(1000), None);
    }
}
