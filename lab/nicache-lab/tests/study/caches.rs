//! What caches would have done.

use std::collections::HashMap;

use crate::run::{hits, json, json_of_input, trace};

const SIZES: &str = "--sizes 256K,1M,4M,16M,64M";

/// A trace converted to keys is played back here by a list in order of use.
fn misses_of_a_list(keys: &str, memory: u64) -> u64 {
    // Least recently used first.
    let (mut order, mut sizes, mut used, mut misses) = (Vec::<u64>::new(), HashMap::new(), 0, 0);
    for line in keys.lines() {
        let (key, size) = line.split_once(',').unwrap();
        let (key, size): (u64, u64) = (key.parse().unwrap(), size.parse().unwrap());
        if let Some(at) = order.iter().position(|other| *other == key) {
            order.remove(at);
            order.push(key);
            continue;
        }
        misses += 1;
        if size > memory {
            continue;
        }
        while used + size > memory {
            used -= sizes.remove(&order.remove(0)).unwrap();
        }
        order.push(key);
        sizes.insert(key, size);
        used += size;
    }
    misses
}

#[test]
fn lru_is_what_a_list_gives() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let output = crate::run::nicache(
        ["trace", "convert", "--to", "keys", "--replies", "whole", "--changes", "never"]
            .map(std::path::PathBuf::from)
            .into_iter()
            .chain([trace("nasa-aug95-first20000.txt.zst"), keys.clone()]),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&keys).unwrap();
    let requests = text.lines().count() as u64;
    let words = format!(
        "sim curve --json {SIZES} --policies lru,lru+size:1G --replies whole --changes never"
    );
    let found = json(&words, &[&trace("nasa-aug95-first20000.txt.zst")]);
    let of_keys = json(&format!("sim curve --json {SIZES} --policies lru"), &[&keys]);
    for (at, memory) in [256u64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20].into_iter().enumerate()
    {
        let expected = requests - misses_of_a_list(&text, memory);
        // In one pass, simulated behind a filter that lets everything through, and from the
        // converted trace.
        assert_eq!(hits(&found, "lru")[at], expected, "{memory}");
        assert_eq!(hits(&found, "lru+size:1G")[at], expected, "{memory}");
        assert_eq!(hits(&of_keys, "lru")[at], expected, "{memory}");
    }
}

#[test]
fn blocks_of_a_disk_in_one_pass_are_what_simulations_give() {
    let disk = trace("cloudphysics.vscsi.zst");
    let found = json(
        "sim curve --json --sizes 64M,256M,1G --policies lru,lru+size:1G,belady,s3-fifo",
        &[&disk],
    );
    assert_eq!(hits(&found, "lru"), hits(&found, "lru+size:1G"));
    for policy in ["lru", "s3-fifo"] {
        for (bound, hits) in hits(&found, "belady").into_iter().zip(hits(&found, policy)) {
            assert!(hits > 0 && hits <= bound, "{policy}: {hits} of {bound}");
        }
    }
}

#[test]
fn a_sample_is_near_the_exact_curve() {
    let disk = trace("cloudphysics.vscsi.zst");
    let folder = tempfile::tempdir().unwrap();
    let blocks = folder.path().join("blocks");
    let words = ["trace", "convert", "--to", "oracle-general", "--unit", "blocks"]
        .map(std::path::PathBuf::from);
    let output = crate::run::nicache(words.into_iter().chain([disk, blocks.clone()]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sizes = "--sizes 10000,40000,160000 --room one --json";
    let exact = json(&format!("sim curve {sizes} --policies lru"), &[&blocks]);
    let sampled = json(&format!("sim curve {sizes} --sample 65536"), &[&blocks]);
    assert!(sampled["rate"].as_f64().unwrap() < 0.5, "{}", sampled["rate"]);
    for (point, estimate) in exact["curves"][0]["points"]
        .as_array()
        .unwrap()
        .iter()
        .zip(sampled["estimates"].as_array().unwrap())
    {
        let of = |name: &str| point[name].as_f64().unwrap();
        let exact = 1.0 - of("hits") / of("accesses");
        let (got, error) = (
            estimate["miss_ratio"].as_f64().unwrap(),
            estimate["miss_ratio_error"].as_f64().unwrap(),
        );
        assert!((got - exact).abs() < 2.5 * error + 0.01, "{exact} {estimate}");
    }
}

#[test]
fn two_cards_have_each_half_of_the_requests() {
    let epa = trace("epa-http.txt.zst");
    let words = |more: &str| format!("sim curve --json --sizes 4M --policies lru,fifo {more}");
    let one = json(&words(""), &[&epa]);
    for by in ["requests", "clients", "objects"] {
        let two = json(&words(&format!("--cards 2 --split {by}")), &[&epa]);
        let requests =
            |json: &serde_json::Value| json["curves"][0]["points"][0]["requests"].as_u64().unwrap();
        assert_eq!(requests(&one), requests(&two), "{by}");
        assert_ne!(hits(&one, "lru"), hits(&two, "lru"), "{by}");
    }
}

#[test]
fn what_changes_is_not_a_hit() {
    // The second reply is larger, the fourth is cut off, the fifth has no body.
    let log = "1\ta\tGET\t/x\t200\t1000\n2\ta\tGET\t/x\t200\t1010\n3\ta\tGET\t/x\t200\t1010\n4\ta\tGET\t/x\t200\t100\n5\ta\tGET\t/x\t304\t-\n\
               6\ta\tPOST\t/x\t200\t5\n7\ta\tGET\t/x\t200\t1010\n8\ta\tGET\t/x\t404\t9\n";
    let found = json_of_input("sim curve --json --policies lru,fifo --sizes 1M -", log.as_bytes());
    // Requests 3, 4 and 5; the write before 7 makes it a miss.
    assert_eq!((hits(&found, "lru"), hits(&found, "fifo")), (vec![3], vec![3]));
    let totals = &found["totals"];
    assert_eq!(
        (totals["requests"].as_u64(), totals["cacheable"].as_u64(), totals["changed"].as_u64()),
        (Some(8), Some(6), Some(2))
    );
    let never = json_of_input(
        "sim curve --json --policies lru --changes never --sizes 1M -",
        log.as_bytes(),
    );
    assert_eq!(hits(&never, "lru"), [5]);
}

#[test]
fn no_policy_surpasses_the_bound_with_sizes() {
    let nasa = trace("nasa-aug95-first20000.txt.zst");
    let found = json("sim curve --json --sizes 256K,1M,4M,16M --policies all", &[&nasa]);
    let bound = hits(&found, "pfoo-l");
    for curve in found["curves"].as_array().unwrap() {
        let choice = curve["choice"].as_str().unwrap();
        assert!(
            hits(&found, choice).iter().zip(&bound).all(|(hits, bound)| hits <= bound),
            "{choice}"
        );
        assert_eq!(curve["is_bound"], choice == "pfoo-l", "{choice}");
        for point in curve["points"].as_array().unwrap() {
            let of = |name: &str| point[name].as_f64().unwrap();
            // Of all requests and all bytes, as everywhere.
            let (requests, bytes) = (
                found["totals"]["requests"].as_f64().unwrap(),
                found["totals"]["bytes"].as_f64().unwrap(),
            );
            assert!((of("hit_rate") - of("request_hits") / requests).abs() < 1e-9);
            assert!((of("byte_hit_rate") - of("hit_bytes") / bytes).abs() < 1e-9);
        }
    }
    // Settings change what a policy does.
    let set =
        json("sim curve --json --sizes 1M --policies lirs,lirs:hir=1%,2q,2q:in=60%", &[&nasa]);
    assert_ne!(hits(&set, "lirs"), hits(&set, "lirs:hir=1%"));
    assert_ne!(hits(&set, "2q"), hits(&set, "2q:in=60%"));
}
