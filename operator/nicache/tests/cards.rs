//! `run --cards 2`: two cards in front of one server, each with memory of its own, and one truth
//! for both.
#![allow(unsafe_code)]

mod common;

use std::time::Duration;

use common::{
    EVENTUALLY, Nicache, Site, curl, holds_within, inside, kill, output, private_network, status,
    within,
};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(20);

fn addresses(nicache: &Nicache) -> Vec<String> {
    let addresses = nicache.status["server_addresses"].as_array().unwrap();
    addresses.iter().map(|address| address.as_str().unwrap().to_owned()).collect()
}

/// Hits of each card.
fn hits(nicache: &Nicache) -> Vec<u64> {
    let sample = output(common::NICACHE, &["top", "--once", "--json", "--name", nicache.name()]);
    let sample: serde_json::Value = serde_json::from_str(sample.lines().next().unwrap()).unwrap();
    let sample = if sample["sample"].is_object() { &sample["sample"] } else { &sample };
    sample["cards"].as_array().unwrap().iter().map(|card| card["hits"].as_u64().unwrap()).collect()
}

fn wait_for_hits(nicache: &Nicache, card: usize, body: &str) {
    let url = format!("http://{}/page.html", addresses(nicache)[card]);
    let before = hits(nicache)[card];
    let hit = within(PATIENCE, || {
        // At once, because a look at the figures takes longer than T is at first.
        (0..4).for_each(|_| assert_eq!(curl(&url), body));
        (hits(nicache)[card] > before).then_some(())
    });
    assert!(hit.is_some(), "no hits: {}", status(nicache.name()));
}

#[test]
fn both_serve_and_neither_is_stale() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let page = site.folder.path().join("site/page.html");
    let nicache = Nicache::start(&["--cards", "2", "--publish", "127.0.0.1:8080"], &site.command());
    assert_eq!(nicache.status["card_pids"].as_array().unwrap().len(), 2);
    let urls: Vec<String> =
        addresses(&nicache).iter().map(|address| format!("http://{address}/page.html")).collect();
    for round in 0..3 {
        let text = format!("round {round}\n");
        std::fs::write(&page, &text).unwrap();
        assert_eq!(urls.iter().map(|url| curl(url)).collect::<Vec<_>>(), [&text[..], &text]);
        wait_for_hits(&nicache, 0, &text);
        wait_for_hits(&nicache, 1, &text);
    }
    // Connections to the published port take turns.
    let mut gained = Vec::new();
    let take_turns = holds_within(EVENTUALLY, || {
        let before = hits(&nicache);
        for _ in 0..10 {
            assert_eq!(curl("http://127.0.0.1:8080/page.html"), "round 2\n");
        }
        gained = hits(&nicache).iter().zip(&before).map(|(now, before)| now - before).collect();
        assert!(gained.iter().all(|&hits| hits <= 5), "{gained:?}");
        // The first one of each card misses because it is another host's page, and the second one
        // may come before that has been judged.
        gained.iter().all(|&hits| hits >= 3)
    });
    assert!(take_turns, "{gained:?}");
    assert_eq!(
        status(nicache.name())["counters"]["hits"].as_u64().unwrap(),
        hits(&nicache).iter().sum::<u64>()
    );
    // The server asks the world by its first interface, and answers by the one that it was asked
    // by.
    let routes = inside(nicache.pid("server_pid"), || output("ip", &["rule"]));
    assert!(routes.contains(&addresses(&nicache)[1]), "{routes}");
}

/// RFC 9111 section 4.4, for all that are in front of the server: also for the card that takes the
/// place of another one, and for that one.
#[test]
fn what_a_request_has_changed_is_asked_for_again_at_each() {
    private_network();
    let site = Site::with(
        "",
        "root @ROOT@/site;
         location = /page.html { error_page 405 = @changed; }
         location @changed { return 204; }",
    );
    let nicache = Nicache::start(&["--cards", "2", "--cache-status"], &site.command());
    let urls: Vec<String> =
        addresses(&nicache).iter().map(|address| format!("http://{address}/page.html")).collect();
    let is_hit = |url: &str| {
        let reply = output("curl", &["-si", "-H", "Host: files", url]);
        assert!(reply.contains("200 OK"), "{reply}");
        reply.contains("; hit")
    };
    for _ in 0..2 {
        for (asked, changed) in [(0, 1), (1, 0)] {
            let was_hit = within(PATIENCE, || is_hit(&urls[asked]).then_some(()));
            assert!(was_hit.is_some(), "{}", status(nicache.name()));
            output("curl", &["-s", "-X", "POST", "-H", "Host: files", &urls[changed]]);
            assert!(!is_hit(&urls[asked]));
        }
        assert!(common::command(&["upgrade", "--name", nicache.name()]).status.success());
    }
}

#[test]
fn one_goes_on_without_the_other() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let nicache = Nicache::start(&["--cards", "2"], &site.command());
    wait_for_hits(&nicache, 0, "hello from nginx\n");
    wait_for_hits(&nicache, 1, "hello from nginx\n");
    let pids = || -> Vec<u64> {
        let status = status(nicache.name());
        status["card_pids"].as_array().unwrap().iter().map(|pid| pid.as_u64().unwrap()).collect()
    };
    let before = pids();
    kill(before[1], Signal::KILL);
    wait_for_hits(&nicache, 0, "hello from nginx\n");
    let replaced = within(PATIENCE, || {
        let now = pids();
        (now[0] == before[0] && now[1] != before[1]).then_some(())
    });
    assert!(replaced.is_some(), "{before:?} {:?}", pids());
    // What is asked for again meanwhile may be stored again.
    let is_empty = within(PATIENCE, || {
        let purged = common::command(&["purge", "--all", "--json", "--name", nicache.name()]);
        assert!(purged.status.success(), "{}", String::from_utf8_lossy(&purged.stderr));
        (status(nicache.name())["counters"]["entries"] == 0).then_some(())
    });
    assert!(is_empty.is_some(), "{}", status(nicache.name()));
    assert!(common::command(&["upgrade", "--name", nicache.name()]).status.success());
    let after = pids();
    assert!(after[0] != before[0] && after[1] != before[1], "{after:?}");
}
