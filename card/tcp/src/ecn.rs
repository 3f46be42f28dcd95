//! Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them, the
//! receiver echoes the mark (ECE), the sender reduces its window once per round trip and says so
//! (CWR).
//!
//! Deliberately absent: accurate ECN (RFC 9768), ECN on control packets and retransmissions (RFC
//! 8311).

use crate::flags::Flags;
use crate::seq::Seq;

/// The ECN field of an IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codepoint {
    /// Not ECN-capable.
    #[default]
    NotCapable,
    /// ECT(1).
    Capable1,
    /// ECT(0): what we send.
    Capable0,
    /// Congestion was experienced.
    Congested,
}

impl Codepoint {
    /// The codepoint in the two lowest bits of the traffic class.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Congested,
        }
    }

    /// The two lowest bits of the traffic class.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotCapable => 0,
            Self::Capable1 => 1,
            Self::Capable0 => 2,
            Self::Congested => 3,
        }
    }
}

/// A SYN asks for ECN: it has ECE and CWR (RFC 3168 section 6.1.1).
#[must_use]
pub fn is_offered(syn: Flags) -> bool {
    syn.contains(Flags::ECE | Flags::CWR)
}

/// A SYN-ACK agrees to ECN: it has ECE, not CWR (RFC 3168 section 6.1.1).
#[must_use]
pub fn is_agreed(syn_ack: Flags) -> bool {
    syn_ack.contains(Flags::ECE) && !syn_ack.contains(Flags::CWR)
}

/// The side that sends data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnSender {
    agreed: bool,
    /// The next new segment has CWR.
    tell: bool,
    /// Marks are about the same congestion until this is acknowledged.
    until: Option<Seq>,
}

impl EcnSender {
    /// ECN was agreed on, or not.
    #[must_use]
    pub fn new(agreed: bool) -> Self {
        Self { agreed, tell: false, until: None }
    }

    /// An acknowledgment up to `una` has ECE; whether the window has to be reduced, once per window
    /// of data (RFC 3168 section 6.1.2). As long as the receiver cannot have seen CWR, it goes on
    /// echoing the same mark (section 6.1.3).
    pub fn handle_echo(&mut self, una: Seq, nxt: Seq) -> bool {
        if !self.agreed || self.tell || self.until.is_some_and(|until| una.lt(until)) {
            return false;
        }
        self.until = Some(nxt);
        self.tell = true;
        true
    }

    /// The window was reduced for another reason; that, too, is told (RFC 3168 section 6.1.2).
    pub fn handle_reduction(&mut self, nxt: Seq) {
        if self.agreed {
            self.until = Some(nxt);
            self.tell = true;
        }
    }

    /// Was ECN agreed on?
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        self.agreed
    }

    /// The next new segment tells of a reduction, and has to be the first of its frame: not every
    /// port cuts super-frames with CWR.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.agreed && self.tell
    }

    /// How a data segment that ends at `end` is to be sent: whether its packet is ECN-capable, and
    /// whether it has CWR. `new`: it was never sent before; others are not capable (RFC 3168
    /// section 6.1.5).
    pub fn mark(&mut self, new: bool, end: Seq) -> (Codepoint, bool) {
        if !self.agreed || !new {
            return (Codepoint::NotCapable, false);
        }
        let tells = core::mem::take(&mut self.tell);
        if tells {
            self.until = Some(end);
        }
        (Codepoint::Capable0, tells)
    }

    /// The stream goes on elsewhere, with everything acknowledged.
    pub fn move_to(&mut self) {
        self.until = None;
    }

    /// Everything up to `una` is acknowledged.
    pub fn advance(&mut self, una: Seq) {
        if self.until.is_some_and(|until| una.ge(until)) {
            self.until = None;
        }
    }
}

/// The side that receives data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnReceiver {
    agreed: bool,
    echo: bool,
}

impl EcnReceiver {
    /// ECN was agreed on, or not.
    #[must_use]
    pub fn new(agreed: bool) -> Self {
        Self { agreed, echo: false }
    }

    /// Was ECN agreed on?
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.agreed
    }

    /// A data segment has arrived. CWR ends the echo of earlier marks, a mark begins it (RFC 3168
    /// section 6.1.3).
    pub fn handle_data(&mut self, codepoint: Codepoint, flags: Flags) {
        if flags.contains(Flags::CWR) {
            self.echo = false;
        }
        if self.agreed && codepoint == Codepoint::Congested {
            self.echo = true;
        }
    }

    /// What every acknowledgment has to carry now: ECE or nothing.
    #[must_use]
    pub fn flags(&self) -> Flags {
        if self.echo { Flags::ECE } else { Flags::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation() {
        // RFC 3168 section 6.1.1; a peer that reflects both bits has no ECN.
        assert!(
            is_offered(Flags::SYN | Flags::ECE | Flags::CWR)
                && !is_offered(Flags::SYN | Flags::ECE)
        );
        assert!(is_agreed(Flags::SYN | Flags::ACK | Flags::ECE));
        assert!(!is_agreed(Flags::SYN | Flags::ACK | Flags::ECE | Flags::CWR));
        for bits in 0..4 {
            assert_eq!(Codepoint::from_bits(bits).bits(), bits);
        }
    }

    #[test]
    fn one_reduction_per_window() {
        // RFC 3168 section 6.1.2.
        let mut ecn = EcnSender::new(true);
        assert_eq!(ecn.mark(true, Seq(100)), (Codepoint::Capable0, false));
        assert!(ecn.handle_echo(Seq(10), Seq(100)) && !ecn.handle_echo(Seq(50), Seq(100)));
        assert_eq!(ecn.mark(false, Seq(60)), (Codepoint::NotCapable, false), "a retransmission");
        assert_eq!(ecn.mark(true, Seq(110)), (Codepoint::Capable0, true));
        assert_eq!(ecn.mark(true, Seq(120)), (Codepoint::Capable0, false));
        assert!(!ecn.handle_echo(Seq(100), Seq(120)), "the receiver has not seen CWR");
        assert!(ecn.handle_echo(Seq(110), Seq(200)), "it has: this is another mark");
        ecn.advance(Seq(200));
        assert!(
            !ecn.handle_echo(Seq(200), Seq(200)),
            "nothing new was sent, so CWR is still to come"
        );
        let mut off = EcnSender::new(false);
        assert!(
            !off.handle_echo(Seq(10), Seq(100))
                && off.mark(true, Seq(100)).0 == Codepoint::NotCapable
        );
    }

    #[test]
    fn marks_are_echoed_until_the_sender_says_that_it_has_heard() {
        // RFC 3168 section 6.1.3.
        let mut ecn = EcnReceiver::new(true);
        ecn.handle_data(Codepoint::Capable0, Flags::ACK);
        assert_eq!(ecn.flags(), Flags::default());
        ecn.handle_data(Codepoint::Congested, Flags::ACK);
        ecn.handle_data(Codepoint::Capable0, Flags::ACK);
        assert_eq!(ecn.flags(), Flags::ECE);
        ecn.handle_data(Codepoint::Congested, Flags::ACK | Flags::CWR);
        assert_eq!(ecn.flags(), Flags::ECE, "a mark on the same segment is news");
        ecn.handle_data(Codepoint::Capable0, Flags::ACK | Flags::CWR);
        assert_eq!(ecn.flags(), Flags::default());
    }
}
