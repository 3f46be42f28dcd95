use nicache_random::SplitMix64 as Random;
use nicache_trace::{Record, Verb};
use proptest::prelude::*;

use super::*;
use crate::content::render;
use crate::sessions::SessionConfig;

use crate::trace::Trace;

/// One client's requests for objects of 300 bytes at these seconds.
fn plan(seconds: &[u64]) -> Plan {
    let mut trace = Trace::default();
    for (object, &second) in seconds.iter().enumerate() {
        let (object, verb) = (object as u64, Verb::Get);
        let (time_us, bytes) = (second * 1_000_000, Some(300));
        trace
            .push(&Record { time_us, object, verb, status: 200, bytes, ..Record::default() })
            .unwrap();
    }
    Plan::new(&trace, &SessionConfig::default())
}

fn reply(object: u64, closes: bool) -> Vec<u8> {
    let mut body = vec![0; 300];
    render(object, crate::content::VERSION, 0, &mut body);
    let connection = if closes { "Connection: close\r\n" } else { "" };
    let mut reply =
        format!("HTTP/1.1 200 OK\r\nContent-Length: 300\r\n{connection}\r\n").into_bytes();
    reply.extend(body);
    reply
}

/// The objects of the requests in `bytes`, and whether each asks for the connection to be closed.
fn requests(bytes: &[u8]) -> Vec<(u64, bool)> {
    let text = std::str::from_utf8(bytes).unwrap();
    let one = |request: &str| {
        let target = request.strip_prefix("GET /").unwrap().split(' ').next().unwrap();
        let object = u64::from_str_radix(target.split('/').nth(1).unwrap(), 16).unwrap();
        assert!(request.contains("\r\nHost: server"));
        (object, request.contains("Connection: close"))
    };
    text.split_terminator("\r\n\r\n").map(one).collect()
}

fn send_all(conversation: &mut Conversation, plan: &Plan) -> Vec<(u64, bool)> {
    let mut sent = Vec::new();
    while conversation.poll(plan, 0) == Step::Send {
        let bytes = conversation.poll_bytes(plan, "server").to_vec();
        conversation.handle_sent(bytes.len());
        sent.extend(bytes);
    }
    requests(&sent)
}

#[test]
fn a_batch_is_sent_at_once_the_next_after_its_replies_and_the_last_request_closes() {
    let plan = plan(&[0, 1, 8]);
    let (mut conversation, mut report) = (Conversation::new(), ReplayerReport::default());
    conversation.begin(plan.sessions().get(0), 0, None);
    assert_eq!(conversation.poll(&plan, 0), Step::Connect);
    conversation.handle_connection();
    assert_eq!(send_all(&mut conversation, &plan), [(0, false), (1, false)]);
    assert_eq!(conversation.poll(&plan, 5), Step::Receive);
    conversation.handle_received(&reply(0, false), &plan, 1000, &mut report).unwrap();
    assert_eq!(conversation.poll(&plan, 1000), Step::Receive);
    conversation.handle_received(&reply(1, false), &plan, 2000, &mut report).unwrap();
    assert_eq!(send_all(&mut conversation, &plan), [(2, true)]);
    conversation.handle_received(&reply(2, true), &plan, 9000, &mut report).unwrap();
    assert_eq!(conversation.poll(&plan, 9000), Step::Over);
    assert_eq!(conversation.handle_end(), Ok(()));
    report.finish();
    assert_eq!((report.replies, report.sessions, report.body_bytes), (3, 1, 900));
    assert!(report.is_clean());
}

#[test]
fn in_open_loop_batches_keep_their_times_and_latency_counts_from_them() {
    let plan = plan(&[100, 110]);
    let (mut conversation, mut report) = (Conversation::new(), ReplayerReport::default());
    let second = 1_000_000_000;
    conversation.begin(plan.sessions().get(0), 7 * second, Some(10.0));
    assert_eq!(conversation.poll(&plan, 7 * second + 1), Step::Connect);
    conversation.handle_connection();
    send_all(&mut conversation, &plan);
    conversation.handle_received(&reply(0, false), &plan, 7 * second + 5000, &mut report).unwrap();
    assert_eq!(conversation.poll(&plan, 7 * second + 6000), Step::Wait(8 * second));
    assert!(!conversation.is_waiting_for_reply());
    // The server does not wait so long.
    assert_eq!(conversation.handle_end(), Ok(()));
    assert_eq!(conversation.poll(&plan, 8 * second + 3000), Step::Connect);
    conversation.handle_connection();
    assert_eq!(send_all(&mut conversation, &plan), [(1, true)]);
    conversation.handle_received(&reply(1, true), &plan, 8 * second + 4000, &mut report).unwrap();
    report.finish();
    assert!((report.latency.max_us - 5.0).abs() < 0.1 && (report.latency.p50_us - 4.0).abs() < 0.1);
    assert!((report.session_latency.max_us - 1_000_004.0).abs() < 1000.0);
}

#[test]
fn what_a_server_leaves_unanswered_when_it_closes_is_asked_for_again() {
    let plan = plan(&[0, 0, 0]);
    let (mut conversation, mut report) = (Conversation::new(), ReplayerReport::default());
    conversation.begin(plan.sessions().get(0), 0, None);
    assert_eq!(conversation.poll(&plan, 0), Step::Connect);
    conversation.handle_connection();
    assert_eq!(send_all(&mut conversation, &plan).len(), 3);
    conversation.handle_received(&reply(0, true), &plan, 1, &mut report).unwrap();
    assert_eq!(conversation.handle_end(), Ok(()));
    assert_eq!(conversation.poll(&plan, 2), Step::Connect);
    conversation.handle_connection();
    assert_eq!(send_all(&mut conversation, &plan), [(1, false), (2, true)]);
    // It ends within the next one: no more is asked for.
    conversation.handle_received(&reply(1, false)[..200], &plan, 3, &mut report).unwrap();
    assert_eq!(conversation.handle_end(), Err(Fault::Cut));
    assert_eq!(conversation.unanswered(&plan), (2, "/00/0000000000000001".to_owned()));
}

#[test]
fn bytes_that_nobody_asked_for_are_an_error() {
    let plan = plan(&[0]);
    let (mut conversation, mut report) = (Conversation::new(), ReplayerReport::default());
    conversation.begin(plan.sessions().get(0), 0, None);
    assert_eq!(conversation.poll(&plan, 0), Step::Connect);
    conversation.handle_connection();
    send_all(&mut conversation, &plan);
    let mut bytes = reply(0, false);
    bytes.extend_from_slice(b"more");
    assert_eq!(conversation.handle_received(&bytes, &plan, 0, &mut report), Err(Fault::Surplus));
    assert_eq!(report.replies, 1);
}

proptest! {
    /// A server that takes and gives in any pieces and closes after any number of replies, if it
    /// says so, loses nothing.
    #[test]
    fn every_request_is_answered_once(
        mut seconds in proptest::collection::vec(0u64..40, 1..60),
        replies_per_connection in 1usize..20,
        piece in 1usize..2000,
        seed: u64,
    ) {
        seconds.sort_unstable();
        let (plan, mut random) = (plan(&seconds), Random::new(seed));
        let mut report = ReplayerReport::default();
        let mut conversation = Conversation::new();
        for session in 0..plan.sessions().len() {
            conversation.begin(plan.sessions().get(session), 0, None);
            let (mut sent, mut answered, mut now) = (Vec::new(), 0, 0);
            loop {
                now += 1;
                match conversation.poll(&plan, now) {
                    Step::Over => break,
                    Step::Wait(_) => prop_assert!(false, "nothing has a time"),
                    Step::Connect => {
                        conversation.handle_connection();
                        (sent, answered) = (Vec::new(), 0);
                    }
                    Step::Send => {
                        let bytes = conversation.poll_bytes(&plan, "server");
                        let take = 1 + random.below(bytes.len() as u64) as usize;
                        sent.extend_from_slice(&bytes[..take]);
                        conversation.handle_sent(take);
                    }
                    Step::Receive => {
                        let asked = requests(&sent)[answered];
                        answered += 1;
                        let closes = asked.1 || answered == replies_per_connection;
                        for bytes in reply(asked.0, closes).chunks(piece) {
                            conversation.handle_received(bytes, &plan, now, &mut report).unwrap();
                        }
                        if closes {
                            prop_assert_eq!(conversation.handle_end(), Ok(()));
                        }
                    }
                }
            }
        }
        prop_assert_eq!(report.replies as usize, seconds.len());
        prop_assert_eq!(report.sessions as usize, plan.sessions().len());
        prop_assert!(report.is_clean());
    }
}
