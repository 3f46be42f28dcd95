//! When server or supervisor end, everything ends, and nothing is left. (A card that ends:
//! supervision.rs.)
#![allow(unsafe_code)]

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Nicache, SOON, Site, assert_all_gone, curl, kill, private_network};
use rustix::process::Signal;

/// Kills what `victims` names and checks that nothing survives.
fn kill_and_check(victims: &[&str], says: &str) {
    private_network();
    let site = Site::new();
    // Another one takes a name that is free again.
    let name = format!("{}-{}", victims.join("-"), std::process::id());
    let options = ["--publish", "127.0.0.1:8080", "--name", &name];
    let mut nicache = Nicache::start(&options, &site.command());
    assert_eq!(curl("http://127.0.0.1:8080/page.html"), "hello from nginx\n");
    let processes = nicache.processes();
    assert!(
        processes.len() >= 8,
        "supervisor, watcher, card, nft, process 1, nginx and its workers: {processes:?}"
    );
    let witnesses = bpf_links(&processes);
    for victim in victims {
        let pid = match *victim {
            "nginx" => nginx_master(&nicache),
            "nft" => nft(&processes),
            other => nicache.pid(other),
        };
        kill(pid, Signal::KILL);
    }
    let status = nicache.wait(SOON).expect("the supervisor ends");
    assert!(!status.success());
    assert_all_gone(&processes);
    assert_bpf_gone(&witnesses);
    if !victims.contains(&"pid") {
        let log = nicache.log_text();
        assert!(log.contains(says) && (log.contains("signal 9") || victims == ["nft"]), "{log}");
        assert!(!socket(&nicache).exists());
    }
}

fn nginx_master(nicache: &Nicache) -> u64 {
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", nicache.pid("server_pid")))
            .unwrap();
    children.trim().parse().unwrap()
}

fn nft(processes: &BTreeSet<u64>) -> u64 {
    let is_nft = |pid: &&u64| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "nft")
    };
    *processes.iter().find(is_nft).expect("nft runs")
}

/// Numbers of the BPF links that any of the processes holds open.
fn bpf_links(processes: &BTreeSet<u64>) -> BTreeSet<String> {
    let mut links = BTreeSet::new();
    for pid in processes {
        let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
        for file in files.into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            let number = text.lines().find_map(|line| line.strip_prefix("link_id:"));
            links.extend(number.map(|number| number.trim().to_owned()));
        }
    }
    links
}

/// Asks the kernel for each link by its number, if there is a bpftool to ask with.
fn assert_bpf_gone(links: &BTreeSet<String>) {
    let present = |link: &&String| {
        let shown = Command::new("bpftool").args(["link", "show", "id", link]).output();
        shown.is_ok_and(|output| output.status.success())
    };
    let left = || links.iter().filter(present).collect::<Vec<_>>();
    let gone = common::within(SOON, || left().is_empty().then_some(()));
    assert!(gone.is_some(), "BPF links are left: {:?}", left());
}

fn socket(nicache: &Nicache) -> PathBuf {
    PathBuf::from(format!("/run/nicache/{}.sock", nicache.name()))
}

#[test]
fn the_server_is_killed() {
    kill_and_check(&["nginx"], "the server");
}

#[test]
fn process_1_of_the_server_is_killed() {
    kill_and_check(&["server_pid"], "the server");
}

#[test]
fn the_holder_of_the_translation_rules_is_killed() {
    kill_and_check(&["nft"], "the nft process");
}

#[test]
fn the_supervisor_is_killed() {
    kill_and_check(&["pid"], "");
}

#[test]
fn all_of_them_are_killed() {
    kill_and_check(&["pid", "card_pid", "watch_pid", "server_pid"], "");
}

#[test]
fn a_killed_one_leaves_nothing_that_blocks_the_next() {
    private_network();
    let site = Site::new();
    let name = format!("again-{}", std::process::id());
    let first = Nicache::start(&["--name", &name], &site.command());
    let path = socket(&first);
    kill(first.pid("pid"), Signal::KILL);
    drop(first);
    assert!(path.exists(), "a killed supervisor cannot remove its socket");
    let second = Nicache::start(&["--name", &name], &site.command());
    let status = common::command(&["status", "--json", "--name", &name]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["pid"], second.process.id());
}

#[test]
fn ctrl_c_leaves_nothing() {
    private_network();
    let site = Site::new();
    let name = format!("interrupted-{}", std::process::id());
    let options = ["--publish", "127.0.0.1:8080", "--share", "5432", "--name", &name];
    let mut nicache = Nicache::start(&options, &site.command());
    let path = socket(&nicache);
    assert!(path.exists());
    let processes = nicache.processes();
    let witnesses = bpf_links(&processes);
    nicache.signal(Signal::INT);
    let status = nicache.wait(SOON).expect("it ends");
    assert!(status.success(), "{status} {}", nicache.log_text());
    assert_all_gone(&processes);
    assert_bpf_gone(&witnesses);
    assert!(!path.exists());
    assert!(!path.with_extension("lock").exists());
}

#[test]
fn a_server_that_does_not_stop_is_killed_after_the_grace() {
    private_network();
    let script = "trap '' TERM; nginx -c $0 & while :; do sleep 1; done";
    let site = Site::new();
    let configuration = site.folder.path().join("nginx.conf").display().to_string();
    let server = ["sh", "-c", script, &configuration].map(str::to_owned);
    let mut nicache = Nicache::start(&[], &server);
    let processes = nicache.processes();
    let asked = Instant::now();
    nicache.signal(Signal::TERM);
    assert!(nicache.wait(SOON).expect("killed after 5 s").success());
    assert!(asked.elapsed() >= Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_all_gone(&processes);
    assert!(nicache.log_text().contains("is killed"));
}

#[test]
fn a_second_ctrl_c_does_not_wait() {
    private_network();
    let site = Site::new();
    let configuration = site.folder.path().join("nginx.conf").display().to_string();
    let script = "trap '' TERM; nginx -c $0 & while :; do sleep 1; done";
    let server = ["sh", "-c", script, &configuration].map(str::to_owned);
    let mut nicache = Nicache::start(&[], &server);
    nicache.signal(Signal::INT);
    assert!(nicache.wait(Duration::from_millis(500)).is_none());
    nicache.signal(Signal::INT);
    assert!(nicache.wait(SOON).is_some());
    assert!(!nicache.log_text().contains("did not end within 5 s"), "{}", nicache.log_text());
}
