//! What leaves the forwarder: checksums that a full recomputation agrees with (F2), and nothing
//! untranslated (F5).

mod packets;
mod world;

use nicache_forward::Drop;
use nicache_forward::nat::Forwarded;
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_port::{Checksum, Offload};
use packets::*;
use proptest::prelude::*;
use world::*;

/// The protocol of echoes beside a version of IP.
fn protocol(number: u8, is_v6: bool) -> u8 {
    match (number, is_v6) {
        (0, _) => TCP,
        (1, _) => UDP,
        (_, false) => ICMP,
        (_, true) => ICMPV6,
    }
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..80),
        proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff)], 0..1200),
    ];
    (
        0usize..4,
        0usize..2,
        0u8..3,
        any::<(u16, u16)>(),
        payload,
        any::<(bool, bool)>(),
        0usize..4,
        2u8..=255,
    )
        .prop_map(
            |(client, server, number, ports, payload, (is_partial, is_unsummed), extras, hops)| {
                let is_v6 = client >= 2;
                let protocol = protocol(number, is_v6);
                let ports = if number == 2 { (ports.0, 1) } else { (ports.0, ports.1.max(1)) };
                let server = server + if is_v6 { 2 } else { 0 };
                Recipe {
                    payload,
                    is_partial: is_partial && number < 2,
                    is_unsummed: is_unsummed && !is_partial && protocol == UDP && !is_v6,
                    extras,
                    hops,
                    ..Recipe::new(
                        protocol,
                        (address(CLIENTS[client]), ports.0),
                        (address(SERVERS[server]), ports.1),
                    )
                }
            },
        )
}

/// A tag is in front of what leaves.
fn shifted(checksum: Checksum) -> Checksum {
    match checksum {
        Checksum::Partial { start, offset } => Checksum::Partial { start: start + 4, offset },
        other => other,
    }
}

/// The answer to a frame that has left.
fn answer(frame: &[u8], like: &Recipe, payload: Vec<u8>) -> Recipe {
    let seen = Seen::of(frame);
    let ports = match like.protocol {
        TCP | UDP => (seen.ports.1, seen.ports.0),
        _ => (seen.ports.0, 0),
    };
    Recipe {
        tags: vec![TAG],
        to_mac: [2, 0, 0, 0, 1, OUTSIDE],
        source: seen.destination,
        destination: seen.source,
        ports,
        tcp: (77, like.tcp.0 + 1, SYN | ACK),
        payload: if like.protocol == TCP { Vec::new() } else { payload },
        ..like.clone()
    }
}

/// RFC 768: 0 means none. A sum of UDP that comes to that is written as 0xffff.
#[test]
fn a_checksum_that_comes_to_nothing() {
    for end in [0, 2] {
        let mut world = World::new(|_| {});
        let field = |world: &mut World, payload: Vec<u8>| {
            let ends = ((address(CLIENTS[end]), 4000), (address(SERVERS[end]), 53));
            let left = world.leaves(&Recipe { payload, ..Recipe::new(UDP, ends.0, ends.1) });
            let at = Seen::of(&left).transport_at + 6;
            [left[at], left[at + 1]]
        };
        // With this in the payload, the sum of all that leaves is 0xffff.
        let rest = field(&mut world, vec![0; 20]);
        let payload = [&rest[..], &[0; 18]].concat();
        assert_eq!(field(&mut world, payload), [0xff, 0xff], "{end}");
    }
}

/// An error goes to whoever seems to have sent what it quotes. One for another address is not about
/// that, and nobody inside hears of it.
#[test]
fn an_error_for_somebody_else() {
    let mut world = World::new(|_| {});
    let left =
        world.leaves(&Recipe::new(UDP, (address(CLIENTS[0]), 4000), (address(SERVERS[0]), 53)));
    let error = Recipe {
        tags: vec![TAG],
        to_mac: [2, 0, 0, 0, 1, OUTSIDE],
        ..Recipe::error(address(SERVERS[1]), &left, 28, (3, 3), 0)
    };
    for (destination, expected) in [
        (error.destination, Ok(usize::from(INSIDE))),
        (address("192.0.2.77"), Err(Drop::StrayError)),
        (address(CLIENTS[0]), Err(Drop::StrayError)),
        (address(CLIENTS[1]), Err(Drop::StrayError)),
    ] {
        let frame = Recipe { destination, ..error.clone() }.raw_frame();
        let came = world.handle(&frame, OUTSIDE, Offload::default());
        assert_eq!(came.map(|(interface, ..)| interface), expected, "{destination}");
    }
}

/// Later fragments wait with the first one for a neighbor whose MAC address is not known yet, and
/// go where it goes.
#[test]
fn fragments_wait_for_a_neighbor() {
    for is_translated in [true, false] {
        let mut world = World::new(|config| {
            if !is_translated {
                config.interfaces[1].masquerade = vec![];
            }
        });
        let new = address("192.0.2.50");
        let recipe = Recipe {
            payload: (0..300).map(|at| at as u8).collect(),
            ..Recipe::new(UDP, (address(CLIENTS[0]), 4000), (new, 53))
        };
        let frames = recipe.fragments(104, 9);
        for (number, frame) in frames.iter().enumerate() {
            let came = world.handle(frame, INSIDE, Offload::default());
            assert_eq!(came.unwrap_err(), Drop::Neighbour, "{number}");
        }
        assert_eq!(world.forwarder.counters().dropped_for(Drop::Fragment), 0);
        let mac = [4, 0, 0, 0, 9, 9];
        world.forwarder.learn_neighbour(usize::from(OUTSIDE), new, mac, world.now);
        let (mut together, mut first) = (Vec::new(), None);
        for frame in &frames {
            let (_, left, offload) = world.handle(frame, INSIDE, Offload::default()).unwrap();
            let seen = verify(&left, offload).unwrap();
            assert_eq!(left[..6], mac);
            together.extend(&left[seen.transport_at..]);
            first.get_or_insert(seen);
        }
        let seen = first.unwrap();
        assert_eq!(EXTERNALS.map(address).contains(&seen.source), is_translated);
        verify_transport(&seen, &together, Offload::default()).unwrap();
    }
}

/// A quote may end anywhere in a TCP header: what is there of it is as the client sent it, the
/// checksum, too, if it is whole.
#[test]
fn quotes_end_anywhere() {
    for of_tcp in 8..24 {
        let mut world = World::new(|_| {});
        let recipe = Recipe::new(TCP, (address(CLIENTS[0]), 4000), (address(SERVERS[0]), 80));
        let left = completed(
            &world.leaves(&recipe),
            Offload { checksum: shifted(recipe.offload().checksum), gso: None },
        );
        let error = Recipe {
            tags: vec![TAG],
            to_mac: [2, 0, 0, 0, 1, OUTSIDE],
            ..Recipe::error(Seen::of(&left).destination, &left, 20 + of_tcp, (3, 3), 1400)
        };
        let (_, came, offload) =
            world.handle(&error.raw_frame(), OUTSIDE, Offload::default()).unwrap();
        let seen = verify(&came, offload).unwrap();
        let sent = Recipe { hops: recipe.hops - 1, is_partial: false, ..recipe }.frame();
        let quote = &came[seen.transport_at + 8..];
        // Half of a checksum is left as it is.
        let compared = if of_tcp == 17 { quote.len() - 1 } else { quote.len() };
        assert_eq!(quote[..compared], sent[14..14 + compared], "{of_tcp}");
    }
}

/// What a later fragment begins with is not the kind of a message: here it looks like a question
/// for a neighbor.
#[test]
fn a_later_fragment_is_not_neighbor_discovery() {
    for kind in 133..=137 {
        let mut world = World::new(|_| {});
        let recipe =
            Recipe::new(protocol(2, true), (address(CLIENTS[2]), 7), (address(SERVERS[2]), 1));
        let recipe = Recipe { payload: vec![kind; 300], ..recipe };
        for frame in recipe.fragments(40, 99) {
            let (interface, ..) = world.handle(&frame, INSIDE, Offload::default()).unwrap();
            assert_eq!(interface, usize::from(OUTSIDE), "{kind}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// F2: there, back, and an error about either; each is as its sender made it, but for ends and
    /// hops.
    #[test]
    fn a_full_recomputation_agrees(
        recipe in recipes(),
        reply in proptest::collection::vec(any::<u8>(), 0..100),
        quoted in 14usize..700,
        kind in 0usize..4,
    ) {
        let mut world = World::new(|_| {});
        let recipe = Recipe {
            payload: if recipe.protocol == TCP { Vec::new() } else { recipe.payload.clone() },
            ..recipe
        };
        let left = completed(
            &world.leaves(&recipe),
            Offload { checksum: shifted(recipe.offload().checksum), gso: None },
        );
        let quoted = quoted * 2;
        let back = answer(&left, &recipe, reply);
        let (interface, came, offload) =
            world.handle(&back.frame(), OUTSIDE, back.offload()).unwrap();
        let seen = verify(&came, offload).unwrap();
        prop_assert_eq!(interface, usize::from(INSIDE));
        let expected = Recipe {
            to_mac: [came[0], came[1], came[2], came[3], came[4], came[5]],
            from_mac: [2, 0, 0, 0, 1, INSIDE],
            tags: Vec::new(),
            destination: recipe.source,
            ports: if recipe.protocol == TCP || recipe.protocol == UDP {
                (back.ports.0, recipe.ports.0)
            } else {
                (recipe.ports.0, 0)
            },
            hops: back.hops - 1,
            ..back.clone()
        };
        // An unsummed or partial field has one value; a full one may be spelled in two ways only in
        // theory.
        prop_assert_eq!(&came, &expected.frame());
        prop_assert_eq!(seen.destination, recipe.source);

        // A router outside, or the server itself, complains about what has left.
        let is_v6 = recipe.source.is_ipv6();
        let kinds: [(u8, u8); 4] = if is_v6 {
            [(1, 4), (2, 0), (3, 0), (4, 1)]
        } else {
            [(3, 3), (3, 4), (11, 0), (12, 0)]
        };
        let least = 8 + if is_v6 { 40 + 8 * recipe.extras } else { 20 + 4 * recipe.extras };
        for from in [
            Seen::of(&left).destination,
            address(if is_v6 { "2001:db8::9" } else { "198.51.100.9" }),
        ] {
            let error = Recipe {
                tags: vec![TAG],
                to_mac: [2, 0, 0, 0, 1, OUTSIDE],
                ..Recipe::error(from, &left, quoted.max(least), kinds[kind], 1400)
            };
            let frame = error.raw_frame();
            let (interface, came, offload) =
                world.handle(&frame, OUTSIDE, Offload::default()).unwrap();
            let seen = verify(&came, offload).unwrap();
            prop_assert_eq!(interface, usize::from(INSIDE));
            prop_assert_eq!((seen.source, seen.destination), (from, recipe.source));
            // It quotes the packet as the client sent it, but for the hops that it has used.
            let sent =
                Recipe { hops: recipe.hops - 1, is_partial: false, ..recipe.clone() }.frame();
            let at = seen.transport_at + 8;
            let quote = &came[at..];
            prop_assert_eq!(quote, &sent[14..14 + quote.len()]);
        }

        // The client complains about what came back.
        let error = Recipe::error(
            recipe.source,
            &completed(&came, offload),
            quoted.max(least),
            kinds[kind],
            1400,
        );
        let (interface, left, offload) =
            world.handle(&error.raw_frame(), INSIDE, Offload::default()).unwrap();
        let seen = verify(&left, offload).unwrap();
        prop_assert_eq!(interface, usize::from(OUTSIDE));
        prop_assert!(EXTERNALS.map(address).contains(&seen.source));
        let sent = Recipe { hops: back.hops - 1, is_partial: false, ..back.clone() }.frame();
        let quote = &left[seen.transport_at + 8..];
        prop_assert_eq!(quote, &sent[18..18 + quote.len()]);
    }

    /// F2: fragments are translated so the packet is right that is put together from them.
    #[test]
    fn fragments_fit_each_other(recipe in recipes(), size in 5usize..20) {
        let mut world = World::new(|_| {});
        let recipe = Recipe {
            payload: [&recipe.payload[..], &[7; 300]].concat(),
            is_partial: false,
            ..recipe
        };
        let frames = recipe.fragments(size * 8, 99);
        let mut together = Vec::new();
        let mut last = None;
        for (number, frame) in frames.iter().enumerate() {
            let (interface, left, offload) =
                world.handle(frame, INSIDE, Offload::default()).unwrap();
            let seen = verify(&left, offload).unwrap();
            prop_assert_eq!(interface, usize::from(OUTSIDE));
            prop_assert!(seen.is_fragment, "{number}");
            together.extend(&left[seen.transport_at..]);
            if let Some((source, destination)) = last {
                prop_assert_eq!((seen.source, seen.destination), (source, destination));
            }
            last = Some((seen.source, seen.destination));
            if number == 0 {
                prop_assert!(EXTERNALS.map(address).contains(&seen.source));
            }
        }
        let (source, destination) = last.unwrap();
        let seen = Seen { source, destination, protocol: recipe.protocol, ..Seen::of(&frames[0]) };
        verify_transport(&seen, &together, Offload::default()).unwrap();
        // Without the first one, nothing.
        let mut world = World::new(|_| {});
        prop_assert_eq!(
            world.handle(&frames[1], INSIDE, Offload::default()).unwrap_err(),
            Drop::Fragment
        );
    }

    /// F5: whatever comes from inside, what leaves outside has our address, and what is quoted in
    /// it, too.
    #[test]
    fn nothing_leaves_untranslated(
        frames in proptest::collection::vec(
            (recipes(), any::<[u8; 4]>(), any::<[u8; 3]>(), 0u8..64, 0u8..12),
            1..12,
        ),
    ) {
        let mut world = World::new(|_| {});
        for (recipe, at, value, flags, what) in frames {
            let recipe = Recipe {
                tcp: (5, 6, flags),
                protocol: if what == 0 { 47 } else { recipe.protocol },
                ..recipe
            };
            let mut frame = match what {
                1 => recipe.fragments(64, 3).pop().unwrap(),
                2 | 3 => {
                    let about = Recipe {
                        source: recipe.destination,
                        destination: recipe.source,
                        ..recipe.clone()
                    };
                    let kind = if recipe.source.is_ipv6() { (1, 4) } else { (3, 3) };
                    Recipe {
                        source: recipe.source,
                        ..Recipe::error(recipe.source, &about.frame(), 200, kind, 0)
                    }
                    .raw_frame()
                }
                _ => recipe.frame(),
            };
            if what > 7 {
                // Any bytes of the headers.
                for (at, value) in at.into_iter().zip(value) {
                    let at = 12 + usize::from(at) % (frame.len() - 12);
                    frame[at] = value;
                }
            }
            if let Ok((interface, left, _)) = world.handle(&frame, INSIDE, Offload::default())
                && interface == usize::from(OUTSIDE)
            {
                let seen = Seen::of(&left);
                prop_assert!(EXTERNALS.map(address).contains(&seen.source), "{seen:?}");
                let is_error = match seen.protocol {
                    ICMP => matches!(left[seen.transport_at], 3 | 11 | 12),
                    ICMPV6 => left[seen.transport_at] < 128,
                    _ => false,
                };
                if is_error && !seen.is_fragment {
                    let inner = [&left[..14], &left[seen.transport_at + 8..]].concat();
                    prop_assert!(EXTERNALS.map(address).contains(&Seen::of(&inner).destination));
                }
            }
        }
    }
}

/// moby#18630: a reset that fits nothing is not passed on as it is.
#[test]
fn a_stray_reset_stays_inside() {
    let mut world = World::new(|_| {});
    for flags in [RST, RST | ACK, ACK, SYN | ACK, FIN | ACK] {
        let recipe = Recipe {
            tcp: (9, 9, flags),
            ..Recipe::new(TCP, (address(CLIENTS[0]), 5), (address(SERVERS[0]), 80))
        };
        assert_eq!(
            world.handle(&recipe.frame(), INSIDE, recipe.offload()).unwrap_err(),
            Drop::NoConnection
        );
    }
}

/// RFC 4787 section 6: two inside speak by their outside ports, and see those.
#[test]
fn two_behind_the_same_address() {
    let mut world = World::new(|config| {
        config.forwarded = vec![Forwarded {
            protocol: Protocol::Udp,
            external: Endpoint::new(address(EXTERNALS[0]), 53),
            internal: Endpoint::new(address(CLIENTS[1]), 5353),
        }];
    });
    let ask = Recipe {
        payload: b"question".into(),
        ..Recipe::new(UDP, (address(CLIENTS[0]), 4000), (address(EXTERNALS[0]), 53))
    };
    let (interface, frame, offload) = world.handle(&ask.frame(), INSIDE, ask.offload()).unwrap();
    let seen = verify(&frame, offload).unwrap();
    assert_eq!(interface, usize::from(INSIDE));
    assert_eq!(
        (seen.from(), seen.destination, seen.ports.1),
        ((address(EXTERNALS[0]), 4000), address(CLIENTS[1]), 5353)
    );
    let answer = Recipe::new(UDP, (address(CLIENTS[1]), 5353), (address(EXTERNALS[0]), 4000));
    let (_, frame, offload) = world.handle(&answer.frame(), INSIDE, answer.offload()).unwrap();
    let seen = verify(&frame, offload).unwrap();
    assert_eq!(
        (seen.from(), seen.destination, seen.ports.1),
        ((address(EXTERNALS[0]), 53), address(CLIENTS[0]), 4000)
    );
    // A stranger reaches it, too, and nobody else's port.
    for (port, expected) in [(53, true), (4000, false)] {
        let stranger = Recipe {
            tags: vec![TAG],
            to_mac: [2, 0, 0, 0, 1, OUTSIDE],
            ..Recipe::new(UDP, (address(SERVERS[1]), 9), (address(EXTERNALS[0]), port))
        };
        assert_eq!(
            world.handle(&stranger.frame(), OUTSIDE, stranger.offload()).is_ok(),
            expected,
            "{port}"
        );
    }
}

/// RFC 1191: a packet that is too long is complained about to who sent it, and the complaint says
/// how long it may be.
#[test]
fn too_big() {
    let mut world = World::new(|config| config.interfaces[1].mtu = 1300);
    for (client, server, least) in [(0, 0, 28), (2, 2, 48)] {
        let recipe = Recipe {
            payload: vec![1; 1280],
            ..Recipe::new(UDP, (address(CLIENTS[client]), 5), (address(SERVERS[server]), 7))
        };
        let (interface, frame, offload) =
            world.handle(&recipe.frame(), INSIDE, recipe.offload()).unwrap();
        let seen = verify(&frame, offload).unwrap();
        assert_eq!((interface, seen.destination), (usize::from(INSIDE), recipe.source));
        let message = &frame[seen.transport_at..];
        assert_eq!(message[..2], if seen.protocol == ICMP { [3, 4] } else { [2, 0] });
        assert_eq!(message[6..8], 1300u16.to_be_bytes());
        let quote = &message[8..];
        assert!(
            quote.len() >= least && *quote == recipe.frame()[14..14 + quote.len()],
            "as it came"
        );
    }
    // RFC 1812 section 4.3.2.8: not for each of a flood.
    let recipe = Recipe {
        payload: vec![1; 1280],
        ..Recipe::new(UDP, (address(CLIENTS[0]), 5), (address(SERVERS[0]), 7))
    };
    let answered = (0..1000)
        .filter(|_| world.handle(&recipe.frame(), INSIDE, recipe.offload()).is_ok())
        .count();
    assert!(answered < 50, "{answered}");
}

/// Nobody chooses their way by a source route, and nobody is who cannot be.
#[test]
fn what_is_not_passed_on() {
    let mut world = World::new(|_| {});
    let good = Recipe {
        extras: 2,
        ..Recipe::new(UDP, (address(CLIENTS[0]), 5), (address(SERVERS[0]), 7))
    };
    let mut routed = good.frame();
    routed[34..38].copy_from_slice(&[131, 3, 4, 0]);
    let value = !sum(&[&routed[14..24], &[0, 0], &routed[26..42]].concat());
    routed[24..26].copy_from_slice(&value.to_be_bytes());
    assert_eq!(world.handle(&routed, INSIDE, Offload::default()).unwrap_err(), Drop::SourceRoute);
    for (source, why) in [
        ("127.0.0.1", Drop::Martian),
        ("255.255.255.255", Drop::Martian),
        (EXTERNALS[0], Drop::Martian),
    ] {
        let recipe = Recipe { source: address(source), ..good.clone() };
        assert_eq!(
            world.handle(&recipe.frame(), INSIDE, Offload::default()).unwrap_err(),
            why,
            "{source}"
        );
    }
    let mut wrong = good.frame();
    wrong[24] ^= 1;
    assert_eq!(world.handle(&wrong, INSIDE, Offload::default()).unwrap_err(), Drop::Malformed);
    for len in 0..good.frame().len() {
        assert!(world.handle(&good.frame()[..len], INSIDE, Offload::default()).is_err(), "{len}");
    }
}
