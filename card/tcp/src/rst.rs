//! Whether to believe a RST or a SYN in a synchronised state (RFC 5961 sections 3 and 4).

use crate::seq::Seq;

/// What to do with the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Reset the connection.
    Accept,
    /// Send `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`, at a limited rate (section 7), and drop the
    /// segment.
    ChallengeAck,
    /// Drop the segment.
    Drop,
}

/// Judges a RST at `seq` (RFC 5961 section 3.2): it counts only if it sits exactly at `rcv_nxt`.
///
/// `window` is the receive window in bytes; with a window of zero only `rcv_nxt` itself is inside.
#[must_use]
pub fn judge(seq: Seq, rcv_nxt: Seq, window: u32) -> Verdict {
    if seq == rcv_nxt {
        Verdict::Accept
    } else if seq.within(rcv_nxt, window) {
        Verdict::ChallengeAck
    } else {
        Verdict::Drop
    }
}

/// Judges a SYN in a synchronised state (RFC 5961 section 4.2): whatever its number, it is
/// challenged; a peer that really restarted answers the challenge with an exact RST.
#[must_use]
pub fn judge_syn() -> Verdict {
    Verdict::ChallengeAck
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_number_resets() {
        // RFC 5961 section 3.2.
        let nxt = Seq(u32::MAX - 1);
        assert_eq!(judge(nxt, nxt, 1_000), Verdict::Accept);
        assert_eq!(judge(nxt + 1, nxt, 1_000), Verdict::ChallengeAck);
        assert_eq!(judge(nxt + 999, nxt, 1_000), Verdict::ChallengeAck);
        assert_eq!(judge(nxt + 1_000, nxt, 1_000), Verdict::Drop);
        assert_eq!(judge(nxt - 1, nxt, 1_000), Verdict::Drop);
        assert_eq!(judge(nxt, nxt, 0), Verdict::Accept);
        assert_eq!(judge(nxt + 1, nxt, 0), Verdict::Drop);
    }

    #[test]
    fn a_syn_is_challenged() {
        // RFC 5961 section 4.2.
        assert_eq!(judge_syn(), Verdict::ChallengeAck);
    }
}
