//! `nicache demo`: a real application through the card. What the applications are is tested in
//! their own crate.
#![allow(unsafe_code)]

#[path = "../../../operator/nicache/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{NICACHE, assert_all_gone, curl, kill, private_network};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn a_page_of_php_is_measured_and_changed() {
    private_network();
    // Often enough that each subject is edited in so short a time.
    let often = ["--edits-per-second", "7"];
    let arguments =
        [&["demo", "php-page", "--once", "--seconds", "1", "--prove", "8s", "--json"][..], &often]
            .concat();
    let text = common::output(NICACHE, &arguments);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["application"], "php-page");
    assert_eq!(report["edit"]["visible"], true);
    for page in report["pages"].as_array().unwrap() {
        assert!(
            page["server"]["requests"].as_u64().unwrap() > 0
                && page["card"]["requests"].as_u64().unwrap() > 0
        );
        assert_eq!(page["server"]["hits"], 0);
    }
    let proof = &report["proof"];
    assert_eq!(
        (&proof["outcome"], &proof["violations"]),
        (&"proven".into(), &0.into()),
        "{proof:#}"
    );
    let subjects = proof["subjects"].as_array().unwrap();
    assert!(
        subjects.len() == 7 && subjects.iter().all(|subject| subject["edits"].as_u64() > Some(0)),
        "{proof:#}"
    );
}

#[test]
fn unknown_applications_are_refused() {
    let output = common::command(&["demo", "no-such-application"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("wordpress-apache"), "{text}");
}

#[test]
fn ctrl_c_ends_it_and_leaves_nothing() {
    private_network();
    let (mut demo, folder, processes) = serving();
    kill(demo.0.id().into(), Signal::INT);
    assert!(demo.0.wait().unwrap().success());
    assert_all_gone(&processes);
    assert!(!folder.exists());
}

#[test]
fn a_killed_one_takes_the_run_with_it() {
    private_network();
    let (mut demo, folder, processes) = serving();
    kill(demo.0.id().into(), Signal::KILL);
    demo.0.wait().unwrap();
    assert_all_gone(&processes);
    // The next one, which may be a test beside this, would remove it.
    let _ = std::fs::remove_dir_all(folder);
}

/// Ends with the test.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A demonstration that is serving, its folder and all its processes.
fn serving() -> (Demo, PathBuf, BTreeSet<u64>) {
    let mut command = Command::new(NICACHE);
    command
        .args(["demo", "php-page", "--seconds", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut demo = Demo(command.spawn().unwrap());
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let url =
        line_with(&mut lines, " is served through the card").split(' ').next().unwrap().to_owned();
    let folder = line_with(&mut lines, "its files are in ").rsplit(' ').next().unwrap().to_owned();
    line_with(&mut lines, "until Ctrl-C");
    assert!(curl(&format!("{url}item.php?id=2")).contains("version=0."));
    let processes = common::family(demo.0.id().into());
    assert!(Path::new(&folder).is_dir() && processes.len() > 8, "{folder} {processes:?}");
    (demo, PathBuf::from(folder), processes)
}

fn line_with(lines: &mut std::io::Lines<BufReader<ChildStdout>>, text: &str) -> String {
    lines
        .map_while(Result::ok)
        .find(|line| line.contains(text))
        .unwrap_or_else(|| panic!("no `{text}`"))
}
