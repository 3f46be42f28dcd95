//! I1 and I2 under concurrent writers: no reply is older than a finished write, and each is of one
//! version.
//!
//! Real nginx behind `nicache run`; the clients, writers and the oracle are those of `nicache
//! replay`. A run in which nothing happened fails: every way to write must have met a kept reply.
#![allow(unsafe_code)]

mod common;
#[path = "common/replay.rs"]
mod replay;

use std::path::Path;
use std::sync::Mutex;

use common::{Nicache, Site, private_network};
use replay::{
    assert_coherent, each_write_met_a_kept_reply, number, replay_site, report_of, start_replay,
};
use serde_json::Value;

/// Ways to write that `nicache replay` knows.
const METHODS: usize = 16;
const OPEN_FILE_CACHE: &str =
    "open_file_cache max=2000 inactive=10s; open_file_cache_valid 1s; open_file_cache_errors on;";
/// One load at a time.
static LOAD: Mutex<()> = Mutex::new(());

/// The report of a load that nothing else of this file puts on the machine at the same time.
fn loaded(site: &Site, nicache: &Nicache, arguments: &[&str]) -> Value {
    let _alone = LOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    report_of(start_replay(site, nicache, arguments))
}

fn run(http: &str, settings: &[&str], arguments: &[&str]) -> Value {
    private_network();
    let site = replay_site(http);
    let nicache = Nicache::start(settings, &site.command());
    let report = loaded(&site, &nicache, arguments);
    println!("{report:#}");
    assert_coherent(&report);
    assert_eq!(number(&report, "timeouts"), 0, "{report:#}");
    assert!(
        number(&report, "card.fills_stored") > 100
            && number(&report, "card.purges_by_source") > 100,
        "{report:#}"
    );
    // The clients and the card agree about what was a hit, but for those that a connection's end
    // has cut off.
    let (hits, card_hits) = (number(&report, "hits"), number(&report, "card.hits"));
    assert!(
        hits <= card_hits && card_hits - hits <= number(&report, "broken"),
        "{hits} of {card_hits}: {report:#}"
    );
    report
}

/// The report of a load in which every way to write met a kept reply. A busy machine may need
/// longer for that.
fn run_with_every_method(http: &str, settings: &[&str], arguments: &[&str]) -> Value {
    for seconds in ["10", "50"] {
        let report = run(http, settings, &[arguments, &["--duration", seconds]].concat());
        assert_eq!(report["writes"].as_object().unwrap().len(), METHODS, "{report:#}");
        if each_write_met_a_kept_reply(&report) {
            return report;
        }
    }
    panic!("a way to write met no kept reply");
}

fn usual(handshake: &str, pipeline: &str) {
    let arguments = ["--synthetic", "--clients", "4", "--pipeline", pipeline];
    let report = run_with_every_method("", &["--handshake", handshake], &arguments);
    // nginx itself ends a connection when a file becomes shorter while it sends it.
    assert!(number(&report, "broken") <= 20, "{report:#}");
    assert!(number(&report, "replies") > 2000 && number(&report, "hits") > 500, "{report:#}");
}

fn caching_server(handshake: &str) {
    let arguments =
        ["--synthetic", "--duration", "10", "--clients", "4", "--server-keeps-files-open"];
    let report = run(OPEN_FILE_CACHE, &["--handshake", handshake], &arguments);
    assert!(
        number(&report, "stale_by_server") > 0,
        "the server's cache is not at work: {report:#}"
    );
    let reasons = ["not_looked_up", "dirty"];
    let refused = reasons
        .iter()
        .any(|reason| report["card"][format!("fill_refused_{reason}")].as_u64() > Some(0));
    assert!(refused, "{report:#}");
    assert!(number(&report, "hits") > 100, "{report:#}");
}

#[test]
fn pass_through() {
    usual("pass-through", "1");
}

/// A log of few and small objects, each asked for again and again.
fn log_of_small_objects(folder: &Path) -> String {
    let path = folder.join("small.log");
    let line = |number: u32| {
        let (object, second) = (number * number % 7, number % 60);
        format!(
            "192.0.2.1 - - [01/Jul/2025:00:00:{second:02} +0000] \"GET /{object} HTTP/1.1\" 200 {}\n",
            100 * (object + 1)
        )
    };
    std::fs::write(&path, (0..2_000).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn answered_in_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let log = log_of_small_objects(folder.path());
    for handshake in ["pass-through", "card"] {
        let carried_out = |seconds| {
            private_network();
            let site = replay_site("keepalive_requests 1000000;");
            let nicache = Nicache::start(&["--l0", "--handshake", handshake], &site.command());
            // A pause between writes that lets a reply be given more than once.
            let options = ["--clients", "4", "--agents", "2", "--write-pause", "20"];
            let arguments = [&[&*log, "--duration", seconds][..], &options].concat();
            let report = loaded(&site, &nicache, &arguments);
            assert_coherent(&report);
            assert_eq!(
                (number(&report, "timeouts"), number(&report, "card.l0_lost")),
                (0, 0),
                "{report:#}"
            );
            report
        };
        let is_enough = |report: &Value| {
            number(report, "card.purges_by_source") > 100 && number(report, "card.hits_l0") > 1000
        };
        // A busy machine may need longer.
        let mut report = carried_out("8");
        if !is_enough(&report) {
            report = carried_out("60");
        }
        assert!(is_enough(&report), "{report:#}");
    }
}

#[test]
fn card_handshake() {
    usual("card", "1");
}

#[test]
fn pipelined() {
    usual("pass-through", "4");
}

#[test]
fn pass_through_to_a_server_that_keeps_files_open() {
    caching_server("pass-through");
}

#[test]
fn card_handshake_and_a_server_that_keeps_files_open() {
    caching_server("card");
}

#[test]
fn a_memory_that_is_too_small() {
    let arguments = ["--synthetic", "--duration", "6", "--clients", "4"];
    let report = run("", &["--memory", "2M"], &arguments);
    assert!(number(&report, "card.evictions") > 0, "{report:#}");
}

#[test]
fn policies_with_ghosts_sizes_and_sketches() {
    for policy in ["s3-fifo", "gdsf", "w-tinylfu", "arc", "sieve"] {
        let arguments = ["--synthetic", "--duration", "4", "--clients", "4"];
        let report = run("", &["--memory", "2M", "--policy", policy], &arguments);
        assert!(
            number(&report, "card.evictions") > 0 && number(&report, "hits") > 100,
            "{policy}: {report:#}"
        );
    }
}

#[test]
fn the_epa_log() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/epa-http.txt.zst");
    if !log.exists() {
        println!("skipped: {} is not there", log.display());
        return;
    }
    run_with_every_method("", &[], &[log.to_str().unwrap(), "--clients", "6"]);
}
