//! Writers change files through every kind of call while clients read: nothing stale, nothing torn.

use serde_json::Value;

use crate::common::command;
use crate::serving::{Serving, folder};

fn run(arguments: &[&str], writers: &str) -> Value {
    let folder = folder();
    let site = folder.path().join("site");
    std::fs::create_dir(&site).unwrap();
    let serving = Serving::start(&site, arguments);
    let (site, url) = (site.to_str().unwrap(), serving.url(0));
    let replay = [
        "replay",
        "--synthetic",
        "--json",
        "--duration",
        "6",
        "--writers",
        writers,
        // Much more is read than written, on a slow machine, too.
        "--write-pause",
        "20",
        "--site",
        site,
        "--url",
        &url,
    ];
    let output = command(&replay);
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(text.trim()).unwrap_or_else(|error| {
        panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr))
    });
    assert_eq!(report["clean"], true, "{report}");
    let now = serving.now();
    let sum = |name: &str| -> u64 {
        let cards = now["report"]["cards"].as_array().unwrap();
        cards.iter().map(|card| card["counters"][name].as_u64().unwrap()).sum()
    };
    assert!(
        sum("cached_bytes") > 10 * sum("copied_bytes"),
        "content did not come from the cache: {now}"
    );
    assert!(
        sum("blocks_invalidated") + sum("blocks_updated") > 0,
        "nothing was invalidated: {now}"
    );
    now
}

#[test]
fn nothing_is_stale_with_lazy_invalidation() {
    run(&[], "4");
}

#[test]
fn nothing_is_stale_with_eager_invalidation() {
    run(&["--coherence", "eager", "--memory", "4M"], "4");
}

#[test]
fn nothing_is_stale_with_updates() {
    let now = run(&["--coherence", "update", "--memory", "32M", "--policy", "lfu"], "2");
    assert!(now["report"]["cards"][0]["counters"]["blocks_updated"].as_u64().unwrap() > 0, "{now}");
}

#[test]
fn nothing_is_stale_with_several_cards_and_little_memory() {
    run(
        &[
            "--cards",
            "2",
            "--route",
            "affinity",
            "--memory",
            "1M",
            "--page-cache",
            "8M",
            "--policy",
            "fifo",
        ],
        "3",
    );
}
