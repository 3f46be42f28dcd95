//! `nicache nfs`, as operators and clients meet it. What a gateway does with bytes is tested in its
//! own crate.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use nicache_nfs::caller::{Caller, User};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::options::exchange;
use crate::common::{NICACHE, command, kill, output, pauses, private_network, within};

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
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(NICACHE);
        command.args(["nfs", "--json"]).args(arguments);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
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
        Self { child, lines, serving }
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
        serde_json::from_str(&output(NICACHE, &["status", "--json", "--name", self.name()]))
            .unwrap()
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
    let children =
        tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<u32> = children
        .flat_map(|text| {
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
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
    let arguments = [
        &[
            "--demo",
            "--demo-size",
            "256M",
            "--memory",
            "32M",
            "--policy",
            "s3-fifo:small=5%",
            "--admin",
            "0",
            "--http",
            "127.0.0.1:0",
        ][..],
        &below,
    ]
    .concat();
    let mut nfs = Nfs::start(&arguments);
    assert_eq!(nfs.serving["exports"], serde_json::json!(["/demo"]));
    let mount = nfs.serving["mount"][0].as_str().unwrap();
    assert!(
        mount.starts_with("mount -t nfs -o vers=3,proto=tcp,nolock,port=")
            && mount.ends_with(":/demo /mnt"),
        "{mount}"
    );
    assert!(
        output("nfs-cat", &[&nfs.url("/demo/README.txt")]).contains("not copied between layers")
    );

    let data: Vec<u8> = (0..3_000_001_u32).map(|i| (i ^ i >> 11) as u8).collect();
    let (source, back) = (folder.path().join("source"), folder.path().join("back"));
    std::fs::write(&source, &data).unwrap();
    output("nfs-cp", &[source.to_str().unwrap(), &nfs.url("/demo/file")]);
    output("nfs-cp", &[&nfs.url("/demo/file"), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == data);

    let status = nfs.status();
    assert_eq!((&status["copy"], &status["trouble"]), (&"nicache".into(), &Value::Null));
    assert!(
        status["hits_fho"].as_u64().unwrap() + status["hits_lbn"].as_u64().unwrap() >= 700,
        "{status:#}"
    );
    let copied = |class: &str| {
        let copies = status["copies"].as_array().unwrap();
        copies.iter().find(|copy| copy["class"] == class).unwrap()["bytes"].as_u64().unwrap()
    };
    assert_eq!((copied("page_cache_out"), copied("page_cache_in") < 4096), (0, true), "{status:#}");
    let policy: Value = "s3-fifo:small=5%".into();
    assert_eq!((&status["policy"], &nfs.serving["policy"]), (&policy, &policy));
    let text = output(NICACHE, &["status", "--name", nfs.name()]);
    assert!(text.contains(" by s3-fifo:small=5%, dirty "), "{text}");
    assert!(text.contains("WRITE") && text.contains("p99") && text.contains("/demo"), "{text}");
    let top = output(NICACHE, &["top", "--once", "--json", "--name", nfs.name()]);
    assert!(top.contains("nfs_calls_write"), "{top}");
    let admin = nfs.serving["admin"].as_str().unwrap();
    let metrics = output("curl", &["-sS", &format!("http://{admin}/metrics")]);
    assert!(
        metrics.contains(
            "nicache_nfs_request_duration_seconds_bucket{operation=\"WRITE\",le=\"0.001\"}"
        ),
        "{metrics}"
    );
    assert!(metrics.contains("nicache_nfs_copied_bytes_total{class=\"key\"}"), "{metrics}");

    assert_http(&nfs, &data);
    assert_why_of_a_file(&nfs);

    let below = processes_below(nfs.child.id());
    assert!(below.len() >= 3, "supervisor, target and its namespace: {below:?}");
    kill(nfs.child.id().into(), Signal::INT);
    let last = nfs.lines.next().unwrap().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&last).unwrap(),
        serde_json::json!({ "event": "ended", "failed": false })
    );
    assert!(nfs.child.wait().unwrap().success());
    assert!(
        within(PATIENCE, || below.iter().all(|pid| is_gone(*pid)).then_some(())).is_some(),
        "{below:?}"
    );
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "source" || name == "back"), "{left:?}");
}

/// Whatever waits is interrupted all the time, also in the target.
#[test]
fn pauses_cost_nothing_but_time() {
    if skipped() {
        return;
    }
    private_network();
    let folder = tempfile::tempdir().unwrap();
    let demo = ["--demo", "--demo-size", "256M", "--memory", "32M", "--http", "127.0.0.1:0"];
    let below = ["--demo-folder", folder.path().to_str().unwrap()];
    let nfs = Nfs::start(&[&demo[..], &below].concat());
    let address = nfs.serving["addresses"][0].as_str().unwrap().parse().unwrap();
    let mut caller = Caller::connect(address, User::default(), PATIENCE).unwrap();
    let root = caller.mount("/demo").unwrap();
    let file = caller.create(&root, "paused").unwrap();
    let url = nfs.serving["http"][0].as_str().unwrap();
    let web = url.trim_start_matches("http://").trim_end_matches('/');
    // Its server waits for the next request most of the time.
    let mut web = TcpStream::connect(web).unwrap();
    web.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut turn = 0_u8;
    pauses::during(&[nfs.child.id().into()], || {
        turn = turn.wrapping_add(1);
        let data = vec![turn; 100_000];
        assert_eq!(caller.write(&file, 0, &data, 2).unwrap().status, 0);
        assert!(caller.read(&file, 0, 100_000).unwrap().unwrap() == data);
        let request = b"GET /paused HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(exchange(&mut web, request) == data);
        nfs.status();
    });
    assert_eq!(nfs.status()["trouble"], Value::Null);
}

/// Files that are changed by NFS are served by HTTP as they are at the moment.
fn assert_http(nfs: &Nfs, data: &[u8]) {
    let url = nfs.serving["http"][0].as_str().unwrap().to_owned();
    let curl = |arguments: &[&str], path: &str| {
        let output = Command::new("curl")
            .args(["-s", "-i"])
            .args(arguments)
            .arg(format!("{url}{path}"))
            .output()
            .unwrap();
        let at = output.stdout.windows(4).position(|end| end == b"\r\n\r\n").expect("a whole head");
        let head = String::from_utf8(output.stdout[..at].to_vec()).unwrap();
        (head, output.stdout[at + 4..].to_vec(), output.status.success())
    };
    let address = nfs.serving["addresses"][0].as_str().unwrap().parse().unwrap();
    let mut caller = Caller::connect(address, User::default(), PATIENCE).unwrap();
    let root = caller.mount("/demo").unwrap();
    let set_mode = |caller: &mut Caller, file: &[u8], mode: u32| {
        let mut arguments = nicache_nfs::caller::object(file);
        [1, mode, 0, 0, 0, 0, 0, 0_u32]
            .iter()
            .for_each(|word| arguments.extend_from_slice(&word.to_be_bytes()));
        let results = caller.call(nicache_nfs::protocol::Procedure::SetAttr, &arguments).unwrap();
        assert_eq!(nicache_nfs::caller::status_of(results).unwrap(), 0);
    };
    let file = caller.look_up(&root, "file").unwrap().unwrap();
    set_mode(&mut caller, &file, 0o640);
    assert!(curl(&[], "file").0.starts_with("HTTP/1.1 403 "), "not for everybody");
    set_mode(&mut caller, &file, 0o644);
    let (head, body, _) = curl(&[], "file");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body == data, "{head}");
    let (head, body, _) = curl(&["-r", "5000-70000"], "file");
    assert!(
        head.starts_with("HTTP/1.1 206 ")
            && head.contains("\r\nContent-Range: bytes 5000-70000/3000001"),
        "{head}"
    );
    assert!(body == data[5000..=70_000]);
    let (head, body, _) = curl(&["--head"], "file");
    assert!(head.contains("\r\nContent-Length: 3000001") && body.is_empty(), "{head}");
    let tag =
        |head: &str| head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().to_owned();
    let old = tag(&head);
    // Changed by NFS: at once, and the old tag is no longer true.
    assert_eq!(caller.write(&file, 8192, &[9; 4096], 0).unwrap().status, 0);
    let (head, body, _) = curl(&["-H", &format!("If-None-Match: {old}")], "file");
    assert!(head.starts_with("HTTP/1.1 200 ") && tag(&head) != old, "{head}");
    assert!(
        body[8192..12_288] == [9; 4096]
            && body[..8192] == data[..8192]
            && body[12_288..] == data[12_288..]
    );
    let (head, ..) = curl(&["-H", &format!("If-None-Match: {}", tag(&head))], "file");
    assert!(head.starts_with("HTTP/1.1 304 "), "{head}");
    assert_eq!(caller.write(&file, 8192, &data[8192..12_288], 2).unwrap().status, 0);
    for (arguments, path, status) in [
        (&["--path-as-is"][..], "../etc/passwd", 400),
        (&[], "none", 404),
        (&[], "", 403),
        (&["-X", "PUT"], "file", 405),
        (&["-r", "9000000-"], "file", 416),
    ] {
        let (head, ..) = curl(arguments, path);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {head}");
    }
    // Each reply is of one version, or it is cut.
    let small = caller.create(&root, "small").unwrap();
    let large = caller.create(&root, "longer").unwrap();
    [&small, &large].iter().for_each(|file| set_mode(&mut caller, file, 0o644));
    let version = |caller: &mut Caller, byte: u8| {
        assert_eq!(caller.write(&small, 0, &[byte; 60_000], 0).unwrap().status, 0);
        assert_eq!(caller.write(&large, 0, &vec![byte; 1 << 20], 0).unwrap().status, 0);
    };
    version(&mut caller, 0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0_u8;
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                byte = byte.wrapping_add(1);
                version(&mut caller, byte);
            }
        });
        for _ in 0..20 {
            let (head, body, is_whole) = curl(&[], "small");
            let is_one = head.starts_with("HTTP/1.1 200 ") && body.len() == 60_000 && is_whole;
            // One that changes all the time may be refused.
            assert!(is_one || head.starts_with("HTTP/1.1 503 "), "{head}");
            assert!(!is_one || body.iter().all(|byte| *byte == body[0]));
            let (head, body, is_whole) = curl(&[], "longer");
            assert!(
                !head.starts_with("HTTP/1.1 200 ") || body.iter().all(|byte| *byte == body[0]),
                "{is_whole}"
            );
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    let (_, body, is_whole) = curl(&[], "longer");
    assert!(is_whole && body.len() == 1 << 20);
    [&small, &large].iter().for_each(|file| assert_eq!(caller.commit(file).unwrap().status, 0));
    let web = &nfs.status()["web"];
    assert!(
        web["requests"].as_u64().unwrap() > 40
            && web["content_bytes"].as_u64().unwrap() > 9_000_000,
        "{web:#}"
    );
}

/// `nicache why` of a file, through all that becomes of its blocks.
fn assert_why_of_a_file(nfs: &Nfs) {
    let why = |path: &str| -> Value {
        serde_json::from_str(&output(NICACHE, &["why", path, "--json", "--name", nfs.name()]))
            .unwrap()
    };
    let blocks = |report: &Value, state: &str| -> u64 {
        let states = report["states"].as_array().unwrap().iter();
        states.filter(|one| one["state"] == state).map(|one| one["blocks"].as_u64().unwrap()).sum()
    };
    let read_back = tempfile::NamedTempFile::new().unwrap();
    let _ = std::fs::remove_file(read_back.path());
    output("nfs-cp", &[&nfs.url("/demo/file"), read_back.path().to_str().unwrap()]);
    let report = why("/demo/file");
    assert_eq!(
        (&report["size_bytes"], blocks(&report, "by_block")),
        (&3_000_001.into(), 733),
        "{report:#}"
    );
    let address = nfs.serving["addresses"][0].as_str().unwrap().parse().unwrap();
    let mut caller = Caller::connect(address, User::default(), PATIENCE).unwrap();
    let root = caller.mount("/demo").unwrap();
    // Two blocks, a hole, and one that ends before a key does. Nothing is committed, and the
    // flusher writes back under pressure only; the kernel may do it at any time, and then they are
    // found by block.
    let file = caller.create(&root, "with a # and 100 %").unwrap();
    assert_eq!(caller.write(&file, 0, &[1; 8192], 0).unwrap().status, 0);
    assert_eq!(caller.write(&file, 5 * 4096, &[2; 20], 0).unwrap().status, 0);
    let report = why("/demo/with a # and 100 %");
    let (by_file, by_block) = (blocks(&report, "by_file"), blocks(&report, "by_block"));
    let short = blocks(&report, "by_file_short");
    assert_eq!((by_file + by_block, short, blocks(&report, "hole")), (2, 1, 3), "{report:#}");
    assert_eq!(caller.commit(&file).unwrap().status, 0);
    let report = why("/demo/with a # and 100 %");
    assert_eq!((blocks(&report, "by_block"), blocks(&report, "by_file")), (2, 0), "{report:#}");
    // Why it is not cached may be forgotten: another block of the same hash, of the journal, say,
    // may have been written since.
    let third = blocks(&report, "overwritten") + blocks(&report, "unread");
    assert_eq!((third, blocks(&report, "hole")), (1, 3), "{report:#}");
    let ranges = report["ranges"].as_array().unwrap();
    let holes = ranges.iter().find(|range| range["state"] == "hole").unwrap();
    assert_eq!(
        (&holes["first"], &holes["blocks"], &holes["lbn"]),
        (&2.into(), &3.into(), &Value::Null)
    );
    assert!(
        ranges[0]["lbn"].as_u64().unwrap() > 0 && ranges[0]["state"] == "by_block",
        "{report:#}"
    );
    // More than the cache has room for.
    let large = caller.create(&root, "large").unwrap();
    for at in 0..48 {
        assert_eq!(caller.write(&large, at << 20, &vec![3; 1 << 20], 0).unwrap().status, 0);
    }
    assert_eq!(caller.commit(&large).unwrap().status, 0);
    let report = why("/demo/file");
    assert_eq!(blocks(&report, "evicted") + blocks(&report, "unread"), 733, "{report:#}");
    // What went long ago is forgotten, so the one that fills the cache tells what went last.
    let report = why("/demo/large");
    assert!(blocks(&report, "evicted") > 100, "{report:#}");
    let text = output(NICACHE, &["why", "/demo/large", "--name", nfs.name()]);
    assert!(text.contains("gave way to others") && text.contains("12288 blocks of 4096"), "{text}");
    for (path, words) in [
        ("/other/file", "this gateway's are /demo"),
        ("/demo", "is a folder"),
        ("/demo/none", "No such file"),
        ("/demo/../../etc/passwd", "cannot look at"),
        ("http://www.example.com/", "ask about a file"),
    ] {
        let result = command(&["why", path, "--name", nfs.name()]);
        let text = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(!result.status.success() && text.contains(words), "{path}: {text}");
    }
}

#[test]
fn a_killed_demonstration_takes_everything_with_it() {
    if skipped() {
        return;
    }
    private_network();
    let folder = tempfile::tempdir().unwrap();
    let mut nfs = Nfs::start(&[
        "--demo",
        "--demo-size",
        "64M",
        "--demo-folder",
        folder.path().to_str().unwrap(),
    ]);
    let below = processes_below(nfs.child.id());
    kill(nfs.child.id().into(), Signal::KILL);
    nfs.child.wait().unwrap();
    assert!(
        within(PATIENCE, || below.iter().all(|pid| is_gone(*pid)).then_some(())).is_some(),
        "{below:?}"
    );
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
    let options =
        nicache_target::TargetOptions { incoming, ..nicache_target::TargetOptions::default() };
    let target = nicache_target::Target::start(&image, &options).unwrap();
    target.enter().unwrap();
    let url = target.url();
    let chap = folder.path().join("chap");
    std::fs::write(&chap, "joe:secretsecret\n").unwrap();
    output("chmod", &["600", chap.to_str().unwrap()]);
    let state = folder.path().join("state");
    let common = |more: &[&'static str]| {
        let mut arguments =
            vec![url.as_str(), "--listen", "127.0.0.1:0", "--chap", chap.to_str().unwrap()];
        arguments.extend(["--state", state.to_str().unwrap()]);
        arguments.extend(more);
        arguments.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>()
    };
    let start = |more: &[&'static str]| {
        Nfs::start(&common(more).iter().map(String::as_str).collect::<Vec<_>>())
    };
    let refused = |more: &[&'static str], words: &[&str]| {
        let arguments = common(more);
        let result = command(
            &[&["nfs"], &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat(),
        );
        let text = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(!result.status.success() && words.iter().all(|word| text.contains(word)), "{text}");
    };
    let export = "/data *(rw,no_root_squash,insecure)";
    assert!(
        output(NICACHE, &["nfs", "--discover", "127.0.0.1"])
            .contains("iqn.2026-11.org.nicache:unit")
    );
    refused(&["--export", "/data"], &["there is no ext4", "--mkfs"]);
    let mut nfs = start(&["--mkfs", "--export", export, "--sync"]);
    // Two would destroy the file system: here, and on another machine, which has secrets of its
    // own.
    refused(&["--export", export], &["another nicache serves this unit"]);
    let other = folder.path().join("other");
    let arguments = [
        "nfs",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--chap",
        chap.to_str().unwrap(),
        "--export",
        export,
    ];
    let machine =
        ["--state", other.to_str().unwrap(), "--initiator", "iqn.2026-11.org.nicache:other"];
    let elsewhere = command(&[&arguments[..], &machine].concat());
    let text = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert!(
        text.contains("another gateway has reserved the unit") && text.contains("--take-over"),
        "{text}"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    output("nfs-cp", &[file.to_str().unwrap(), &nfs.url("/data/file")]);
    let address = nfs.serving["addresses"][0].as_str().unwrap().parse().unwrap();
    let mut caller = Caller::connect(address, User::default(), PATIENCE).unwrap();
    let root = caller.mount("/data").unwrap();
    let page = caller.create(&root, "page").unwrap();
    assert_eq!(caller.write(&page, 0, b"of the unit", 2).unwrap().status, 0);
    kill(nfs.child.id().into(), Signal::TERM);
    assert!(nfs.child.wait().unwrap().success());
    refused(&["--mkfs", "--export", export], &["is not empty"]);
    let nfs = start(&["--export", "/data *(ro,no_root_squash,insecure)"]);
    assert_eq!(output("nfs-cat", &[&nfs.url("/data/file")]), "kept");
    let port = nfs.url("/data/other");
    assert!(
        !Command::new("nfs-cp").arg(&file).arg(port).output().unwrap().status.success(),
        "it is read-only"
    );
    let mut nfs = nfs;
    kill(nfs.child.id().into(), Signal::TERM);
    assert!(nfs.child.wait().unwrap().success());
    // The same by the command that serves folders, with secrets that go with the test.
    let serve = "mount -t tmpfs none /var/lib && exec \"$0\" serve \"$1/\" --port 0 --json";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", serve, NICACHE, &url]);
    command.env("NICACHE_CHAP", "joe:secretsecret");
    let web = Nfs::of(command);
    let at = web.serving["http"][0].as_str().unwrap();
    let port: u16 = at.trim_end_matches('/').rsplit_once(':').unwrap().1.parse().unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let body = exchange(&mut client, b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(body, b"of the unit");
    drop(web);
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
        (&["nfs", unit, "--http", "www"], &["'www' is not an address"]),
        (&["serve", "iscsi://127.0.0.1/iqn.2026-11.org.nicache:unit"], &["/IQN/LUN/FOLDER"]),
        (
            &["serve", "iscsi://127.0.0.1/iqn.2026-11.org.nicache:unit/1/www", "--cards", "2"],
            &["--cards is for a folder of this machine", "nicache nfs --http"],
        ),
        (&["nfs", unit, "--export", "data"], &["begins with the path"]),
        (
            &["nfs", unit, "--export", "/data *(fast)"],
            &["'fast' is not an option", "no_root_squash"],
        ),
        (
            &["nfs", unit, "--export", "/data", "--copy", "twice"],
            &["original, nicache or baseline"],
        ),
        (&["nfs", unit, "--export", "/data", "--copy", "baseline"], &["zeroes", "--demo"]),
    ] {
        let result = command(arguments);
        let text = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(
            !result.status.success() && words.iter().all(|word| text.contains(word)),
            "{arguments:?}: {text}"
        );
    }
}
