//! The mapping between the client-facing and the host-facing sequence space of one flow.
//!
//! *Out* is the stream toward the client, *in* the stream toward the host. Bytes of either stream
//! are owned by the host or by the card; every byte the card sends to the client itself, and every
//! byte of a request that the host never sees, moves the two spaces apart:
//!
//! ```text
//! out, client-facing:  |--- host ---|=== card: N bytes ===|--- host ---|
//! out, host space:     |--- host ---|--- host ---|             out_delta grows by N
//!
//! in, client space:    |- miss -|=== hit: M bytes ===|- miss -|
//! in, host-facing:     |- miss -|- miss -|                     in_delta shrinks by M
//! ```
//!
//! Only the newest deltas are kept: a switch happens when nothing of the host's is outstanding.
//! Late segments from before a switch are held in bounds by the floors given to
//! [`Splice::to_client`] and [`Splice::to_host`].
//!
//! Windows are mapped by their right edge, never by their size: the two sides may use different
//! scales, and part of a client's window may be taken by bytes of the card that are still under
//! way.

use crate::options::WINDOW_SCALE_MAX;
use crate::rewrite::{AckRewrite, Rewrite, SackRewrite};
use crate::seq::Seq;
use crate::wire::SegmentHead;

/// Deltas and scales of one flow; see the module head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Splice {
    /// Client-facing sequence number = the host's + this.
    pub out_delta: u32,
    /// Host-facing sequence number = the client's + this.
    pub in_delta: u32,
    /// Client-facing TSval = the host's + this.
    pub ts_delta: u32,
    /// Shift of the windows that the client sends.
    pub client_scale: u8,
    /// Shift of the windows that are sent to the client.
    pub card_scale: u8,
    /// Shift of the windows that the host sends.
    pub host_scale: u8,
    /// Shift that the host expects of the windows sent to it.
    pub host_peer_scale: u8,
}

/// A window as it stands in a header, rounded down so no byte is promised that was not
/// granted. Windows above the field's reach become its maximum.
#[must_use]
pub fn window_field(bytes: u32, scale: u8) -> u16 {
    (bytes >> scale.min(WINDOW_SCALE_MAX)).min(u32::from(u16::MAX)) as u16
}

impl Splice {
    /// Position in the stream toward the client, from the host's.
    #[must_use]
    pub fn out_to_client(&self, host: Seq) -> Seq {
        host + self.out_delta
    }

    /// Position in the stream toward the client, from the client's to the host's.
    #[must_use]
    pub fn out_to_host(&self, client: Seq) -> Seq {
        client - self.out_delta
    }

    /// Position in the stream toward the host, from the client's to the host's.
    #[must_use]
    pub fn in_to_host(&self, client: Seq) -> Seq {
        client + self.in_delta
    }

    /// Position in the stream toward the host, from the host's to the client's.
    #[must_use]
    pub fn in_to_client(&self, host: Seq) -> Seq {
        host - self.in_delta
    }

    /// The card took part: it sent `out_bytes` to the client by itself and kept `in_bytes` of
    /// requests from the host.
    pub fn advance(&mut self, out_bytes: u32, in_bytes: u32) {
        self.out_delta = self.out_delta.wrapping_add(out_bytes);
        self.in_delta = self.in_delta.wrapping_sub(in_bytes);
    }

    /// How a segment of the host has to be changed to go to the client.
    ///
    /// `client_acked` is the highest acknowledgment number that the client was ever sent, in its
    /// own space: the host's acknowledgment, which lags behind what the card accepted, is raised to
    /// it (RFC 9293 section 3.4: an acknowledgment never goes back).
    #[must_use]
    pub fn to_client(&self, head: &SegmentHead, client_acked: Seq) -> Rewrite {
        let mapped = self.in_to_client(head.ack);
        let ack = mapped.max(client_acked);
        let edge = mapped + head.window_bytes(self.host_scale);
        Rewrite {
            seq_delta: self.out_delta,
            ack: AckRewrite::Set(ack),
            window: field(head, edge.saturating_since(ack), self.card_scale),
            tsval_delta: self.ts_delta,
            tsecr_delta: 0,
            sack_delta: self.in_delta.wrapping_neg(),
            sack: SackRewrite::Keep,
        }
    }

    /// How a segment of the client has to be changed to go to the host.
    ///
    /// `host_base` is the position, in the host's space, of the first byte that it sent or will
    /// send since it owns the stream again; everything before is acknowledged. A client that still
    /// acknowledges bytes of the card is shown to the host as acknowledging exactly that, with a
    /// window of what remains beyond the card's bytes (possibly zero).
    #[must_use]
    pub fn to_host(&self, head: &SegmentHead, host_base: Seq) -> Rewrite {
        let mapped = self.out_to_host(head.ack);
        let ack = mapped.max(host_base);
        let edge = mapped + head.window_bytes(self.client_scale);
        // RFC 2018 section 3: blocks of bytes that the host never sent mean nothing to it.
        let foreign =
            head.sack.as_slice().iter().any(|(left, _)| self.out_to_host(*left).lt(host_base));
        Rewrite {
            seq_delta: self.in_delta,
            ack: AckRewrite::Set(ack),
            window: field(head, edge.saturating_since(ack), self.host_peer_scale),
            tsval_delta: 0,
            tsecr_delta: self.ts_delta.wrapping_neg(),
            sack_delta: self.out_delta.wrapping_neg(),
            sack: if foreign { SackRewrite::Strip } else { SackRewrite::Keep },
        }
    }

    /// The windows of both directions pass unchanged as long as no byte was added or held back and
    /// the scales agree; the caller may then skip the window rewrite.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.out_delta == 0
            && self.in_delta == 0
            && self.ts_delta == 0
            && self.client_scale == self.host_peer_scale
            && self.host_scale == self.card_scale
    }
}

/// The window field of a rewritten segment; left alone where there is no acknowledgment to count
/// from.
fn field(head: &SegmentHead, bytes: u32, scale: u8) -> Option<u16> {
    // RFC 7323 section 2.2: the window of a segment with SYN is never scaled.
    let scale = if head.flags.syn() { 0 } else { scale };
    head.flags.ack().then(|| window_field(bytes, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{SackBlocks, Timestamps};
    use crate::rewrite::rewrite;
    use crate::wire::{Flags, HeadRepr, parse};
    use proptest::prelude::*;

    fn head(repr: HeadRepr) -> (Vec<u8>, SegmentHead) {
        let mut bytes = vec![0; repr.len()];
        repr.emit(&mut bytes);
        let head = parse(&bytes).unwrap();
        (bytes, head)
    }

    fn splice() -> impl Strategy<Value = Splice> {
        (any::<[u32; 3]>(), [0u8..=14, 0u8..=14, 0u8..=14, 0u8..=14]).prop_map(|(d, s)| Splice {
            out_delta: d[0],
            in_delta: d[1],
            ts_delta: d[2],
            client_scale: s[0],
            card_scale: s[1],
            host_scale: s[2],
            host_peer_scale: s[3],
        })
    }

    proptest! {
        #[test]
        fn positions_round_trip(s in splice(), at: u32) {
            let at = Seq(at);
            prop_assert_eq!(s.out_to_host(s.out_to_client(at)), at);
            prop_assert_eq!(s.in_to_client(s.in_to_host(at)), at);
        }

        /// What the client says about a host's segment that it got means to the host what it
        /// should, across the wrap of all spaces.
        #[test]
        fn segments_round_trip(
            s in splice(),
            seq: u32,
            ack: u32,
            ts: (u32, u32),
            ahead in 0u32..1 << 20,
        ) {
            let repr = HeadRepr {
                seq: Seq(seq),
                ack: Seq(ack),
                flags: Flags::ACK,
                window: 513,
                timestamps: Some(Timestamps { val: ts.0, ecr: ts.1 }),
                ..HeadRepr::default()
            };
            let (mut bytes, from_host) = head(repr);
            rewrite(&mut bytes, &s.to_client(&from_host, s.in_to_client(from_host.ack)), false);
            let seen = parse(&bytes).unwrap();
            prop_assert_eq!(seen.seq, s.out_to_client(repr.seq));
            prop_assert_eq!(seen.ack, s.in_to_client(repr.ack));
            prop_assert_eq!(seen.timestamps.unwrap().ecr, ts.1);

            let mut sack = SackBlocks::EMPTY;
            sack.push(seen.seq + ahead, seen.seq + (ahead + 100));
            let reply = HeadRepr {
                seq: seen.ack,
                ack: seen.seq,
                flags: Flags::ACK,
                window: 77,
                timestamps: Some(Timestamps { val: 5, ecr: seen.timestamps.unwrap().val }),
                sack,
                ..HeadRepr::default()
            };
            let (mut bytes, from_client) = head(reply);
            rewrite(&mut bytes, &s.to_host(&from_client, repr.seq), false);
            let back = parse(&bytes).unwrap();
            prop_assert_eq!((back.seq, back.ack), (repr.ack, repr.seq));
            prop_assert_eq!(back.timestamps, Some(Timestamps { val: 5, ecr: ts.0 }));
            prop_assert_eq!(back.sack.as_slice(), [(repr.seq + ahead, repr.seq + (ahead + 100))]);
        }

        /// The right edge that a side sees is never beyond the granted one, and less than one unit
        /// of its scale short of it.
        #[test]
        fn windows_keep_their_right_edge(
            s in splice(),
            ack: u32,
            window: u16,
            ahead in 0u32..200_000,
        ) {
            let (_, from_client) =
                head(HeadRepr { ack: Seq(ack), flags: Flags::ACK, window, ..HeadRepr::default() });
            let base = s.out_to_host(Seq(ack) + ahead);
            let change = s.to_host(&from_client, base);
            prop_assert_eq!(change.ack, AckRewrite::Set(base));
            let granted = (u32::from(window) << s.client_scale).saturating_sub(ahead);
            let shown = u32::from(change.window.unwrap()) << s.host_peer_scale;
            prop_assert!(shown <= granted);
            prop_assert!(
                granted - shown < 1 << s.host_peer_scale || change.window == Some(u16::MAX)
            );
        }
    }

    #[test]
    fn a_client_that_still_acknowledges_card_bytes() {
        // Host bytes end at 1000; the card sent 500 of its own after them.
        let mut s = Splice::default();
        s.advance(500, 80);
        let (_, from_client) = head(HeadRepr {
            seq: Seq(2080),
            ack: Seq(1200),
            flags: Flags::ACK,
            window: 1000,
            ..HeadRepr::default()
        });
        let change = s.to_host(&from_client, Seq(1000));
        assert_eq!(change.ack, AckRewrite::Set(Seq(1000)));
        assert_eq!(
            change.window,
            Some(700),
            "2200 is the client's edge, 1500 where the host goes on"
        );
        assert_eq!(Seq(2080) + change.seq_delta, Seq(2000));
    }

    #[test]
    fn the_host_may_lag_behind_the_cards_acknowledgment() {
        let mut s = Splice::default();
        s.advance(0, 100);
        let (_, from_host) =
            head(HeadRepr { ack: Seq(50), flags: Flags::ACK, window: 1000, ..HeadRepr::default() });
        let change = s.to_client(&from_host, Seq(400));
        assert_eq!(change.ack, AckRewrite::Set(Seq(400)));
        assert_eq!(change.window, Some(750));
    }

    #[test]
    fn blocks_of_card_bytes_are_not_shown_to_the_host() {
        let mut s = Splice::default();
        s.advance(500, 0);
        let mut sack = SackBlocks::EMPTY;
        sack.push(Seq(1300), Seq(1400));
        let repr = HeadRepr { ack: Seq(1200), flags: Flags::ACK, sack, ..HeadRepr::default() };
        assert_eq!(s.to_host(&head(repr).1, Seq(1000)).sack, SackRewrite::Strip);
        let mut sack = SackBlocks::EMPTY;
        sack.push(Seq(1600), Seq(1700));
        let change = s.to_host(&head(HeadRepr { sack, ..repr }).1, Seq(1000));
        assert_eq!(change.sack, SackRewrite::Keep);
        assert_eq!(change.sack_delta, 500u32.wrapping_neg());
    }

    #[test]
    fn a_segment_without_acknowledgment_keeps_its_window() {
        let s = Splice { out_delta: 77, host_peer_scale: 3, ..Splice::default() };
        let repr = HeadRepr { flags: Flags::SYN, window: 64_240, ..HeadRepr::default() };
        assert_eq!(s.to_host(&head(repr).1, Seq(5)).window, None);
        let repr = HeadRepr { flags: Flags::SYN | Flags::ACK, ..repr };
        assert_eq!(s.to_client(&head(repr).1, Seq(0)).window, Some(64_240), "RFC 7323 section 2.2");
    }

    #[test]
    fn window_field_rounds_down_and_saturates() {
        assert_eq!(window_field(255, 7), 1);
        assert_eq!(window_field(127, 7), 0);
        assert_eq!(window_field(u32::MAX, 7), u16::MAX);
    }
}
