//! Clients and cards that do what they may not: everything has an end, others are served, and
//! nothing stays taken.

mod world;

use std::time::Duration;

use std::net::Ipv4Addr;

use nicache_bus::attachment::{COMMANDS, DONE, FRAMES};
use nicache_bus::descriptor::Refusal;
use nicache_bus::{
    CardSide, Command, Completion, Flags as CommandFlags, Received, ReceivedChecksum,
};
use nicache_host::server::Broken;
use nicache_port::{Capabilities, FaultRates};
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Tags, write_headers};
use nicache_tcp::{Flags, HeadRepr, Seq, checksum};
use proptest::prelude::*;

use self::world::client::{CLIENT_ADDRESS, CLIENT_MAC, ConversationId};
use self::world::{Settings, World, card_address, card_mac};

const LIMIT: Duration = Duration::from_secs(300);

fn world(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.folder.create("small", 100);
    world.folder.create("some", 10_000);
    world.folder.create("large", 300_000);
    world.folder.create("streamed", (8 << 20) + (2 << 20));
    world
}

/// Waits for a reply, and returns its status; 0: there is none, and the connection is over.
fn status(world: &mut World, id: ConversationId, name: &str) -> u16 {
    let mut reply = None;
    world.run_until(LIMIT, |world| {
        reply = world.client.next_reply(id);
        reply.is_some() || world.client.get(id).is_over
    });
    let Some(reply) = reply else { return 0 };
    assert!(
        reply.status != 200 || reply.body == world.folder.bytes(name),
        "{name} is not the file"
    );
    reply.status
}

/// A file is served to somebody new.
fn serves(world: &mut World, name: &str) {
    let id = world.client.connect(0);
    world.client.ask(id, &format!("/{name}"));
    assert_eq!(status(world, id, name), 200);
}

/// A segment of a client with such a port, complete.
fn segment(port: u16, head: HeadRepr, payload: &[u8]) -> Vec<u8> {
    let addresses = Addresses {
        source_mac: CLIENT_MAC,
        destination_mac: card_mac(0),
        tags: Tags::default(),
        source: Ipv4Addr::from(CLIENT_ADDRESS).into(),
        destination: Ipv4Addr::from(card_address(0)).into(),
    };
    let head = HeadRepr { src_port: port, dst_port: 80, ..head };
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let len = write_headers(&addresses, &head, payload.len() as u32, 1, &mut bytes);
    let mut frame = [&bytes[..len], payload].concat();
    complete(&mut frame);
    frame
}

/// Makes the checksum of a segment right, whatever is in it.
fn complete(frame: &mut [u8]) {
    frame[50..52].fill(0);
    let pseudo =
        checksum::pseudo_header_v4(CLIENT_ADDRESS, card_address(0), frame.len() as u32 - 34);
    let sum = !checksum::add(pseudo, checksum::sum(&frame[34..]));
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn a_table_full_of_beginnings_leaves_the_others_alone() {
    let mut world = world(Settings { connections: 16, ..Settings::default() });
    let id = world.client.connect(0);
    world.client.ask(id, "/small");
    assert_eq!(status(&mut world, id, "small"), 200);
    for port in 1000..3000 {
        let syn = HeadRepr {
            seq: Seq(u32::from(port)),
            flags: Flags::SYN,
            window: 1000,
            ..HeadRepr::default()
        };
        world.inject(0, &segment(port, syn, b""));
        world.settle();
    }
    // Half of the places, beside the one that is established.
    assert_eq!(world.service.connections().len(), 9);
    let counters = world.service.connections().counters();
    assert!(counters.refused + counters.half_open_evicted > 1900, "{counters:?}");
    world.client.ask(id, "/large");
    assert_eq!(status(&mut world, id, "large"), 200);
    world.run_for(Duration::from_secs(70));
    serves(&mut world, "some");
    world.check_nothing_is_left();
}

#[test]
fn who_never_reads_is_ended() {
    let mut world = world(Settings::default());
    let ids: Vec<_> = (0..8).map(|_| world.client.connect(0)).collect();
    for &id in &ids {
        world.client.get(id).reads = false;
        (0..4).for_each(|_| world.client.ask(id, "/large"));
    }
    world.run_for(Duration::from_secs(30));
    serves(&mut world, "some");
    world.run_for(Duration::from_secs(400));
    assert!(world.service.connections().is_empty());
    world.check_nothing_is_left();
}

#[test]
fn who_is_not_heard_of_again_is_forgotten() {
    let mut world = world(Settings { pages: 300, ..Settings::default() });
    for name in ["small", "large", "streamed"] {
        let id = world.client.connect(0);
        world.client.ask(id, &format!("/{name}"));
    }
    world.run_for(Duration::from_millis(3));
    assert!(world.service.pages().pinned() > 0);
    let nothing = FaultRates { loss: 1.0, ..FaultRates::default() };
    world.wires[0].end().set_rates(&nothing, &nothing);
    world.run_for(Duration::from_secs(400));
    assert!(world.service.connections().is_empty());
    assert_eq!((world.service.pages().pinned(), world.service.places().free_places()), (0, 256));
    world.wires[0].end().set_rates(&FaultRates::default(), &FaultRates::default());
    serves(&mut world, "large");
}

#[test]
fn a_request_comes_byte_by_byte() {
    let mut world = world(Settings::default());
    let id = world.client.connect(0);
    world.client.get(id).sends_at_most = 1;
    (0..3).for_each(|_| world.client.ask(id, "/some"));
    for _ in 0..3 {
        assert_eq!(status(&mut world, id, "some"), 200);
    }
    world.check_nothing_is_left();
}

#[test]
fn a_head_that_never_ends_has_an_end() {
    let mut world = world(Settings::default());
    let (long, many, slow) =
        (world.client.connect(0), world.client.connect(0), world.client.connect(0));
    world.client.say(long, b"GET / HTTP/1.1\r\nHost: x\r\nX: ");
    world.client.say(long, &[b'y'; 200_000]);
    world.client.say(many, b"GET / HTTP/1.1\r\nHost: x\r\n");
    (0..10_000).for_each(|_| world.client.say(many, b"X: yyyyyyyyyyyyyyyy\r\n"));
    world.client.say(slow, b"GET / HTTP/1.1\r\nHo");
    assert_eq!((status(&mut world, long, ""), status(&mut world, many, "")), (431, 400));
    world.run_until(LIMIT, |world| world.client.is_done());
    assert!(world.age() < Duration::from_secs(130), "{:?}", world.age());
    world.check_nothing_is_left();
}

#[test]
fn very_many_requests_in_one_go() {
    let mut world = world(Settings { places: 32, ..Settings::default() });
    let id = world.client.connect(0);
    (0..10_000).for_each(|_| world.client.ask(id, "/small"));
    for _ in 0..10_000 {
        assert_eq!(status(&mut world, id, "small"), 200);
    }
    assert_eq!(world.service.counters().requests, 10_000);
    world.check_nothing_is_left();
}

/// RFC 9112 section 9.6: what comes behind the last request is read and thrown away, so the
/// client's end is seen.
#[test]
fn what_follows_the_last_request_is_not_waited_for() {
    let heads = [
        "POST /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 40000\r\n\r\n",
        "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n",
        "GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
    ];
    for head in heads {
        let mut world = world(Settings::default());
        let id = world.client.connect(0);
        world.client.say(id, head.as_bytes());
        world.client.say(id, &[b'x'; 200_000]);
        world.client.get(id).closes = true;
        assert!(matches!(status(&mut world, id, "small"), 200 | 400 | 405));
        world.run_until(LIMIT, |world| world.service.connections().is_empty());
        assert!(world.age() < Duration::from_secs(20), "{head}: {:?}", world.age());
        world.check_nothing_is_left();
    }
}

#[test]
fn who_never_stops_sending_is_ended() {
    let mut world = world(Settings::default());
    let id = world.client.connect(0);
    world.client.say(id, b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n");
    for _ in 0..100 {
        world.client.say(id, &[b'x'; 1000]);
        world.run_for(Duration::from_secs(1));
    }
    assert!(world.service.connections().is_empty());
    world.check_nothing_is_left();
}

#[test]
fn content_of_a_request_is_skipped() {
    let mut world = world(Settings::default());
    let id = world.client.connect(0);
    world.client.say(id, b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\n");
    world.client.say(id, &[b'x'; 40_000]);
    world.client.ask(id, "/some");
    assert_eq!((status(&mut world, id, "small"), status(&mut world, id, "some")), (405, 200));
    world.check_nothing_is_left();
}

/// Who finds no place for its reply is not forgotten when others give theirs back.
#[test]
fn bad_requests_wait_for_a_place_like_others() {
    // So slow that places are given back after everything else that the bad one could be looked at
    // for.
    let rates = FaultRates { latency_ns: 200_000_000, ..FaultRates::default() };
    let mut world = world(Settings { places: 8, rates, ..Settings::default() });
    let (greedy, bad) = (world.client.connect(0), world.client.connect(0));
    world.run_for(Duration::from_secs(2));
    (0..8).for_each(|_| world.client.ask(greedy, "/small"));
    world.client.say(bad, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(status(&mut world, bad, ""), 400);
    assert!(world.age() < Duration::from_secs(4), "{:?}", world.age());
    world.check_nothing_is_left();
}

/// Each request has one reply, even if there can be no right one.
#[test]
fn a_list_that_is_longer_than_all_places_is_refused() {
    let mut world = world(Settings { places: 16, ..Settings::default() });
    for number in 0..200 {
        world.folder.create(&format!("{number:0>100}"), 0);
    }
    let id = world.client.connect(0);
    world.client.ask(id, "/");
    world.client.ask(id, "/small");
    assert_eq!((status(&mut world, id, ""), status(&mut world, id, "small")), (503, 200));
    assert!(world.age() < Duration::from_secs(10));
    world.check_nothing_is_left();
}

/// RFC 9110 section 9.3.2: no reply to HEAD has a body, or it would be taken for the next reply.
#[test]
fn a_refused_head_is_a_head() {
    let mut world = world(Settings::default());
    let id = world.client.connect(0);
    for target in ["/..", "/none", "/small"] {
        world.client.say(id, format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    }
    world.run_for(Duration::from_secs(5));
    let received = String::from_utf8(world.client.get(id).received.clone()).unwrap();
    let heads: Vec<&str> = received.split_terminator("\r\n\r\n").map(|head| &head[..12]).collect();
    assert_eq!(heads, ["HTTP/1.1 400", "HTTP/1.1 404", "HTTP/1.1 200"]);
}

#[test]
fn after_a_reset_nothing_more_is_read() {
    let mut world = world(Settings { pages: 4096, ..Settings::default() });
    let id = world.client.connect(0);
    (0..10).for_each(|_| world.client.ask(id, "/streamed"));
    world.run_until(LIMIT, |world| !world.client.get(id).received.is_empty());
    world.client.abort(id);
    world.run_until(LIMIT, |world| world.service.connections().is_empty());
    assert!(world.service.pages().len() < 1024, "{} pages were read", world.service.pages().len());
    world.check_nothing_is_left();
}

#[test]
fn a_reset_at_any_point() {
    for steps in 0..120 {
        let mut world =
            world(Settings { seed: steps, laziness: 0.5, pages: 400, ..Settings::default() });
        let (id, other) = (world.client.connect(0), world.client.connect(0));
        for name in ["small", "large", "streamed", "none"] {
            world.client.ask(id, &format!("/{name}"));
        }
        world.client.ask(other, "/large");
        let mut left = steps;
        world.run_until(LIMIT, |_| {
            left = left.saturating_sub(1);
            left == 0
        });
        world.client.abort(id);
        assert_eq!(status(&mut world, other, "large"), 200);
        world.check_nothing_is_left();
    }
}

#[test]
fn a_card_that_is_gone_costs_no_time() {
    let mut world = world(Settings { pages: 600, ..Settings::default() });
    let id = world.client.connect(0);
    world.client.ask(id, "/streamed");
    world.run_until(LIMIT, |world| !world.client.get(id).received.is_empty());
    world.detach(0);
    // What the client says meanwhile is lost, too.
    let (rates, nothing) =
        (world.settings.rates, FaultRates { loss: 1.0, ..FaultRates::default() });
    world.wires[0].end().set_rates(&rates, &nothing);
    let turns = world.turns;
    world.run_for(Duration::from_secs(21));
    assert!(world.turns - turns < 100, "{} turns for nothing", world.turns - turns);
    world.wires[0].end().set_rates(&rates, &rates);
    world.attach(0);
    let (since, received) = (world.now(), world.client.get(id).received.len());
    world.run_until(LIMIT, |world| world.client.get(id).received.len() > received);
    assert!(world.now().since(since) < Duration::from_secs(1), "it is not gone on with");
    assert_eq!(status(&mut world, id, "streamed"), 200);
    let id = world.client.connect(0);
    world.client.ask(id, "/streamed");
    world.run_until(LIMIT, |world| !world.client.get(id).received.is_empty());
    world.detach(0);
    world.run_for(Duration::from_secs(400));
    assert!(world.service.connections().is_empty(), "they wait for a card for ever");
    assert_eq!(world.service.pages().pinned(), 0);
}

#[test]
fn a_card_that_sleeps_costs_no_time() {
    let mut world = world(Settings { laziness: 0.9, cache_blocks: 8, ..Settings::default() });
    let ids: Vec<_> = (0..64).map(|_| world.client.connect(0)).collect();
    ids.iter().for_each(|&id| world.client.ask(id, "/large"));
    let room = |world: &mut World| world.service.driver(0).unwrap().side().commands.room().unwrap();
    // It goes to sleep with commands waiting for it.
    let empty = room(&mut world);
    world.run_until(LIMIT, |world| room(world) + 64 <= empty);
    let card = world.wires[0].card.take();
    let turns = world.turns;
    world.run_for(Duration::from_secs(10));
    assert!(world.turns - turns < 20_000, "{} turns for nothing", world.turns - turns);
    world.wires[0].card = card;
    for id in ids {
        assert_eq!(status(&mut world, id, "large"), 200);
    }
    world.check_nothing_is_left();
}

/// Pages of packets that the card has sent are free although no other packet follows.
#[test]
fn what_a_card_is_done_with_is_given_back() {
    let mut world = world(Settings::default());
    let id = world.client.connect(0);
    world.client.ask(id, "/large");
    assert_eq!(status(&mut world, id, "large"), 200);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.service.pages().pinned(), 0);
}

/// A client that sends segments of its connections with anything in them.
#[test]
fn segments_with_anything_in_them() {
    for seed in 0..30 {
        let mut world = world(Settings { seed, connections: 32, ..Settings::default() });
        let id = world.client.connect(0);
        world.client.ask(id, "/large");
        let mut random = fastrand::Rng::with_seed(seed);
        let flags = [Flags::SYN, Flags::ACK, Flags::FIN, Flags::RST, Flags::PSH];
        let (mut seq, mut ack) = (0, 0);
        for _ in 0..400 {
            let few = || 0..flags.len();
            let flags = (0..random.u32(0..3))
                .fold(flags[random.usize(few())], |all, _| all | flags[random.usize(few())]);
            seq = if random.bool() { random.u32(..) } else { seq };
            ack = if random.bool() { random.u32(..) } else { ack };
            let head = HeadRepr {
                seq: Seq(seq),
                ack: Seq(ack),
                flags,
                window: random.u16(..),
                ..HeadRepr::default()
            };
            let payload = vec![b'x'; random.usize(0..200)];
            let mut frame = segment(1000 + random.u16(0..8), head, &payload);
            for _ in 0..random.usize(0..3) {
                let at = random.usize(0..frame.len());
                frame[at] = random.u8(..);
            }
            if random.bool() && frame.len() > 60 {
                complete(&mut frame);
            }
            frame.truncate(random.usize(1..=frame.len()).max(random.usize(1..=frame.len())));
            world.inject(0, &frame);
            world.turn(true);
        }
        assert_eq!(status(&mut world, id, "large"), 200);
        serves(&mut world, "some");
        world.check_nothing_is_left();
    }
}

/// What a card may write: entries, and words anywhere in what is shared.
#[derive(Clone, Debug)]
enum Deed {
    Word(usize, u64),
    Near(usize, u64),
    Done([u64; 2]),
    Refuse(u64, u64),
    Received([u64; 2]),
    Frame(u64, Vec<u8>),
    TakeCommands,
    TakePlaces,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..100);
    let deed = prop_oneof![
        1 => (4096usize / 8..58_368 / 8, any::<u64>())
            .prop_map(|(word, value)| Deed::Word(word, value)),
        1 => (0usize..8, 0u64..2000).prop_map(|(ring, value)| Deed::Near(ring, value)),
        2 => any::<[u64; 2]>().prop_map(Deed::Done),
        2 => (0u64..6, 0u64..50).prop_map(|(why, number)| Deed::Refuse(why, number)),
        2 => any::<[u64; 2]>().prop_map(Deed::Received),
        6 => (0u64..600, bytes).prop_map(|(place, bytes)| Deed::Frame(place, bytes)),
        4 => Just(Deed::TakeCommands),
        4 => Just(Deed::TakePlaces),
    ];
    proptest::collection::vec(deed, 1..60)
}

fn take_all(ring: &mut nicache_bus::Consumer<impl nicache_bus::RingMemory>) {
    while let Ok(Some(_)) = ring.pop() {}
    let _ = ring.release();
}

fn do_it(world: &World, side: &mut CardSide, shared: &nicache_bus::Window, deed: Deed) {
    let rings = [COMMANDS, DONE, FRAMES, FRAMES]
        .map(|entries| ((32 + 2 * entries) * 8usize).next_multiple_of(64));
    let store = |word: usize, value: u64| {
        shared.word(word * 8).store(value, std::sync::atomic::Ordering::SeqCst);
    };
    match deed {
        Deed::Word(word, value) => store(word, value),
        Deed::Near(index, value) => {
            let start = 4096 + rings[..index / 2].iter().sum::<usize>();
            store(start / 8 + index % 2 * 8, value);
        }
        Deed::Done(entry) => drop(side.done.push(entry)),
        Deed::Refuse(why, descriptor) => {
            let refusal = Refusal::from_number(why).unwrap_or(Refusal::Malformed);
            let _ = side.done.push(Completion::Refused { refusal, descriptor }.encode());
        }
        Deed::Received(entry) => drop(side.received.push(entry)),
        Deed::Frame(place, mut bytes) => {
            let mmaddr = nicache_host::driver::HEADER_BYTES + place * 2048;
            if bytes.len() > 34 {
                bytes[..6].copy_from_slice(&card_mac(0));
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[30..34].copy_from_slice(&card_address(0));
            }
            if place < 512 {
                world.window().write(mmaddr, &bytes).unwrap();
            }
            // Some are longer than a buffer.
            let len = bytes.len() as u32 + if place % 8 == 0 { 2048 } else { 0 };
            let frame =
                Received { mmaddr, len, checksum: ReceivedChecksum::Valid, ..Received::default() };
            let _ = side.received.push(frame.encode());
        }
        Deed::TakeCommands => take_all(&mut side.commands),
        Deed::TakePlaces => take_all(&mut side.free),
    }
    let _ = (side.done.publish(), side.received.publish());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// A card that writes anything has a name for it, and the next one serves as if nothing had
    /// been.
    #[test]
    fn cards_that_write_anything(deeds in deeds()) {
        let mut world = world(Settings::default());
        let id = world.client.connect(0);
        world.client.ask(id, "/large");
        world.run_until(LIMIT, |world| !world.client.get(id).received.is_empty());
        world.detach(0);
        let (host, mut side, shared) = World::attachment();
        world.attach_host(0, host);
        for deed in deeds {
            do_it(&world, &mut side, &shared, deed);
            world.turn(true);
            prop_assert!(
                world
                    .broken
                    .iter()
                    .all(|(card, error)| *card == 0 && matches!(error, Broken::Card(_)))
            );
        }
        world.detach(0);
        world.attach(0);
        // What it made up may have ended the connection.
        prop_assert!(matches!(status(&mut world, id, "large"), 0 | 200));
        serves(&mut world, "some");
        world.check_nothing_is_left();
    }
}

/// A card that refuses some of what packets are made of, with a right one behind it.
#[test]
fn a_card_that_refuses_at_random() {
    for seed in 0..20 {
        let mut world =
            world(Settings { seed, capabilities: Capabilities::PLAIN, ..Settings::default() });
        let (host, mut outer, _) = World::attachment();
        let (mut inner, side, _) = World::attachment();
        let port = world.wires[0].card.take().unwrap().into_port();
        let seen =
            nicache_bus::Window::map(world.window().file().try_clone_to_owned().unwrap()).unwrap();
        let bytes = world.settings.cache_blocks * nicache_host::BLOCK_BYTES as u32;
        world.wires[0].card = Some(
            nicache_firmware::Firmware::new(port, side, std::sync::Arc::new(seen), bytes, None)
                .unwrap(),
        );
        world.attach_host(0, host);
        let ids: Vec<_> = (0..4).map(|_| world.client.connect(0)).collect();
        ids.iter().for_each(|&id| world.client.ask(id, "/large"));
        let mut random = fastrand::Rng::with_seed(seed);
        let mut refused = 0;
        let mut is_skipped = false;
        world.run_until(LIMIT, |world| {
            // Whoever is in between passes on what is executed, and releases it then.
            while inner.free.room().unwrap() > 0
                && let Some(place) = outer.free.pop().unwrap()
            {
                inner.free.push(place).unwrap();
            }
            while inner.commands.room().unwrap() > 0
                && let Some(entry) = outer.commands.pop().unwrap()
            {
                let command = Command::decode(entry).unwrap();
                let (Command::AppendMm { flags, .. } | Command::AppendCache { flags, .. }) =
                    command
                else {
                    inner.commands.push(entry).unwrap();
                    continue;
                };
                is_skipped &= !flags.has(CommandFlags::FIRST);
                if !is_skipped && random.u32(0..25) == 0 {
                    (is_skipped, refused) = (true, refused + 1);
                    let (refusal, descriptor) = (Refusal::Window, outer.commands.popped() - 1);
                    outer.done.push(Completion::Refused { refusal, descriptor }.encode()).unwrap();
                } else if !is_skipped {
                    inner.commands.push(entry).unwrap();
                }
            }
            let _ = (inner.free.publish(), inner.commands.publish());
            if inner.commands.released().unwrap() == inner.commands.next() {
                let _ = outer.commands.release();
            }
            while let Some(entry) = inner.received.pop().unwrap() {
                outer.received.push(entry).unwrap();
            }
            let _ = (
                inner.received.release(),
                outer.received.publish(),
                outer.free.release(),
                outer.done.publish(),
            );
            ids.iter().all(|&id| world.client.get(id).received.len() > 300_000)
        });
        for id in ids {
            assert_eq!(status(&mut world, id, "large"), 200);
        }
        assert!(refused > 0 && world.service.driver(0).unwrap().counters().refused == refused);
        world.detach(0);
        world.attach(0);
        serves(&mut world, "some");
        world.check_nothing_is_left();
    }
}
