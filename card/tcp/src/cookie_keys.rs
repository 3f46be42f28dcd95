//! The keys of SYN cookies, renewed from time to time (RFC 4987 section 3.6): whoever has found one
//! out, by guessing offline or otherwise, does not have the next one.
//!
//! Who draws them is the caller's business; here is which one a cookie is made and judged with. A
//! cookie of the key before is good for as long as it would have been.

use core::time::Duration;

use crate::isn::IsnKey;
use crate::options::{SynOptions, Timestamps};
use crate::seq::Seq;
use crate::syn_cookie::{self, Cookie};
use crate::time::Time;

/// How long a cookie may be good: two ticks.
pub const COOKIE_LIFE: Duration = Duration::from_secs(128);

/// The present key and the one before.
#[derive(Clone, Copy, Debug)]
pub struct CookieKeys {
    current: IsnKey,
    previous: Option<(IsnKey, Time)>,
}

impl CookieKeys {
    /// A first key.
    #[must_use]
    pub fn new(key: IsnKey) -> Self {
        Self { current: key, previous: None }
    }

    /// Cookies are made with `key` from now on.
    pub fn renew(&mut self, key: IsnKey, now: Time) {
        self.previous = Some((self.current, now + COOKIE_LIFE));
        self.current = key;
    }

    /// Makes the cookie for a SYN with the present key; see [`syn_cookie::make`].
    #[must_use]
    pub fn make(
        &self,
        tuple: &[u8],
        client: Seq,
        options: &SynOptions,
        tsval: u32,
        now: Time,
    ) -> Cookie {
        syn_cookie::make(&self.current, tuple, client, options, tsval, now)
    }

    /// Judges the segment that answers a SYN-ACK by the keys that count; see [`syn_cookie::open`].
    #[must_use]
    pub fn open(
        &self,
        tuple: &[u8],
        client: Seq,
        ack: Seq,
        timestamps: Option<Timestamps>,
        now: Time,
    ) -> Option<SynOptions> {
        let previous = self.previous.filter(|(_, until)| now < *until).map(|(key, _)| key);
        let mut keys = [Some(self.current), previous].into_iter().flatten();
        keys.find_map(|key| syn_cookie::open(&key, tuple, client, ack, timestamps, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_cookie_outlives_its_key_as_long_as_it_would_have_lived_anyway() {
        let mut keys = CookieKeys::new(IsnKey([1; 16]));
        // Ticks are of 64 s.
        let cookie = keys.make(b"tuple", Seq(5), &SynOptions::default(), 0, at(640));
        let opens = |keys: &CookieKeys, seconds| {
            keys.open(b"tuple", Seq(5), cookie.seq, None, at(seconds)).is_some()
        };
        keys.renew(IsnKey([2; 16]), at(650));
        assert!(opens(&keys, 650) && opens(&keys, 767));
        assert!(!opens(&keys, 768), "its ticks are over");
        let mut twice = keys;
        twice.renew(IsnKey([3; 16]), at(700));
        assert!(!opens(&twice, 700), "the key before the last is forgotten");
        assert!(keys.open(b"tuple", Seq(6), cookie.seq, None, at(650)).is_none());
        let new = keys.make(b"tuple", Seq(5), &SynOptions::default(), 0, at(651));
        assert_ne!(new.seq, cookie.seq);
        assert!(keys.open(b"tuple", Seq(5), new.seq, None, at(651)).is_some());
    }

    #[test]
    fn the_key_before_is_judged_with_for_two_ticks_only() {
        let mut keys = CookieKeys::new(IsnKey([1; 16]));
        keys.renew(IsnKey([2; 16]), at(0));
        // Made by somebody who knows the old key.
        let forged = syn_cookie::make(
            &IsnKey([1; 16]),
            b"tuple",
            Seq(5),
            &SynOptions::default(),
            0,
            at(127),
        );
        assert!(keys.open(b"tuple", Seq(5), forged.seq, None, at(127)).is_some());
        assert!(keys.open(b"tuple", Seq(5), forged.seq, None, at(128)).is_none());
    }
}
