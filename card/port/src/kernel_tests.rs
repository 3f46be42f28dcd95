//! Ports against the real kernel. Each test makes its own network namespaces in threads of its own,
//! which vanish with it; nothing outside of them is touched, and tests can run at the same time.
//! Skipped, with the reason printed, where TAPs cannot be made.

mod harness;
mod packet;

use std::io::{IoSlice, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::harness::*;
use crate::test_frames::Recipe;
use crate::*;

#[test]
fn ping_and_udp_cross_between_kernels() {
    let (Some(first), Some(second)) = (namespace(), namespace()) else {
        return;
    };
    let bridge = Bridge::start(first.tap(1, 1).remove(0), second.tap(2, 1).remove(0));
    ping(&first, v4(2, 0));
    ping(&second, v4(1, 0));
    for addresses in [[v4(1, 0), v4(2, 0)], [v6(1), v6(2)]] {
        let (a, b) = (udp_socket(&first, addresses[0]), udp_socket(&second, addresses[1]));
        // One byte, a frame full, and fragments.
        for len in [0, 1, 1400, 9000] {
            let datagram = vec![len as u8; len];
            let mut buffer = vec![0; 10_000];
            a.send_to(&datagram, b.local_addr().unwrap()).unwrap();
            let (received, from) = uninterrupted(|| b.recv_from(&mut buffer)).unwrap();
            assert_eq!(buffer[..received], datagram);
            b.send_to(&buffer[..received], from).unwrap();
            assert_eq!(uninterrupted(|| a.recv(&mut buffer)).unwrap(), len);
        }
    }
    let [first, second] = bridge.stop();
    assert_eq!(first.receive.dropped + second.receive.dropped, 0);
}

#[test]
fn tcp_super_frames_cross_whole() {
    let (Some(first), Some(second)) = (namespace(), namespace()) else {
        return;
    };
    let bridge = Bridge::start(first.tap(1, 1).remove(0), second.tap(2, 1).remove(0));
    transfer(&first, &second, v4(2, 0), 32 << 20);
    transfer(&second, &first, v6(1), 32 << 20);
    let snapshots = bridge.stop();
    for PortSnapshot { receive, send } in snapshots {
        println!("{receive:?} {send:?}");
        assert!(receive.super_frames > 100);
        assert!(
            receive.bytes > (MTU_FRAME_BYTES as u64) * receive.frames,
            "frames are not longer than the MTU on average"
        );
        assert_eq!((receive.dropped, send.refused), (0, 0));
    }
    assert_eq!(snapshots[0].receive.super_frames, snapshots[1].send.super_frames);
}

#[test]
fn super_frames_are_cut_for_a_plain_port_and_the_kernel_accepts_them() {
    let (Some(first), Some(second)) = (namespace(), namespace()) else {
        return;
    };
    let bridge = Bridge::start(Plain(first.tap(1, 1).remove(0)), Plain(second.tap(2, 1).remove(0)));
    transfer(&first, &second, v4(2, 0), 8 << 20);
    transfer(&first, &second, v6(2), 8 << 20);
    let [first, second] = bridge.stop();
    println!("{first:?} {second:?}");
    assert!(first.receive.super_frames > 20);
    assert!(second.send.frames > 2 * ((8 << 20) / 1448));
    assert_eq!((second.send.super_frames, second.send.refused), (0, 0));
}

#[test]
fn tcp_survives_a_bad_wire() {
    let (Some(first), Some(second)) = (namespace(), namespace()) else {
        return;
    };
    let rates = FaultRates {
        loss: 0.01,
        duplicate: 0.01,
        reorder: 0.02,
        reorder_ns: 200_000,
        corrupt: 0.01,
        delay: 0.01,
        delay_ns: 100_000,
        latency_ns: 0,
    };
    let config = FaultConfig { seed: 1, receive: rates, send: rates, ..FaultConfig::default() };
    let bad = Faulty::new(Plain(first.tap(1, 1).remove(0)), &config, MonotonicClock);
    let bridge = Bridge::start(bad, second.tap(2, 1).remove(0));
    transfer(&first, &second, v4(2, 0), 1 << 20);
    transfer(&second, &first, v4(1, 0), 1 << 20);
    assert_eq!(bridge.stop()[0].send.refused, 0);
}

/// A UDP frame for a socket on 10.77.0.1.
fn datagram(port: u16, payload: &[u8], gso: Option<u16>) -> (Recipe, Vec<u8>, Offload) {
    let recipe = Recipe { udp: true, payload: payload.to_vec(), ..Recipe::default() };
    let (mut frame, offload) = recipe.build(gso);
    frame[..6].copy_from_slice(&MAC);
    recipe.readdress(&mut frame, [10, 77, 0, 9], [10, 77, 0, 1], port);
    (recipe, frame, offload)
}

#[test]
fn the_kernel_believes_the_metadata_and_else_verifies() {
    let Some(namespace) = namespace() else { return };
    let mut tap = namespace.tap(1, 1).remove(0);
    let socket = udp_socket(&namespace, v4(1, 0));
    let port = socket.local_addr().unwrap().port();
    let receive = |len: usize| {
        let mut buffer = [0; 4000];
        let received = uninterrupted(|| socket.recv(&mut buffer)).unwrap();
        assert_eq!(received, len);
        buffer[0]
    };

    // The checksum field holds the pseudo-header only: wrong, unless it is said to be partial.
    let (_, frame, offload) = datagram(port, &[1; 100], None);
    tap.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
    tap.send(&[IoSlice::new(&frame[..30]), IoSlice::new(&frame[30..])], offload).unwrap();
    assert_eq!(receive(100), 1);

    // The first one was dropped: what comes next is the next one.
    let (recipe, mut frame, _) = datagram(port, &[2; 101], None);
    segment::complete_in_place(&mut frame, recipe.transport(), 6).unwrap();
    tap.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
    assert_eq!(receive(101), 2);

    if tap.capabilities().uso {
        let (_, frame, offload) = datagram(port, &[3; 2500], Some(1000));
        tap.send(&[IoSlice::new(&frame)], offload).unwrap();
        assert_eq!([receive(1000), receive(1000), receive(500)], [3; 3]);
    }

    assert!(matches!(
        tap.send(&[IoSlice::new(&frame[..13])], Offload::default()),
        Err(SendError::Invalid)
    ));
    let long = vec![0; FRAME_BYTES_MAX + 1];
    assert!(matches!(
        tap.send(&[IoSlice::new(&long)], Offload::default()),
        Err(SendError::TooLong)
    ));
    namespace.ip("link set card0 down");
    let down = tap.send(&[IoSlice::new(&frame)], Offload::default());
    assert!(matches!(down, Err(SendError::Io(_))), "{down:?}");
}

#[test]
fn queues_share_the_traffic_of_an_interface() {
    let Some(namespace) = namespace() else { return };
    let mut queues = namespace.tap(1, 4);
    namespace.ip("neighbour add 10.77.0.2 lladdr 2:0:0:0:0:2 dev card0");
    for _ in 0..64 {
        udp_socket(&namespace, v4(1, 0)).send_to(&[7; 500], v4(2, 9)).unwrap();
    }
    let mut burst = Burst::new(8);
    let mut found = [0; 4];
    for (queue, found) in queues.iter_mut().zip(&mut found) {
        while queue.receive(&mut burst).unwrap() > 0 {
            *found +=
                burst.iter().filter(|frame| frame.len() == 542 && frame.data()[541] == 7).count();
        }
    }
    assert_eq!(found.iter().sum::<usize>(), 64, "{found:?}");
    assert!(found.iter().filter(|count| **count > 0).count() > 1, "{found:?}");
}

#[test]
fn an_idle_tap_sleeps_and_wakes() {
    let Some(namespace) = namespace() else { return };
    let mut tap = namespace.tap(1, 1).remove(0);
    namespace.ip("neighbour add 10.77.0.2 lladdr 2:0:0:0:0:2 dev card0");
    let mut burst = Burst::new(4);
    let mut drain = |tap: &mut TapQueue| {
        let mut frames = 0;
        while tap.receive(&mut burst).unwrap() > 0 {
            frames += burst.len();
        }
        frames
    };
    let (start, start_ns) = (Instant::now(), nicache_clock::thread_cpu_ns());
    // The kernel sends some frames of its own (IPv6 router solicitation) meanwhile.
    while start.elapsed() < Duration::from_millis(300) {
        drain(&mut tap);
        wait(&[tap.as_fd()], Some(Duration::from_millis(100))).unwrap();
    }
    assert!(
        nicache_clock::thread_cpu_ns() - start_ns < 50_000_000,
        "{} ns of processor time",
        nicache_clock::thread_cpu_ns() - start_ns
    );

    let socket = udp_socket(&namespace, v4(1, 0));
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        socket.send_to(b"wake up", v4(2, 9)).unwrap();
    });
    assert_eq!(wait(&[tap.as_fd()], Some(DEADLINE)).unwrap(), Wake::Ready);
    assert!(drain(&mut tap) > 0);
    sender.join().unwrap();
}

#[test]
fn interfaces_are_exclusive_and_vanish() {
    let Some(namespace) = namespace() else { return };
    let open = |name: &'static str, config: TapConfig| {
        namespace.run(move || Tap::open_with(name, 1, &config))
    };
    let config = TapConfig::default();
    let existing = TapConfig { existing: true, ..config };
    let queues = open("one", config).unwrap();
    assert!(matches!(open("one", config), Err(TapError::Exists(name)) if name == "one"));
    assert!(matches!(open("lo", existing), Err(TapError::BadName(_))));
    drop(open("one", existing).unwrap());
    drop(queues);
    for config in [
        TapConfig { napi: true, tso: false, ..config },
        TapConfig { checksum: false, uso: false, ..config },
    ] {
        // A process that another test starts has the descriptors, too, until it executes its
        // program.
        let began = Instant::now();
        loop {
            match open("one", config) {
                Err(TapError::Exists(_)) if began.elapsed() < DEADLINE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => break drop(opened.unwrap()),
            }
        }
    }
}

#[test]
fn a_queue_is_steered_to_the_cpu_of_its_thread() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Some(namespace) = namespace() else { return };
    let queues = namespace.tap(1, 2);
    let interface = queues[0].interface().to_owned();
    namespace.run(move || {
        assert!(ReceiveSteering::open(&interface, 2).is_err(), "there are two queues");
        let mut steering = ReceiveSteering::open(&interface, 1).unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        for (turn, cpu) in cpus.enumerate() {
            let mut only = CpuSet::new();
            only.set(cpu);
            sched_setaffinity(None, &only).unwrap();
            steering.follow(turn as u64 * 1_000_000_000).unwrap();
            let mut text = [0; 4096];
            let file =
                crate::steering::queue_file(&interface, 1, rustix::fs::OFlags::RDONLY).unwrap();
            let len = rustix::io::read(&file, &mut text).unwrap();
            let text = String::from_utf8_lossy(&text[..len]).trim().replace(',', "");
            let bits: u32 =
                text.chars().map(|digit| digit.to_digit(16).unwrap().count_ones()).sum();
            let from_end = text.len() - 1 - cpu / 4;
            let digit = text.chars().nth(from_end).unwrap().to_digit(16).unwrap();
            assert_eq!((bits, digit), (1, 1 << (cpu % 4)), "CPU {cpu}: {text}");
        }
    });
}

#[test]
fn without_the_capability_the_error_says_so() {
    let Some(namespace) = namespace() else { return };
    let result = namespace.run(|| {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        // Of this thread only.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
        Tap::open("none", 1)
    });
    assert!(matches!(result, Err(TapError::NotPermitted)), "{result:?}");
}

/// Kills the child if the test fails.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const INHERITED: &str = "NICACHE_PORT_TEST_INHERITED";

#[test]
fn a_child_takes_over_a_queue() {
    if let Ok(number) = std::env::var(INHERITED) {
        return child(number.parse().unwrap());
    }
    let Some(namespace) = namespace() else { return };
    let tap = namespace.tap(1, 1).remove(0);
    let number = tap.keep_across_exec().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kernel_tests::a_child_takes_over_a_queue", "--nocapture"])
        .env(INHERITED, number.to_string())
        .spawn()
        .unwrap();
    let mut child = Reaped(child);
    drop(tap);
    namespace.ip("neighbour add 10.77.0.2 lladdr 2:0:0:0:0:2 dev card0");
    let socket = udp_socket(&namespace, v4(1, 0));
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let start = Instant::now();
    let mut buffer = [0; 100];
    loop {
        socket.send_to(b"is anybody there?", v4(2, 9)).unwrap();
        if let Ok(17) = socket.recv(&mut buffer) {
            break;
        }
        assert!(start.elapsed() < DEADLINE, "no answer from the child");
    }
    assert!(child.0.wait().unwrap().success());
}

/// Sends the first datagram back to where it came from.
fn child(number: i32) {
    let mut tap = TapQueue::inherit(number, &TapConfig::default()).unwrap();
    assert_eq!(tap.interface(), "card0");
    let mut burst = Burst::new(4);
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        wait(&[tap.as_fd()], Some(Duration::from_millis(100))).unwrap();
        tap.receive(&mut burst).unwrap();
        for frame in &burst {
            let data = frame.data();
            if data.ends_with(b"is anybody there?") {
                // Swap the MAC addresses, the IPv4 addresses and the ports: no sum changes.
                let order = [
                    &data[6..12],
                    &data[..6],
                    &data[12..26],
                    &data[30..34],
                    &data[26..30],
                    &data[36..38],
                    &data[34..36],
                    &data[38..],
                ];
                tap.send(&order.map(IoSlice::new), frame.offload()).unwrap();
                return;
            }
        }
    }
    panic!("no datagram");
}

#[test]
fn a_capture_has_both_directions() {
    /// A file that is still there when the port has gone to another thread.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (Some(first), Some(second)) = (namespace(), namespace()) else {
        return;
    };
    let file = Shared::default();
    let port =
        Pcap::new(first.tap(1, 1).remove(0), file.clone(), RealtimeClock, PCAP_SNAPLEN_DEFAULT)
            .unwrap();
    let bridge = Bridge::start(port, second.tap(2, 1).remove(0));
    transfer(&first, &second, v4(2, 0), 1 << 20);
    let [counted, _] = bridge.stop();
    let file = file.0.lock().unwrap();
    let (mut at, mut records, mut longest) = (24, 0, 0);
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        longest = longest.max(len);
        at += 16 + len;
        records += 1;
    }
    assert_eq!((at, records), (file.len(), counted.receive.frames + counted.send.frames));
    assert!(longest > MTU_FRAME_BYTES);
}
