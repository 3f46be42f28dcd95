//! Whatever a forwarder waits for, there is a bell for it; and it does not sleep if that has come
//! already. The test is the card ([`Bench`]).

use nicache_bus::Completion;
use nicache_bus::attachment::FRAMES;
use nicache_bus::descriptor::Refusal;

use super::bench::{Bench, direct};
use super::*;
use crate::waiting::WAITING_FOR;

/// A neighbour that is not known.
const UNKNOWN: &str = "192.0.2.50";

/// The last look for room comes after completions were taken.
#[test]
fn what_was_done_at_the_last_moment_is_not_slept_over() {
    let mut bench = Bench::new(direct());
    bench.receive(SERVER);
    bench.turn();
    assert_eq!(bench.engine.under_way(), 1);
    bench.turn();
    assert!(bench.may_sleep(), "the card is at work");
    bench.engine.poll().unwrap();
    assert!(bench.execute());
    bench.forward(64);
    assert_eq!(bench.engine.under_way(), 1);
    assert!(!bench.may_sleep(), "what is done was not taken");
    bench.turn();
    assert!(bench.engine.under_way() == 0 && bench.may_sleep());
}

/// The ring is full of frames that nobody waits for, and something else waits for room in it.
#[test]
fn whatever_waits_for_room_is_woken_when_there_is_some() {
    let (now, mac) = (Time::ZERO, [4, 0, 0, 0, 0, 6]);
    type Waits = fn(&mut Bench, Time, [u8; 6]);
    let cases: [(&str, Waits); 4] = [
        ("a frame in the queue", |bench, _, _| {
            bench.receive(SERVER);
            bench.engine.poll().unwrap();
            bench.fill();
        }),
        ("a frame whose neighbour has answered", |bench, now, mac| {
            bench.receive(UNKNOWN);
            bench.turn();
            assert_eq!(bench.engine.next_due(), Some(now + WAITING_FOR));
            bench.fill();
            bench.forwarder.learn_neighbour(1, address(UNKNOWN), mac, now);
        }),
        ("a frame to be looked at", |bench, _, _| {
            bench.receive(SERVER);
            bench.engine.poll().unwrap();
            bench.fill();
            let frame = bench.engine.take().unwrap();
            bench.engine.look_at(frame).unwrap();
        }),
        ("a question", |bench, now, _| {
            bench.receive(UNKNOWN);
            bench.engine.poll().unwrap();
            bench.fill();
            let frame = bench.engine.take().unwrap();
            let moment = Moment { now, random: 1 };
            let decision = bench.forwarder.handle(&frame.incoming(), &mut Head::new(), moment);
            assert_eq!(decision, Decision::Wait);
            bench.engine.finish(frame);
        }),
    ];
    for (what, waits) in cases {
        let mut bench = Bench::new(direct());
        waits(&mut bench, now, mac);
        let sent = bench.engine.counters().sent;
        bench.turn();
        assert!(bench.may_sleep(), "{what}: there is no room");
        assert_eq!((bench.engine.under_way(), bench.engine.next_due()), (0, None), "{what}");
        assert!(bench.execute(), "{what}: no bell rings");
        assert!(!bench.may_sleep(), "{what}: there is room");
        bench.turn();
        let went = bench.engine.counters().sent - sent + bench.engine.under_way() as u64;
        assert!(went > 0, "{what}");
        assert!(bench.may_sleep(), "{what}: nothing is left to do");
    }
}

/// A refusal is told at once, also if nothing else happens.
#[test]
fn refusals_ring() {
    let mut bench = Bench::new(direct());
    let refused = Completion::Refused { refusal: Refusal::Malformed, descriptor: 0 };
    for number in 1..=3 {
        bench.turn();
        assert!(bench.may_sleep());
        bench.card.done.push(refused.encode()).unwrap();
        assert!(bench.card.done.publish(), "{number}");
        assert!(!bench.may_sleep());
        bench.turn();
        assert_eq!(bench.engine.counters().refused, number);
    }
}

/// Receives that found no room are posted when the card has taken others, whether or not it has
/// filled them.
#[test]
fn posts_that_found_no_room_are_posted() {
    let more = FRAMES as u32 + 100;
    let mut bench = Bench::new(EngineConfig { buffers: more, posts: more, ..direct() });
    for taken in 1..=3 {
        bench.turn();
        assert_eq!(bench.engine.posted as usize, FRAMES + taken - 1);
        assert!(bench.may_sleep());
        bench.card.free.pop().unwrap().expect("a post");
        assert!(bench.card.free.release(), "{taken}");
        assert!(!bench.may_sleep());
    }
}
