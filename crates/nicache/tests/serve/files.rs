//! Changes of files, and files that cannot be kept.

use std::io::Write;
use std::time::Duration;

use crate::common::command;
use crate::serving::{Client, Serving, bytes, folder, with_file};

#[test]
fn a_change_shows_at_once() {
    let (folder, path) = with_file("a", b"old");
    for coherence in ["lazy", "eager", "update"] {
        let serving = Serving::start(folder.path(), &["--coherence", coherence]);
        let mut client = Client::open(serving.address(0));
        for round in 0..50 {
            let text = format!("{coherence} {round}");
            match round % 3 {
                0 => std::fs::write(&path, &text).unwrap(),
                1 => {
                    std::fs::write(folder.path().join("new"), &text).unwrap();
                    std::fs::rename(folder.path().join("new"), &path).unwrap();
                }
                _ => {
                    std::fs::remove_file(&path).unwrap();
                    assert_eq!(client.get("/a", "").status, 404);
                    std::fs::write(&path, &text).unwrap();
                }
            }
            assert_eq!(client.get("/a", "").body, text.as_bytes());
        }
    }
}

#[test]
fn a_reply_is_of_one_version() {
    let len = 4_000_000;
    let (folder, path) = with_file("a", &vec![b'0'; len]);
    let serving = Serving::start(folder.path(), &["--page-cache", "32M", "--memory", "1M"]);
    let mut client = Client::open(serving.address(0));
    for version in 1..8u8 {
        client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        // Some of it is on its way.
        std::thread::sleep(Duration::from_millis(20));
        if version % 2 == 0 {
            std::fs::write(&path, vec![b'0' + version; len]).unwrap();
        } else {
            std::fs::write(folder.path().join("new"), vec![b'0' + version; len]).unwrap();
            std::fs::rename(folder.path().join("new"), &path).unwrap();
        }
        let reply = client.receive(false).unwrap();
        let first = reply.body[0];
        assert!(reply.body.iter().all(|byte| *byte == first) && first + 1 == b'0' + version, "version {version}");
    }
}

#[test]
fn a_file_that_somebody_writes_is_served_as_it_is() {
    let (folder, path) = with_file("log", b"");
    let serving = Serving::start(folder.path(), &[]);
    let mut client = Client::open(serving.address(0));
    let mut log = std::fs::File::options().append(true).open(&path).unwrap();
    let mut expected = Vec::new();
    for line in 0..200 {
        let text = format!("line {line}\n");
        log.write_all(text.as_bytes()).unwrap();
        expected.extend_from_slice(text.as_bytes());
        assert_eq!(client.get("/log", "").body, expected);
    }
    drop(log);
    client.get("/log", "");
    let before = serving.counter("files_not_kept");
    client.get("/log", "");
    assert_eq!(serving.counter("files_not_kept"), before, "nobody writes it any more, so that it is kept");
}

#[test]
fn what_is_not_watched_is_not_kept() {
    let memory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    std::fs::set_permissions(memory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(memory.path().join("a"), bytes(1, 100_000)).unwrap();
    let serving = Serving::start(memory.path(), &[]);
    let mut client = Client::open(serving.address(0));
    for seed in 1..5 {
        std::fs::write(memory.path().join("a"), bytes(seed, 100_000)).unwrap();
        assert!(client.get("/a", "").body == bytes(seed, 100_000));
        assert!(client.get("/a", "").body == bytes(seed, 100_000));
    }
    let now = serving.now();
    assert_eq!(now["report"]["counters"]["unkept_bytes"], 800_000);
    assert_eq!(now["report"]["cards"][0]["counters"]["blocks"], 0);
}

#[test]
fn more_than_all_memory() {
    let folder = folder();
    for file in 0..40 {
        std::fs::write(folder.path().join(format!("{file}")), bytes(file, 100_000)).unwrap();
    }
    std::fs::write(folder.path().join("large"), bytes(99, 12_000_000)).unwrap();
    let serving = Serving::start(folder.path(), &["--page-cache", "2M", "--memory", "512K"]);
    let mut client = Client::open(serving.address(0));
    for round in 0..3 {
        for file in 0..40 {
            assert!(client.get(&format!("/{file}"), "").body == bytes(file, 100_000), "{file} in round {round}");
        }
    }
    assert!(client.get("/large", "").body == bytes(99, 12_000_000), "a file that is larger than the page cache");
    let card = &serving.now()["report"]["cards"][0]["counters"];
    assert!(card["blocks"].as_u64().unwrap() <= 128 && card["blocks_evicted"].as_u64().unwrap() > 1000, "{card}");
}

#[test]
fn mistakes_are_explained() {
    let folder = folder();
    let root = folder.path().to_str().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (arguments, phrase) in [
        (vec!["/no/such/folder"], "/no/such/folder"),
        (vec![file.to_str().unwrap()], "is no folder"),
        (vec![root, "--bus", "isa"], "pcie-gen4-x8"),
        (vec![root, "--live", file.to_str().unwrap()], "mkfifo"),
        (vec![root, "--live", "/var/tmp/other.m3u8"], "lies in the folder"),
        (vec![root, "--page-cache", "4K"], "at least 1M"),
        (vec![root, "--cards", "0"], "0"),
    ] {
        let output = command(&[&["serve"], arguments.as_slice()].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(phrase), "{arguments:?}: {text}");
    }
}
