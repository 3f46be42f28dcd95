//! Whatever the wire does, and however little memory there is, each body is the file.

mod world;

use std::time::Duration;

use nicache_port::{Capabilities, FaultRates};
use proptest::prelude::*;

use self::world::client::ConversationId;
use self::world::{Settings, World};

/// Files by their size: around a block, larger than what a client takes at a time, larger than what
/// is pinned at once.
const FILES: [(&str, usize); 9] = [
    ("empty", 0),
    ("one", 1),
    ("small", 100),
    ("below", 4095),
    ("block", 4096),
    ("above", 4097),
    ("some", 10_000),
    ("large", 1_000_000),
    ("streamed", (8 << 20) + 4097),
];
/// So many of the first files are small, and asked for often.
const SMALL: usize = 7;
/// Longest that a run may take, by its own clock.
const LIMIT: Duration = Duration::from_secs(900);

fn with_files(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.client.timestamps = true;
    FILES.iter().for_each(|(name, len)| world.folder.create(name, *len));
    world
}

/// Waits for the replies to these requests, and compares them. Returns how many had no room.
fn compare(world: &mut World, asked: &[(ConversationId, &str)]) -> usize {
    let mut refused = 0;
    for (id, name) in asked {
        let mut reply = None;
        world.run_until(LIMIT, |world| {
            reply = world.client.next_reply(*id);
            reply.is_some() || world.client.get(*id).is_over
        });
        if reply.is_none() && world.client.was_unheard(*id) {
            // So many repetitions were lost that the host took it for idle.
            continue;
        }
        let reply =
            reply.unwrap_or_else(|| panic!("no reply for {name}: {}", world.client.describe()));
        match reply.status {
            200 => assert!(reply.body == world.folder.bytes(name), "{name} is not the file"),
            503 => refused += 1,
            status => panic!("{name} is answered with {status}"),
        }
        world.check_inclusion();
    }
    refused
}

#[test]
fn a_perfect_wire() {
    for capabilities in [Capabilities::FULL, Capabilities::PLAIN] {
        let mut world = with_files(Settings { capabilities, ..Settings::default() });
        let id = world.client.connect(0);
        let asked: Vec<_> = FILES.iter().map(|(name, _)| (id, *name)).collect();
        asked.iter().for_each(|(id, name)| world.client.ask(*id, &format!("/{name}")));
        assert_eq!(compare(&mut world, &asked), 0);
        world.check_nothing_is_left();
        let counters = *world.service.counters();
        assert_eq!((counters.requests, counters.statuses), (9, [9, 0, 0, 0]));
        assert_eq!(counters.content_bytes, FILES.iter().map(|(_, len)| *len as u64).sum::<u64>());
        assert_eq!((counters.cut, counters.frames_corrupt, counters.answers_dropped), (0, 0, 0));
        assert_eq!(world.service.driver(0).unwrap().counters().refused, 0);
    }
}

#[test]
fn wrong_checksums_are_found_on_both_sides() {
    let rates = FaultRates { corrupt: 0.2, latency_ns: 100_000, ..FaultRates::default() };
    let mut world =
        with_files(Settings { rates, capabilities: Capabilities::PLAIN, ..Settings::default() });
    let id = world.client.connect(0);
    world.client.ask(id, "/large");
    assert_eq!(compare(&mut world, &[(id, "large")]), 0);
    let sent = world.wires[0].end().send_counters().corrupted;
    assert!(sent > 10 && world.wires[0].end().receive_counters().corrupted > 10);
    let counters = world.service.counters();
    // A bit of a port or a flag makes no segment of it either, but most are found by their sum.
    assert!(
        counters.frames_corrupt <= sent && counters.frames_corrupt > sent / 2,
        "{counters:?} of {sent}"
    );
}

/// Wires that are bad in all ways, some a little and some very much.
fn rates() -> impl Strategy<Value = FaultRates> {
    let probability = || prop_oneof![2 => Just(0.0), 1 => 0.0..0.02, 1 => 0.0..0.1];
    let chances = (probability(), probability(), probability(), 0.0..0.03, probability());
    (chances, 1_000u64..5_000_000, 0u64..20_000_000).prop_map(|(chances, latency_ns, late_ns)| {
        let (loss, duplicate, reorder, corrupt, delay) = chances;
        let (reorder_ns, delay_ns) = (late_ns, late_ns * 4);
        FaultRates { loss, duplicate, reorder, reorder_ns, corrupt, delay, delay_ns, latency_ns }
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let room = (
        prop_oneof![0u32..9, Just(64u32), Just(512)],
        prop_oneof![8u32..40, 40u32..600, Just(4096)],
        40u32..200,
    );
    (any::<u64>(), any::<bool>(), room, rates(), prop_oneof![Just(0.0), 0.0..0.95]).prop_map(
        |(seed, is_full, (cache_blocks, pages, places), rates, laziness)| {
            let capabilities = if is_full { Capabilities::FULL } else { Capabilities::PLAIN };
            Settings {
                seed,
                capabilities,
                cache_blocks,
                pages,
                places,
                rates,
                laziness,
                ..Settings::default()
            }
        },
    )
}

/// Bytes of requests that are sent at a time.
fn pieces() -> impl Strategy<Value = usize> {
    prop_oneof![Just(usize::MAX), 1usize..60]
}

/// What clients ask for: by conversation, files in the order of their requests.
fn requests() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let file = prop_oneof![12 => 0..SMALL, 1 => Just(SMALL)];
    proptest::collection::vec(proptest::collection::vec(file, 1..24), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bodies_are_files(settings in settings(), requests in requests(), piece in pieces()) {
        let mut world = with_files(settings);
        let mut asked = Vec::new();
        for files in &requests {
            let id = world.client.connect(0);
            world.client.get(id).sends_at_most = piece;
            for &file in files {
                world.client.ask(id, &format!("/{}", FILES[file].0));
                asked.push((id, FILES[file].0));
            }
        }
        let refused = compare(&mut world, &asked);
        // Pages for everything that clients can be sent at a time.
        let needed: u32 =
            requests.iter().flatten().map(|&file| FILES[file].1.div_ceil(4096) as u32).sum();
        prop_assert!(
            refused == 0 || world.settings.pages < needed + 64,
            "{refused} are refused without need"
        );
        world.check_nothing_is_left();
        prop_assert_eq!(world.service.driver(0).unwrap().counters().refused, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16,
        max_shrink_iters: 10,
        ..ProptestConfig::default()
    })]

    #[test]
    fn streamed_bodies_are_files(settings in settings(), clients in 1usize..3) {
        let settings = Settings { pages: settings.pages.max(300), ..settings };
        let mut world = with_files(settings);
        let asked: Vec<_> = (0..clients).map(|_| (world.client.connect(0), "streamed")).collect();
        asked.iter().for_each(|(id, name)| world.client.ask(*id, &format!("/{name}")));
        compare(&mut world, &asked);
        world.check_nothing_is_left();
    }
}
