//! Expected requests, answered the short way: whatever is sent, the general way says the same, and
//! what is not expected is left to it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nicache_tcp::Flags;

use crate::script::{SOURCE, Script, Segment};

/// What the card has done: segments to the client and to the host, all that it has counted, and the
/// hits of the short way among that.
fn outcome(script: &mut Script) -> (Vec<Segment>, Vec<Segment>, String, u64) {
    let mut counters = script.card.counters().clone();
    let predicted = std::mem::take(&mut counters.hits_predicted);
    (script.take_at_client(), script.take_at_host(), format!("{counters:?}"), predicted)
}

/// Lets a client, whose last two requests were hits, do something, once with a card that answers
/// the short way and once with one that never does. Both must do the same, then and in the minutes
/// that follow. Returns how many hits there were, and how many of these went the short way.
fn both(body: &[u8], timestamps: bool, act: impl Fn(&mut Script)) -> (u64, u64) {
    let run = |prediction| {
        let mut script = Script::with_prediction(prediction);
        (script.timestamps, script.host_timestamps) = (timestamps, timestamps);
        script.store(body);
        for _ in 0..2 {
            script.ask(60_000);
            assert!(script.take_body().ends_with(body));
        }
        let (hits, predicted) =
            (script.card.counters().hits, script.card.counters().hits_predicted);
        act(&mut script);
        let hits = script.card.counters().hits - hits;
        let mut outcomes = vec![outcome(&mut script)];
        for _ in 0..6 {
            script.wait(Duration::from_millis(500));
            outcomes.push(outcome(&mut script));
        }
        for _ in 0..12 {
            script.poll_once_after(Duration::from_secs(20));
            outcomes.push(outcome(&mut script));
        }
        let last = outcomes.last().map_or(0, |last| last.3);
        let seen: Vec<String> = outcomes
            .into_iter()
            .map(|(client, host, counters, _)| format!("{client:?} {host:?} {counters}"))
            .collect();
        (seen, hits, last - predicted)
    };
    let (short, general) = (run(true), run(false));
    for (step, (short, general)) in short.0.iter().zip(&general.0).enumerate() {
        assert_eq!(short, general, "step {step}");
    }
    assert_eq!((short.1, general.2), (general.1, 0));
    (short.1, short.2)
}

/// A request that was never read before: it goes to the host.
const OTHER: &[u8] = b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n";

fn send(script: &mut Script, flags: Flags, payload: &[u8]) {
    script.send_client(flags, 60_000, payload);
    script.seq += payload.len() as u32 + u32::from(flags.fin());
}

#[test]
fn requests_in_good_order_are_expected() {
    for timestamps in [false, true] {
        for body in [&b"x"[..], &[b'y'; 700]] {
            let asked = |script: &mut Script| {
                for number in 0..4u32 {
                    script.wait(Duration::from_millis(u64::from(number) * 150));
                    script.tsval += number;
                    script.ask(60_000);
                    assert!(script.take_body().ends_with(body));
                }
            };
            assert_eq!(both(body, timestamps, asked), (4, 4));
        }
    }
}

#[test]
fn an_acknowledgment_may_come_before_the_request() {
    let acknowledged = |script: &mut Script| {
        script.acknowledge(60_000);
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, acknowledged), (1, 1));
}

#[test]
fn the_rest_of_another_request_is_not_expected() {
    let rest = |script: &mut Script| {
        send(script, Flags::ACK, b"GET /secret HTTP/1.1\r\nX: ");
        send(script, Flags::ACK | Flags::PSH, Script::request());
    };
    assert_eq!(both(b"x", false, rest), (0, 0));
    // When what came first has been acknowledged.
    let later = |script: &mut Script| {
        send(script, Flags::ACK, b"GET /secret HTTP/1.1\r\nX: ");
        script.wait(Duration::from_millis(100));
        send(script, Flags::ACK | Flags::PSH, Script::request());
    };
    assert_eq!(both(b"x", false, later), (0, 0));
}

#[test]
fn a_request_behind_one_for_the_host_is_not_expected() {
    let behind = |script: &mut Script| {
        send(script, Flags::ACK | Flags::PSH, OTHER);
        script.ask(60_000);
    };
    assert_eq!(both(b"x", false, behind), (0, 0));
}

#[test]
fn what_has_come_before_is_not_expected() {
    let twice = |script: &mut Script| {
        script.ask(60_000);
        script.seq -= Script::request().len() as u32;
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, twice), (1, 1));
    let gap = |script: &mut Script| {
        script.seq += 1;
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, gap), (0, 0));
}

#[test]
fn what_acknowledges_less_or_more_is_not_expected() {
    // Without the bytes of the last reply, or some of them.
    for less in [0, 40] {
        let behind = |script: &mut Script| {
            let before = script.ack;
            script.ask(60_000);
            script.ack = before + less;
            script.ask(60_000);
        };
        assert_eq!(both(b"x", true, behind), (2, 1), "{less}");
    }
    let beyond = |script: &mut Script| {
        script.ack += 10;
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, beyond), (0, 0));
    let later = |script: &mut Script| {
        script.acknowledge(60_000);
        script.ack += 10;
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, later), (0, 0));
}

#[test]
fn time_begins_anew_with_each_request() {
    let idle = |script: &mut Script| {
        script.open_another();
        for _ in 0..3 {
            script.ask(60_000);
            script.take_body();
            script.poll_once_after(Duration::from_secs(30));
        }
    };
    assert_eq!(both(b"x", true, idle), (3, 3));
}

#[test]
fn small_windows() {
    for window in [0, 1, 100, 5_000] {
        let small = |script: &mut Script| {
            script.ask(window);
            script.wait(Duration::from_millis(100));
            script.take_body();
            script.acknowledge(60_000);
            script.take_body();
            script.ask(60_000);
        };
        assert_eq!(both(&[b'z'; 600], false, small).0, 2, "{window}");
    }
}

#[test]
fn after_a_fin_nothing_is_expected() {
    let closed = |script: &mut Script| {
        send(script, Flags::ACK | Flags::FIN, b"");
        script.ask(60_000);
    };
    assert_eq!(both(b"x", false, closed), (0, 0));
    let last = |script: &mut Script| send(script, Flags::ACK | Flags::FIN, Script::request());
    assert_eq!(both(b"x", false, last), (1, 0));
}

#[test]
fn segments_of_the_past_and_broken_ones_are_not_expected() {
    let past = |script: &mut Script| {
        script.tsval = 0u32.wrapping_sub(5);
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, past), (0, 0));
    let without = |script: &mut Script| {
        script.timestamps = false;
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, without), (0, 0));
    let broken = |script: &mut Script| {
        script.wrong_sum = true;
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, broken), (0, 0));
}

#[test]
fn long_replies_and_several_requests_are_not_expected() {
    assert_eq!(both(&[b'l'; 1500], false, |script| script.ask(60_000)), (1, 0));
    let pair = |script: &mut Script| {
        send(script, Flags::ACK | Flags::PSH, &[Script::request(), Script::request()].concat());
    };
    assert_eq!(both(b"x", false, pair), (2, 0));
}

#[test]
fn a_change_is_seen_at_once() {
    let changed = |script: &mut Script| {
        script.ask(60_000);
        script.table.record_change(SOURCE);
        script.ask(60_000);
    };
    // The watcher finds that it leads to the same, which is not for the short way to decide.
    assert_eq!(both(b"x", true, changed), (2, 1));
    let no_lease = |script: &mut Script| {
        script.table.renew_lease(0);
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, no_lease), (0, 0));
    // The lease ends between the beginning of the poll and the frame: the card has stood still.
    let stood_still = |script: &mut Script| {
        script.table.renew_lease(1_000);
        let time_ns = AtomicU64::new(1_000);
        script.card.set_lease_clock(move || time_ns.fetch_add(1, Relaxed));
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, stood_still), (0, 0));
    let goes_on = |script: &mut Script| {
        script.table.renew_lease(1_000);
        script.card.set_lease_clock(|| 1_000);
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, goes_on), (1, 1));
    let bypass = |script: &mut Script| {
        script.card.set_bypass(true);
        script.ask(60_000);
    };
    assert_eq!(both(b"x", true, bypass), (0, 0));
}

#[test]
fn lost_replies_are_sent_again() {
    let lost = |script: &mut Script| {
        script.ask(60_000);
        script.take_at_client();
        script.wait(Duration::from_secs(2));
        assert!(
            script.take_at_client().iter().any(|segment| segment.payload.ends_with(b"lost")),
            "sent again"
        );
    };
    assert_eq!(both(b"lost", true, lost), (1, 1));
}

#[test]
fn a_burst_of_requests_is_answered_in_order() {
    let burst = |script: &mut Script| {
        let before = script.ack;
        script.in_one_burst(|script| (0..3).for_each(|_| script.ask(60_000)));
        script.ack = before;
        script.take_body();
    };
    assert_eq!(both(b"x", false, burst).0, 3);
}
