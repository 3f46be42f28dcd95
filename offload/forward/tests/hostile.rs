//! F8: whatever a card writes, and whatever comes from the wire, the forwarder has a name for it or
//! goes on.

mod exercise;
mod packets;

use packets::*;
use proptest::prelude::*;

/// A frame as the exercise reads it.
fn told(how: u8, frame: &[u8]) -> Vec<u8> {
    let len = frame.len() as u16;
    [&[how, (len >> 8) as u8, len as u8], frame].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_words_of_a_card(bytes in proptest::collection::vec(any::<u8>(), 0..1700)) {
        exercise::receipts(&bytes);
    }

    #[test]
    fn any_talk_with_a_service_by_name(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        exercise::switching(&bytes);
    }

    #[test]
    fn any_first_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        exercise::names(&bytes);
    }

    /// Right packets with some bytes that are not.
    #[test]
    fn odd_packets(
        edits in proptest::collection::vec(
            (0usize..8, 0u8..3, any::<bool>(), any::<u8>(),
                proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4)),
            1..12,
        ),
    ) {
        let address = |text: &str| text.parse().unwrap();
        let pairs = [
            ("10.1.0.2", "192.0.2.2"),
            ("fd01::2", "fd02::2"),
            ("192.0.2.2", "192.0.2.1"),
            ("fd02::2", "fd02::1"),
            ("10.1.0.2", "10.1.0.100"),
            ("10.1.0.2", "192.0.2.1"),
            ("192.0.2.2", "10.1.0.2"),
            ("10.1.0.2", "10.1.0.1"),
        ];
        let mut all = Vec::new();
        for (pair, protocol, is_error, how, edits) in edits {
            let (source, destination) = pairs[pair];
            let is_v6 = source.contains(':');
            let protocol = [TCP, UDP, if is_v6 { ICMPV6 } else { ICMP }][usize::from(protocol)];
            let recipe = Recipe {
                to_mac: [2, 0, 0, 0, 1, how & 1],
                payload: vec![how; 40],
                extras: usize::from(how % 3),
                ..Recipe::new(protocol, (address(source), 1030), (address(destination), 80))
            };
            let mut frame = if is_error {
                let about = Recipe {
                    source: recipe.destination,
                    destination: recipe.source,
                    ..recipe.clone()
                };
                Recipe {
                    to_mac: recipe.to_mac,
                    ..Recipe::error(
                        recipe.source,
                        &about.frame(),
                        200,
                        if is_v6 { (2, 0) } else { (3, 4) },
                        1300,
                    )
                }
                .raw_frame()
            } else {
                recipe.frame()
            };
            for (at, value) in edits {
                let at = at % frame.len();
                frame[at] = value;
            }
            all.extend(told(how, &frame));
        }
        exercise::packets(&all);
    }
}

/// Writes seeds for the fuzz targets, if it is asked to.
#[test]
#[ignore = "writes into the repository: for whoever changes the exercises"]
fn seeds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/packet");
    let address = |text: &str| text.parse().unwrap();
    for (name, protocol, source, destination) in [
        ("tcp4", TCP, "10.1.0.2", "192.0.2.2"),
        ("udp6", UDP, "fd01::2", "fd02::2"),
        ("echo", ICMP, "10.1.0.2", "192.0.2.2"),
        ("service", TCP, "10.1.0.2", "10.1.0.100"),
        ("echo6", ICMPV6, "fd01::2", "fd02::2"),
    ] {
        let recipe = Recipe {
            payload: vec![1; 30],
            ..Recipe::new(protocol, (address(source), 1030), (address(destination), 80))
        };
        let back = Recipe {
            to_mac: [2, 0, 0, 0, 1, 1],
            tcp: (7, 1001, SYN | ACK),
            ports: (80, 1030),
            source: recipe.destination,
            destination: address(if source.contains(':') { "fd02::1" } else { "192.0.2.1" }),
            ..recipe.clone()
        };
        let error = Recipe {
            to_mac: back.to_mac,
            ..Recipe::error(
                recipe.destination,
                &Recipe { source: back.destination, ..recipe.clone() }.frame(),
                200,
                (3, 4),
                1300,
            )
        };
        let mut all =
            [told(0, &recipe.frame()), told(1, &back.frame()), told(1, &error.raw_frame())]
                .concat();
        if protocol == UDP {
            recipe.fragments(16, 7).iter().for_each(|frame| all.extend(told(0, frame)));
        }
        std::fs::write(folder.join(name), all).unwrap();
    }
}
