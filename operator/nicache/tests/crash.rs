//! Processes die or stop under load: clients may lose connections, but never see an old or torn
//! reply.
//!
//! What must be gone afterwards is also checked without load, in kill.rs. A card that dies is in
//! supervision.rs.
#![allow(unsafe_code)]

mod common;
#[path = "common/replay.rs"]
mod replay;

use std::sync::Mutex;
use std::time::Duration;

use common::{Nicache, SOON, assert_all_gone, kill, private_network, within};
use replay::{assert_coherent, number, replay_site, report_of, start_replay};
use rustix::process::Signal;

const LOADED: Duration = Duration::from_secs(20);
/// One load at a time.
static LOAD: Mutex<()> = Mutex::new(());

/// Replies of some ten thousand that nginx may cut short since a writer cut their file short; far
/// more would be a fault.
const CUT_SHORT_BY_SERVER_MAX: u64 = 20;

/// Waits until hits come in.
fn wait_for_hits(nicache: &Nicache, hits: u64) {
    let busy = || (number(&common::status(nicache.name()), "counters.hits") > hits).then_some(());
    assert!(within(LOADED, busy).is_some(), "no hits: {}", common::status(nicache.name()));
}

fn killed_under_load(victim: &str, says: &str) {
    let _alone = LOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    private_network();
    let site = replay_site("");
    let mut nicache = Nicache::start(&[], &site.command());
    let load = start_replay(&site, &nicache, &["--synthetic", "--duration", "5", "--clients", "4"]);
    wait_for_hits(&nicache, 100);
    let processes = nicache.processes();
    kill(nicache.pid(victim), Signal::KILL);
    let status = nicache.wait(SOON).expect("the supervisor ends");
    assert!(!status.success());
    assert_all_gone(&processes);
    if victim != "pid" {
        let log = nicache.log_text();
        assert!(log.contains(says) && log.contains("signal 9"), "{log}");
    }
    let report = report_of(load);
    assert_coherent(&report);
    assert!(number(&report, "replies") > 100 && number(&report, "broken") > 0, "{report:#}");
    let pinned = std::fs::read_dir("/sys/fs/bpf")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let left: Vec<_> = pinned.filter(|name| name.to_string_lossy().contains("nic")).collect();
    assert!(left.is_empty(), "pinned: {left:?}");
}

#[test]
fn the_server_is_killed() {
    killed_under_load("server_pid", "the server");
}

#[test]
fn the_supervisor_is_killed() {
    killed_under_load("pid", "");
}

#[test]
fn the_watcher_is_stopped_and_goes_on() {
    let _alone = LOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    private_network();
    let site = replay_site("");
    let nicache = Nicache::start(&[], &site.command());
    let load =
        start_replay(&site, &nicache, &["--synthetic", "--duration", "14", "--clients", "4"]);
    wait_for_hits(&nicache, 100);
    kill(nicache.pid("watch_pid"), Signal::STOP);
    let expired =
        || (number(&common::status(nicache.name()), "counters.bypass_lease") > 100).then_some(());
    assert!(
        within(Duration::from_secs(8), expired).is_some(),
        "requests pass once the lease is over"
    );
    let before = number(&common::status(nicache.name()), "counters.hits");
    kill(nicache.pid("watch_pid"), Signal::CONT);
    wait_for_hits(&nicache, before + 100);
    let report = report_of(load);
    assert_coherent(&report);
    assert_eq!(number(&report, "timeouts"), 0, "{report:#}");
    // nginx itself ends a connection when a file becomes shorter while it sends it.
    assert!(number(&report, "broken") <= CUT_SHORT_BY_SERVER_MAX, "{report:#}");
}
