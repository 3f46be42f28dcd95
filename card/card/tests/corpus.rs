//! Replays the corpus of the fuzz targets through the same functions, and lets a fixed seed decide
//! some runs more.

mod exercise;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn replay(target: &str, exercise: impl FnMut(&[u8])) {
    nicache_corpus::replay(env!("CARGO_MANIFEST_DIR"), target, exercise);
}

#[test]
fn frames() {
    replay("frames", exercise::frames);
}

#[test]
fn connections() {
    replay("connections", |bytes| {
        exercise::connections(bytes);
    });
}

/// What happens in a run, as `exercise/world.rs` reads it: two clients open connections, and then
/// requests for two objects and changes of these more often than the rest, or there would hardly be
/// a hit.
fn happenings() -> impl Strategy<Value = Vec<u8>> {
    let slot = || prop_oneof![Just(0u8), Just(64u8)];
    // Requests with a number of their own, and others that are all the same.
    let path = || {
        prop_oneof![
            Just(3u8),
            Just(5u8),
            Just(4 | 128),
            Just(4 | 128),
            Just(1 | 128),
            Just(3 | 128)
        ]
    };
    let how = prop_oneof![4 => Just(0u8), 1 => any::<u8>()];
    let opening =
        (slot(), any::<u8>(), 0u8..8, any::<u8>()).prop_map(|(slot, what, size, path)| {
            vec![slot, what & !1, size, path, 0] // By a port of its own.
        });
    let one = prop_oneof![
        8 => (slot(), path(), how).prop_map(|(slot, path, how)| vec![slot, path, how]),
        1 => (slot(), any::<u8>(), any::<u8>()).prop_map(|(slot, what, how)| vec![slot, what, how]),
        2 => (48u8..51, path()).prop_map(|(what, path)| vec![what, path]),
        2 => (41u8..46, 0u8..14).prop_map(|(what, time)| vec![what, time]),
        // Both ends go on behind their FIN.
        1 => (slot(), path()).prop_map(|(slot, path)| vec![slot, path, 96, 62 | 192]),
        2 => (24u8..63, slot(), any::<[u8; 2]>())
            .prop_map(|(what, slot, more)| vec![what | slot, more[0], more[1]]),
    ];
    let openings = proptest::collection::vec(opening, 2);
    (any::<[u8; 3]>(), openings, proptest::collection::vec(one, 1..40)).prop_map(
        |(shape, openings, several)| [shape.to_vec(), openings.concat(), several.concat()].concat(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(16),
        ..ProptestConfig::default()
    })]

    #[test]
    fn clients_get_what_the_server_sends(bytes in happenings()) {
        exercise::connections(&bytes);
    }
}

/// The card answers some requests of the traffic by expectation. Otherwise the runs above would
/// compare the general way with itself.
#[test]
fn some_requests_are_expected() {
    // Slots 0 and 1 ask for the same again and again, by whole segments; the card completes the
    // handshakes, and all answer at once.
    let one: Vec<u8> =
        (0..40).flat_map(|number| [if number % 2 == 0 { 0 } else { 64 }, 4 | 128, 0]).collect();
    for shape in [[0, 0, 0], [1, 0, 0], [2, 0, 0], [12, 0, 0]] {
        let openings = [0, 0, 0, 4 | 128, 0, 64, 0, 0, 4 | 128, 0];
        let predicted = exercise::connections(&[&shape[..], &openings, &one].concat());
        assert!(predicted >= 20, "{shape:?}: {predicted}");
    }
}
