//! What crosses the bus.

use std::collections::BTreeMap;

use crate::common::{EVENTUALLY, holds_within};
use crate::serving::{Client, Serving, bytes, folder};

/// Bytes by class, and all together as the card counts them.
fn crossed(serving: &Serving, card: usize) -> BTreeMap<String, u64> {
    serde_json::from_value(serving.now()["report"]["cards"][card]["bus"].clone()).unwrap()
}

#[test]
fn of_what_is_cached_only_headers_cross() {
    let folder = folder();
    let sizes = [1, 100, 4096, 10_000, 100_000, 1_000_000];
    for len in sizes {
        std::fs::write(folder.path().join(len.to_string()), bytes(len, len as usize)).unwrap();
    }
    let serving = Serving::start(folder.path(), &[]);
    let mut client = Client::open(serving.address(0));
    // Once until the file system has found a place for what was just written, then once for the
    // cache.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    for len in sizes {
        client.get(&format!("/{len}"), "");
    }
    for len in sizes {
        let mut last = (0, 0, 0, 0);
        // Other tests may void it at the same moment, and then it crosses again.
        let are_headers_only = holds_within(EVENTUALLY, || {
            client.get(&format!("/{len}"), "");
            let before = crossed(&serving, 0);
            const REQUESTS: u64 = 20;
            for _ in 0..REQUESTS {
                assert!(client.get(&format!("/{len}"), "").body == bytes(len, len as usize));
            }
            let after = crossed(&serving, 0);
            let of = |class: &str| (after[class] - before[class]) / REQUESTS;
            let (content, overhead) = (of("content"), of("overhead"));
            let (application, network) = (of("application_headers"), of("network_headers"));
            last = (content, application, network, overhead);
            // A head for each reply; a header for each packet, of which there is at least one for
            // each 64 KB.
            let packets = len / 60_000 + 1;
            content == 0
                && (150..400).contains(&application)
                && (66..66 * (packets + 40)).contains(&network)
                && network + application + overhead < len / 20 + 2000
        });
        assert!(are_headers_only, "{len} bytes: {last:?}");
    }
}

#[test]
fn without_card_memory_all_content_crosses() {
    let folder = folder();
    std::fs::write(folder.path().join("a"), bytes(1, 100_000)).unwrap();
    let serving = Serving::start(folder.path(), &["--memory", "0"]);
    let mut client = Client::open(serving.address(0));
    for _ in 0..10 {
        assert!(client.get("/a", "").body == bytes(1, 100_000));
    }
    let content = crossed(&serving, 0)["content"];
    // Sent again, if at all, is little.
    assert!((1_000_000..1_100_000).contains(&content), "{content}");
}

#[test]
fn a_modelled_bus_takes_its_time() {
    let folder = folder();
    std::fs::write(folder.path().join("a"), bytes(1, 1_000_000)).unwrap();
    let serving =
        Serving::start(folder.path(), &["--memory", "0", "--bus", "80,burst=128,overhead=56"]);
    let mut client = Client::open(serving.address(0));
    let started = std::time::Instant::now();
    assert!(client.get("/a", "").body == bytes(1, 1_000_000));
    // 10 MB/s, and 1.44 bytes' time for each byte. No upper bound: that would be one of this
    // machine.
    assert!(started.elapsed() >= std::time::Duration::from_millis(140), "{:?}", started.elapsed());
    let now = serving.now();
    let (busy_ns, overhead) =
        (now["bus_busy_ns"].as_u64().unwrap(), now["bus_overhead_bytes"].as_u64().unwrap());
    let all: u64 = crossed(&serving, 0).values().sum();
    assert!(all >= 1_000_000 && overhead >= all * 56 / 128, "{all} {overhead}");
    // The clock has every byte that the card has counted, and the overhead.
    let expected_ns = (all + overhead) * 100;
    assert!(busy_ns.abs_diff(expected_ns) < expected_ns / 50, "{busy_ns} {expected_ns}");
}

#[test]
fn each_card_has_a_cache_of_its_own() {
    let folder = folder();
    for file in 0..20 {
        std::fs::write(folder.path().join(file.to_string()), bytes(file, 40_000)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(1200));
    for (route, copies) in [("fixed", 2), ("affinity", 1)] {
        let mut seen = Vec::new();
        // Other tests may void everything at the same moment, and then it crosses again.
        let are_enough = holds_within(EVENTUALLY, || {
            let serving = Serving::start(folder.path(), &["--cards", "2", "--route", route]);
            // A connection for each file, by either card.
            for round in 0..3 {
                for file in 0..20 {
                    for card in 0..2 {
                        let got = Client::open(serving.address(card))
                            .get(&format!("/{file}"), "Connection: close\r\n")
                            .body;
                        assert!(got == bytes(file, 40_000), "{file} by {card} in round {round}");
                    }
                }
            }
            let content = crossed(&serving, 0)["content"] + crossed(&serving, 1)["content"];
            let once = 20 * 40_000;
            assert!(content >= copies * once, "{route}: {content}");
            let rerouted = serving.counter("connections_rerouted");
            assert_eq!(rerouted > 0, route == "affinity", "{rerouted}");
            let used = [0, 1].map(|card: usize| {
                serving.now()["report"]["cards"][card]["counters"]["blocks"].as_u64().unwrap()
            });
            seen.push((content, used));
            content < copies * once + once / 2 && used.iter().all(|blocks| *blocks > 0)
        });
        assert!(are_enough, "{route}: {seen:?}");
    }
}
