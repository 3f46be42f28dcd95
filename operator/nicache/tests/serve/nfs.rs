//! `nicache nfs`, as operators and clients meet it. What a gateway does with bytes is tested in its own crate.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{NICACHE, command, kill, output, private_network, within};

const PATIENCE: Duration = Duration::from_secs(120);

fn skipped() -> bool {
    let missing = nicache_gateway::Demo::missing();
    if let Some(missing) = missing {
        println!("skipped: there is no {missing}");
    }
    missing.is_some()
}

/// Ends with the test.
struct Nfs {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    serving: Value,
}

impl Nfs {
    fn start(arguments: &[&str]) -> Nfs {
        let mut command = Command::new(NICACHE);
        command
            .args(["nfs", "--json"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let Some(line) = lines.next() else {
            let mut text = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut text);
            panic!("it does not serve: {text}");
        };
        let serving: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(serving["event"], "serving");
        // Nobody reads what it logs, and it must not wait for that.
        let mut log = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Nfs { child, lines, serving }
    }

    fn name(&self) -> &str {
        self.serving["name"].as_str().unwrap()
    }

    fn url(&self, path: &str) -> String {
        let address = self.serving["addresses"][0].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1;
        format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}")
    }

    fn status(&self) -> Value {
        serde_json::from_str(&output(NICACHE, &["status", "--json", "--name", self.name()])).unwrap()
    }
}

impl Drop for Nfs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes that this one has started, and those that they have.
fn processes_below(pid: u32) -> Vec<u32> {
    // A child belongs to the thread that started it.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<u32> =
        children.flat_map(|text| text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect();
    let below: Vec<u32> = children.iter().flat_map(|child| processes_below(*child)).collect();
    children.into_iter().chain(below).collect()
}

fn is_gone(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z"))
}

#[test]
fn a_demonstration_is_served_seen_and_ended_without_a_trace() {
    if skipped() {
        return;
    }
    private_network();
    let folder = tempfile::tempdir().unwrap();
    let below = ["--demo-folder", folder.path().to_str().unwrap()];
    let arguments = [&["--demo", "--demo-size", "256M", "--memory", "32M", "--admin", "0"][..], &below].concat();
    let mut nfs = Nfs::start(&arguments);
    assert_eq!(nfs.serving["exports"], serde_json::json!(["/demo"]));
    let mount = nfs.serving["mount"][0].as_str().unwrap();
    assert!(
        mount.starts_with("mount -t nfs -o vers=3,proto=tcp,nolock,port=") && mount.ends_with(":/demo /mnt"),
        "{mount}"
    );
    assert!(output("nfs-cat", &[&nfs.url("/demo/README.txt")]).contains("not copied between layers"));

    let data: Vec<u8> = (0..3_000_001_u32).map(|i| (i ^ i >> 11) as u8).collect();
    let (source, back) = (folder.path().join("source"), folder.path().join("back"));
    std::fs::write(&source, &data).unwrap();
    output("nfs-cp", &[source.to_str().unwrap(), &nfs.url("/demo/file")]);
    output("nfs-cp", &[&nfs.url("/demo/file"), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == data);

    let status = nfs.status();
    assert_eq!((&status["copy"], &status["trouble"]), (&"nicache".into(), &Value::Null));
    assert!(status["hits_fho"].as_u64().unwrap() + status["hits_lbn"].as_u64().unwrap() >= 700, "{status:#}");
    let copied = |class: &str| {
        let copies = status["copies"].as_array().unwrap();
        copies.iter().find(|copy| copy["class"] == class).unwrap()["bytes"].as_u64().unwrap()
    };
    assert_eq!((copied("page_cache_out"), copied("page_cache_in") < 4096), (0, true), "{status:#}");
    let text = output(NICACHE, &["status", "--name", nfs.name()]);
    assert!(text.contains("WRITE") && text.contains("p99") && text.contains("/demo"), "{text}");
    let top = output(NICACHE, &["top", "--once", "--json", "--name", nfs.name()]);
    assert!(top.contains("nfs_calls_write"), "{top}");
    let admin = nfs.serving["admin"].as_str().unwrap();
    let metrics = output("curl", &["-sS", &format!("http://{admin}/metrics")]);
    assert!(
        metrics.contains("nicache_nfs_request_duration_seconds_bucket{operation=\"WRITE\",le=\"0.001\"}"),
        "{metrics}"
    );
    assert!(metrics.contains("nicache_nfs_copied_bytes_total{class=\"key\"}"), "{metrics}");

    let below = processes_below(nfs.child.id());
    assert!(below.len() >= 3, "supervisor, target and its namespace: {below:?}");
    kill(nfs.child.id().into(), Signal::INT);
    let last = nfs.lines.next().unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&last).unwrap(), serde_json::json!({ "event": "ended", "failed": false }));
    assert!(nfs.child.wait().unwrap().success());
    assert!(within(PATIENCE, || below.iter().all(|pid| is_gone(*pid)).then_some(())).is_some(), "{below:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "source" || name == "back"), "{left:?}");
}

#[test]
fn a_killed_demonstration_takes_everything_with_it() {
    if skipped() {
        return;
    }
    private_network();
    let folder = tempfile::tempdir().unwrap();
    let mut nfs = Nfs::start(&["--demo", "--demo-size", "64M", "--demo-folder", folder.path().to_str().unwrap()]);
    let below = processes_below(nfs.child.id());
    kill(nfs.child.id().into(), Signal::KILL);
    nfs.child.wait().unwrap();
    assert!(within(PATIENCE, || below.iter().all(|pid| is_gone(*pid)).then_some(())).is_some(), "{below:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// On a unit with CHAP, through a restart.
#[test]
fn a_unit_is_logged_in_to_made_once_and_served_again() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("unit");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let incoming = Some(("joe".to_owned(), "secretsecret".to_owned()));
    let options = nicache_target::TargetOptions { incoming, ..nicache_target::TargetOptions::default() };
    let target = nicache_target::Target::start(&image, &options).unwrap();
    target.enter().unwrap();
    let url = target.url();
    let chap = folder.path().join("chap");
    std::fs::write(&chap, "joe:secretsecret\n").unwrap();
    output("chmod", &["600", chap.to_str().unwrap()]);
    let state = folder.path().join("state");
    let common = |more: &[&'static str]| {
        let mut arguments = vec![url.as_str(), "--listen", "127.0.0.1:0", "--chap", chap.to_str().unwrap()];
        arguments.extend(["--state", state.to_str().unwrap()]);
        arguments.extend(more);
        arguments.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>()
    };
    let start = |more: &[&'static str]| Nfs::start(&common(more).iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |more: &[&'static str], words: &[&str]| {
        let arguments = common(more);
        let result = command(&[&["nfs"], &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
        let text = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(!result.status.success() && words.iter().all(|word| text.contains(word)), "{text}");
    };
    let export = "/data *(rw,no_root_squash,insecure)";
    assert!(output(NICACHE, &["nfs", "--discover", "127.0.0.1"]).contains("iqn.2026-11.org.nicache:unit"));
    refused(&["--export", "/data"], &["there is no ext4", "--mkfs"]);
    let mut nfs = start(&["--mkfs", "--export", export, "--sync"]);
    // Two would destroy the file system.
    refused(&["--export", export], &["another nicache serves this unit"]);
    let file = folder.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    output("nfs-cp", &[file.to_str().unwrap(), &nfs.url("/data/file")]);
    kill(nfs.child.id().into(), Signal::TERM);
    assert!(nfs.child.wait().unwrap().success());
    refused(&["--mkfs", "--export", export], &["is not empty"]);
    let nfs = start(&["--export", "/data *(ro,no_root_squash,insecure)"]);
    assert_eq!(output("nfs-cat", &[&nfs.url("/data/file")]), "kept");
    let port = nfs.url("/data/other");
    assert!(!Command::new("nfs-cp").arg(&file).arg(port).output().unwrap().status.success(), "it is read-only");
    drop(nfs);
    // Others may not read secrets.
    output("chmod", &["644", chap.to_str().unwrap()]);
    refused(&["--export", export], &["chmod 600"]);
    assert!(Path::new(&state).exists());
}

#[test]
fn mistakes_are_named() {
    let unit = "iscsi://127.0.0.1/iqn.2026-11.org.nicache:unit/1";
    for (arguments, words) in [
        (&["nfs"][..], &["UNIT", "--export"][..]),
        (&["nfs", unit], &["--export"]),
        (&["nfs", "http://x", "--export", "/data"], &["iscsi://"]),
        (&["nfs", unit, "--export", "data"], &["begins with the path"]),
        (&["nfs", unit, "--export", "/data *(fast)"], &["'fast' is not an option", "no_root_squash"]),
        (&["nfs", unit, "--export", "/data", "--copy", "twice"], &["original, nicache or baseline"]),
        (&["nfs", unit, "--export", "/data", "--copy", "baseline"], &["zeroes", "--demo"]),
    ] {
        let result = command(arguments);
        let text = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(!result.status.success() && words.iter().all(|word| text.contains(word)), "{arguments:?}: {text}");
    }
}
