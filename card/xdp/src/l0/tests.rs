//! The program as the kernel runs it on frames that are handed to it (BPF_PROG_TEST_RUN).

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::SeqCst;

use libbpf_rs::{MapFlags, MapHandle, MapType, Object, ProgramInput};
use proptest::prelude::*;

use super::layout::{LENT, RETURNED};
use super::*;

const HEAD: &[u8] = b"GET /page HTTP/1.1\r\nHost: site\r\nUser-Agent: odd\r\n\r\n";
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const EPOCH: u64 = 0;
const LEASE: usize = 24;

/// Where a program is, and what it says there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Egress,
    Driver,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Answered,
    Dropped,
    ToCard,
}
use Verdict::*;

impl At {
    const BOTH: [Self; 2] = [Self::Egress, Self::Driver];

    fn program(self) -> &'static Aligned<[u8]> {
        match self {
            Self::Egress => AT_EGRESS,
            Self::Driver => AT_DRIVER,
        }
    }

    /// TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC; XDP_TX, XDP_DROP, XDP_PASS.
    fn verdict(self, value: u32) -> Verdict {
        match (self, value) {
            (Self::Egress, 7) | (Self::Driver, 3) => Answered,
            (Self::Egress, 2) | (Self::Driver, 1) => Dropped,
            (Self::Egress, u32::MAX) | (Self::Driver, 2) => ToCard,
            _ => panic!("{self:?} says {value}"),
        }
    }
}

/// The lease ends while the machine is suspended, so the program asks a clock that goes on.
#[test]
fn the_lease_is_compared_with_a_clock_that_is_never_suspended() {
    const CALL: u8 = 0x85;
    for at in At::BOTH {
        let open = ObjectBuilder::default().open_memory(&at.program().0).unwrap();
        let program = open.progs().find(|known| known.name() == OsStr::new(PROGRAM_NAME)).unwrap();
        let calls = |helper: u32| {
            let is_call = |code: u8, imm: i32| code == CALL && imm == helper as i32;
            program.insns().iter().filter(|insn| is_call(insn.code, insn.imm)).count()
        };
        assert_eq!(calls(libbpf_rs::libbpf_sys::BPF_FUNC_ktime_get_boot_ns), 1, "{at:?}");
    }
}

/// Program, arrays, and the control page that the watcher would write.
struct Bench {
    at: At,
    object: Object,
    l0: L0,
    /// Of the other shard.
    other: L0,
    control: MapHandle,
}

impl Bench {
    /// `None` where programs cannot be loaded.
    fn new(at: At) -> Option<Self> {
        check_capabilities().ok()?;
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            map_flags: 1 << 10,
            ..Default::default()
        };
        let control =
            MapHandle::create(MapType::Array, Some("control"), 4, 4096, 1, &options).unwrap();
        let (object, log) = with_log(|| load_object(at.program(), control.as_fd(), 2));
        let object = object.unwrap_or_else(|error| panic!("{error:#}\n{log}"));
        let loaded = Loaded::of(&object, PROGRAM_NAME).unwrap();
        let mut shards =
            L0::over(&loaded, None, REPLY_BYTES_MAX, 0x1234_5678_9abc_def1, 2).unwrap().into_iter();
        let (other, l0) = (shards.next().unwrap(), shards.next().unwrap());
        let mut bench = Self { at, object, l0, other, control };
        bench.set_control(EPOCH, u64::MAX);
        Some(bench)
    }

    fn set_control(&mut self, epoch: u64, lease: u64) {
        let mut page = vec![0u8; 4096];
        page[..8].copy_from_slice(&epoch.to_ne_bytes());
        page[8 * LEASE..8 * LEASE + 8].copy_from_slice(&lease.to_ne_bytes());
        self.control.update(&0u32.to_ne_bytes(), &page, MapFlags::ANY).unwrap();
    }

    fn publish(&mut self, epoch: u64, until_ns: u64) {
        let sum = sum(REPLY);
        let reply = Reply { head: HEAD, bytes: REPLY, sum, epoch, until_ns, tag: 77, date: 88 };
        assert!(self.l0.publish(&reply));
    }

    /// What becomes of a frame, and how it looks then.
    fn run(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let mut out = vec![0; 4096];
        let input =
            ProgramInput { data_in: Some(frame), data_out: Some(&mut out), ..Default::default() };
        let program =
            self.object.progs_mut().find(|program| program.name() == PROGRAM_NAME).unwrap();
        let output = program.test_run(input).unwrap();
        let len = output.data.map_or(0, |data| data.len());
        (self.at.verdict(output.return_value), out[..len].to_vec())
    }

    fn state(&self, place: u32) -> u64 {
        self.l0.arrays.places[place as usize].state.load(SeqCst)
    }
}

/// Ones'-complement sum of 16-bit words of network order. On its own, to find faults of the
/// product's.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn joined_sum(parts: &[&[u8]]) -> u16 {
    sum(&parts.concat())
}

/// A segment's fields.
#[derive(Debug, Clone)]
struct Segment {
    v4: bool,
    stamps: Option<(u32, u32)>,
    from_client: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: Vec<u8>,
    /// The checksum is left to the device.
    pending: bool,
}

impl Segment {
    fn addresses(&self) -> (Vec<u8>, Vec<u8>) {
        let (client, server) = match self.v4 {
            true => (vec![10, 0, 0, 1], vec![10, 0, 0, 2]),
            false => ((1..=16).collect(), (101..=116).collect()),
        };
        if self.from_client { (client, server) } else { (server, client) }
    }

    fn pseudo(&self, tcp_len: usize) -> Vec<u8> {
        let (from, to) = self.addresses();
        let mut pseudo = [from, to].concat();
        match self.v4 {
            true => pseudo.extend([0, 6, (tcp_len >> 8) as u8, tcp_len as u8]),
            false => pseudo.extend([0, 0, (tcp_len >> 8) as u8, tcp_len as u8, 0, 0, 0, 6]),
        }
        pseudo
    }

    fn frame(&self) -> Vec<u8> {
        let (from, to) = self.addresses();
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let header = if self.stamps.is_some() { 32 } else { 20 };
        let tcp_len = header + self.payload.len();
        if self.v4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(((20 + tcp_len) as u16).to_be_bytes());
            frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((tcp_len as u16).to_be_bytes());
            frame.extend([6, 64]);
        }
        frame.extend([from, to].concat());
        if self.v4 {
            let checksum = !sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        let tcp_at = frame.len();
        let ports: [u16; 2] = if self.from_client { [40_000, 80] } else { [80, 40_000] };
        frame.extend(ports.map(u16::to_be_bytes).concat());
        frame.extend(self.seq.to_be_bytes());
        frame.extend(self.ack.to_be_bytes());
        frame.extend([((header / 4) << 4) as u8, self.flags, 1, 0, 0, 0, 0, 0]);
        if let Some((value, echo)) = self.stamps {
            frame.extend([1, 1, 8, 10]);
            frame.extend(value.to_be_bytes());
            frame.extend(echo.to_be_bytes());
        }
        frame.extend(&self.payload);
        let pseudo = self.pseudo(tcp_len);
        let checksum =
            if self.pending { sum(&pseudo) } else { !joined_sum(&[&pseudo, &frame[tcp_at..]]) };
        frame[tcp_at + 16..tcp_at + 18].copy_from_slice(&checksum.to_be_bytes());
        frame
    }
}

fn request(v4: bool, stamps: bool, pending: bool) -> Segment {
    let stamps = stamps.then_some((5_000, 9));
    Segment {
        v4,
        stamps,
        from_client: true,
        seq: 1_000,
        ack: u32::MAX - 3,
        flags: 0x18,
        payload: HEAD.to_vec(),
        pending,
    }
}

fn loan(request: &Segment) -> Loan {
    let mapped = |address: Vec<u8>| {
        let mut octets = [0; 16];
        if address.len() == 4 {
            octets[10..12].fill(0xff);
        }
        octets[16 - address.len()..].copy_from_slice(&address);
        octets
    };
    let (client, server) = request.addresses();
    Loan {
        client: mapped(client),
        server: mapped(server),
        client_port: 40_000,
        server_port: 80,
        rcv_nxt: 1_000,
        snd_una: u32::MAX - 3,
        snd_nxt: u32::MAX - 3,
        window: 700,
        segment_bytes: 1_448,
        burst_bytes: 0,
        client_scale: 2,
        timestamps: request.stamps.map(|_| LoanTimestamps { recent: 5_000, stamp: 17, sent: 3 }),
        ..Loan::default()
    }
}

#[test]
fn a_request_is_answered_whole() {
    At::BOTH.into_iter().for_each(is_answered_whole);
}

fn is_answered_whole(at: At) {
    let Some(mut bench) = Bench::new(at) else {
        return println!("skipped: no programs can be loaded");
    };
    for case in 0..8 {
        let request = request(case & 1 == 0, case & 2 == 0, case & 4 == 0);
        // A driver sends nothing that is not whole.
        let stays_pending = request.pending && at == At::Egress;
        bench.publish(EPOCH, u64::MAX);
        let served = bench.l0.served(bench.l0.slot_of(HEAD).unwrap());
        let place = bench.l0.lend(&loan(&request)).unwrap();
        let neighbour = bench.l0.lend(&loan(&request));
        assert_eq!(
            (neighbour, bench.l0.lend(&loan(&request))),
            (Some(place ^ 1), None),
            "both places are taken"
        );
        assert!(bench.l0.take_back(place ^ 1).is_some());
        let (verdict, frame) = bench.run(&request.frame());
        assert_eq!(verdict, Answered, "{request:?}");
        let mut expected = Segment {
            from_client: false,
            seq: u32::MAX - 3,
            ack: 1_000 + HEAD.len() as u32,
            payload: REPLY.to_vec(),
            pending: stays_pending,
            ..request.clone()
        };
        let tcp_at = if request.v4 { 34 } else { 54 };
        if request.stamps.is_some() {
            // The value is the time.
            let value = u32::from_be_bytes(frame[tcp_at + 24..tcp_at + 28].try_into().unwrap());
            expected.stamps = Some((value, 5_000));
        }
        let mut expected = expected.frame();
        // MACs are swapped, the window is the card's, the identification the request's.
        let macs = [&expected[6..12], &expected[..6]].concat();
        expected[..12].copy_from_slice(&macs);
        let old_window = expected[tcp_at + 14..tcp_at + 16].to_vec();
        expected[tcp_at + 14..tcp_at + 16].copy_from_slice(&700u16.to_be_bytes());
        if !stays_pending {
            let field = u16::from_be_bytes([expected[tcp_at + 16], expected[tcp_at + 17]]);
            let fixed = !joined_sum(&[
                &(!field).to_be_bytes(),
                &[!old_window[0], !old_window[1]],
                &700u16.to_be_bytes(),
            ]);
            expected[tcp_at + 16..tcp_at + 18].copy_from_slice(&fixed.to_be_bytes());
        }
        assert_eq!(frame, expected, "{request:?}");
        assert_eq!(bench.l0.served(bench.l0.slot_of(HEAD).unwrap()), served + 1);
        // Its acknowledgment is taken, and the same request again is the card's business.
        let ack = (u32::MAX - 3).wrapping_add(REPLY.len() as u32);
        let seq = 1_000 + HEAD.len() as u32;
        let taken = Segment { seq, ack, flags: 0x10, payload: Vec::new(), ..request.clone() };
        assert_eq!(bench.run(&taken.frame()).0, Dropped);
        assert_eq!(bench.state(place), LENT);
        assert_eq!(bench.run(&request.frame()), (ToCard, request.frame()));
        assert_eq!(bench.state(place), RETURNED);
        assert_eq!(bench.run(&request.frame()).0, ToCard);
        let back = bench.l0.take_back(place).unwrap();
        assert_eq!((back.rcv_nxt, back.snd_una, back.snd_nxt), (seq, ack, ack));
        assert_eq!((back.tag, back.date), (77, 88));
        assert!(back.used_ns > 0 && bench.l0.take_back(place).is_none());
    }
}

/// Each shard's connections get its replies, which are withdrawn by it alone.
#[test]
fn shards_do_not_mix() {
    let Some(mut bench) = Bench::new(At::Egress) else {
        return println!("skipped: no programs can be loaded");
    };
    let request = request(true, true, false);
    let publish = |l0: &mut L0, bytes: &[u8]| {
        let sum = sum(bytes);
        assert!(l0.publish(&Reply {
            head: HEAD,
            bytes,
            sum,
            epoch: EPOCH,
            until_ns: u64::MAX,
            tag: 7,
            date: 8
        }));
    };
    let answer = |bench: &mut Bench, of_other: bool| {
        let l0 = if of_other { &mut bench.other } else { &mut bench.l0 };
        let place = l0.lend(&loan(&request)).unwrap();
        let (verdict, frame) = bench.run(&request.frame());
        let l0 = if of_other { &mut bench.other } else { &mut bench.l0 };
        l0.take_back(place).unwrap();
        (verdict == Answered).then(|| frame[14 + 20 + 32..].to_vec())
    };
    publish(&mut bench.other, b"the other's");
    assert_eq!(answer(&mut bench, false), None);
    assert_eq!(answer(&mut bench, true).as_deref(), Some(&b"the other's"[..]));
    publish(&mut bench.l0, b"ours");
    bench.other.revoke();
    assert_eq!(answer(&mut bench, true), None);
    assert_eq!(answer(&mut bench, false).as_deref(), Some(&b"ours"[..]));
    let slot = bench.l0.slot_of(HEAD).unwrap();
    assert_eq!((bench.l0.served(slot), bench.other.served(slot)), (1, 1));
}

/// The frames of these tests are sent by nobody's socket, so the client may be anywhere.
#[test]
fn more_than_a_segment_is_for_clients_on_the_machine() {
    let Some(mut bench) = Bench::new(At::Egress) else {
        return println!("skipped: no programs can be loaded");
    };
    let request = request(true, true, false);
    let mut verdict = |reply_bytes: usize, burst_bytes: u16| {
        let bytes = vec![b'x'; reply_bytes];
        let reply = Reply {
            head: HEAD,
            bytes: &bytes,
            sum: sum(&bytes),
            epoch: EPOCH,
            until_ns: u64::MAX,
            tag: 7,
            date: 8,
        };
        assert!(bench.l0.publish(&reply));
        let place =
            bench.l0.lend(&Loan { segment_bytes: 64, burst_bytes, ..loan(&request) }).unwrap();
        let verdict = bench.run(&request.frame()).0;
        (verdict, bench.l0.take_back(place).unwrap().burst_bytes)
    };
    assert_eq!(verdict(64, 14_480), (Answered, 14_480));
    assert_eq!(verdict(65, 14_480), (ToCard, 0), "not tried again");
    assert_eq!(verdict(66, 65), (ToCard, 65), "more than the connection may send at once");
    let long = vec![0; REPLY_BYTES_MAX + 1];
    let reply = Reply {
        head: HEAD,
        bytes: &long,
        sum: 0,
        epoch: EPOCH,
        until_ns: u64::MAX,
        tag: 7,
        date: 8,
    };
    assert!(!bench.l0.publish(&reply));
}

#[test]
fn only_what_is_valid_is_given() {
    At::BOTH.into_iter().for_each(is_given_if_valid);
}

fn is_given_if_valid(at: At) {
    let Some(mut bench) = Bench::new(at) else {
        return println!("skipped: no programs can be loaded");
    };
    let request = request(true, true, false);
    let frame = request.frame();
    let mut verdict = |spoil: &dyn Fn(&mut Bench)| {
        bench.set_control(EPOCH, u64::MAX);
        bench.publish(EPOCH, u64::MAX);
        let place = bench.l0.lend(&loan(&request)).unwrap();
        spoil(&mut bench);
        let (verdict, after) = bench.run(&frame);
        let back = bench.l0.take_back(place).unwrap();
        if verdict == ToCard {
            assert_eq!(after, frame);
            assert_eq!((back.rcv_nxt, back.snd_nxt), (1_000, u32::MAX - 3));
        }
        verdict
    };
    assert_eq!(verdict(&|_| ()), Answered);
    assert_eq!(
        verdict(&|bench| bench.set_control(EPOCH + 1, u64::MAX)),
        ToCard,
        "a source may have changed"
    );
    assert_eq!(verdict(&|bench| bench.set_control(EPOCH, 1)), ToCard, "the lease is over");
    assert_eq!(verdict(&|bench| bench.publish(EPOCH, 1)), ToCard, "its time is over");
    assert_eq!(verdict(&|bench| bench.publish(EPOCH + 1, u64::MAX)), ToCard, "of another epoch");
    assert_eq!(verdict(&|bench| bench.l0.revoke()), ToCard, "withdrawn");
    let writing = |bench: &mut Bench| {
        let slot = bench.l0.slot_of(HEAD).unwrap();
        bench.l0.objects()[slot].version.fetch_or(1, SeqCst);
    };
    assert_eq!(verdict(&writing), ToCard, "it is being written");
    assert_eq!(verdict(&|_| ()), Answered);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is changed in a frame: it is answered only if it is that request, whole and in
    /// order, of that connection.
    #[test]
    fn nothing_else_is_answered(
        at in prop::sample::select(At::BOTH.to_vec()),
        v4: bool,
        stamps: bool,
        changes in prop::collection::vec(
            prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            64,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let Some(mut bench) = Bench::new(at) else { return Ok(()) };
        let request = request(v4, stamps, false);
        let whole = request.frame();
        let tcp_at = if v4 { 34 } else { 54 };
        let payload_at = tcp_at + if stamps { 32 } else { 20 };
        bench.publish(EPOCH, u64::MAX);
        let mut frames: Vec<Vec<u8>> = changes
            .iter()
            .map(|changes| {
                let mut frame = whole.clone();
                changes.iter().for_each(|(at, byte)| {
                    let at = at.index(frame.len());
                    frame[at] = *byte;
                });
                frame
            })
            .collect();
        // The kernel takes no test frames without a network header.
        frames.push(whole[..54 + cut.index(whole.len() - 54)].to_vec());
        for frame in frames {
            let place = bench.l0.lend(&loan(&request)).unwrap();
            let (verdict, after) = bench.run(&frame);
            let back = bench.l0.take_back(place).unwrap();
            if verdict == Answered {
                prop_assert_eq!(&frame[payload_at..], HEAD);
                prop_assert_eq!(&frame[tcp_at..tcp_at + 12], &whole[tcp_at..tcp_at + 12]);
                prop_assert_eq!(&after[payload_at..], REPLY);
                // In what may differ, the sum must be right; else it is luck of one in 65536.
                let segment = [&request.pseudo(frame.len() - tcp_at), &frame[tcp_at..]].concat();
                let field = u16::from_be_bytes([frame[tcp_at + 16], frame[tcp_at + 17]]);
                let is_pending = field == sum(&request.pseudo(frame.len() - tcp_at));
                prop_assert!(sum(&segment) == 0xffff || is_pending);
            } else {
                prop_assert!(verdict == ToCard && after == frame, "{:?}", verdict);
                prop_assert_eq!(
                    (back.rcv_nxt, back.snd_una, back.snd_nxt),
                    (1_000, u32::MAX - 3, u32::MAX - 3)
                );
            }
        }
    }
}
