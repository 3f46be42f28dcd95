//! Whether the congestion window was used, so it does not grow beyond what was ever tried (RFC
//! 9438 section 5.8, RFC 7661).

use crate::seq::Seq;

/// The use of the window in the round under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    limited: bool,
    /// Most bytes outstanding in the round.
    most: u32,
    /// The round ends when this is acknowledged.
    round_end: Option<Seq>,
}

impl Usage {
    /// Nothing was used yet.
    #[must_use]
    pub fn new() -> Self {
        Self { limited: false, most: 0, round_end: None }
    }

    /// The sender has sent what it may: `limited` by the window, or else by the application or the
    /// peer.
    pub fn handle_polled(&mut self, limited: bool, outstanding: u32, una: Seq, nxt: Seq) {
        let is_over = self.round_end.is_none_or(|end| una.ge(end));
        if is_over || limited || (!self.limited && outstanding > self.most) {
            *self = Self { limited, most: outstanding, round_end: Some(nxt) };
        }
    }

    /// The window may grow: it was the limit, or in slow start at least half of it was used.
    #[must_use]
    pub fn may_grow(&self, window: u32, slow_start: bool) -> bool {
        self.limited || (slow_start && window < self.most.saturating_mul(2))
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_for_a_round_after_it_was_the_limit() {
        let mut usage = Usage::new();
        assert!(!usage.may_grow(10_000, true));
        usage.handle_polled(true, 10_000, Seq(0), Seq(10_000));
        usage.handle_polled(false, 9_000, Seq(1_000), Seq(10_000));
        assert!(usage.may_grow(10_000, false), "within the round");
        usage.handle_polled(false, 9_000, Seq(10_000), Seq(19_000));
        assert!(!usage.may_grow(10_000, false) && usage.may_grow(10_000, true));
        assert!(!usage.may_grow(18_000, true), "less than half was used");
    }
}
