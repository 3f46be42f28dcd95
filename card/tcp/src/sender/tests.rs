//! Unit tests of the sender; whole transfers are in `tests/sender_link.rs`.

use super::*;

const MSS: u32 = 1_000;
/// Without pacing, so what may be sent is seen at once.
const UNPACED: SenderConfig = SenderConfig {
    initial_window_segments: 10,
    rto_min: Duration::from_millis(200),
    rto_max: Duration::from_secs(60),
    expiries_max: 15,
    give_up: Duration::from_secs(120),
    restart_after_idle: true,
    tail_loss_probe: true,
    black_hole_detection: false,
    pacing_rtt_min: Duration::MAX,
};
const MS: Duration = Duration::from_millis(1);
const START: Seq = Seq(u32::MAX - 4_999);

fn sender_with(sack: bool, timestamps: bool, window: u32, cfg: SenderConfig) -> Sender {
    let peer = PeerLimits { mss: MSS as u16, window_scale: 0, sack, timestamps, ecn: false };
    let mut s = Sender::new(&cfg, START, peer, window, Time::from_millis(1_000));
    s.observe_rtt(100 * MS);
    s
}

fn sender(window: u32) -> Sender {
    sender_with(true, false, window, UNPACED)
}

fn at(ms: u64) -> Time {
    Time::from_millis(1_000 + ms)
}

fn ack(bytes: u32, window: u32) -> AckInfo {
    AckInfo { seq: Seq(1), ack: START + bytes, window, ..AckInfo::default() }
}

fn sacked(bytes: u32, blocks: &[(u32, u32)]) -> AckInfo {
    let mut info = ack(bytes, 100_000);
    for (l, r) in blocks {
        info.sack.push(START + *l, START + *r);
    }
    info
}

/// Everything that may be sent now, as (offset, length, kind).
fn drain(s: &mut Sender, now: Time, bytes_max: u32) -> Vec<(u32, u32, TransmitKind)> {
    core::iter::from_fn(|| s.poll_transmit(now, bytes_max))
        .map(|t| (t.seq.since(START), t.len, t.kind))
        .collect()
}

use TransmitKind::*;

#[test]
fn it_is_a_plain_value_of_two_kilobytes() {
    assert!(size_of::<Sender>() <= 2_048, "{}", size_of::<Sender>());
    assert!(!core::mem::needs_drop::<Sender>());
}

#[test]
fn a_lost_handshake_makes_the_first_flight_one_segment() {
    // RFC 5681 section 3.1.
    let peer =
        PeerLimits { mss: MSS as u16, window_scale: 0, sack: true, timestamps: false, ecn: false };
    let mut s = Sender::new(&UNPACED, START, peer, 1_000_000, at(0));
    s.handle_lost_handshake();
    s.enqueue(20 * MSS);
    assert_eq!(drain(&mut s, at(0), 64_000).len(), 1);
    s.handle_ack(&ack(MSS, 1_000_000), at(100));
    assert_eq!(s.cwnd(), 2 * MSS, "slow start goes on from there");
}

#[test]
fn the_initial_window() {
    // RFC 6928 section 2.
    let mut s = sender(100_000);
    s.enqueue(50_000);
    assert_eq!(drain(&mut s, at(0), 64_000), [(0, 10_000, New)]);
    let peer = PeerLimits { mss: 8_960, window_scale: 0, sack: true, timestamps: true, ecn: false };
    assert_eq!(Sender::new(&UNPACED, START, peer, 1, at(0)).cwnd(), 2 * 8_960);
}

#[test]
fn frames_are_whole_segments_but_for_the_end() {
    let mut s = sender(100_000);
    s.enqueue(4_500);
    s.enqueue_fin();
    assert_eq!(drain(&mut s, at(0), 2_500), [(0, 2_000, New), (2_000, 2_500, New)]);
    assert!(s.all_sent() && s.flight() == 4_501);
    let out = s.handle_ack(&ack(4_501, 100_000), at(100));
    assert_eq!(out, AckOutcome { newly_acked: 4_500, fin_acked: true, invalid: None });
    assert!(s.fin_acked() && s.next_timeout().is_none());
}

#[test]
fn acknowledgments_out_of_range() {
    // RFC 9293 section 3.10.7.4, RFC 5961 section 5.2.
    let mut s = sender(3_000);
    s.enqueue(3_000);
    drain(&mut s, at(0), 64_000);
    assert_eq!(s.handle_ack(&ack(3_001, 3_000), at(1)).invalid, Some(AckError::Unsent));
    s.handle_ack(&ack(2_000, 3_000), at(1));
    assert_eq!(s.handle_ack(&ack(1_000, 3_000), at(1)).invalid, None, "an old duplicate");
    let far = AckInfo { ack: START - 1_001, ..ack(0, 3_000) };
    assert_eq!(s.handle_ack(&far, at(1)).invalid, Some(AckError::TooOld));
    assert_eq!(s.una(), START + 2_000);
}

#[test]
fn limited_transmit_then_fast_retransmit() {
    // RFC 3042 section 2 and RFC 6675 section 5.
    let mut s = sender(100_000);
    s.enqueue(50_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&sacked(0, &[(1_000, 2_000)]), at(100));
    assert_eq!(drain(&mut s, at(100), 64_000), [(10_000, 1_000, New)]);
    s.handle_ack(&sacked(0, &[(1_000, 3_000)]), at(101));
    assert_eq!(drain(&mut s, at(101), 64_000), [(11_000, 1_000, New)]);
    assert_eq!(s.phase(), Phase::Open);
    s.handle_ack(&sacked(0, &[(1_000, 4_000)]), at(102));
    assert_eq!(s.phase(), Phase::Recovery);
    // RFC 9937 section 5: the first segment at once, beside the eight that are under way.
    assert_eq!((s.cwnd(), s.ssthresh()), (9_000, 7_000));
    assert_eq!(drain(&mut s, at(102), 64_000), [(0, 1_000, Retransmit)]);
    s.handle_ack(&ack(12_000, 100_000), at(200));
    assert!(s.phase() == Phase::Open && (7_000..8_000).contains(&s.cwnd()), "{}", s.cwnd());
}

#[test]
fn newreno_without_sack() {
    // RFC 6582 section 3.2: three duplicates, then one segment per partial acknowledgment.
    let mut s = sender_with(false, false, 100_000, UNPACED);
    s.enqueue(10_000);
    drain(&mut s, at(0), 64_000);
    for i in 0..3 {
        assert_eq!(drain(&mut s, at(100), 64_000), []);
        s.handle_ack(&ack(0, 100_000), at(100 + i));
    }
    assert_eq!(drain(&mut s, at(103), 64_000), [(0, 1_000, Retransmit)]);
    s.handle_ack(&ack(4_000, 100_000), at(200));
    assert_eq!(s.phase(), Phase::Recovery);
    assert_eq!(drain(&mut s, at(200), 64_000), [(4_000, 1_000, Retransmit)]);
    s.handle_ack(&ack(10_000, 100_000), at(300));
    assert_eq!(s.phase(), Phase::Open);
}

#[test]
fn what_is_no_duplicate_acknowledgment() {
    // RFC 5681 section 2: data, or a window that moved.
    let mut s = sender_with(false, false, 100_000, UNPACED);
    s.enqueue(10_000);
    drain(&mut s, at(0), 64_000);
    for i in 0..5 {
        s.handle_ack(&AckInfo { carries_data: true, ..ack(0, 100_000) }, at(100));
        s.handle_ack(&ack(0, 100_001 + i), at(100));
    }
    assert_eq!(s.phase(), Phase::Open);
}

#[test]
fn the_retransmission_timer() {
    // RFC 6298 (5.1) to (5.6): SRTT 100 ms, RTTVAR 50 ms.
    let cfg = SenderConfig { tail_loss_probe: false, ..UNPACED };
    let mut s = sender_with(true, false, 100_000, cfg);
    s.enqueue(10_000);
    assert_eq!(s.next_timeout(), Some(Time::ZERO), "waiting to be polled");
    drain(&mut s, at(0), 64_000);
    assert_eq!(s.next_timeout(), Some(at(300)));
    s.handle_ack(&ack(0, 100_000), at(10));
    assert_eq!(s.next_timeout(), Some(at(300)), "no progress, no restart");
    assert_eq!(s.handle_timeout(at(299)), TimeoutOutcome::Nothing);
    assert_eq!(s.handle_timeout(at(300)), TimeoutOutcome::Armed);
    // RFC 5681 section 3.1: one segment, from the first unacknowledged byte.
    assert_eq!((s.cwnd(), s.ssthresh()), (1_000, 7_000));
    assert_eq!(drain(&mut s, at(300), 64_000), [(0, 1_000, RtoProbe)]);
    assert_eq!(s.next_timeout(), Some(at(900)));
    // Slow start over what is deemed lost.
    s.handle_ack(&ack(1_000, 100_000), at(400));
    assert_eq!(drain(&mut s, at(400), 64_000), [(1_000, 2_000, Retransmit)]);
    s.handle_ack(&sacked(3_000, &[(5_000, 6_000)]), at(500));
    assert_eq!(
        drain(&mut s, at(500), 64_000),
        [(3_000, 2_000, Retransmit), (6_000, 3_000, Retransmit)]
    );
}

#[test]
fn a_dead_peer() {
    // RFC 9293 section 3.8.3.
    let mut s = sender(100_000);
    s.enqueue(1_000);
    drain(&mut s, at(0), 64_000);
    let mut expiries = 0;
    loop {
        let now = s.next_timeout().expect("the timer is never lost");
        match s.handle_timeout(now) {
            TimeoutOutcome::GaveUp => break,
            _ => expiries += drain(&mut s, now, 64_000).len(),
        }
        assert!(expiries < 20);
    }
    assert!(expiries >= 5);
}

#[test]
fn a_closed_window_is_probed_for_ever() {
    // RFC 9293 section 3.8.6.1, MUST-37.
    let mut s = sender(2_000);
    s.enqueue(5_000);
    assert_eq!(drain(&mut s, at(0), 64_000), [(0, 2_000, New)]);
    s.handle_ack(&ack(2_000, 0), at(100));
    assert_eq!(drain(&mut s, at(100), 64_000), []);
    let mut intervals = Vec::new();
    let mut now = at(100);
    for _ in 0..40 {
        let next = s.next_timeout().expect("window closed, data waiting");
        intervals.push((next - now).as_millis());
        now = next;
        assert_eq!(s.handle_timeout(now), TimeoutOutcome::Armed);
        assert_eq!(drain(&mut s, now, 64_000), [(2_000, 1, WindowProbe)]);
        assert_eq!(s.handle_ack(&ack(2_000, 0), now).invalid, None);
    }
    assert!(intervals.windows(2).all(|w| w[1] >= w[0]) && intervals[39] == 60_000, "{intervals:?}");
    assert_eq!(s.window_closed_since(), Some(at(100)));
    // The peer took the last probe's byte and opens.
    s.handle_ack(&ack(2_001, 2_000), now);
    assert_eq!(drain(&mut s, now, 64_000), [(2_001, 2_000, New)]);
    assert_eq!(s.window_closed_since(), None);
}

#[test]
fn unanswered_probes_end() {
    let mut s = sender(0);
    s.enqueue(10);
    assert_eq!(drain(&mut s, at(0), 64_000), []);
    for _ in 0..15 {
        let now = s.next_timeout().unwrap();
        assert_eq!(s.handle_timeout(now), TimeoutOutcome::Armed);
        assert_eq!(drain(&mut s, now, 64_000), [(0, 1, WindowProbe)]);
    }
    assert_eq!(s.handle_timeout(s.next_timeout().unwrap()), TimeoutOutcome::GaveUp);
}

#[test]
fn fin_waits_for_the_window_too() {
    let mut s = sender(1_000);
    s.enqueue(1_000);
    s.enqueue_fin();
    let t = s.poll_transmit(at(0), 64_000).unwrap();
    assert!(t.len == 1_000 && !t.fin);
    s.handle_ack(&ack(1_000, 0), at(100));
    assert_eq!(s.poll_transmit(at(100), 64_000), None);
    let now = s.next_timeout().unwrap();
    s.handle_timeout(now);
    let t = s.poll_transmit(now, 64_000).unwrap();
    assert!(t.len == 0 && t.fin && t.kind == WindowProbe);
    assert!(s.handle_ack(&ack(1_001, 0), now).fin_acked);
}

#[test]
fn a_window_taken_back() {
    // RFC 9293 section 3.8.6: a sender must be robust against shrinking (MUST-34, MUST-35).
    let mut s = sender(10_000);
    s.enqueue(20_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&ack(2_000, 0), at(100));
    assert_eq!(drain(&mut s, at(100), 64_000), []);
    let now = s.next_timeout().unwrap();
    s.handle_timeout(now);
    assert_eq!(drain(&mut s, now, 64_000), [(2_000, 1, WindowProbe)]);
    let cwnd = s.cwnd();
    s.handle_ack(&ack(2_000, 3_500), now);
    assert_eq!(s.cwnd(), cwnd, "no congestion");
    let sent = drain(&mut s, now, 64_000);
    assert_eq!(sent, [(2_000, 3_500, Retransmit)], "up to the new edge");
}

#[test]
fn silly_windows_are_avoided() {
    // RFC 9293 section 3.8.6.2.1.
    let mut s = sender(4_000);
    s.enqueue(50_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&ack(4_000, 300), at(100));
    assert_eq!(drain(&mut s, at(100), 64_000), [], "less than half of 4000");
    let now = s.next_timeout().expect("the override timeout");
    assert!(now > at(100));
    s.handle_timeout(now);
    assert_eq!(drain(&mut s, now, 64_000), [(4_000, 300, New)]);
    let mut small = sender(400);
    small.enqueue(50_000);
    assert_eq!(drain(&mut small, at(0), 64_000), [(0, 400, New)], "all that the peer ever offers");
}

#[test]
fn a_tail_loss_is_probed_for() {
    // RFC 8985 section 7: two round trips after the last transmission.
    let mut s = sender(100_000);
    s.enqueue(5_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&ack(2_000, 100_000), at(100));
    let now = s.next_timeout().unwrap();
    assert_eq!(now, at(302));
    s.handle_timeout(now);
    assert_eq!(drain(&mut s, now, 64_000), [(4_000, 1_000, TailProbe)]);
    // The probe arrived, what was before it did not.
    s.handle_ack(&sacked(2_000, &[(4_000, 5_000)]), at(405));
    assert_eq!(drain(&mut s, at(405), 64_000), [(2_000, 1_000, Retransmit)]);
    assert_eq!(s.board.lost(), 1_000);
}

#[test]
fn a_spurious_timeout_is_undone() {
    // RFC 3522, RFC 4015.
    let mut s = sender_with(true, true, 100_000, UNPACED);
    s.enqueue(50_000);
    drain(&mut s, at(0), 64_000);
    let cwnd = s.cwnd();
    let mut now = at(0);
    while s.phase() != Phase::Loss {
        now = s.next_timeout().unwrap();
        s.handle_timeout(now);
        drain(&mut s, now, 64_000);
    }
    assert_eq!(s.cwnd(), 1_000);
    s.handle_ack(&AckInfo { ts_ecr: Some(1_000), ..ack(5_000, 100_000) }, now + 5 * MS);
    assert_eq!(s.phase(), Phase::Open);
    assert!(s.cwnd() >= cwnd);
    assert!(drain(&mut s, now + 5 * MS, 64_000).iter().all(|(_, _, kind)| *kind == New));
}

#[test]
fn retransmissions_are_not_timed() {
    // RFC 6298 section 3 (Karn): and the back-off stays until something new is measured.
    let cfg = SenderConfig { tail_loss_probe: false, ..UNPACED };
    let mut s = sender_with(true, false, 100_000, cfg);
    s.enqueue(1_000);
    drain(&mut s, at(0), 64_000);
    s.handle_timeout(at(300));
    drain(&mut s, at(300), 64_000);
    s.handle_ack(&ack(1_000, 100_000), at(310));
    assert_eq!(s.rtt(), Some(100 * MS));
    assert_eq!(s.rto(), 600 * MS);
    s.enqueue(1_000);
    drain(&mut s, at(400), 64_000);
    s.handle_ack(&ack(2_000, 100_000), at(500));
    assert!(s.rto() < 310 * MS);
}

#[test]
fn reneging() {
    // RFC 2018 section 8: the receiver dropped 1000..3000 after reporting it.
    let mut s = sender(100_000);
    s.enqueue(5_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&sacked(0, &[(1_000, 5_000)]), at(100));
    assert_eq!(drain(&mut s, at(100), 64_000), [(0, 1_000, Retransmit)]);
    s.handle_ack(&ack(1_000, 100_000), at(200));
    let mut now = at(200);
    let mut again = Vec::new();
    for _ in 0..4 {
        now = s.next_timeout().unwrap().max(now);
        s.handle_timeout(now);
        again.extend(drain(&mut s, now, 64_000));
    }
    assert!(again.iter().any(|(seq, ..)| *seq == 1_000), "{again:?}");
}

#[test]
fn hostile_sack_blocks_are_ignored() {
    // RFC 2018 section 5: blocks lie between what is acknowledged and what was sent.
    let mut s = sender(100_000);
    s.enqueue(10_000);
    drain(&mut s, at(0), 64_000);
    let before = s.pipe();
    for block in [
        (0, 10_000),
        (5_000, 5_000),
        (9_000, 8_000),
        (9_000, 10_001),
        (u32::MAX - 9, 5),
        (0x8000_0000, 3),
    ] {
        s.handle_ack(&sacked(0, &[block]), at(1));
        assert_eq!((s.pipe(), s.phase()), (before, Phase::Open), "{block:?}");
    }
}

#[test]
fn the_window_grows_only_when_it_is_used() {
    // RFC 5681 section 3.1, RFC 7661 section 4.
    let mut s = sender(1_000_000);
    for i in 0..20u32 {
        s.enqueue(1_000);
        drain(&mut s, at(u64::from(i) * 100), 64_000);
        s.handle_ack(&ack((i + 1) * 1_000, 1_000_000), at(u64::from(i) * 100 + 99));
    }
    assert_eq!(s.cwnd(), 10_000);
    s.enqueue(100_000);
    drain(&mut s, at(2_000), 64_000);
    s.handle_ack(&ack(30_000, 1_000_000), at(2_100));
    assert_eq!(s.cwnd(), 20_000);
}

#[test]
fn resuming_where_somebody_else_stopped() {
    // RFC 5681 section 4.1: the window is used again, but not after an idle time of more than a
    // timeout.
    let mut s = sender(100_000);
    s.enqueue(30_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&ack(10_000, 100_000), at(100));
    drain(&mut s, at(100), 64_000);
    s.handle_ack(&ack(30_000, 100_000), at(200));
    let cwnd = s.cwnd();
    assert!(cwnd > 20_000);
    s.resume_at(START + 1_000_000);
    assert_eq!(s.next_timeout(), None);
    s.handle_ack(
        &AckInfo { ack: START + 1_000_000, seq: Seq(7), window: 50_000, ..AckInfo::default() },
        at(210),
    );
    let mut later = s.clone();
    s.enqueue(100_000);
    assert_eq!(drain(&mut s, at(210), 64_000), [(1_000_000, cwnd / MSS * MSS, New)]);
    later.enqueue(100_000);
    assert_eq!(drain(&mut later, at(5_000), 64_000), [(1_000_000, 10_000, New)]);
}

#[test]
fn small_segments_by_the_caller() {
    let mut s = sender(100_000);
    s.set_mss(500);
    s.enqueue(1_200);
    assert_eq!(
        drain(&mut s, at(0), 300),
        [(0, 300, New), (300, 300, New), (600, 300, New), (900, 300, New)]
    );
}

#[test]
fn segments_too_long_for_the_path_are_cut_anew() {
    // RFC 8201 section 5.4: no congestion.
    let mut s = sender(100_000);
    s.enqueue(50_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&sacked(0, &[(4_000, 4_600)]), at(100));
    let cwnd = s.cwnd();
    assert!(s.handle_path_mtu(600) && !s.handle_path_mtu(700));
    assert_eq!((s.cwnd(), s.ssthresh()), (cwnd, u32::MAX));
    let again = drain(&mut s, at(101), 600);
    assert_eq!(
        again[..3],
        [(0, 600, Retransmit), (600, 600, Retransmit), (1_200, 600, Retransmit)]
    );
    assert!(
        again.iter().all(|(seq, len, _)| *len <= 600 && (*seq >= 4_600 || seq + len <= 4_000)),
        "{again:?}"
    );
    assert!(again.iter().any(|(seq, ..)| *seq == 4_600));
}

#[test]
fn a_black_hole_is_found_by_silence() {
    // RFC 4821 section 7.7.
    let cfg = SenderConfig { black_hole_detection: true, ..UNPACED };
    let peer =
        PeerLimits { mss: 1_448, window_scale: 0, sack: true, timestamps: false, ecn: false };
    let mut s = Sender::new(&cfg, START, peer, 100_000, at(0));
    s.enqueue(5_000);
    drain(&mut s, at(0), 64_000);
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let now = s.next_timeout().unwrap();
        s.handle_timeout(now);
        sizes.extend(drain(&mut s, now, 64_000).iter().map(|(_, len, _)| *len));
    }
    assert_eq!(sizes, [1_448, 1_024, 536, 536]);
}

#[test]
fn a_mark_reduces_the_window_once_a_round_and_is_told() {
    // RFC 3168 section 6.1.2, RFC 8511 section 3.
    let peer =
        PeerLimits { mss: MSS as u16, window_scale: 0, sack: true, timestamps: false, ecn: true };
    let mut s = Sender::new(&UNPACED, START, peer, 1_000_000, at(0));
    s.observe_rtt(100 * MS);
    s.enqueue(100_000);
    let first = s.poll_transmit(at(0), 64_000).unwrap();
    assert!(first.ecn == Codepoint::Capable0 && !first.cwr);
    s.handle_ack(&AckInfo { ece: true, ..ack(2_000, 1_000_000) }, at(100));
    assert_eq!((s.phase(), s.ssthresh()), (Phase::Reduction, 8_500));
    s.handle_ack(&AckInfo { ece: true, ..ack(4_000, 1_000_000) }, at(101));
    assert_eq!(s.ssthresh(), 8_500, "once");
    let next = s.poll_transmit(at(101), 64_000).unwrap();
    assert!(next.cwr && next.len == MSS, "the first new segment tells, in a frame of its own");
    assert!(!s.poll_transmit(at(101), 64_000).is_some_and(|t| t.cwr));
    s.handle_ack(&ack(10_000, 1_000_000), at(200));
    assert_eq!(s.phase(), Phase::Open);
}

#[test]
fn a_reordered_segment_costs_nothing_in_the_end() {
    // RFC 3708: the retransmission was not needed, as the receiver reports.
    let mut s = sender(100_000);
    s.enqueue(100_000);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&sacked(0, &[(1_000, 5_000)]), at(100));
    assert_eq!(s.phase(), Phase::Recovery);
    assert!(drain(&mut s, at(100), 64_000).contains(&(0, 1_000, Retransmit)));
    s.handle_ack(&ack(5_000, 100_000), at(101));
    let mut told = ack(5_000, 100_000);
    told.sack.push(START, START + 1_000);
    s.handle_ack(&told, at(201));
    assert!(s.ssthresh() == u32::MAX && s.cwnd() >= 10_000, "{} {}", s.ssthresh(), s.cwnd());
}

#[test]
fn a_spurious_timeout_is_found_without_timestamps() {
    // RFC 5682 section 3: the first acknowledgment lets new data go, the second is for what was
    // sent once.
    let cfg = SenderConfig { tail_loss_probe: false, ..UNPACED };
    let mut s = sender_with(true, false, 100_000, cfg);
    s.enqueue(100_000);
    drain(&mut s, at(0), 64_000);
    s.handle_timeout(at(300));
    assert_eq!(drain(&mut s, at(300), 64_000), [(0, 1_000, RtoProbe)]);
    s.handle_ack(&ack(1_000, 100_000), at(301));
    assert!(
        drain(&mut s, at(301), 64_000).iter().all(|(seq, _, kind)| *seq >= 10_000 && *kind == New)
    );
    s.handle_ack(&ack(2_000, 100_000), at(302));
    assert_eq!(s.phase(), Phase::Open);
    assert!(s.cwnd() >= 10_000 && s.ssthresh() == u32::MAX);
}

#[test]
fn without_sack_a_timeout_is_doubted_too() {
    // RFC 5682 section 2.1. What comes with the acknowledgment of the retransmission proves nothing
    // (step 2 b): two new segments decide.
    let begun = || {
        let mut s = sender_with(false, false, 100_000, UNPACED);
        s.enqueue(100_000);
        drain(&mut s, at(0), 64_000);
        s.handle_timeout(at(300));
        assert_eq!(drain(&mut s, at(300), 64_000), [(0, 1_000, RtoProbe)]);
        s.handle_ack(&ack(2_000, 100_000), at(301));
        assert_eq!(s.phase(), Phase::Loss);
        assert_eq!(drain(&mut s, at(301), 64_000), [(10_000, 2_000, New)]);
        s
    };
    let mut early = begun();
    early.handle_ack(&ack(3_000, 100_000), at(302));
    assert!(early.phase() == Phase::Open && early.cwnd() >= 10_000 && early.ssthresh() == u32::MAX);
    let mut needed = begun();
    needed.handle_ack(&ack(2_000, 100_000), at(402));
    assert_eq!(needed.phase(), Phase::Loss);
    assert_eq!(drain(&mut needed, at(402), 64_000).first(), Some(&(2_000, 1_000, Retransmit)));
}

#[test]
fn a_short_last_segment_does_not_keep_a_hole_open() {
    // RFC 9937 section 5, in segments.
    let mut s = sender(100_000);
    s.enqueue(7_120);
    drain(&mut s, at(0), 64_000);
    s.handle_ack(&ack(2_000, 100_000), at(100));
    s.handle_ack(&sacked(2_000, &[(3_000, 5_000), (6_000, 7_000)]), at(100));
    assert_eq!(drain(&mut s, at(100), 1_000).first(), Some(&(2_000, 1_000, Retransmit)));
    s.handle_ack(&sacked(2_000, &[(3_000, 5_000), (6_000, 7_120)]), at(100));
    drain(&mut s, at(100), 1_000);
    assert_eq!((s.pipe(), s.flight()), (2_000, 5_120), "both holes are on their way");
}

#[test]
fn the_echo_of_a_repeated_handshake_is_a_round_trip() {
    // RFC 7323 section 4.1.
    let peer =
        PeerLimits { mss: MSS as u16, window_scale: 0, sack: true, timestamps: true, ecn: false };
    let mut s = Sender::new(&UNPACED, START, peer, 1_000_000, at(0));
    let ticks = at(0).as_millis() as u32;
    s.observe_echo(ticks + 200, at(100));
    s.observe_echo(ticks.wrapping_sub(500_000), at(100));
    assert_eq!(s.rtt(), None, "an echo of what was never sent, or long ago");
    s.observe_echo(ticks, at(40));
    assert_eq!(s.rtt(), Some(40 * MS));
}

#[test]
fn long_paths_are_paced_and_short_replies_are_not() {
    let mut s = sender_with(true, false, 1_000_000, SenderConfig::default());
    s.enqueue(200_000);
    assert_eq!(
        drain(&mut s, at(0), 64_000).iter().map(|(_, len, _)| len).sum::<u32>(),
        10_000,
        "the initial window at once"
    );
    let total =
        |sent: Vec<(u32, u32, TransmitKind)>| sent.iter().map(|(_, len, _)| len).sum::<u32>();
    s.handle_ack(&ack(10_000, 1_000_000), at(100));
    assert_eq!(total(drain(&mut s, at(100), 64_000)), 20_000, "less than a super-frame");
    s.handle_ack(&ack(30_000, 1_000_000), at(200));
    assert_eq!(total(drain(&mut s, at(200), 64_000)), 40_000, "less than a super-frame");
    s.handle_ack(&ack(70_000, 1_000_000), at(300));
    let mut now = at(300);
    let mut sent = total(drain(&mut s, now, 64_000));
    assert!((65_536..72_000).contains(&sent), "{sent}");
    while sent < 80_000 {
        now = s.next_timeout().unwrap();
        assert_eq!(s.handle_timeout(now), TimeoutOutcome::Armed);
        for (_, len, _) in drain(&mut s, now, 64_000) {
            assert!(len <= 2_000, "{len}");
            sent += len;
        }
    }
    // Twice the window in a round trip of 100 ms: what is left takes some milliseconds.
    assert!((at(303)..at(310)).contains(&now), "{now:?}");
}
