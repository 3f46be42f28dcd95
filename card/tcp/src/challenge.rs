//! How often challenge acknowledgments are sent (RFC 5961 section 7): without a limit, whoever
//! forges segments makes a host send packets.
//!
//! One limit is per connection, one for all together. A common limit that is known exactly tells an
//! attacker, who counts the answers on another connection, whether a guess hit another
//! (CVE-2016-5696); so it is drawn anew for every second.

use core::time::Duration;

use crate::time::Time;

/// Shortest time between two challenges of one connection (Linux' tcp_invalid_ratelimit).
pub const INTERVAL: Duration = Duration::from_millis(500);
/// Challenges of all connections in a second, on average.
pub const PER_SECOND: u32 = 1_000;

/// When one connection was last sent a challenge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Challenged(Option<Time>);

/// How many challenges may be sent on all connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChallengeBudget {
    second: u64,
    left: u32,
    refused: u64,
}

impl ChallengeBudget {
    /// Whether a challenge may be sent at `now`. `random` is any number that peers cannot know.
    pub fn allows(&mut self, flow: &mut Challenged, now: Time, random: u32) -> bool {
        let second = now.0 / 1_000_000_000;
        if self.left == 0 && self.second == 0 || second != self.second {
            self.second = second;
            self.left = PER_SECOND / 2 + random % PER_SECOND;
        }
        let is_early = flow.0.is_some_and(|last| now.since(last) < INTERVAL);
        if is_early || self.left == 0 {
            self.refused += 1;
            return false;
        }
        self.left -= 1;
        flow.0 = Some(now);
        true
    }

    /// Challenges that were not sent.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_challenged_twice_a_second() {
        let (mut budget, mut flow) = (ChallengeBudget::default(), Challenged::default());
        let allowed = (0..1_000)
            .filter(|ms| budget.allows(&mut flow, Time::from_millis(5_000 + ms), 7))
            .count();
        assert_eq!((allowed, budget.refused()), (2, 998));
    }

    #[test]
    fn all_together_have_a_limit_that_nobody_knows() {
        // RFC 5961 section 7.
        let mut budget = ChallengeBudget::default();
        let mut seconds = Vec::new();
        for (second, random) in [(1, 10), (2, 900), (3, 4_321)] {
            let now = Time::from_millis(second * 1_000);
            seconds.push(
                (0..5_000)
                    .filter(|_| budget.allows(&mut Challenged::default(), now, random))
                    .count(),
            );
        }
        assert_eq!(seconds, [510, 1_400, 821]);
    }
}
