//! What the host says, and what comes out on the wire.

use std::sync::Arc;

use nicache_bus::descriptor::Refusal;
use nicache_bus::{
    Attachment, BusClass, BusModel, Command, Completion, Flags, HostSide, Meter, Post, Received,
    Segmentation, Window,
};
use nicache_firmware::{Broken, Firmware, FirmwareCounters, Progress};
use nicache_port::{Burst, Capabilities, MemoryPort, Offload, Port, memory_wire};
use proptest::prelude::*;

const WINDOW_BYTES: usize = 1 << 20;
const CACHE_BYTES: u32 = 64 << 10;

struct Bench {
    host: HostSide,
    window: Arc<Window>,
    card: Firmware<MemoryPort>,
    wire: MemoryPort,
}

impl Bench {
    fn new(capabilities: Capabilities, meter: Option<Arc<Meter>>) -> Self {
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let window = Arc::new(Window::create("test", WINDOW_BYTES).unwrap());
        let seen = Arc::new(Window::map(window.file().try_clone_to_owned().unwrap()).unwrap());
        let (port, wire) = memory_wire(64, capabilities, Capabilities::FULL);
        let side = Attachment::from_files(files).unwrap().card();
        Self {
            host: made.host(),
            window,
            card: Firmware::new(port, side, seen, CACHE_BYTES, meter).unwrap(),
            wire,
        }
    }

    fn say(&mut self, commands: &[Command]) {
        for command in commands {
            self.host.commands.push(command.encode()).unwrap();
        }
        if self.host.commands.publish() {
            self.host.card_bell.ring();
        }
    }

    fn settle(&mut self) {
        while self.card.turn(0).unwrap() != Progress::Idle {}
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::new(16);
        let mut frames = Vec::new();
        while self.wire.receive(&mut burst).unwrap() > 0 {
            frames.extend(burst.iter().map(|frame| frame.data().to_vec()));
        }
        frames
    }

    fn answers(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.host.done.pop().unwrap())
            .map(|entry| Completion::decode(entry).unwrap())
            .collect()
    }
}

fn headers(mmaddr: u64, len: u32, flags: Flags) -> Command {
    let class = BusClass::NetworkHeaders;
    Command::AppendMm { mmaddr, len, flags, class, port: 0, segmentation: Segmentation::default() }
}

const HEADER: &[u8] = b"fourteen bytes";

#[test]
fn content_crosses_once() {
    let mut bench = Bench::new(Capabilities::FULL, None);
    bench.window.write(0, HEADER).unwrap();
    bench.window.write(4096, &[7; 4096]).unwrap();
    bench.say(&[
        Command::CacheInit,
        Command::CacheInsert { mmaddr: 4096, ncoffset: 8192, len: 4096, generation: 0 },
    ]);
    for _ in 0..10 {
        let rest = Command::AppendCache {
            ncoffset: 8192 + 100,
            len: 1000,
            flags: Flags::LAST,
            generation: 0,
        };
        bench.say(&[headers(0, 14, Flags::FIRST), rest]);
    }
    bench.settle();
    assert_eq!(bench.answers(), [Completion::CacheSize { bytes: u64::from(CACHE_BYTES) }]);
    assert_eq!(bench.frames(), vec![[HEADER, &[7; 1000]].concat(); 10]);
    let bus = *bench.card.bus();
    assert_eq!((bus.of(BusClass::Content), bus.of(BusClass::NetworkHeaders)), (4096, 140));
    // Commands, and the one completion.
    assert_eq!(bus.of(BusClass::Overhead), (22 + 1) * 16);
    assert_eq!(bus.total(), 4096 + 140 + 23 * 16);
    assert_eq!(bench.host.counted.read(), bus);
    assert_eq!(bench.card.counters().cache_bytes, 10_000);
}

/// A bell that waits for a better moment is rung all the same: before the card sleeps, and soon if
/// it never does.
#[test]
fn a_host_that_sleeps_beside_the_card_is_rung_for() {
    for is_busy in [false, true] {
        let mut bench = Bench::new(Capabilities::FULL, None);
        let place = Post::whole(8192, 2048);
        bench.host.free.push(place.encode()).unwrap();
        let _ = bench.host.free.publish();
        bench.host.bell.hear();
        assert_eq!(bench.host.received.sleep_until_entry(), Ok(true));
        bench.host.presence.sleep();
        bench.wire.send(&[std::io::IoSlice::new(&[1; 60])], Offload::default()).unwrap();
        let mut is_rung = false;
        for turn in 0..10 {
            if is_busy {
                bench.say(&[Command::CacheInsert {
                    mmaddr: 4096,
                    ncoffset: 0,
                    len: 4096,
                    generation: 0,
                }]);
            }
            let progress = bench.card.turn(turn * 50_000).unwrap();
            is_rung |= bench.host.bell.hear();
            if progress == Progress::Idle {
                break;
            }
        }
        assert!(is_rung, "busy: {is_busy}");
        assert_eq!(bench.host.received.available(), Ok(1));
    }
}

#[test]
fn a_super_frame_is_cut_for_a_port_that_cannot() {
    let mut frame = vec![0; 54];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&3040u16.to_be_bytes());
    frame[23] = 6;
    frame[46] = 0x50;
    for (capabilities, frames) in [(Capabilities::FULL, 1), (Capabilities::PLAIN, 3)] {
        let mut bench = Bench::new(capabilities, None);
        bench.window.write(0, &frame).unwrap();
        let segmentation = Segmentation { size: 1000, header_len: 54, transport: 34 };
        let flags = Flags::FIRST.with(Flags::CHECKSUM);
        let class = BusClass::NetworkHeaders;
        bench.say(&[
            Command::AppendMm { mmaddr: 0, len: 54, flags, class, port: 0, segmentation },
            Command::AppendCache { ncoffset: 0, len: 3000, flags: Flags::LAST, generation: 0 },
        ]);
        bench.settle();
        assert_eq!(bench.frames().len(), frames);
    }
}

#[test]
fn what_cannot_be_is_refused_and_the_card_goes_on() {
    let mut bench = Bench::new(Capabilities::FULL, None);
    bench.window.write(0, HEADER).unwrap();
    let cache = |ncoffset, len, flags| Command::AppendCache { ncoffset, len, flags, generation: 0 };
    bench.say(&[
        Command::CacheInsert { mmaddr: 0, ncoffset: CACHE_BYTES - 1, len: 2, generation: 0 },
        Command::CacheInsert {
            mmaddr: WINDOW_BYTES as u64 - 1,
            ncoffset: 0,
            len: 2,
            generation: 0,
        },
        cache(0, 1, Flags::LAST),
        headers(0, 14, Flags::FIRST),
        cache(CACHE_BYTES, 1, Flags::default()),
        headers(0, 14, Flags::LAST),
        headers(WINDOW_BYTES as u64, 14, Flags::FIRST.with(Flags::LAST)),
        headers(0, 14, Flags::FIRST.with(Flags::LAST)),
    ]);
    bench.host.commands.push([u64::MAX, u64::MAX]).unwrap();
    let _ = bench.host.commands.publish();
    bench.settle();
    let refused = |refusal, descriptor| Completion::Refused { refusal, descriptor };
    assert_eq!(
        bench.answers(),
        [
            refused(Refusal::Cache, 0),
            refused(Refusal::Window, 1),
            refused(Refusal::Cache, 4),
            refused(Refusal::Window, 6),
            refused(Refusal::Malformed, 8),
        ]
    );
    assert_eq!(bench.frames(), [HEADER]);
    let FirmwareCounters { sent, refused, .. } = *bench.card.counters();
    assert_eq!((sent, refused), (1, 5));
}

#[test]
fn frames_go_where_the_host_says() {
    let mut bench = Bench::new(Capabilities::FULL, None);
    let place = |mmaddr, len| Post::whole(mmaddr, len).encode();
    for entry in [place(4096, 2048), place(8192, 10), place(u64::from(u32::MAX), 2048)] {
        bench.host.free.push(entry).unwrap();
    }
    let _ = bench.host.free.publish();
    for number in 0..4u8 {
        bench.wire.send(&[std::io::IoSlice::new(&[number; 60])], Offload::default()).unwrap();
    }
    bench.settle();
    let taken: Vec<Received> =
        std::iter::from_fn(|| bench.host.received.pop().unwrap()).map(Received::decode).collect();
    assert_eq!(taken.iter().map(|frame| frame.len).collect::<Vec<_>>(), [60, 0, 0]);
    let mut frame = [9; 60];
    bench.window.read(taken[0].mmaddr, &mut frame).unwrap();
    assert_eq!(frame, [0; 60]);
    let counters = *bench.card.counters();
    assert_eq!((counters.received, counters.receive_refused), (1, 2));
    assert_eq!(bench.card.bus().of(BusClass::Other), 60);
    // The last one waits for a buffer.
    assert!(bench.card.is_starved());
    bench.host.free.push(place(4096, 2048)).unwrap();
    let _ = bench.host.free.publish();
    bench.settle();
    assert_eq!(
        bench.host.received.pop().unwrap().map(|entry| Received::decode(entry).len),
        Some(60)
    );
    bench.window.read(4096, &mut frame).unwrap();
    assert_eq!(frame, [3; 60]);
}

#[test]
fn a_modelled_bus_takes_its_time() {
    let model = BusModel { bytes_per_s: 1e6, burst_bytes: 4096, overhead_bytes: 0 };
    let meter = Arc::new(Meter::create(model).unwrap());
    let mut bench = Bench::new(Capabilities::FULL, Some(Arc::clone(&meter)));
    bench.say(&[headers(0, 1000, Flags::FIRST), headers(1000, 1000, Flags::LAST)]);
    let mut now_ns = 0;
    while let Progress::Bus { until_ns } = bench.card.turn(now_ns).unwrap() {
        assert!(until_ns > now_ns);
        now_ns = until_ns;
    }
    // Half a millisecond ahead at most; the first half of that is left for those who sleep too
    // long.
    assert_eq!((now_ns, meter.busy_ns()), (2_032_000 - 250_000, 2_032_000));
    assert_eq!(bench.frames().len(), 1);
}

#[test]
fn a_host_that_is_broken_ends_the_attachment() {
    let mut bench = Bench::new(Capabilities::FULL, None);
    let made = Attachment::create().unwrap();
    let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
    // The index of published commands is the first word of the first ring.
    let shared = Window::map(files[0].try_clone().unwrap()).unwrap();
    shared.word(4096).store(5000, std::sync::atomic::Ordering::SeqCst);
    let (port, _wire) = memory_wire(4, Capabilities::FULL, Capabilities::FULL);
    let side = Attachment::from_files(files).unwrap().card();
    let mut card = Firmware::new(port, side, Arc::clone(&bench.window), 4096, None).unwrap();
    assert!(matches!(card.turn(0), Err(Broken::Host(_))));
    bench.settle();
}

proptest! {
    /// Whatever words a host writes over counts and entries, the card finds a name for it or goes
    /// on, and never waits.
    #[test]
    fn hostile_words(
        words in proptest::collection::vec(
            (4096usize / 8..58_368 / 8, prop_oneof![any::<u64>(), 0u64..2000]),
            1..60,
        ),
        indices in proptest::collection::vec((0usize..8, 0u64..2000), 0..20),
    ) {
        let mut bench = Bench::new(Capabilities::PLAIN, None);
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let shared = Window::map(files[0].try_clone().unwrap()).unwrap();
        let (port, mut wire) = memory_wire(64, Capabilities::PLAIN, Capabilities::FULL);
        let side = Attachment::from_files(files).unwrap().card();
        let mut card =
            Firmware::new(port, side, Arc::clone(&bench.window), CACHE_BYTES, None).unwrap();
        let starts = [4096, 20_736, 25_088, 41_728];
        let indices = indices
            .into_iter()
            .map(|(index, value)| (starts[index / 2] / 8 + index % 2 * 8, value));
        let mut is_broken = false;
        for (word, value) in words.into_iter().chain(indices) {
            shared.word(word * 8).store(value, std::sync::atomic::Ordering::SeqCst);
            let _ = wire.send(&[std::io::IoSlice::new(&[1; 60])], Offload::default());
            match card.turn(0) {
                Ok(_) => {}
                Err(Broken::Host(_)) => is_broken = true,
                Err(Broken::Port(error)) => panic!("{error}"),
            }
        }
        // So many commands at most, and then there is an end.
        let turns = (0..200)
            .take_while(|_| card.turn(0).is_ok_and(|progress| progress != Progress::Idle))
            .count();
        prop_assert!(turns < 200 || is_broken);
        bench.window.write(0, HEADER).unwrap();
        bench.say(&[headers(0, 14, Flags::FIRST.with(Flags::LAST))]);
        bench.settle();
        prop_assert_eq!(bench.frames(), vec![HEADER.to_vec()]);
    }

    /// Whatever a host writes into its rings and the window, the card neither panics nor stops.
    #[test]
    fn hostile_hosts(
        entries in proptest::collection::vec(any::<[u64; 2]>(), 1..200),
        opcodes in proptest::collection::vec(
            (1u64..5, 0u64..8, 0u64..6, 0u64..1 << 21, 0u64..1 << 17, 0u64..1 << 17),
            1..200,
        ),
        places in proptest::collection::vec(any::<[u64; 2]>(), 0..20),
    ) {
        let mut bench = Bench::new(Capabilities::PLAIN, None);
        let mild = opcodes.into_iter().map(|(opcode, flags, class, address, len, low)| {
            [opcode << 56 | flags << 48 | class << 40 | address, len << 32 | low]
        });
        for entry in entries.into_iter().chain(mild) {
            bench.host.commands.push(entry).unwrap();
        }
        for place in places {
            bench.host.free.push(place).unwrap();
        }
        let _ = (bench.host.commands.publish(), bench.host.free.publish());
        bench.wire.send(&[std::io::IoSlice::new(&[1; 60])], Offload::default()).unwrap();
        bench.settle();
        bench.frames();
        bench.answers();
        // A packet that is as it should be goes out.
        bench.window.write(0, HEADER).unwrap();
        bench.say(&[headers(0, 14, Flags::FIRST.with(Flags::LAST))]);
        bench.settle();
        prop_assert_eq!(bench.frames(), vec![HEADER.to_vec()]);
    }
}
