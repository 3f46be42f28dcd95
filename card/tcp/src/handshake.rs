//! Answering a SYN: what to agree on, and the wait for the third segment.

use core::time::Duration;

use crate::options::{SynOptions, Timestamps, WINDOW_SCALE_MAX};
use crate::rto::{Backoff, RTO_INITIAL};
use crate::sender::PeerLimits;
use crate::time::Time;

/// Segment size to assume of a peer that does not tell, over IPv4 (RFC 9293 section 3.7.1).
pub const MSS_DEFAULT_V4: u16 = 536;
/// Segment size to assume of a peer that does not tell, over IPv6 (RFC 9293 section 3.7.1).
pub const MSS_DEFAULT_V6: u16 = 1_220;
/// No peer gets smaller segments than this, whatever it asks for: a tiny size is an amplification
/// attack on the sender's CPU (Linux' TCP_MIN_SND_MSS).
pub const MSS_MIN: u16 = 48;
/// Bytes of the timestamps option with padding in every segment (RFC 7323 appendix A).
pub const TIMESTAMPS_BYTES: u16 = 12;

/// What we can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload we take and want to send, options not deducted: link MTU less 40 (IPv4) or
    /// 60 (IPv6).
    pub mss: u16,
    /// Shift of the windows that we announce; `None` to not offer scaling.
    pub window_scale: Option<u8>,
    /// We take and send SACK.
    pub sack: bool,
    /// We use timestamps.
    pub timestamps: bool,
    /// We use ECN.
    pub ecn: bool,
    /// The peer is reached over IPv6.
    pub v6: bool,
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Options of the SYN-ACK.
    pub options: SynOptions,
    /// What the sender needs to know of the peer.
    pub peer: PeerLimits,
    /// Shift of the windows that we send; zero without scaling.
    pub our_scale: u8,
}

/// Settles the options of a connection that a peer's SYN opens: each is used only if both sides
/// want it (RFC 7323 sections 2.2 and 3.2, RFC 2018 section 2). `tsval` is our clock.
#[must_use]
pub fn answer(syn: &SynOptions, limits: &Limits, tsval: u32) -> Agreement {
    let scales = syn.window_scale.zip(limits.window_scale);
    let timestamps = syn.timestamps.filter(|_| limits.timestamps);
    let sack = syn.sack_permitted && limits.sack;
    let ecn = syn.ecn && limits.ecn;
    Agreement {
        options: SynOptions {
            mss: Some(limits.mss),
            window_scale: scales.map(|(_, ours)| ours.min(WINDOW_SCALE_MAX)),
            sack_permitted: sack,
            timestamps: timestamps.map(|peer| Timestamps { val: tsval, ecr: peer.val }),
            ecn,
        },
        peer: PeerLimits {
            mss: segment_size(syn, limits, timestamps.is_some()),
            window_scale: scales.map_or(0, |(theirs, _)| theirs.min(WINDOW_SCALE_MAX)),
            sack,
            timestamps: timestamps.is_some(),
            ecn,
        },
        our_scale: scales.map_or(0, |(_, ours)| ours.min(WINDOW_SCALE_MAX)),
    }
}

/// What was agreed on by the SYN of a peer and the SYN-ACK of a host that this card watched
/// (pass-through handshake): the limits for sending to that peer in the host's place.
#[must_use]
pub fn observed(syn: &SynOptions, syn_ack: &SynOptions, limits: &Limits) -> Agreement {
    let host = Limits {
        mss: limits.mss.min(syn_ack.mss.unwrap_or(limits.mss)),
        window_scale: syn_ack.window_scale,
        sack: syn_ack.sack_permitted,
        timestamps: syn_ack.timestamps.is_some(),
        ecn: syn_ack.ecn,
        v6: limits.v6,
    };
    Agreement { options: *syn_ack, ..answer(syn, &host, 0) }
}

/// RFC 9293 section 3.7.1 (MUST-15, MUST-16) and RFC 6691: the smaller of both sides' sizes, less
/// what the options of every segment take.
fn segment_size(syn: &SynOptions, limits: &Limits, timestamps: bool) -> u16 {
    let default = if limits.v6 { MSS_DEFAULT_V6 } else { MSS_DEFAULT_V4 };
    let size = syn.mss.unwrap_or(default).min(limits.mss).max(MSS_MIN);
    size - if timestamps { TIMESTAMPS_BYTES } else { 0 }
}

/// What to do when the wait for the third segment is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynTimeout {
    /// Not yet.
    Nothing,
    /// Send the SYN-ACK again.
    Retransmit,
    /// Forget the connection.
    GaveUp,
}

/// The timer of SYN-RECEIVED: 1, 2, 4, ... s (RFC 6298 section 2, (5.5)), five repetitions as in
/// Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynReceived {
    backoff: Backoff,
    at: Time,
    sent: Time,
}

/// Repetitions of a SYN-ACK before the connection is forgotten.
pub const SYN_ACK_RETRIES: u8 = 5;
/// Repetitions that say nothing about the path: a round trip of more than a second looks the same
/// (RFC 6928 section 2).
pub const SYN_ACK_REPETITIONS_MAX: u8 = 1;

impl SynReceived {
    /// The first SYN-ACK was sent at `now`.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { backoff: Backoff::default(), at: now + RTO_INITIAL, sent: now }
    }

    /// When [`SynReceived::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        self.at
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Time) -> SynTimeout {
        if now < self.at {
            return SynTimeout::Nothing;
        }
        if self.backoff.count() >= SYN_ACK_RETRIES {
            return SynTimeout::GaveUp;
        }
        self.backoff.increase();
        self.at = now + self.backoff.apply(RTO_INITIAL, Duration::from_secs(60));
        SynTimeout::Retransmit
    }

    /// The round-trip time, if the third segment arrives at `now` and the SYN-ACK was sent once
    /// (RFC 6298 section 3).
    #[must_use]
    pub fn rtt(&self, now: Time) -> Option<Duration> {
        (self.backoff.count() == 0).then(|| now.since(self.sent))
    }

    /// The SYN-ACK had to be repeated so often that something was lost: the sender starts with a
    /// window of one segment
    /// ([`Sender::handle_lost_handshake`](crate::Sender::handle_lost_handshake)).
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.backoff.count() > SYN_ACK_REPETITIONS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        mss: 1_460,
        window_scale: Some(7),
        sack: true,
        timestamps: true,
        ecn: true,
        v6: false,
    };

    #[test]
    fn a_linux_syn() {
        let syn = SynOptions {
            mss: Some(1_460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamps: Some(Timestamps { val: 77, ecr: 0 }),
            ecn: false,
        };
        let a = answer(&syn, &LIMITS, 5);
        assert_eq!(a.options.timestamps, Some(Timestamps { val: 5, ecr: 77 }));
        assert_eq!(a.options.window_scale, Some(7));
        assert_eq!(
            a.peer,
            PeerLimits { mss: 1_448, window_scale: 10, sack: true, timestamps: true, ecn: false }
        );
        assert_eq!(a.our_scale, 7);
        let o = observed(&syn, &SynOptions { mss: Some(1_400), ..a.options }, &LIMITS);
        assert_eq!(o.peer, PeerLimits { mss: 1_388, ..a.peer });
        let o = observed(&syn, &SynOptions { mss: Some(1_460), ..SynOptions::default() }, &LIMITS);
        assert_eq!(
            o.peer,
            PeerLimits { mss: 1_460, window_scale: 0, sack: false, timestamps: false, ecn: false }
        );
    }

    #[test]
    fn nothing_is_used_that_was_not_offered() {
        // RFC 7323 sections 2.2 and 3.2, RFC 2018 section 2, RFC 9293 section 3.7.1.
        let a = answer(&SynOptions::default(), &LIMITS, 5);
        assert_eq!(a.options, SynOptions { mss: Some(1_460), ..SynOptions::default() });
        assert_eq!(
            a.peer,
            PeerLimits { mss: 536, window_scale: 0, sack: false, timestamps: false, ecn: false }
        );
        assert_eq!(a.our_scale, 0);
        assert_eq!(
            answer(&SynOptions::default(), &Limits { v6: true, ..LIMITS }, 0).peer.mss,
            1_220
        );
    }

    #[test]
    fn ecn_needs_both_sides() {
        // RFC 3168 section 6.1.1.
        let syn = SynOptions { ecn: true, ..SynOptions::default() };
        let a = answer(&syn, &LIMITS, 0);
        assert!(a.options.ecn && a.peer.ecn);
        let a = answer(&syn, &Limits { ecn: false, ..LIMITS }, 0);
        assert!(!a.options.ecn && !a.peer.ecn);
        assert!(!observed(&syn, &SynOptions::default(), &LIMITS).peer.ecn);
    }

    #[test]
    fn a_tiny_segment_size_is_not_obeyed() {
        let syn = SynOptions { mss: Some(0), ..SynOptions::default() };
        assert_eq!(answer(&syn, &LIMITS, 0).peer.mss, MSS_MIN);
    }

    #[test]
    fn the_syn_ack_timer_backs_off() {
        // RFC 6298 (2.1), (5.5).
        let mut timer = SynReceived::new(Time::ZERO);
        let mut at = Vec::new();
        loop {
            let now = timer.next_timeout();
            assert_eq!(timer.handle_timeout(now - Duration::from_nanos(1)), SynTimeout::Nothing);
            match timer.handle_timeout(now) {
                SynTimeout::Retransmit => at.push(now.as_millis() / 1_000),
                _ => break,
            }
        }
        assert_eq!(at, [1, 3, 7, 15, 31]);
        assert_eq!(timer.rtt(Time::ZERO), None);
        assert!(timer.is_lossy());
        let timer = SynReceived::new(Time::ZERO);
        assert_eq!(timer.rtt(Time::from_millis(30)), Some(Duration::from_millis(30)));
    }
}
