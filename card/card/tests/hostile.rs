//! Frames that nobody should send: the card neither panics nor leaks, whatever comes from either
//! side (I7).

use std::io::IoSlice;

use nicache_cache::{NoWatcher, Store};
use nicache_card::{Card, CardConfig, Handshake};
use nicache_coherence::RevisionTable;
use nicache_http::KeyConfig;
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::Lru;
use nicache_port::{Burst, Capabilities, MemoryPort, Offload, Port, memory_wire};
use nicache_tcp::{Flags, HeadRepr, SackBlocks, Seq, SynOptions, Time, Timestamps, checksum};
use proptest::prelude::*;

const MEMORY_BYTES: usize = 1 << 20;

/// A segment as a hostile peer might choose it.
#[derive(Clone, Debug)]
struct Shot {
    from_host: bool,
    client_port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    timestamps: Option<(u32, u32)>,
    sack: Option<(u32, u32)>,
    syn: bool,
    payload: Vec<u8>,
    /// Bytes flipped after the checksums were made.
    flips: Vec<(usize, u8)>,
    sum_again: bool,
    wait_ms: u64,
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => Just(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        1 => Just(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        1 => Just(b"PROXY TCP6 2001:db8::1".to_vec()),
        1 => Just(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\0\x01\0\x02".to_vec()),
        2 => Just(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\nGET /c".to_vec()),
        1 => Just(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel".to_vec()),
        2 => Just(b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 01:00:00 GMT\r\nContent-Length: 3\r\n\r\nabc".to_vec()),
        1 => Just(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".to_vec()),
        2 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
    ]
}

/// Small numbers meet each other; others are wild.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1000u32..1200, 1 => any::<u32>(), 1 => (u32::MAX - 50)..=u32::MAX]
}

fn shot() -> impl Strategy<Value = Shot> {
    let head = (any::<bool>(), 1u16..4, number(), number(), any::<u8>(), any::<u16>());
    let options = (
        proptest::option::of((number(), number())),
        proptest::option::weighted(0.2, (number(), number())),
        any::<bool>(),
    );
    let rest = (
        payload(),
        proptest::collection::vec((0usize..120, any::<u8>()), 0..2),
        any::<bool>(),
        prop_oneof![5 => 0u64..5, 1 => 0u64..100_000],
    );
    (head, options, rest).prop_map(|(head, options, rest)| Shot {
        from_host: head.0,
        client_port: head.1,
        seq: head.2,
        ack: head.3,
        // Mostly segments of an open connection.
        flags: match head.4 {
            0..=60 => Flags::SYN.0,
            61..=110 => Flags::SYN.0 | Flags::ACK.0,
            111..=220 => Flags::ACK.0,
            221..=235 => Flags::ACK.0 | Flags::FIN.0,
            _ => head.4,
        },
        window: head.5,
        timestamps: options.0,
        sack: options.1,
        syn: options.2,
        payload: rest.0,
        flips: if rest.1.len() > 1 { rest.1 } else { Vec::new() },
        sum_again: rest.2,
        wait_ms: rest.3,
    })
}

impl Shot {
    fn frame(&self) -> Vec<u8> {
        let timestamps = self.timestamps.map(|(val, ecr)| Timestamps { val, ecr });
        let mut sack = SackBlocks::EMPTY;
        if let Some((left, right)) = self.sack {
            sack.push(Seq(left), Seq(right));
        }
        let flags = Flags(self.flags);
        let (src_port, dst_port) =
            if self.from_host { (80, self.client_port) } else { (self.client_port, 80) };
        let head = HeadRepr {
            src_port,
            dst_port,
            seq: Seq(self.seq),
            ack: Seq(self.ack),
            flags,
            window: self.window,
            timestamps,
            sack,
            syn_options: (flags.syn() && self.syn).then_some(SynOptions {
                mss: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps,
                ecn: flags.contains(Flags::ECE | Flags::CWR),
            }),
            ..HeadRepr::default()
        };
        let mut tcp = vec![0; head.len()];
        head.emit(&mut tcp);
        tcp.extend(&self.payload);
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (source, destination) =
            if self.from_host { (server, client) } else { (client, server) };
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00]);
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip.extend(source);
        ip.extend(destination);
        let total = (ip.len() + tcp.len()) as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let sum = !checksum::sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
        frame.extend(tcp);
        if !self.sum_again {
            self.sum(&mut frame);
        }
        for &(at, value) in &self.flips {
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= value;
            }
        }
        if self.sum_again {
            self.sum(&mut frame);
        }
        frame
    }

    fn sum(&self, frame: &mut [u8]) {
        frame[50..52].fill(0);
        let pseudo = checksum::pseudo_header_v4(
            frame[26..30].try_into().expect("four bytes"),
            frame[30..34].try_into().expect("four bytes"),
            (frame.len() - 34) as u32,
        );
        let sum = checksum::finish(checksum::add(pseudo, checksum::sum(&frame[34..])));
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
    }
}

fn card(
    handshake: Handshake,
    capabilities: Capabilities,
) -> (Card<MemoryPort, MemoryPort>, MemoryPort, MemoryPort) {
    let (wire, client) = memory_wire(256, capabilities, capabilities);
    let (host, server) = memory_wire(256, capabilities, capabilities);
    let table = RevisionTable::on_heap();
    table.renew_lease(u64::MAX);
    let memory = CardMemory::new(MEMORY_BYTES, HugePages::No).expect("1 MiB");
    let mut config = CardConfig::new(vec![80], MEMORY_BYTES, KeyConfig::new([3; 16]), [5; 16]);
    config.handshake = handshake;
    config.flows = 64;
    let policy = Box::new(Lru::new(MEMORY_BYTES as u64, config.entries as u32));
    let store = Store::new(memory, policy, table, config.entries);
    (Card::new(wire, host, config, store, Box::new(NoWatcher), Time(0)), client, server)
}

proptest! {
    // PROPTEST_CASES asks for more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_makes_it_panic(
        shots in proptest::collection::vec(shot(), 1..60),
        own_handshake in any::<bool>(),
        offloads in any::<bool>(),
    ) {
        let handshake = if own_handshake { Handshake::Card } else { Handshake::PassThrough };
        let capabilities = if offloads { Capabilities::FULL } else { Capabilities::PLAIN };
        let (mut card, mut client, mut server) = card(handshake, capabilities);
        let mut burst = Burst::new(256);
        let mut now = Time(1_000_000_000);
        for shot in &shots {
            let port = if shot.from_host { &mut server } else { &mut client };
            let _ = port.send(&[IoSlice::new(&shot.frame())], Offload::default());
            now = Time(now.0 + shot.wait_ms * 1_000_000);
            card.poll(now, 1_700_000_000).expect("ports in memory do not break");
            while client.receive(&mut burst).expect("in memory") > 0 {}
            while server.receive(&mut burst).expect("in memory") > 0 {}
        }
        let counters = card.counters();
        prop_assert_eq!(counters.bus.total(), counters.bus.sum_of_classes());
        prop_assert!(card.flows() <= 4);
        // Whatever was left open goes away by itself.
        for _ in 0..400 {
            now = Time(now.0 + 60_000_000_000);
            card.poll(now, 1_700_000_000).expect("ports in memory do not break");
            while client.receive(&mut burst).expect("in memory") > 0 {}
            while server.receive(&mut burst).expect("in memory") > 0 {}
        }
        prop_assert_eq!(card.flows(), 0);
    }
}
