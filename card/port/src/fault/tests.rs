use super::*;
use crate::clock::ManualClock;
use crate::frame::FRAME_BYTES_MAX;
use crate::memory_wire::{MemoryPort, memory_wire};
use crate::test_frames::Recipe;
use proptest::prelude::*;

fn wire(config: &FaultConfig) -> (Faulty<MemoryPort, ManualClock>, MemoryPort, ManualClock) {
    let (a, b) = memory_wire(64, Capabilities::FULL, Capabilities::FULL);
    let clock = ManualClock::new(1_000_000);
    (Faulty::new(a, config, clock.clone()), b, clock)
}

fn numbered(number: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[56..].copy_from_slice(&number.to_be_bytes());
    frame
}

fn send(port: &mut impl Port, number: u32) {
    port.send(&[IoSlice::new(&numbered(number))], Offload::default()).unwrap();
}

/// The numbers of all frames that are there.
fn receive(port: &mut impl Port) -> Vec<u32> {
    let mut burst = Burst::new(7);
    let mut numbers = Vec::new();
    while port.receive(&mut burst).unwrap() > 0 {
        numbers.extend(
            burst.iter().map(|frame| u32::from_be_bytes(frame.data()[56..60].try_into().unwrap())),
        );
    }
    numbers
}

/// Sends `count` frames in both directions, a microsecond apart, and lets the wire run empty.
fn run(config: &FaultConfig, count: u32) -> (Vec<u32>, Vec<u32>, [FaultCounters; 2]) {
    let (mut a, mut b, clock) = wire(config);
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    for number in 0..count {
        send(&mut a, number);
        send(&mut b, number);
        at_b.extend(receive(&mut b));
        at_a.extend(receive(&mut a));
        clock.advance_ns(1000);
    }
    while let Some(due_ns) = a.next_release_ns() {
        clock.set_ns(due_ns);
        at_a.extend(receive(&mut a));
        at_b.extend(receive(&mut b));
    }
    (at_a, at_b, [a.receive_counters(), a.send_counters()])
}

/// The lane is in the byte behind the Ethernet addresses; 0 is none.
fn lane_of(head: &[u8]) -> Option<u16> {
    (head[12] > 0).then_some(u16::from(head[12]))
}

/// The numbers that arrive of those sent through `lane` while others send `between` frames after
/// each.
fn lane_survivors(lane: u8, between: u32) -> Vec<u32> {
    let (a, mut b) = memory_wire(64, Capabilities::FULL, Capabilities::FULL);
    let rates = FaultRates { loss: 0.5, ..FaultRates::default() };
    let config = FaultConfig { seed: 9, receive: rates, send: rates, queue_frames: 64 };
    let mut a = Faulty::with_lanes(a, &config, ManualClock::new(0), lane_of);
    let mut arrived = Vec::new();
    for number in 0..200 {
        for other in 0..=between {
            let mut frame = numbered(number);
            frame[12] = if other == 0 { lane } else { 100 + other as u8 };
            a.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
            let numbers = receive(&mut b);
            if other == 0 {
                arrived.extend(numbers);
            }
        }
    }
    arrived
}

#[test]
fn lanes_do_not_know_of_each_other() {
    let alone = lane_survivors(1, 0);
    assert_eq!(alone, lane_survivors(1, 3));
    assert_ne!(alone, lane_survivors(2, 0));
    assert!((60..140).contains(&alone.len()), "{}", alone.len());
    assert_eq!(lane_survivors(0, 1).len(), 200, "without a lane nothing is lost");
}

#[test]
fn a_wire_restarted_is_like_a_new_one() {
    let rates = FaultRates { loss: 0.5, latency_ns: 10, ..FaultRates::default() };
    let config = FaultConfig { seed: 9, receive: rates, send: rates, queue_frames: 64 };
    for lanes in [false, true] {
        let (a, mut b) = memory_wire(64, Capabilities::FULL, Capabilities::FULL);
        let clock = ManualClock::new(0);
        let mut a = if lanes {
            Faulty::with_lanes(a, &config, clock.clone(), |_| Some(7))
        } else {
            Faulty::new(a, &config, clock.clone())
        };
        let mut run = |a: &mut Faulty<MemoryPort, ManualClock>| {
            (0..50).for_each(|number| send(a, number));
            clock.advance_ns(10);
            a.flush().unwrap();
            receive(&mut b)
        };
        let first = run(&mut a);
        (0..9).for_each(|number| send(&mut a, number));
        a.restart(&config);
        assert_eq!(a.next_release_ns(), None, "what was held back is lost");
        assert_eq!(run(&mut a), first);
    }
}

const BAD: FaultRates = FaultRates {
    loss: 0.1,
    duplicate: 0.1,
    reorder: 0.1,
    reorder_ns: 5_000,
    corrupt: 0.1,
    delay: 0.1,
    delay_ns: 20_000,
    latency_ns: 500,
};

fn both(rates: FaultRates) -> FaultConfig {
    FaultConfig { seed: 42, receive: rates, send: rates, ..FaultConfig::default() }
}

#[test]
fn a_perfect_wire_changes_nothing() {
    let (at_a, at_b, _) = run(&both(FaultRates::default()), 200);
    let all: Vec<u32> = (0..200).collect();
    assert_eq!((at_a, at_b), (all.clone(), all));
}

#[test]
fn the_seed_decides_everything() {
    let first = run(&both(BAD), 500);
    assert_eq!(run(&both(BAD), 500), first);
    assert_ne!(run(&FaultConfig { seed: 43, ..both(BAD) }, 500).0, first.0);
    assert_ne!(first.2[0].lost, 0);
    // The directions differ from each other, and each is on its own.
    assert_ne!(first.0, first.1);
    let one_way = FaultConfig { receive: FaultRates::default(), ..both(BAD) };
    assert_eq!(run(&one_way, 500).1, first.1);
}

#[test]
fn a_rate_leaves_the_other_faults_where_they_were() {
    let lossy = FaultRates { loss: 0.2, ..FaultRates::default() };
    let both_faults = FaultRates { duplicate: 0.5, ..lossy };
    let (plain, _, _) = run(&both(lossy), 300);
    let (mut doubled, _, counters) = run(&both(both_faults), 300);
    assert!(counters[0].duplicated > 50);
    doubled.dedup();
    assert_eq!(plain, doubled);
}

#[test]
fn rates_are_met() {
    let (_, _, counters) = run(&both(BAD), 20_000);
    for counters in counters {
        assert_eq!(counters.frames, 20_000);
        assert!((1850..2150).contains(&counters.lost), "{counters:?}");
        for count in [counters.duplicated, counters.reordered, counters.corrupted, counters.delayed]
        {
            assert!((1650..1950).contains(&count), "{counters:?}");
        }
        assert_eq!((counters.overflowed, counters.refused), (0, 0));
    }
    let (at_a, _, _) = run(&both(FaultRates { loss: 1.0, ..BAD }), 100);
    assert!(at_a.is_empty());
}

#[test]
fn reordered_frames_are_overtaken_and_arrive() {
    let rates = FaultRates { reorder: 0.2, reorder_ns: 10_000, ..FaultRates::default() };
    let (mut at_a, mut at_b, _) = run(&both(rates), 300);
    for numbers in [&mut at_a, &mut at_b] {
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert_eq!(*numbers, (0..300).collect::<Vec<u32>>());
    }
}

#[test]
fn delays_keep_the_order() {
    let rates =
        FaultRates { delay: 0.3, delay_ns: 30_000, latency_ns: 2_000, ..FaultRates::default() };
    let (at_a, at_b, _) = run(&both(rates), 300);
    let all: Vec<u32> = (0..300).collect();
    assert_eq!((at_a, at_b), (all.clone(), all));
}

#[test]
fn latency_is_exact() {
    let (mut a, mut b, clock) =
        wire(&both(FaultRates { latency_ns: 700, ..FaultRates::default() }));
    send(&mut a, 1);
    send(&mut b, 2);
    assert!(receive(&mut a).is_empty() && receive(&mut b).is_empty());
    assert_eq!(a.next_release_ns(), Some(1_000_700));
    clock.advance_ns(699);
    a.flush().unwrap();
    assert!(receive(&mut a).is_empty() && receive(&mut b).is_empty());
    clock.advance_ns(1);
    a.flush().unwrap();
    assert_eq!((receive(&mut a), receive(&mut b)), (vec![2], vec![1]));
    assert_eq!(a.next_release_ns(), None);
}

#[test]
fn the_queue_is_bounded() {
    let config = FaultConfig {
        queue_frames: 10,
        ..both(FaultRates { latency_ns: 1_000_000, ..FaultRates::default() })
    };
    let (mut a, mut b, clock) = wire(&config);
    for number in 0..15 {
        send(&mut a, number);
        send(&mut b, number);
    }
    assert!(receive(&mut a).is_empty());
    clock.advance_ns(1_000_000);
    assert_eq!((receive(&mut a), receive(&mut b)), ((0..10).collect(), (0..10).collect()));
    assert_eq!((a.receive_counters().overflowed, a.send_counters().overflowed), (5, 5));
    // The buffers are free again.
    send(&mut a, 99);
    clock.advance_ns(1_000_000);
    a.flush().unwrap();
    assert_eq!(receive(&mut b), [99]);
}

#[test]
fn what_the_port_refuses_is_told_or_counted() {
    let (mut a, _b, clock) = wire(&both(FaultRates::default()));
    assert!(matches!(
        a.send(&[IoSlice::new(&[0; 5])], Offload::default()),
        Err(SendError::Invalid)
    ));
    let long = vec![0; FRAME_BYTES_MAX + 1];
    assert!(matches!(a.send(&[IoSlice::new(&long)], Offload::default()), Err(SendError::TooLong)));
    let late = FaultRates { latency_ns: 1, ..FaultRates::default() };
    a.set_rates(&late, &late);
    a.send(&[IoSlice::new(&[0; 5])], Offload::default()).unwrap();
    clock.advance_ns(1);
    a.flush().unwrap();
    assert_eq!(a.send_counters().refused, 1);
}

proptest! {
    /// A receiver that verifies finds every corrupted TCP segment, from a super-frame or not,
    /// whatever was known of its checksum.
    #[test]
    fn corruption_is_detectable(
        seed: u64,
        ipv6: bool,
        ip_extra in 0usize..2,
        super_frame: bool,
        partial: bool,
        inward: bool,
        payload in proptest::collection::vec(any::<u8>(), 1..4000),
    ) {
        let recipe = Recipe {
            ipv6,
            ip_extra: if ipv6 { 0 } else { ip_extra },
            payload,
            ..Recipe::default()
        };
        let (mut frame, mut offload) = recipe.build(super_frame.then_some(900));
        if !super_frame && !partial {
            complete_in_place(&mut frame, recipe.transport(), 16).unwrap();
            prop_assert_eq!(recipe.verify(&frame), Ok(()));
            offload = Offload { checksum: Checksum::Valid, gso: None };
        }
        let config = FaultConfig {
            seed,
            queue_frames: 4,
            ..both(FaultRates { corrupt: 1.0, ..FaultRates::default() })
        };
        let (a, mut b) = memory_wire(4, Capabilities::FULL, Capabilities::FULL);
        let mut a = Faulty::new(a, &config, || 0);
        let mut burst = Burst::new(4);
        let parts = [IoSlice::new(&frame)];
        if inward {
            b.send(&parts, offload).unwrap();
            a.receive(&mut burst).unwrap();
        } else {
            a.send(&parts, offload).unwrap();
            b.receive(&mut burst).unwrap();
        }
        prop_assert_eq!(burst.len(), 1);
        let arrived = &burst.frames()[0];
        prop_assert_eq!(arrived.offload(), Offload::default());
        prop_assert_eq!(recipe.verify(arrived.data()), Err("transport checksum".to_owned()));
    }

    /// Whatever is in the frame: no panic, same length.
    #[test]
    fn any_frame_can_be_corrupted(
        bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ip in 0usize..3,
        word: u64,
    ) {
        let mut bytes = bytes;
        if let Some(ethertype) = bytes.get_mut(12..14) {
            ethertype.copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0]][ip]);
        }
        let mut frame = FrameBuf::new();
        frame.copy_from(&[IoSlice::new(&bytes)], Offload::default()).unwrap();
        corrupt(&mut frame, word);
        prop_assert_eq!(frame.len(), bytes.len());
        let changed: u32 = frame.data().iter().zip(&bytes).map(|(a, b)| (a ^ b).count_ones()).sum();
        prop_assert_eq!(changed, u32::from(bytes.len() > ETHERNET_HEADER_BYTES));
    }
}
