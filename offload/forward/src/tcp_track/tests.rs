//! States, windows, and strangers.

use proptest::prelude::*;

use super::*;

fn segment(flags: Flags, seq: u32, ack: u32, payload_len: u32) -> TcpView {
    TcpView { seq: Seq(seq), ack: Seq(ack), flags, window: 1000, scale: None, payload_len }
}

const ACK: Flags = Flags::ACK;

/// A connection with the numbers 100 and 500 before the handshake.
fn established() -> TcpTrack {
    let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
    assert_eq!(
        track.handle(Direction::Reply, &segment(Flags::SYN | ACK, 500, 101, 0)),
        Judged::Inside
    );
    assert_eq!(track.state(), TcpState::SynReceived);
    assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 0)), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
    track
}

/// A flow of a gigabyte a second, of which something is heard once in three seconds.
#[test]
fn numbers_that_somebody_else_has_moved_by_more_than_half_a_turn_are_followed() {
    let mut track = established();
    let mut numbers = track.numbers().unwrap();
    for step in [1, 1 << 30, 3 << 30, 1 << 31, 1000] {
        numbers[0].end += step;
        numbers[0].max_end += step;
        numbers[1].acked += step;
        track.catch_up(numbers, step >= 1 << 30);
        assert_eq!(track.numbers(), Some(numbers), "{step}");
    }
    let [original, reply] = numbers;
    let fin = segment(Flags::FIN | ACK, original.end.0, reply.end.0, 0);
    assert_eq!(track.handle(Direction::Original, &fin), Judged::Inside);
    assert_eq!(track.state(), TcpState::Closing);
}

/// After a restart, the first segment of each direction tells where it is, and a stranger's
/// reset ends nothing.
#[test]
fn a_restored_connection_goes_on() {
    let mut track = TcpTrack::restored(TcpState::Established, [false; 2]);
    assert_eq!(track.handle(Direction::Original, &segment(Flags::RST, 7, 0, 0)), Judged::Outside);
    assert_eq!(
        track.handle(Direction::Reply, &segment(ACK, 3_000_000_000, 4_000_000_000, 1000)),
        Judged::Inside
    );
    assert_eq!(track.handle(Direction::Original, &segment(Flags::RST, 7, 0, 0)), Judged::Outside);
    assert_eq!(
        track.handle(Direction::Original, &segment(ACK, 4_000_000_000, 3_000_001_000, 0)),
        Judged::Inside
    );
    assert_eq!(
        track.handle(Direction::Reply, &segment(ACK | Flags::FIN, 3_000_001_000, 4_000_000_000, 0)),
        Judged::Inside
    );
    assert_eq!(track.state(), TcpState::Closing);
    assert_eq!(
        track.handle(
            Direction::Original,
            &segment(ACK | Flags::FIN, 4_000_000_000, 3_000_001_001, 0)
        ),
        Judged::Inside
    );
    assert_eq!(
        track.handle(Direction::Reply, &segment(ACK, 3_000_001_001, 4_000_000_001, 0)),
        Judged::Inside
    );
    assert_eq!(track.state(), TcpState::TimeWait);
}

/// Of a connection whose handshake was not seen, a reset ends what is known only at a number
/// that was seen.
#[test]
fn resets_of_a_restored_connection() {
    let mut track = TcpTrack::restored(TcpState::Established, [false; 2]);
    track.handle(Direction::Original, &segment(ACK, 5000, 9000, 100));
    track.handle(Direction::Reply, &segment(ACK, 9000, 5100, 200));
    for seq in (0..1000u32).map(|step| step * 4_294_967 + 3) {
        let reset = segment(Flags::RST, seq, 0, 0);
        assert_eq!(track.handle(Direction::Reply, &reset), Judged::Outside, "{seq}");
        assert_eq!(track.handle(Direction::Original, &reset), Judged::Outside, "{seq}");
    }
    assert_eq!(track.state(), TcpState::Established);
    track.handle(Direction::Reply, &segment(Flags::RST | ACK, 9200, 5100, 0));
    assert_eq!(track.state(), TcpState::Reset);
    // The other end has not spoken since.
    let mut track = TcpTrack::restored(TcpState::Established, [false; 2]);
    track.handle(Direction::Original, &segment(ACK, 5000, 9000, 100));
    let reset = |seq| segment(Flags::RST | ACK, seq, 9000, 0);
    assert_eq!(track.handle(Direction::Original, &reset(5200)), Judged::Outside);
    assert_eq!(track.handle(Direction::Original, &reset(5100)), Judged::Inside);
    assert_eq!(track.state(), TcpState::Reset);
    let mut track = TcpTrack::new(&segment(ACK, 5000, 9000, 100));
    assert_eq!(track.handle(Direction::Reply, &segment(Flags::RST, 20_000, 0, 0)), Judged::Outside);
    assert_eq!(track.handle(Direction::Reply, &segment(Flags::RST, 9000, 0, 0)), Judged::Inside);
}

/// What was forwarded elsewhere was missed: the ends go on with each other, and are followed
/// when that is certain.
#[test]
fn ends_that_go_on_where_nobody_has_seen_them() {
    let far = 50_000_000;
    let mut track = established();
    let (mut seq, mut ack) = (101 + far, 501 + 2 * far);
    let mut judged = Vec::new();
    for _ in 0..ASTRAY_MAX {
        judged.push(track.handle(Direction::Original, &segment(ACK, seq, ack, 300)));
        seq += 300;
        judged.push(track.handle(Direction::Reply, &segment(ACK, ack, seq, 700)));
        ack += 700;
    }
    let first = judged.iter().position(|judged| *judged == Judged::Inside).unwrap();
    assert_eq!(first, usize::from(ASTRAY_MAX) - 1);
    assert!(judged[first..].iter().all(|judged| *judged == Judged::Inside), "{judged:?}");
    // Windows are what they were.
    let beyond = segment(ACK, ack + 1001, seq, 10);
    assert_eq!(track.handle(Direction::Reply, &beyond), Judged::Outside);
    assert_eq!(
        track.handle(Direction::Original, &segment(ACK | Flags::FIN, seq, ack, 0)),
        Judged::Inside
    );
    assert_eq!(track.state(), TcpState::Closing);
}

/// Strangers who send in the name of both ends: either does not fit the other, or one of the
/// ends answers, or one alone is heard.
#[test]
fn strangers_who_agree_with_nobody() {
    let far = 50_000_000;
    let mut track = established();
    for step in 0..200 {
        let (seq, ack) = (101 + far + 10 * step, 501 + far);
        let one = segment(ACK, seq, ack, 10);
        assert_eq!(track.handle(Direction::Original, &one), Judged::Outside, "one alone");
    }
    let mut track = established();
    for step in 0..200 {
        let (seq, ack) = (101 + far + 10 * step, 501 + far);
        for (direction, one) in [
            (Direction::Original, segment(ACK, seq, ack, 10)),
            (Direction::Reply, segment(ACK, ack + far, seq + 10, 0)),
        ] {
            assert_eq!(track.handle(direction, &one), Judged::Outside, "not of each other");
        }
    }
    let mut track = established();
    for step in 0..200 {
        let (seq, ack) = (101 + far + 10 * step, 501 + far);
        for (direction, one, expected) in [
            (Direction::Original, segment(ACK, seq, ack, 10), Judged::Outside),
            (Direction::Reply, segment(ACK, ack, seq + 10, 0), Judged::Outside),
        ] {
            assert_eq!(track.handle(direction, &one), expected);
        }
        if step % 5 == 4 {
            // The end says where it stands.
            let own = segment(ACK, 501, 101, 0);
            assert_eq!(track.handle(Direction::Reply, &own), Judged::Inside);
        }
    }
    let own = segment(ACK, 101, 501, 100);
    assert_eq!(track.handle(Direction::Original, &own), Judged::Inside);
}

/// Between the answer and the last acknowledgment.
#[test]
fn a_handshake_of_a_restored_connection() {
    let mut track = TcpTrack::restored(TcpState::SynReceived, [false; 2]);
    let reply = segment(ACK, 501, 101, 10);
    assert_eq!(track.handle(Direction::Reply, &reply), Judged::Inside);
    assert_eq!(track.state(), TcpState::SynReceived);
    assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 0)), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
}

/// One end has sent its last byte, or both have: what is missing is still waited for, and the
/// acknowledgment of the last byte of each.
#[test]
fn last_bytes_of_a_restored_connection() {
    // Numbers in either half of all, as seen from 0.
    for (client, server) in [(0u32, 0u32), (4_000_000_000, 0), (0, 4_000_000_000)] {
        last_bytes(client, server);
    }
}

fn last_bytes(client: u32, server: u32) {
    let sent = |flags, seq, ack, payload_len| {
        (Direction::Original, segment(flags, client + seq, server + ack, payload_len))
    };
    let got = |flags, seq, ack, payload_len| {
        (Direction::Reply, segment(flags, server + seq, client + ack, payload_len))
    };
    let fin = ACK | Flags::FIN;
    let follow = |track: &mut TcpTrack, steps: &[(Direction, TcpView)]| {
        for (number, (direction, segment)) in steps.iter().enumerate() {
            assert_eq!(track.handle(*direction, segment), Judged::Inside, "{segment:?}");
            let is_over = track.state() == TcpState::TimeWait;
            assert_eq!(is_over, number + 1 == steps.len(), "{segment:?}");
        }
    };
    let half = || {
        let track = TcpTrack::restored(TcpState::Closing, [true, false]);
        assert!(track.is_half_closed());
        assert_eq!(track.fins(), [true, false]);
        track
    };
    let rest = [
        got(ACK, 501, 102, 500),
        sent(ACK, 102, 1001, 0),
        got(fin, 1001, 102, 0),
        sent(ACK, 102, 1002, 0),
    ];
    follow(&mut half(), &rest);
    // The first one that comes is from before: its last byte is not acknowledged yet.
    let rest = [
        sent(ACK, 41, 501, 20),
        got(fin, 501, 61, 0),
        sent(ACK, 61, 502, 40),
        sent(fin, 101, 502, 0),
        got(ACK, 502, 102, 0),
    ];
    follow(&mut half(), &rest);
    // Of the other end no number is known at first.
    let mut track = TcpTrack::restored(TcpState::Closing, [true; 2]);
    assert!(!track.is_half_closed());
    follow(&mut track, &[sent(ACK, 102, 502, 0), got(ACK, 502, 102, 0)]);
}

#[test]
fn from_a_syn_to_time_wait() {
    let mut track = established();
    for (direction, segment, state) in [
        (Direction::Original, segment(ACK, 101, 501, 300), TcpState::Established),
        (Direction::Reply, segment(ACK, 501, 401, 900), TcpState::Established),
        (Direction::Original, segment(ACK | Flags::FIN, 401, 1401, 0), TcpState::Closing),
        (Direction::Reply, segment(ACK, 1401, 402, 500), TcpState::Closing),
        (Direction::Reply, segment(ACK | Flags::FIN, 1901, 402, 0), TcpState::Closing),
        (Direction::Original, segment(ACK, 402, 1902, 0), TcpState::TimeWait),
        (Direction::Reply, segment(ACK | Flags::FIN, 1901, 402, 0), TcpState::TimeWait),
    ] {
        assert_eq!(track.handle(direction, &segment), Judged::Inside, "{segment:?}");
        assert_eq!(track.state(), state, "{segment:?}");
    }
    let again = segment(Flags::SYN, 300, 0, 0);
    assert_eq!(track.handle(Direction::Original, &again), Judged::Outside, "an old number");
    assert_eq!(
        track.handle(Direction::Original, &segment(Flags::SYN, 90_000, 0, 0)),
        Judged::Begins
    );
}

/// The last acknowledgment was lost, and the client uses its port again: the other end, which
/// has forgotten the old connection, answers.
#[test]
fn the_same_ends_while_closing() {
    let closing = || {
        let mut track = established();
        track.handle(Direction::Original, &segment(ACK | Flags::FIN, 101, 501, 0));
        track.handle(Direction::Reply, &segment(ACK | Flags::FIN, 501, 102, 0));
        assert_eq!(track.state(), TcpState::Closing);
        let again = segment(Flags::SYN, 90_000, 0, 0);
        assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
        assert_eq!(track.state(), TcpState::Closing);
        track
    };
    let mut track = closing();
    let answer = segment(Flags::SYN | ACK, 70_000, 90_001, 0);
    assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
    assert_eq!(track.state(), TcpState::SynReceived);
    let last = segment(ACK, 90_001, 70_001, 10);
    assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
    // Nobody else's answer counts, and the old connection may still end.
    let mut track = closing();
    let answer = segment(Flags::SYN | ACK, 70_000, 90_002, 0);
    assert_eq!(track.handle(Direction::Reply, &answer), Judged::Outside);
    assert_eq!(track.handle(Direction::Original, &segment(ACK, 102, 502, 0)), Judged::Inside);
    assert_eq!(track.state(), TcpState::TimeWait);
}

/// The other end takes a number that is not later, or has forgotten the old connection.
#[test]
fn the_same_ends_after_the_end() {
    let over = || {
        let mut track = established();
        track.handle(Direction::Original, &segment(ACK | Flags::FIN, 101, 501, 0));
        track.handle(Direction::Reply, &segment(ACK | Flags::FIN, 501, 102, 0));
        track.handle(Direction::Original, &segment(ACK, 102, 502, 0));
        assert_eq!(track.state(), TcpState::TimeWait);
        let again = segment(Flags::SYN, 4_000_000_000, 0, 0);
        assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
        assert_eq!(track.state(), TcpState::TimeWait);
        track
    };
    let answer = |ack| segment(Flags::SYN | ACK, 70_000, ack, 0);
    let mut track = over();
    assert_eq!(track.handle(Direction::Reply, &answer(4_000_000_001)), Judged::Inside);
    assert_eq!(track.state(), TcpState::SynReceived);
    let last = segment(ACK, 4_000_000_001, 70_001, 10);
    assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
    // Nobody else's answer counts.
    let mut track = over();
    assert_eq!(track.handle(Direction::Reply, &answer(4_000_000_002)), Judged::Outside);
    assert_eq!(track.state(), TcpState::TimeWait);
}

/// A client gives up in the middle of its handshake, and tries again with another number.
#[test]
fn the_same_ends_during_a_handshake() {
    let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
    track.handle(Direction::Reply, &segment(Flags::SYN | ACK, 500, 101, 0));
    for mut track in [track, TcpTrack::restored(TcpState::SynReceived, [false; 2])] {
        let again = segment(Flags::SYN, 90_000_000, 0, 0);
        assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
        let answer = segment(Flags::SYN | ACK, 70_000_000, 90_000_001, 0);
        assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
        let last = segment(ACK, 90_000_001, 70_000_001, 10);
        assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
        let ends = track.numbers().unwrap().map(|side| side.end);
        assert_eq!(ends, [Seq(90_000_011), Seq(70_000_001)]);
    }
}

/// Both ends have forgotten a connection whose end was not seen.
#[test]
fn the_same_ends_while_established() {
    let again = segment(Flags::SYN, 90_000, 0, 0);
    let answer = segment(Flags::SYN | ACK, 70_000, 90_001, 0);
    for mut track in [established(), TcpTrack::restored(TcpState::Established, [false; 2])] {
        assert_eq!(track.handle(Direction::Original, &again), Judged::Outside);
        assert_eq!(track.state(), TcpState::Established);
        assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
        assert_eq!(track.state(), TcpState::SynReceived);
        let last = segment(ACK, 90_001, 70_001, 10);
        assert_eq!(track.handle(Direction::Original, &last), Judged::Inside);
        assert_eq!(track.state(), TcpState::Established);
        assert_eq!(track.numbers().unwrap().map(|side| side.end), [Seq(90_011), Seq(70_001)]);
    }
    // A stranger's SYN: the other end acknowledges where it stands, and the connection goes on.
    let mut track = established();
    track.handle(Direction::Original, &again);
    assert_eq!(track.handle(Direction::Reply, &segment(ACK, 501, 101, 0)), Judged::Inside);
    assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 10)), Judged::Inside);
    assert_eq!(track.handle(Direction::Reply, &answer), Judged::Outside);
    assert_eq!(track.state(), TcpState::Established);
    // This connection's own SYN, late.
    assert_eq!(track.handle(Direction::Original, &segment(Flags::SYN, 100, 0, 0)), Judged::Outside);
    let answer = segment(Flags::SYN | ACK, 500, 101, 0);
    assert_eq!(track.handle(Direction::Reply, &answer), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
}

#[test]
fn a_reset_must_be_one_that_the_end_believes() {
    for (seq, ack, expected) in [
        (501, 101, Judged::Inside),
        (400, 101, Judged::Outside),
        (501 + 2000, 101, Judged::Outside),
    ] {
        let mut track = established();
        let judged = track.handle(Direction::Reply, &segment(Flags::RST | ACK, seq, ack, 0));
        assert_eq!(judged, expected, "{seq}");
        assert_eq!(track.state() == TcpState::Reset, expected == Judged::Inside);
    }
    // RFC 7857 section 2.2: the end has not believed it.
    let mut track = established();
    track.handle(Direction::Reply, &segment(Flags::RST, 600, 0, 0));
    assert_eq!(track.state(), TcpState::Reset);
    assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 10)), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
}

#[test]
fn a_refused_syn() {
    for (flags, ack, state) in [
        (Flags::RST | ACK, 101, TcpState::Reset),
        (Flags::RST | ACK, 102, TcpState::SynSent),
        (Flags::RST, 101, TcpState::SynSent),
        (ACK, 101, TcpState::SynSent),
        (Flags::SYN | ACK, 77, TcpState::SynSent),
    ] {
        let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
        track.handle(Direction::Reply, &segment(flags, 0, ack, 0));
        assert_eq!(track.state(), state, "{flags:?} {ack}");
    }
}

/// RFC 7413: a server may leave the payload of a SYN, and a client may send the SYN again
/// without it.
#[test]
fn a_syn_with_payload() {
    for (ack, is_inside) in [(100, false), (101, true), (151, true), (201, true), (202, false)] {
        for is_again in [false, true] {
            let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 100));
            if is_again {
                let again = segment(Flags::SYN, 100, 0, 0);
                assert_eq!(track.handle(Direction::Original, &again), Judged::Inside);
            }
            let answer = segment(Flags::SYN | ACK, 500, ack, 0);
            let judged = track.handle(Direction::Reply, &answer);
            assert_eq!(judged == Judged::Inside, is_inside, "{ack}");
            if !is_inside {
                continue;
            }
            let rest = segment(ACK, ack, 501, 201 - ack);
            assert_eq!(track.handle(Direction::Original, &rest), Judged::Inside, "{ack}");
            assert_eq!(track.state(), TcpState::Established);
            let acked = segment(ACK, 501, 201, 0);
            assert_eq!(track.handle(Direction::Reply, &acked), Judged::Inside);
        }
    }
    let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 100));
    track.handle(Direction::Reply, &segment(Flags::RST | ACK, 0, 101, 0));
    assert_eq!(track.state(), TcpState::Reset);
}

#[test]
fn both_begin_at_once() {
    let mut track = TcpTrack::new(&segment(Flags::SYN, 100, 0, 0));
    track.handle(Direction::Reply, &segment(Flags::SYN, 500, 0, 0));
    track.handle(Direction::Original, &segment(Flags::SYN | ACK, 100, 501, 0));
    track.handle(Direction::Reply, &segment(Flags::SYN | ACK, 500, 101, 0));
    assert_eq!(track.handle(Direction::Original, &segment(ACK, 101, 501, 0)), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
}

#[test]
fn a_connection_that_is_older_than_what_is_known() {
    let mut track = TcpTrack::new(&segment(ACK, 5000, 9000, 100));
    assert_eq!(track.state(), TcpState::PickedUp);
    assert_eq!(
        track.handle(Direction::Original, &segment(ACK | Flags::FIN, 5100, 9000, 0)),
        Judged::Inside
    );
    assert_eq!(track.state(), TcpState::PickedUp, "one end alone");
    assert_eq!(track.handle(Direction::Reply, &segment(ACK, 9000, 5101, 0)), Judged::Inside);
    assert_eq!(track.state(), TcpState::Closing);
    let mut track = TcpTrack::new(&segment(ACK, 5000, 9000, 100));
    assert_eq!(track.handle(Direction::Reply, &segment(ACK, 9000, 5100, 4000)), Judged::Inside);
    assert_eq!(track.state(), TcpState::Established);
    assert_eq!(track.handle(Direction::Original, &segment(ACK, 5100, 13_000, 100)), Judged::Inside);
    assert_eq!(
        track.handle(Direction::Reply, &segment(ACK, 13_000, 5300, 1)),
        Judged::Outside,
        "of the future"
    );
}

#[test]
fn windows_are_scaled_if_both_ends_say_so() {
    let syn = |flags, seq, ack, scale| TcpView { scale, ..segment(flags, seq, ack, 0) };
    for (theirs, allowed) in [(Some(7), 1000 << 7), (None, 1000)] {
        let mut track = TcpTrack::new(&syn(Flags::SYN, 100, 0, Some(7)));
        track.handle(Direction::Reply, &syn(Flags::SYN | ACK, 500, 101, theirs));
        track.handle(Direction::Original, &segment(ACK, 101, 501, 0));
        let beyond = |by: u32| segment(ACK, 501 + allowed + by, 101, 10);
        assert_eq!(track.clone().handle(Direction::Reply, &beyond(0)), Judged::Inside);
        assert_eq!(track.handle(Direction::Reply, &beyond(1)), Judged::Outside);
    }
}

/// F7: from either side, a segment is inside up to each bound, and outside one number behind it.
#[test]
fn both_directions_have_bounds() {
    // Of a window of 1000.
    let bounds = [
        ("the window of the receiver", 1000, 0, 1),
        ("what comes again", 1000u32.wrapping_neg(), 0, u32::MAX),
    ];
    let acknowledged = [
        ("what was not sent", 0, 0, 1),
        ("what was acknowledged long ago", 0, ACK_BEHIND_MAX.wrapping_neg(), u32::MAX),
    ];
    let established = established();
    for (direction, own, other) in
        [(Direction::Original, 101u32, 501u32), (Direction::Reply, 501, 101)]
    {
        let judge = |seq: u32, ack: u32| {
            let (seq, ack) = (own.wrapping_add(seq), other.wrapping_add(ack));
            established.clone().handle(direction, &segment(ACK, seq, ack, 0))
        };
        for (what, seq, ack, beyond) in bounds {
            assert_eq!(judge(seq, ack), Judged::Inside, "{direction:?}: {what}");
            let seq = seq.wrapping_add(beyond);
            assert_eq!(judge(seq, ack), Judged::Outside, "{direction:?}: beyond {what}");
        }
        for (what, seq, ack, beyond) in acknowledged {
            assert_eq!(judge(seq, ack), Judged::Inside, "{direction:?}: {what}");
            let ack = ack.wrapping_add(beyond);
            assert_eq!(judge(seq, ack), Judged::Outside, "{direction:?}: beyond {what}");
        }
    }
}

proptest! {
    /// F7: whatever is outside changes nothing.
    #[test]
    fn outside_changes_nothing(
        segments in proptest::collection::vec(
            (any::<bool>(), 0u8..64, any::<u32>(), any::<u32>(), 0u32..70_000, any::<bool>()),
            1..60,
        ),
    ) {
        let mut track = established();
        let (mut next, mut other) = (101u32, 501u32);
        for (is_reply, flags, seq, ack, payload_len, is_near) in segments {
            let direction = if is_reply { Direction::Reply } else { Direction::Original };
            let (mine, theirs) =
                if is_reply { (&mut other, &mut next) } else { (&mut next, &mut other) };
            let (seq, ack, payload_len) = if is_near {
                (mine.wrapping_add(seq % 3), *theirs, payload_len % 900)
            } else {
                (seq, ack, payload_len)
            };
            (track.again, track.astray) = (None, Astray::default());
            let before = format!("{track:?}");
            let segment = segment(Flags(flags), seq, ack, payload_len);
            match track.handle(direction, &segment) {
                Judged::Inside if is_near && segment.flags.ack() && !segment.flags.syn() => {
                    *mine = mine.wrapping_add(segment.numbers());
                }
                Judged::Inside => {}
                Judged::Outside => {
                    // But for what may be judged better by the other end, or by others.
                    (track.again, track.astray) = (None, Astray::default());
                    prop_assert_eq!(before, format!("{track:?}"));
                }
                Judged::Begins => prop_assert!(matches!(
                    track.state(),
                    TcpState::TimeWait | TcpState::Reset | TcpState::SynSent
                )),
            }
        }
    }

    /// An attacker who does not know the numbers hits a window of 1000 rarely; whatever he
    /// sends, the connection goes on.
    #[test]
    fn a_blind_attacker(
        segments in proptest::collection::vec((0u8..64, any::<u32>(), any::<u32>()), 1..60),
    ) {
        let mut track = established();
        for (flags, seq, ack) in segments {
            // In the other half of the numbers.
            let segment = segment(Flags(flags), seq % (1 << 30) + (1 << 30), ack, 0);
            prop_assert_eq!(track.handle(Direction::Reply, &segment), Judged::Outside);
        }
        prop_assert_eq!(
            track.handle(Direction::Original, &segment(ACK, 101, 501, 100)),
            Judged::Inside
        );
        prop_assert_eq!(track.state(), TcpState::Established);
    }
}
