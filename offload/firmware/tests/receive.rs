//! What becomes of frames: whole, split, copied, in several buffers; and what a host may do with
//! entries.

mod exercise;

use std::io::IoSlice;
use std::sync::Arc;

use nicache_bus::attachment::FRAMES;
use nicache_bus::descriptor::{HEADER_PLACE_BYTES, Refusal};
use nicache_bus::{
    Attachment, BusClass, CachePlace, Command, Completion, Flags, HostSide, Post, Received,
    ReceivedChecksum, ReceivedGso, Segmentation, Window,
};
use nicache_firmware::{Firmware, Progress};
use nicache_port::{
    Burst, Capabilities, Checksum, Gso, GsoKind, MemoryPort, Offload, Port, memory_wire,
};
use proptest::prelude::*;

const WINDOW_BYTES: usize = 1 << 20;
const CACHE_BYTES: u32 = 64 << 10;
const BUFFER_BYTES: u32 = HEADER_PLACE_BYTES + 4096;

struct Bench {
    host: HostSide,
    window: Arc<Window>,
    card: Firmware<MemoryPort>,
    wires: Vec<MemoryPort>,
}

impl Bench {
    fn new() -> Self {
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let window = Arc::new(Window::create("test", WINDOW_BYTES).unwrap());
        let (ports, wires) =
            (0..2).map(|_| memory_wire(64, Capabilities::FULL, Capabilities::FULL)).unzip();
        let side = Attachment::from_files(files).unwrap().card();
        let card =
            Firmware::with_ports(ports, side, Arc::clone(&window), CACHE_BYTES, None).unwrap();
        Self { host: made.host(), window, card, wires }
    }

    fn post(&mut self, number: u32, split: Option<CachePlace>, chain: bool) {
        let post = Post { mmaddr: u64::from(number * 8192), len: BUFFER_BYTES, split, chain };
        self.host.free.push(post.encode()).unwrap();
        let _ = self.host.free.publish();
    }

    fn arrives(&mut self, port: usize, frame: &[u8], offload: Offload) -> Vec<Received> {
        self.wires[port].send(&[IoSlice::new(frame)], offload).unwrap();
        self.settle();
        std::iter::from_fn(|| self.host.received.pop().unwrap()).map(Received::decode).collect()
    }

    fn settle(&mut self) {
        while self.card.turn(0).unwrap() != Progress::Idle {}
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.window.read(at, &mut bytes).unwrap();
        bytes
    }

    /// What the card says to commands, and what comes out.
    fn say(&mut self, commands: &[Command]) -> Vec<Completion> {
        for command in commands {
            self.host.commands.push(command.encode()).unwrap();
        }
        let _ = self.host.commands.publish();
        self.settle();
        std::iter::from_fn(|| self.host.done.pop().unwrap())
            .map(|entry| Completion::decode(entry).unwrap())
            .collect()
    }

    fn leaves(&mut self, port: usize) -> Vec<(Vec<u8>, Offload)> {
        let mut burst = Burst::new(16);
        self.wires[port].receive(&mut burst).unwrap();
        burst.iter().map(|frame| (frame.data().to_vec(), frame.offload())).collect()
    }
}

fn place(entry: u32, generation: u16, copy: bool) -> Option<CachePlace> {
    Some(CachePlace { ncoffset: entry * 4096, generation, copy })
}

fn append(entry: u32, generation: u16, len: u32) -> Command {
    Command::AppendCache { ncoffset: entry * 4096, len, flags: Flags::LAST, generation }
}

fn head(len: u32, port: u8) -> Command {
    let class = BusClass::NetworkHeaders;
    Command::AppendMm {
        mmaddr: 0,
        len,
        flags: Flags::FIRST,
        class,
        port,
        segmentation: Segmentation::default(),
    }
}

/// Headers of so many bytes, and behind them a payload that shows where each byte was.
fn frame(kind: &str, payload: usize) -> (Vec<u8>, usize) {
    let mut out = vec![2; 12];
    match kind {
        "tcp4" => {
            out.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6]);
            out.extend([0; 10]);
            out.extend([1; 12]);
            out.extend([0x80, 16]);
            out.extend([0; 18]);
        }
        "udp4 with options behind a tag" => {
            out.extend([0x81, 0, 0, 5, 8, 0, 0x47, 0, 0, 0, 0, 0, 0, 0, 64, 17]);
            out.extend([0; 10 + 8 + 8]);
        }
        "tcp6 behind an extension" => {
            out.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 60, 64]);
            out.extend([0; 32]);
            out.extend([6, 0, 1, 4, 0, 0, 0, 0]);
            out.extend([1; 12]);
            out.extend([0x50, 16]);
            out.extend([0; 6]);
        }
        "a later fragment" => {
            out.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 9, 64, 17]);
            out.extend([0; 10]);
        }
        other => {
            assert_eq!(other, "icmp");
            out.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1]);
            out.extend([0; 10]);
        }
    }
    let header_len = out.len();
    out.extend((0..payload).map(|at| (at * 7 + at / 256) as u8));
    (out, header_len)
}

#[test]
fn headers_are_split_from_payload() {
    for (kind, is_split) in [
        ("tcp4", true),
        ("udp4 with options behind a tag", true),
        ("tcp6 behind an extension", true),
        ("a later fragment", true),
        ("icmp", false),
    ] {
        for copy in [false, true] {
            let mut bench = Bench::new();
            let (data, header_len) = frame(kind, 1000);
            bench.post(1, place(3, 7, copy), true);
            let report = bench.arrives(1, &data, Offload::default())[..]
                .try_into()
                .map(|[report]: [Received; 1]| report);
            let report = report.unwrap();
            // What has crossed the bus, by its kind.
            let bus = *bench.card.bus();
            let of = [BusClass::NetworkHeaders, BusClass::Content, BusClass::Other];
            let crossed = match (is_split, copy) {
                (true, true) => [header_len as u64, 1000, 0],
                (true, false) => [header_len as u64, 0, 0],
                (false, _) => [0, 0, data.len() as u64],
            };
            assert_eq!(of.map(|class| bus.of(class)), crossed, "{kind}");
            assert_eq!((report.is_first, report.is_last, report.port), (true, true, 1));
            assert_eq!(
                (report.len as usize, report.is_split, report.is_unused),
                (data.len(), is_split, !is_split),
                "{kind}"
            );
            if !is_split {
                assert_eq!(bench.read(8192, data.len()), data);
                continue;
            }
            assert_eq!(
                (usize::from(report.header_len), report.is_copied),
                (header_len, copy),
                "{kind}"
            );
            assert_eq!(report.sum, nicache_tcp::checksum::sum(&data[header_len..]));
            assert_eq!(bench.read(8192, header_len), data[..header_len]);
            let copied = bench.read(8192 + u64::from(HEADER_PLACE_BYTES), 1000);
            assert_eq!(copied == data[header_len..], copy, "{kind}");
            // From the card it goes out by the other port.
            bench.window.write(0, &data[..header_len]).unwrap();
            assert_eq!(bench.say(&[head(header_len as u32, 0), append(3, 7, 1000)]), []);
            assert_eq!(bench.leaves(0), [(data, Offload::default())]);
        }
    }
}

/// Acknowledgments evict nothing.
#[test]
fn short_frames_use_no_entry() {
    for (payload, is_split) in [(0, false), (128, false), (129, true)] {
        let mut bench = Bench::new();
        bench.post(1, place(0, 1, false), true);
        let (data, _) = frame("tcp4", payload);
        let report = bench.arrives(0, &data, Offload::default())[0];
        assert_eq!((report.is_split, report.is_unused), (is_split, !is_split), "{payload}");
        if !is_split {
            assert_eq!(bench.read(8192, data.len()), data);
        }
    }
}

#[test]
fn a_long_frame_goes_on() {
    let (data, header_len) = frame("tcp4", 10_000);
    let gso = Gso { kind: GsoKind::Tcp4, size: 1448, header_len: 66, ecn: false };
    let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) };
    let mut bench = Bench::new();
    for number in 1..=4 {
        bench.post(number, place(number, 5, number == 2), true);
    }
    let reports = bench.arrives(0, &data, offload);
    assert_eq!(reports.len(), 3);
    assert_eq!(reports[0].gso, Some((ReceivedGso::Tcp4, 1448)));
    assert_eq!(reports[0].checksum, ReceivedChecksum::Partial);
    let lens: Vec<u32> = reports.iter().map(|report| report.len).collect();
    assert_eq!(lens, [4096 + header_len as u32, 4096, 10_000 - 8192]);
    assert_eq!(
        reports
            .iter()
            .map(|report| (report.is_first, report.is_last, report.is_copied))
            .collect::<Vec<_>>(),
        [(true, false, false), (false, false, true), (false, true, false)]
    );
    bench.window.write(0, &data[..header_len]).unwrap();
    let segmentation = Segmentation { size: 1448, header_len: 66, transport: 34 };
    let flags = Flags::FIRST.with(Flags::CHECKSUM);
    let class = BusClass::NetworkHeaders;
    let part = |entry: u32, len| Command::AppendCache {
        ncoffset: entry * 4096,
        len,
        flags: Flags::default(),
        generation: 5,
    };
    let commands = [
        Command::AppendMm {
            mmaddr: 0,
            len: header_len as u32,
            flags,
            class,
            port: 1,
            segmentation,
        },
        part(1, 4096),
        part(2, 4096),
        append(3, 5, 10_000 - 8192),
    ];
    assert_eq!(bench.say(&commands), []);
    assert_eq!(bench.leaves(1), [(data.clone(), offload)]);
    // Where it may not go on, it comes back, and the next frame has the next buffer.
    let mut bench = Bench::new();
    bench.post(1, None, false);
    bench.post(2, place(1, 1, false), false);
    bench.post(3, None, false);
    let reports = bench.arrives(0, &data, Offload::default());
    assert_eq!(reports.iter().map(|report| report.len).collect::<Vec<_>>(), [0]);
    let reports = bench.arrives(0, &data, Offload::default());
    assert_eq!(
        reports.iter().map(|report| (report.len, report.is_unused)).collect::<Vec<_>>(),
        [(0, true)]
    );
    let (short, _) = frame("icmp", 50);
    assert_eq!(bench.arrives(0, &short, Offload::default())[0].len as usize, short.len());
    assert_eq!(bench.card.counters().receive_refused, 2);
}

/// A frame that needs more buffers than there are waits for them.
#[test]
fn a_frame_waits_for_buffers() {
    let (data, _) = frame("tcp4", 10_000);
    let mut bench = Bench::new();
    bench.wires[0].send(&[IoSlice::new(&data)], Offload::default()).unwrap();
    for number in 1..=3 {
        bench.settle();
        assert!(bench.card.is_starved() && bench.host.received.available() == Ok(0));
        assert!(bench.card.prepare_sleep().unwrap());
        bench.post(number, place(number, 1, false), true);
        // At the first one it looks how many those are.
        assert_eq!(bench.card.prepare_sleep().unwrap(), number == 2);
    }
    bench.settle();
    let reports: Vec<Received> =
        std::iter::from_fn(|| bench.host.received.pop().unwrap()).map(Received::decode).collect();
    assert_eq!(reports.len(), 3);
    assert_eq!(bench.card.counters().receive_refused, 0);
}

/// A frame that cannot be reported waits until the host has taken other reports.
#[test]
fn a_frame_waits_for_room_for_its_report() {
    let (data, _) = frame("icmp", 50);
    for further_posts in [1, 5] {
        let mut bench = Bench::new();
        let deliver = |bench: &mut Bench| {
            bench.wires[0].send(&[IoSlice::new(&data)], Offload::default()).unwrap();
            bench.settle();
        };
        // The first release always rings.
        bench.post(0, None, false);
        deliver(&mut bench);
        bench.host.received.pop().unwrap().unwrap();
        assert!(bench.host.received.release());
        for _ in 0..FRAMES {
            bench.post(0, None, false);
            deliver(&mut bench);
        }
        assert_eq!(bench.host.received.available(), Ok(FRAMES as u64));
        (0..further_posts).for_each(|_| bench.post(0, None, false));
        deliver(&mut bench);
        assert!(bench.card.is_starved() && bench.card.prepare_sleep().unwrap());
        bench.host.received.pop().unwrap().unwrap();
        assert!(bench.host.received.release(), "the card is not woken");
        bench.settle();
        assert_eq!(bench.host.received.available(), Ok(FRAMES as u64));
    }
}

/// A host that reuses an entry too early is found.
#[test]
fn another_load_is_not_sent() {
    let mut bench = Bench::new();
    let (data, header_len) = frame("tcp4", 1000);
    bench.post(1, place(3, 7, false), true);
    bench.arrives(0, &data, Offload::default());
    bench.post(2, place(3, 8, false), true);
    bench.arrives(0, &data, Offload::default());
    let answers = bench.say(&[head(header_len as u32, 0), append(3, 7, 1000)]);
    assert_eq!(answers, [Completion::Refused { refusal: Refusal::Stale, descriptor: 1 }]);
    let fetch = |generation| Command::CacheFetch {
        mmaddr: 65_536,
        ncoffset: 3 * 4096,
        len: 1000,
        generation,
    };
    assert_eq!(
        bench.say(&[fetch(7)]),
        [Completion::Refused { refusal: Refusal::Stale, descriptor: 2 }]
    );
    assert_eq!(bench.say(&[fetch(8), head(header_len as u32, 0), append(3, 8, 1000)]), []);
    assert_eq!(bench.read(65_536, 1000), data[header_len..]);
    assert_eq!(bench.leaves(0).len(), 1);
    // Between an append and the packet's end, too.
    bench.say(&[
        head(header_len as u32, 0),
        Command::AppendCache {
            ncoffset: 3 * 4096,
            len: 10,
            flags: Flags::default(),
            generation: 8,
        },
    ]);
    bench.post(3, place(3, 9, false), true);
    bench.arrives(0, &data, Offload::default());
    let class = BusClass::Content;
    let last = Command::AppendMm {
        mmaddr: 0,
        len: 4,
        flags: Flags::LAST,
        class,
        port: 0,
        segmentation: Segmentation::default(),
    };
    assert_eq!(
        bench.say(&[last]),
        [Completion::Refused { refusal: Refusal::Stale, descriptor: 8 }]
    );
    assert!(bench.leaves(0).is_empty());
    // After it was emptied, nothing of before is there.
    let answers = bench.say(&[Command::CacheInit, head(20, 0), append(3, 9, 10)]);
    assert_eq!(answers[1], Completion::Refused { refusal: Refusal::Stale, descriptor: 11 });
}

#[test]
fn ports_and_checksums() {
    let mut bench = Bench::new();
    bench.window.write(0, &frame("udp4 with options behind a tag", 10).0).unwrap();
    let segmentation = Segmentation { size: 0, header_len: 0, transport: 46 };
    let flags = Flags::FIRST.with(Flags::LAST).with(Flags::CHECKSUM).with(Flags::UDP);
    let class = BusClass::NetworkHeaders;
    let udp = |port| Command::AppendMm { mmaddr: 0, len: 64, flags, class, port, segmentation };
    assert_eq!(
        bench.say(&[udp(1), udp(2)]),
        [Completion::Refused { refusal: Refusal::Packet, descriptor: 1 }]
    );
    let [(_, offload)] = &bench.leaves(1)[..] else { panic!("one packet") };
    assert_eq!(offload.checksum, Checksum::Partial { start: 46, offset: 6 });
    assert!(bench.leaves(0).is_empty());
    assert_eq!(bench.say(&[udp(0)]), []);
}

proptest! {
    /// F8: whatever a host posts and whatever comes from the wire, the card goes on.
    #[test]
    fn any_posts(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        exercise::receive(&bytes);
    }

    /// F8: if posts and frames are nearly right, the card reports each frame from its beginning to
    /// its end.
    #[test]
    fn odd_posts(
        posts in proptest::collection::vec(
            (0u64..WINDOW_BYTES as u64 + 10_000, 0u32..9000, 0u32..20, any::<u16>(), 0u8..8),
            0..30,
        ),
        frames in proptest::collection::vec((0usize..5, 0usize..12_000), 1..10),
    ) {
        let mut bench = Bench::new();
        for (mmaddr, len, entry, generation, flags) in posts {
            let split = (flags & 1 != 0).then_some(CachePlace {
                ncoffset: entry * 4096 + u32::from(generation % 7 == 0),
                generation,
                copy: flags & 2 != 0,
            });
            let _ =
                bench.host.free.push(Post { mmaddr, len, split, chain: flags & 4 != 0 }.encode());
        }
        let _ = bench.host.free.publish();
        let kinds = [
            "tcp4",
            "udp4 with options behind a tag",
            "tcp6 behind an extension",
            "a later fragment",
            "icmp",
        ];
        let mut in_frame = false;
        for (kind, payload) in frames {
            let (data, _) = frame(kinds[kind], payload);
            let mut bytes = 0;
            for report in bench.arrives(0, &data, Offload::default()) {
                if report.len == 0 {
                    prop_assert!(!in_frame && report.is_unused);
                    continue;
                }
                prop_assert_eq!(report.is_first, !in_frame);
                in_frame = !report.is_last;
                bytes =
                    if report.is_first { report.len as usize } else { bytes + report.len as usize };
            }
            prop_assert!(!in_frame);
        }
    }
}
