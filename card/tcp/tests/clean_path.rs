//! Transfers over a path without losses, in virtual time: with pacing they end nearly as soon as
//! without.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use nicache_tcp::{AckInfo, PeerLimits, Sender, SenderConfig, Seq, Time};

const MSS: u32 = 1_448;
const START: Seq = Seq(u32::MAX - 70_000);
/// Bytes that the caller keeps enqueued, and the receiver's window.
const BUFFER: u32 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Bytes up to here arrive at the receiver, which acknowledges each frame at once.
    Data(u32),
    Ack(u32),
    Timer,
}

/// Time until the last of `bytes` arrives, over a path of `rtt` that carries `bits_per_ns`.
fn transfer(bytes: u32, rtt: Duration, bits_per_ns: f64, pacing_rtt_min: Duration) -> Duration {
    let config = SenderConfig { pacing_rtt_min, ..SenderConfig::default() };
    let peer =
        PeerLimits { mss: MSS as u16, window_scale: 7, sack: true, timestamps: false, ecn: false };
    let begun = Time::from_millis(1_000);
    let (mut now, mut link_is_free, mut number) = (begun, begun, 0u64);
    let mut sender = Sender::new(&config, START, peer, BUFFER, now);
    sender.observe_rtt(rtt);
    let mut events = BinaryHeap::new();
    let (mut enqueued, mut received) = (0, 0);
    let mut schedule = |events: &mut BinaryHeap<_>, at: Time, event| {
        number += 1;
        events.push(Reverse((at, number, event)));
    };
    while received < bytes {
        let room = BUFFER - (enqueued - sender.una().since(START));
        let more = room.min(bytes - enqueued);
        sender.enqueue(more);
        enqueued += more;
        while let Some(sent) = sender.poll_transmit(now, 64_000) {
            let takes = Duration::from_nanos((f64::from(sent.len) * 8.0 / bits_per_ns) as u64);
            link_is_free = link_is_free.max(now) + takes;
            schedule(
                &mut events,
                link_is_free + rtt / 2,
                Event::Data(sent.seq.since(START) + sent.len),
            );
        }
        if let Some(due) = sender.next_timeout() {
            schedule(&mut events, due.max(now), Event::Timer);
        }
        let Some(Reverse((at, _, event))) = events.pop() else {
            panic!("stands still at {received} bytes")
        };
        now = at;
        match event {
            Event::Data(up_to) => {
                assert!(up_to > received, "in order, and each byte once");
                received = up_to;
                schedule(&mut events, now + rtt / 2, Event::Ack(received));
            }
            Event::Ack(up_to) => {
                let info = AckInfo {
                    seq: Seq(1),
                    ack: START + up_to,
                    window: BUFFER,
                    ..AckInfo::default()
                };
                sender.handle_ack(&info, now);
            }
            Event::Timer => {}
        }
        if sender.next_timeout().is_some_and(|due| due <= now) {
            sender.handle_timeout(now);
        }
    }
    now - begun
}

#[test]
fn pacing_costs_next_to_nothing() {
    for rtt in [10, 20, 50, 100].map(Duration::from_millis) {
        for bytes in [10_000, 50_000, 100_000, 300_000, 1 << 20, 10 << 20] {
            for bits_per_ns in [0.1, 1.0, 10.0] {
                let [paced, unpaced] = [Duration::from_millis(5), Duration::MAX]
                    .map(|min| transfer(bytes, rtt, bits_per_ns, min));
                let share = unpaced.as_secs_f64() / paced.as_secs_f64();
                assert!(
                    share >= 0.95,
                    "{bytes} bytes, {rtt:?}, {bits_per_ns} Gb/s: {paced:?} instead of {unpaced:?}"
                );
            }
        }
    }
}
