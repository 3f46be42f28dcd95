//! Processes die or stop under load: clients may lose connections, but never see an old or torn
//! reply.
//!
//! What must be gone afterwards is also checked without load, in kill.rs. A card that dies is in
//! supervision.rs.
#![allow(unsafe_code)]

mod common;
#[path = "common/replay.rs"]
mod replay;

use std::process::Child;
use std::sync::{Mutex, MutexGuard};

use common::{Nicache, SOON, Site, assert_all_gone, kill, private_network};
use replay::{
    assert_coherent, during, number, replay_site, report_of, start_replay, with_replay_that_lasts,
};
use rustix::process::Signal;
use serde_json::Value;

/// One load at a time.
static LOAD: Mutex<()> = Mutex::new(());

/// A replay, and the lock that keeps others from running at the same time.
struct Load {
    replay: Child,
    alone: MutexGuard<'static, ()>,
}

/// Replies of some ten thousand, in some 14 s, that nginx may cut short because a writer cut their
/// file short; far more would be a fault.
const CUT_SHORT_BY_SERVER_MAX: u64 = 20;

/// The site, nicache in front of it, and a replay of so many seconds.
fn start(seconds: u64) -> (Site, Nicache, Load) {
    private_network();
    let site = replay_site("");
    let nicache = Nicache::start(&[], &site.command());
    let duration = seconds.to_string();
    let arguments = ["--synthetic", "--duration", &duration, "--clients", "4"];
    let alone = LOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let replay = start_replay(&site, &nicache, &arguments);
    (site, nicache, Load { replay, alone })
}

/// Has the card counted more than this before the replay is over?
fn is_counted(nicache: &Nicache, load: &mut Load, counter: &str, least: u64) -> bool {
    let enough = || (count(nicache, counter) > least).then_some(());
    during(&mut load.replay, enough).is_some()
}

/// The report at the load's end; another one may begin then.
fn end(load: Load) -> Value {
    let Load { replay, alone: _alone } = load;
    report_of(replay)
}

fn count(nicache: &Nicache, counter: &str) -> u64 {
    number(&common::status(nicache.name())["counters"], counter)
}

fn killed_under_load(victim: &str, says: &str) {
    with_replay_that_lasts([5, 60], |seconds| is_killed_under_load(seconds, victim, says));
}

/// `false`: the replay was over before.
fn is_killed_under_load(seconds: u64, victim: &str, says: &str) -> bool {
    let (_site, mut nicache, mut load) = start(seconds);
    if !is_counted(&nicache, &mut load, "hits", 100) {
        assert_coherent(&end(load));
        return false;
    }
    let processes = nicache.processes();
    kill(nicache.pid(victim), Signal::KILL);
    let status = nicache.wait(SOON).expect("the supervisor ends");
    assert!(!status.success());
    assert_all_gone(&processes);
    if victim != "pid" {
        let log = nicache.log_text();
        assert!(log.contains(says) && log.contains("signal 9"), "{log}");
    }
    let report = end(load);
    assert_coherent(&report);
    assert!(number(&report, "replies") > 100, "{report:#}");
    let pinned = std::fs::read_dir("/sys/fs/bpf")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let left: Vec<_> = pinned.filter(|name| name.to_string_lossy().contains("nic")).collect();
    assert!(left.is_empty(), "pinned: {left:?}");
    number(&report, "broken") > 0
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
    with_replay_that_lasts([14, 60], |seconds| {
        let (_site, nicache, mut load) = start(seconds);
        let mut lasts = is_counted(&nicache, &mut load, "hits", 100);
        kill(nicache.pid("watch_pid"), Signal::STOP);
        // Requests pass once the lease is over.
        lasts = lasts && is_counted(&nicache, &mut load, "bypass_lease", 100);
        let before = count(&nicache, "hits");
        kill(nicache.pid("watch_pid"), Signal::CONT);
        lasts = lasts && is_counted(&nicache, &mut load, "hits", before + 100);
        let report = end(load);
        assert_coherent(&report);
        assert_eq!(number(&report, "timeouts"), 0, "{report:#}");
        // nginx itself ends a connection when a file becomes shorter while it sends it.
        let cut_short_max = CUT_SHORT_BY_SERVER_MAX * seconds.div_ceil(14);
        assert!(number(&report, "broken") <= cut_short_max, "{report:#}");
        lasts
    });
}
