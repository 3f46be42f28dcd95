//! Changes of files, and files that cannot be kept.

use std::io::Write;

use crate::common::{EVENTUALLY, SOON, command, holds_within};
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
        // Some of it is on its way: the server has chosen a version.
        client.wait().unwrap();
        if version % 2 == 0 {
            std::fs::write(&path, vec![b'0' + version; len]).unwrap();
        } else {
            std::fs::write(folder.path().join("new"), vec![b'0' + version; len]).unwrap();
            std::fs::rename(folder.path().join("new"), &path).unwrap();
        }
        let reply = client.receive(false).unwrap();
        let first = reply.body[0];
        assert!(
            reply.body.iter().all(|byte| *byte == first) && first + 1 == b'0' + version,
            "version {version}"
        );
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
    // A program that another test is just starting may still have the test's open file.
    let is_kept = holds_within(SOON, || {
        client.get("/log", "");
        let before = serving.counter("files_not_kept");
        client.get("/log", "");
        serving.counter("files_not_kept") == before
    });
    assert!(is_kept, "nobody writes it any longer, so it is kept");
}

/// Does this kernel show all changes on it?
fn is_watched(kind: &str) -> bool {
    let output = command(&["check", "--json"]);
    let check: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let features = check["features"].as_array().unwrap();
    features.iter().any(|found| found["feature"] == kind && found["available"] == true)
}

/// A file is kept there, and no reply is older than what was done to it: by calls, and by stores to
/// a mapping, which leave the times on tmpfs alone.
fn files_on(kind: &str) {
    if !is_watched(kind) {
        return println!("skipped: this kernel does not show all changes on {kind}");
    }
    let folder = folder();
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    crate::ground::mount_own(kind, &root);
    let path = root.join("a");
    std::fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(&path, b"old").unwrap();
    let serving = Serving::start(&root, &[]);
    let mut client = Client::open(serving.address(0));
    let hits = || serving.now()["report"]["cards"][0]["counters"]["block_hits"].as_u64().unwrap();
    // What other tests mount voids what is kept.
    let is_kept = holds_within(EVENTUALLY, || {
        let mut kept = 0;
        for round in 0..60 {
            let before = hits();
            for _ in 0..3 {
                client.get("/a", "");
            }
            kept += u32::from(hits() > before);
            let text = format!("{round:03}");
            match round % 4 {
                0 => std::fs::write(&path, &text).unwrap(),
                1 => {
                    std::fs::write(root.join("new"), &text).unwrap();
                    std::fs::rename(root.join("new"), &path).unwrap();
                }
                2 => {
                    let file = std::fs::File::options().write(true).open(&path).unwrap();
                    std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0).unwrap();
                }
                _ => {
                    let mapping = Mapping::of(&path);
                    for letters in [b"aaa", b"bbb", text.as_bytes()] {
                        mapping.store(letters);
                        assert!(client.get("/a", "").body == letters, "{kind}: {round}");
                    }
                }
            }
            assert_eq!(client.get("/a", "").body, text.as_bytes(), "{kind}: {round}");
        }
        println!("{kind}: kept {kept} times of 60");
        kept >= 45
    });
    assert!(is_kept, "{kind}: it is seldom kept");
}

/// A shared mapping of a file's first page, whose descriptor is closed.
struct Mapping(*mut u8);

impl Mapping {
    fn of(path: &std::path::Path) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which nothing else in this process knows of.
        Self(
            unsafe { mmap(std::ptr::null_mut(), 4096, access, MapFlags::SHARED, &file, 0) }
                .unwrap()
                .cast(),
        )
    }

    fn store(&self, text: &[u8]) {
        // SAFETY: the mapping is a page long.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.0, text.len().min(4096)) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, not used any longer.
        unsafe { rustix::mm::munmap(self.0.cast(), 4096) }.unwrap();
    }
}

#[test]
fn files_on_ext4() {
    files_on("ext4");
}

#[test]
fn files_on_xfs() {
    files_on("xfs");
}

#[test]
fn files_on_btrfs() {
    files_on("btrfs");
}

#[test]
fn files_on_tmpfs() {
    files_on("tmpfs");
}

#[test]
fn what_is_not_watched_is_not_kept() {
    crate::ground::own_mounts();
    let folder = folder();
    let memory = folder.path().join("ramfs");
    std::fs::create_dir(&memory).unwrap();
    rustix::mount::mount("ramfs", &memory, "ramfs", rustix::mount::MountFlags::empty(), None)
        .unwrap();
    std::fs::set_permissions(&memory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(memory.join("a"), bytes(1, 100_000)).unwrap();
    let serving = Serving::start(&memory, &[]);
    let mut client = Client::open(serving.address(0));
    for seed in 1..5 {
        std::fs::write(memory.join("a"), bytes(seed, 100_000)).unwrap();
        assert!(client.get("/a", "").body == bytes(seed, 100_000));
        assert!(client.get("/a", "").body == bytes(seed, 100_000));
    }
    let now = serving.now();
    let reason = now["not_keeping"].as_str().unwrap();
    assert!(reason.contains("ramfs: it is on a file system of type 0x858458f6"), "{reason}");
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
            assert!(
                client.get(&format!("/{file}"), "").body == bytes(file, 100_000),
                "{file} in round {round}"
            );
        }
    }
    assert!(
        client.get("/large", "").body == bytes(99, 12_000_000),
        "a file that is larger than the page cache"
    );
    let card = &serving.now()["report"]["cards"][0]["counters"];
    assert!(
        card["blocks"].as_u64().unwrap() <= 128 && card["blocks_evicted"].as_u64().unwrap() > 1000,
        "{card}"
    );
}

#[test]
fn mistakes_are_explained() {
    let folder = folder();
    let root = folder.path().to_str().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (arguments, phrase) in [
        (vec!["/no/such/folder"], "/no/such/folder"),
        (vec![file.to_str().unwrap()], "is not a folder"),
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
