//! I1 and I2 on file systems other than ext4: real nginx behind `nicache run`, its site on one of
//! them, and the writers of `nicache replay`.
#![allow(unsafe_code)]

mod common;
#[path = "../../../truth/watch/tests/witness/filesystems/ground.rs"]
mod ground;
#[path = "common/replay.rs"]
mod replay;

use std::ffi::CString;
use std::path::Path;

use common::{NICACHE, Nicache, private_network};
use replay::{
    assert_coherent, each_write_met_a_kept_reply, number, replay_site, report_of, start_replay,
};
use rustix::mount::{MountFlags, mount};
use serde_json::Value;

/// Does this kernel show all changes on it?
fn is_watched(feature: &str) -> bool {
    let output = std::process::Command::new(NICACHE).args(["check", "--json"]).output().unwrap();
    let check: Value = serde_json::from_slice(&output.stdout).unwrap();
    let features = check["features"].as_array().unwrap();
    features.iter().any(|found| found["feature"] == feature && found["available"] == true)
}

fn run(kind: &str, feature: &str) {
    run_on(kind, feature, |root| ground::mount_own(kind, root));
}

/// On an overlay whose layers are on such a file system.
fn run_on_overlay(kind: &str, feature: &str) {
    run_on(&format!("overlay_on_{kind}"), feature, |root| {
        let layers = root.with_extension("layers");
        std::fs::create_dir(&layers).unwrap();
        ground::mount_own(kind, &layers);
        let folders = ["middle", "lower", "upper", "work"].map(|name| layers.join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let [middle, lower, upper, work] =
            folders.map(|folder| folder.to_str().unwrap().to_owned());
        let options =
            CString::new(format!("lowerdir={middle}:{lower},upperdir={upper},workdir={work}"))
                .unwrap();
        mount("overlay", root, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
    });
}

fn run_on(kind: &str, feature: &str, make: impl FnOnce(&Path)) {
    if !is_watched(feature) {
        println!("skipped: this kernel does not show all changes on {kind}");
        return;
    }
    private_network();
    let site = replay_site("");
    let root = site.folder.path().join("replay");
    std::fs::create_dir_all(&root).unwrap();
    make(&root);
    let nicache = Nicache::start(&[], &site.command());
    let load = |seconds: &str| {
        let report = report_of(start_replay(
            &site,
            &nicache,
            &["--synthetic", "--duration", seconds, "--clients", "4"],
        ));
        println!("{kind}: {report:#}");
        assert_coherent(&report);
        report
    };
    // A busy machine with a slow disk may need longer.
    let mut report = load("8");
    if !each_write_met_a_kept_reply(&report) {
        report = load("40");
    }
    for (method, counted) in report["writes"].as_object().unwrap() {
        println!(
            "RESULT {kind} {method} cached_before={} read_after={}",
            counted["cached_before"], counted["read_after"]
        );
        assert!(
            number(counted, "cached_before") > 0 && number(counted, "read_after") > 0,
            "{method}: {report:#}"
        );
    }
    let (hits, stale) = (number(&report, "hits"), number(&report, "stale"));
    println!("RESULT {kind} hits={hits} stale={stale}");
    assert!(hits > 100, "{report:#}");
}

#[test]
fn xfs() {
    run("xfs", "xfs");
}

#[test]
fn btrfs() {
    run("btrfs", "btrfs");
}

#[test]
fn tmpfs() {
    run("tmpfs", "tmpfs");
}

#[test]
fn overlay_on_ext4() {
    run_on_overlay("ext4", "ext4");
}

#[test]
fn overlay_on_xfs() {
    run_on_overlay("xfs", "xfs");
}

#[test]
fn overlay_on_btrfs() {
    run_on_overlay("btrfs", "btrfs");
}
