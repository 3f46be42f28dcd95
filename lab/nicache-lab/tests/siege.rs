//! The card under attack (I7), small: a client that behaves is served, its bodies are right, memory
//! is bounded, and nothing of the attack stays.
//!
//! `nicache bench siege` is the same in large. Figures of speed are not looked at here.

use std::process::Command;

use serde_json::Value;

const NICACHE: &str = env!("CARGO_BIN_EXE_nicache-lab");
/// The card's patience, short: what stays for minutes otherwise must be gone in seconds.
const IMPATIENT: [&str; 8] =
    ["--syn-ack-retries", "1", "--head-time", "2s", "--closed-window", "2s", "--read-period", "2s"];
/// What the card should have done with the attack at last. It takes minutes where the server's own
/// patience decides.
const LEAKS: &str = "nothing leaks";

/// Besieges a card; what is told of the one attack. All criteria are met but `except`.
fn besiege(attack: &[&str], card: &[&str], except: Option<&str>) -> Value {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces: run it as root"
    );
    let mut command = Command::new(NICACHE);
    command
        .args(["bench", "siege", "--json", "--folder", "/var/tmp", "--quiet", "2"])
        // It asks on, but leaves the processors to others in the minute in which the card waits.
        .args(["--pause", "10ms", "--attack"])
        .args(attack);
    let output = command.arg("--").args(IMPATIENT).args(card).output().expect("nicache");
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let outcome = report["outcomes"][0].clone();
    let verdicts = outcome["verdicts"].as_array().expect("verdicts");
    let mut failed = verdicts.iter().filter(|verdict| verdict["passed"] == false);
    assert_eq!(
        output.status.success(),
        failed.clone().count() == 0,
        "the exit code tells of it: {said}"
    );
    let odd = failed.find(|verdict| verdict["what"].as_str() != except);
    assert!(odd.is_none(), "{odd:?}\nattackers: {}\n{said}", outcome["attackers"]);
    outcome
}

/// By how much a counter has moved since the attack began.
fn moved(outcome: &Value, name: &str) -> u64 {
    let of = |when: usize| {
        outcome["gauges"][when]["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}"))
    };
    of(2) - of(0)
}

#[test]
fn a_flood_of_syns() {
    for handshake in ["card", "pass-through"] {
        let attack = ["syn-flood", "--syns", "2000", "--seconds", "5", "--return", "60"];
        let outcome = besiege(
            &attack,
            &["--handshake", handshake, "--connections", "512", "--idle-time", "3s"],
            None,
        );
        if handshake == "card" {
            assert!(moved(&outcome, "syn_cookies_sent") > 1_000);
            assert!(moved(&outcome, "hits") > 0);
        } else {
            assert!(moved(&outcome, "half_open_evicted") > 1_000);
        }
    }
}

#[test]
fn slow_readers() {
    // What the card would have to ask the server about again meanwhile, a slow reader would read
    // from the server. Those connections end with the server's and its kernel's patience, which is
    // some minutes.
    let attack =
        ["slow-readers", "--slow", "150", "--opened", "300", "--seconds", "8", "--return", "90"];
    let keep = ["--recheck", "10m", "--recheck-max", "10m"];
    let outcome = besiege(
        &attack,
        &[&["--handshake", "card", "--idle-time", "2s"][..], &keep].concat(),
        None,
    );
    assert!(outcome["attackers"]["segments_read"].as_u64() > Some(100), "{}", outcome["attackers"]);
    assert!(moved(&outcome, "clients_window_closed") + moved(&outcome, "clients_slow") > 50);
}

#[test]
fn slow_senders() {
    // Who has not said a byte when the attack ends is closed as idle; its side of the connection is
    // waited for for 60 s more.
    let attack =
        ["slow-senders", "--slow", "150", "--opened", "300", "--seconds", "5", "--return", "90"];
    let outcome = besiege(&attack, &["--handshake", "card", "--idle-time", "2s"], None);
    assert!(moved(&outcome, "clients_head_slow") >= 150);
}

#[test]
fn more_idle_connections_than_there_are_places() {
    let attack =
        ["idle", "--idle", "1500", "--opened", "150", "--seconds", "11", "--return", "150"];
    // They may stay for longer than the attack lasts: what makes room is that they are silent.
    let outcome = besiege(
        &attack,
        &["--handshake", "card", "--connections", "512", "--idle-time", "12s"],
        None,
    );
    assert!(moved(&outcome, "silent_evicted") > 100);
}

#[test]
fn random_and_mutated_frames() {
    let attack = ["mutants", "--frames", "1000", "--seconds", "4", "--return", "10", "--seed", "5"];
    let outcome = besiege(&attack, &["--handshake", "card", "--idle-time", "2s"], Some(LEAKS));
    assert_eq!(outcome["gauges"][2]["counters"]["half_open_now"], 0);
    assert!(moved(&outcome, "corrupt") > 0 && moved(&outcome, "segments_unacceptable") > 0);
}
