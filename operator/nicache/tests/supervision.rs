//! A card that ends or stands still: requests reach the server meanwhile, another card takes its
//! place, and nobody sees an old page.
#![allow(unsafe_code)]

mod common;
#[path = "common/replay.rs"]
mod replay;

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{
    EVENTUALLY, Nicache, SOON, Site, another_watcher, assert_all_gone, end_wrk, holds_within, kill,
    private_network, status, uninterrupted, within, wrk,
};
use replay::{
    assert_coherent, during, number, replay_site, report_of, start_replay, with_replay_that_lasts,
};
use rustix::process::Signal;
use rustix::thread::CapabilitySet;

/// How long things may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// One load at a time.
static LOAD: Mutex<()> = Mutex::new(());

/// Waits until no other load is on the machine, and keeps others off.
fn alone() -> MutexGuard<'static, ()> {
    LOAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body, from a connection of its own, if there is one.
fn try_curl(url: &str) -> Option<String> {
    let output = Command::new("curl").args(["-sS", "-m", "10", "--fail", url]).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn counter(nicache: &Nicache, name: &str) -> u64 {
    status(nicache.name())["counters"][name].as_u64().unwrap()
}

fn wait_for_hits(nicache: &Nicache, url: &str, body: &str) {
    let before = counter(nicache, "hits");
    let hit = within(PATIENCE, || {
        assert_eq!(try_curl(url).as_deref(), Some(body));
        (counter(nicache, "hits") > before).then_some(())
    });
    assert!(hit.is_some(), "no hits: {}", status(nicache.name()));
}

/// Another card serves than the one with this process number.
fn wait_for_another(nicache: &Nicache, pid: u64) {
    let other = || {
        let status = common::command(&["status", "--json", "--name", nicache.name()]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
        (status["card_pid"].as_u64()? != pid && status["card_restarts"].as_u64()? > 0).then_some(())
    };
    assert!(within(PATIENCE, other).is_some(), "no other card: {}", status(nicache.name()));
}

fn replaced(handshake: &str, signal: Signal) {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let mut nicache = Nicache::start(&["--handshake", handshake], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    let page = site.folder.path().join("site/page.html");
    wait_for_hits(&nicache, &url, "hello from nginx\n");
    let server = nicache.pid("server_pid");
    for round in 0..2 {
        let text = format!("round {round}\n");
        let pid = status(nicache.name())["card_pid"].as_u64().unwrap();
        kill(pid, signal);
        // Whoever asks meanwhile waits for the next card: 4 s, which a busy machine may need.
        let asked = Instant::now();
        let answer = common::command(&["status", "--json", "--name", nicache.name()]);
        assert!(answer.status.success() || asked.elapsed() > Duration::from_secs(3), "{answer:?}");
        std::fs::write(&page, &text).unwrap();
        let back = within(PATIENCE, || try_curl(&url))
            .expect("the server is reached without a card, or with another one");
        assert_eq!(back, text);
        wait_for_another(&nicache, pid);
        wait_for_hits(&nicache, &url, &text);
        std::fs::write(&page, "edited\n").unwrap();
        assert_eq!(try_curl(&url).unwrap(), "edited\n");
    }
    assert_eq!(nicache.pid("server_pid"), server, "the server went on");
    let processes = nicache.processes();
    nicache.signal(Signal::INT);
    let status = nicache.wait(SOON).expect("it ends");
    assert!(status.success(), "{status} {}", nicache.log_text());
    assert_all_gone(&processes);
}

#[test]
fn a_card_that_is_killed() {
    replaced("pass-through", Signal::KILL);
    replaced("card", Signal::KILL);
}

#[test]
fn a_card_that_stands_still() {
    replaced("card", Signal::STOP);
}

#[test]
fn under_load_nothing_is_stale() {
    for handshake in ["pass-through", "card"] {
        with_replay_that_lasts([10, 60], |seconds| {
            private_network();
            let site = replay_site("");
            let nicache = Nicache::start(&["--handshake", handshake], &site.command());
            let duration = seconds.to_string();
            let arguments = ["--synthetic", "--duration", &duration, "--clients", "4"];
            let alone = alone();
            let mut load = start_replay(&site, &nicache, &arguments);
            let busy = || {
                let status = common::command(&["status", "--json", "--name", nicache.name()]);
                let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
                (status["counters"]["hits"].as_u64()? > 50).then(|| status["card_pid"].as_u64())?
            };
            let lasts = (0..3).all(|_| {
                let Some(pid) = during(&mut load, busy) else { return false };
                kill(pid, Signal::KILL);
                wait_for_another(&nicache, pid);
                true
            });
            let report = report_of(load);
            drop(alone);
            assert_coherent(&report);
            if lasts {
                assert!(number(&report, "replies") > 100, "{report:#}");
                assert_eq!(status(nicache.name())["card_restarts"], 3);
            }
            lasts
        });
    }
}

/// Somebody watches again, and not who did before.
fn wait_for_another_watcher(nicache: &Nicache, pid: u64) -> u64 {
    within(PATIENCE, || another_watcher(nicache.name(), pid))
        .unwrap_or_else(|| panic!("no other watcher: {}", status(nicache.name())))
}

/// The card goes on, its connections too; what it had is not served again, and what nobody saw
/// change least of all.
#[test]
fn a_watcher_that_ends_is_replaced() {
    for handshake in ["pass-through", "card"] {
        private_network();
        let site = Site::with("", "root @ROOT@/site; keepalive_timeout 600s;");
        let mut nicache = Nicache::start(&["--handshake", handshake], &site.command());
        let server = nicache.server();
        let (url, other) =
            (format!("http://{server}/page.html"), format!("http://{server}/other.html"));
        let file = |name: &str| site.folder.path().join("site").join(name);
        std::fs::write(file("other.html"), "other").unwrap();
        wait_for_hits(&nicache, &url, "hello from nginx\n");
        wait_for_hits(&nicache, &other, "other");
        let before = status(nicache.name());
        let mut kept: Vec<Connection> = (0..4).map(|_| Connection::open(server)).collect();
        kept.iter_mut().for_each(|connection| assert_eq!(connection.get(17), "hello from nginx\n"));
        let mut watcher = nicache.pid("watch_pid");
        for round in 0..3 {
            kill(watcher, Signal::KILL);
            // Nobody sees this.
            std::fs::write(file("other.html"), format!("other {round}")).unwrap();
            for step in 0..20 {
                let text = format!("round {round}, {step:6}\n");
                std::fs::write(file("page.html"), &text).unwrap();
                assert_eq!(try_curl(&url), Some(text.clone()));
                let connection = &mut kept[step % 4];
                assert_eq!(connection.get(text.len()), text);
            }
            watcher = wait_for_another_watcher(&nicache, watcher);
            assert_eq!(try_curl(&other), Some(format!("other {round}")));
            wait_for_hits(&nicache, &url, &format!("round {round}, {:6}\n", 19));
            wait_for_hits(&nicache, &other, &format!("other {round}"));
            for step in 20..40 {
                let text = format!("round {round}, {step:6}\n");
                std::fs::write(file("page.html"), &text).unwrap();
                assert_eq!(try_curl(&url), Some(text.clone()));
                assert_eq!(kept[step % 4].get(text.len()), text);
            }
        }
        let after = status(nicache.name());
        for same in ["card_pid", "card_restarts", "server_pid"] {
            assert_eq!(after[same], before[same], "{same}");
        }
        assert!(nicache.log_text().contains("another watcher watches"));
        // A card that takes the place of this one has the last watcher, too.
        let pid = after["card_pid"].as_u64().unwrap();
        kill(pid, Signal::KILL);
        wait_for_another(&nicache, pid);
        wait_for_hits(&nicache, &other, "other 2");
        nicache.signal(Signal::INT);
        assert!(nicache.wait(SOON).expect("it ends").success(), "{}", nicache.log_text());
    }
}

/// The library in the server's programs goes on in the memory of the first one.
#[test]
fn without_the_watcher_of_a_preloaded_server_everything_passes() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let mut nicache = Nicache::start(&["--watch", "preload"], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    wait_for_hits(&nicache, &url, "hello from nginx\n");
    kill(nicache.pid("watch_pid"), Signal::KILL);
    let expired = within(PATIENCE, || {
        try_curl(&url)?;
        (counter(&nicache, "bypass_lease") > 0).then_some(())
    });
    assert!(expired.is_some(), "{}", status(nicache.name()));
    for round in 0..20 {
        let text = format!("round {round}\n");
        std::fs::write(site.folder.path().join("site/page.html"), &text).unwrap();
        assert_eq!(try_curl(&url), Some(text));
    }
    // A card that takes the place of this one does no better, and no worse.
    let pid = status(nicache.name())["card_pid"].as_u64().unwrap();
    kill(pid, Signal::KILL);
    wait_for_another(&nicache, pid);
    assert_eq!(try_curl(&url), Some("round 19\n".into()));
    assert!(nicache.log_text().contains("nothing is cached any longer"));
}

/// One connection, kept open.
struct Connection(std::net::TcpStream);

impl Connection {
    fn open(server: std::net::Ipv4Addr) -> Self {
        let stream = std::net::TcpStream::connect((server, 80)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// The body of the page.
    fn get(&mut self, len: usize) -> String {
        use std::io::{Read, Write};
        self.0.write_all(b"GET /page.html HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&got).into_owned();
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && body.len() == len
            {
                return body.to_owned();
            }
            let count = uninterrupted(|| self.0.read(&mut buffer)).unwrap();
            assert!(count > 0, "the connection was closed after: {text}");
            got.extend(&buffer[..count]);
        }
    }
}

#[test]
fn an_upgrade_keeps_all_connections() {
    for handshake in ["pass-through", "card"] {
        private_network();
        let site = Site::with("", "root @ROOT@/site; keepalive_timeout 600s;");
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        let server = nicache.server();
        let url = format!("http://{server}/page.html");
        let page = site.folder.path().join("site/page.html");
        wait_for_hits(&nicache, &url, "hello from nginx\n");
        let mut kept: Vec<Connection> = (0..10).map(|_| Connection::open(server)).collect();
        kept.iter_mut().for_each(|connection| assert_eq!(connection.get(17), "hello from nginx\n"));
        let stop = std::sync::atomic::AtomicBool::new(false);
        let alone = alone();
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| {
                let mut opened = 0;
                // Not for ever if the other thread has failed.
                let until = std::time::Instant::now() + 4 * PATIENCE;
                while !stop.load(std::sync::atomic::Ordering::Relaxed)
                    && std::time::Instant::now() < until
                {
                    assert_eq!(Connection::open(server).get(17), "hello from nginx\n");
                    opened += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened
            });
            let mut pid = status(nicache.name())["card_pid"].as_u64().unwrap();
            for _ in 0..3 {
                let output = common::command(&[
                    "upgrade",
                    "--json",
                    "--name",
                    nicache.name(),
                    common::NICACHE,
                ]);
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let new = status(nicache.name())["card_pid"].as_u64().unwrap();
                assert_ne!(new, pid);
                pid = new;
                kept.iter_mut()
                    .for_each(|connection| assert_eq!(connection.get(17), "hello from nginx\n"));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(opener.join().unwrap() > 10);
        });
        drop(alone);
        assert_eq!(status(nicache.name())["card_restarts"], 3, "no card was killed meanwhile");
        // Old and new cards know of changes alike.
        std::fs::write(&page, "hello, edited ...").unwrap();
        kept.iter_mut().for_each(|connection| assert_eq!(connection.get(17), "hello, edited ..."));
        assert_eq!(try_curl(&url).unwrap(), "hello, edited ...");
    }
}

#[test]
fn an_upgrade_that_fails_changes_nothing() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let nicache = Nicache::start(&[], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    wait_for_hits(&nicache, &url, "hello from nginx\n");
    let before = status(nicache.name());
    for program in ["/bin/true", "/etc/passwd"] {
        let output = common::command(&["upgrade", "--name", nicache.name(), program]);
        assert!(!output.status.success(), "{program}");
    }
    assert_eq!(status(nicache.name())["card_pid"], before["card_pid"]);
    wait_for_hits(&nicache, &url, "hello from nginx\n");
}

/// Niceness of the thread of the card that moves frames (proc_pid_stat(5)).
#[test]
fn nobody_reads_what_is_said() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let (reader, log) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(common::NICACHE);
    command.args(["run", "--json", "--"]).args(site.command());
    let mut process =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    let (name, server) = (
        ready["status"]["name"].as_str().unwrap(),
        ready["status"]["server_address"].as_str().unwrap(),
    );
    // Which says much.
    assert!(common::command(&["upgrade", "--name", name]).status.success());
    kill(status(name)["card_pid"].as_u64().unwrap(), Signal::KILL);
    let url = format!("http://{server}/page.html");
    assert!(within(PATIENCE, || try_curl(&url)).is_some());
    assert!(process.try_wait().unwrap().is_none());
    kill(process.id().into(), Signal::TERM);
    assert!(process.wait().unwrap().success());

    // What only answers ends.
    let mut check = Command::new(common::NICACHE);
    let (reader, answer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = check.args(["check", "--json"]).stdout(answer).output().unwrap();
    assert_eq!(
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()),
        (Some(141), "")
    );
}

/// The access log under full load: a pipe whose reader stands still, one whose reader goes away, a
/// full disk. Lines are lost; the card goes on, and answers whoever asks for its state by the same
/// socket.
#[test]
fn what_stands_beside_the_path_does_not_stop_it() {
    private_network();
    for kind in ["reader that stands still", "reader that goes away", "full disk", "file"] {
        let site = Site::with("", "root @ROOT@/site;");
        let pipe = site.folder.path().join("log");
        let log = match kind {
            "full disk" => Path::new("/dev/full").to_owned(),
            "file" => pipe.clone(),
            _ => {
                rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &pipe,
                    rustix::fs::FileType::Fifo,
                    0o666.into(),
                    0,
                )
                .unwrap();
                pipe.clone()
            }
        };
        let mut open = std::fs::File::options();
        let reader = open.read(true).custom_flags(libc::O_NONBLOCK).open(&log).ok();
        let mut nicache = Nicache::start(&["--access-log", log.to_str().unwrap()], &site.command());
        let url = format!("http://{}/page.html", nicache.server());
        let body = try_curl(&url).unwrap();
        wait_for_hits(&nicache, &url, &body);
        let before = status(nicache.name());
        println!("{kind}");
        let alone = alone();
        let load = wrk(&["-t2", "-c32", "-d3s", &url]).spawn().unwrap();
        let begun = std::time::Instant::now();
        let mut reader = reader;
        while begun.elapsed() < Duration::from_secs(3) {
            assert!(status(nicache.name())["counters"]["hits"].is_u64(), "{kind}");
            if kind == "reader that goes away" && begun.elapsed() > Duration::from_secs(1) {
                reader = None;
            }
        }
        let said = end_wrk(load);
        drop(alone);
        let after = status(nicache.name());
        assert_eq!(
            (&after["card_pid"], &after["card_restarts"]),
            (&before["card_pid"], &before["card_restarts"]),
            "{kind}"
        );
        assert!(
            number(&after["counters"], "hits") > number(&before["counters"], "hits") + 1000,
            "{kind}: {said}"
        );
        assert_eq!(try_curl(&url).as_deref(), Some(&*body), "{kind}");
        let mut said = String::new();
        let is_told = || {
            said += &nicache.log_text();
            said.contains("lines of the access log are lost").then_some(())
        };
        // A file takes what it is given; the card itself keeps only so many.
        assert!(kind == "file" || within(PATIENCE, is_told).is_some(), "{kind}");
        drop(reader);
    }
}

/// Crowds at the control socket and at the live page, under full load: some say nothing, some ask
/// and ask and never read, some send what means nothing.
#[test]
fn whoever_looks_and_stands_still_does_not_stop_it() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let nicache = Nicache::start(&["--admin", "0"], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    let body = try_curl(&url).unwrap();
    wait_for_hits(&nicache, &url, &body);
    let (admin, before) =
        (nicache.status["admin"].as_str().unwrap().to_owned(), status(nicache.name()));
    let control = format!("/run/nicache/{}.sock", nicache.name());
    let alone = alone();
    let load = wrk(&["-t2", "-c32", "-d4s", &url]).spawn().unwrap();
    let texts = |question: &str| {
        [String::new(), question.repeat(2000), "x".repeat(1 << 18), "\n".repeat(1 << 16)]
    };
    let at_control = texts("{\"command\":\"status\"}\n");
    let at_page = texts(&format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    let mut crowd: Vec<Box<dyn std::any::Any>> = Vec::new();
    for number in 0..300 {
        // Whatever is not taken at once is not sent.
        if let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&control) {
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write_all(at_control[number % 4].as_bytes());
            crowd.push(Box::new(stream));
        }
        if let Ok(mut stream) = std::net::TcpStream::connect(&admin) {
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write_all(at_page[number % 4].as_bytes());
            crowd.push(Box::new(stream));
        }
    }
    assert!(crowd.len() > 100, "{} of them have come in", crowd.len());
    let said = end_wrk(load);
    assert_eq!(try_curl(&url).as_deref(), Some(&*body));
    drop(crowd);
    drop(alone);
    let ask = || {
        let output = Command::new(common::NICACHE)
            .args(["status", "--json", "--name", nicache.name()])
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap())
    };
    let after = within(PATIENCE, ask).expect("it answers again");
    for same in ["card_pid", "card_restarts", "watch_pid", "server_pid"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    assert!(
        number(&after["counters"], "hits") > number(&before["counters"], "hits") + 1000,
        "{said}"
    );
    assert_eq!(try_curl(&format!("http://{admin}/healthz")).as_deref(), Some("ok\n"));
}

fn niceness(nicache: &Nicache) -> i32 {
    for thread in
        std::fs::read_dir(format!("/proc/{}/task", nicache.pid("card_pid"))).unwrap().flatten()
    {
        let text = std::fs::read_to_string(thread.path().join("stat")).unwrap();
        let (name, rest) = text.rsplit_once(')').unwrap();
        if name.ends_with("(card-0") {
            return rest.split_whitespace().nth(16).unwrap().parse().unwrap();
        }
    }
    panic!("no thread of that name");
}

#[test]
fn a_card_that_leaves_the_server_behind_does_not_go_first() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    // A page that grows old while the server stands still is not a hit.
    let nicache = Nicache::start(&["--recheck", "1m"], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    // The client closes, or the card as the server would.
    let get = |header: &str| {
        let output = Command::new("curl")
            .args(["-sS", "-m", "5", "--fail", "-H", header, &url])
            .output()
            .unwrap();
        output.status.success().then(|| assert_eq!(output.stdout, b"hello from nginx\n"))
    };
    let kinds = ["Connection: keep-alive", "Connection: close"];
    let server = common::family(nicache.pid("server_pid"));
    let has_caught_up =
        || (niceness(&nicache) == -10 && counter(&nicache, "left_to_host_now") == 0).then_some(());
    let behind = || {
        for kind in kinds {
            let before = counter(&nicache, "hits");
            let hit =
                within(PATIENCE, || get(kind).filter(|()| counter(&nicache, "hits") > before));
            assert!(hit.is_some(), "no hits: {}", status(nicache.name()));
        }
        assert!(within(PATIENCE, has_caught_up).is_some(), "{}", status(nicache.name()));
        server.iter().for_each(|&pid| kill(pid, Signal::STOP));
        // The kernel accepts them for the server, which does not get to close them. It takes both
        // kinds to be behind.
        let all_hits = (0..80).all(|number| get(kinds[number % 2]).is_some());
        let seen = (all_hits, niceness(&nicache), counter(&nicache, "left_to_host_now") >= 64);
        server.iter().for_each(|&pid| kill(pid, Signal::CONT));
        assert!(within(PATIENCE, has_caught_up).is_some(), "{}", status(nicache.name()));
        seen
    };
    // What other tests mount makes everything suspect, and the server that could say more stands
    // still.
    let mut seen = Vec::new();
    let is_left_behind = holds_within(EVENTUALLY, || {
        seen.push(behind());
        seen.last() == Some(&(true, 0, true))
    });
    assert!(is_left_behind, "{seen:?}");
}

/// CAP_NET_ADMIN and CAP_SYS_NICE; what a watcher keeps (linux/capability.h).
const OF_A_CARD: u64 = 1 << 12 | 1 << 23;
const OF_A_WATCHER: u64 = 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 19 | 1 << 28 | 1 << 39;

#[test]
fn card_and_watcher_at_work_have_given_up_what_they_do_not_need() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let nicache = Nicache::start(&["--queues", "2"], &site.command());
    wait_for_hits(
        &nicache,
        &format!("http://{}/page.html", nicache.server()),
        "hello from nginx\n",
    );
    for (process, kept, threads_min) in [("card_pid", OF_A_CARD, 4), ("watch_pid", OF_A_WATCHER, 1)]
    {
        let threads = std::fs::read_dir(format!("/proc/{}/task", nicache.pid(process))).unwrap();
        let mut count = 0;
        for thread in threads.flatten() {
            let text = std::fs::read_to_string(thread.path().join("status")).unwrap();
            let field = |name: &str| {
                text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
            };
            for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
                let capabilities = u64::from_str_radix(&field(set), 16).unwrap();
                assert_eq!(capabilities & !kept, 0, "{process} {set} {text}");
            }
            assert_eq!(
                (field("NoNewPrivs:"), field("Seccomp:")),
                ("1".into(), "2".into()),
                "{process} {text}"
            );
            count += 1;
        }
        assert!(count >= threads_min, "{process}: {count} threads");
    }
}

/// What a unit leaves, as bits.
fn bound_of(unit: &str) -> u64 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(unit);
    let text = std::fs::read_to_string(path).unwrap();
    let names = text.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let bit = |name: &str| {
        CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap()).expect(name).bits()
    };
    names.split(' ').map(bit).sum()
}

#[test]
fn files_of_others_are_hits_under_a_service_manager() {
    private_network();
    let bound = bound_of("nicache.service");
    assert_eq!(bound, bound_of("nicache@.service"));
    assert_eq!(bound & OF_A_WATCHER, OF_A_WATCHER, "the units take from the watcher what it needs");
    let site = Site::with("", "root @ROOT@/site;");
    let page = site.folder.path().join("site/page.html");
    std::os::unix::fs::chown(&page, Some(33), Some(33)).unwrap();
    std::fs::set_permissions(&page, Permissions::from_mode(0o604)).unwrap();
    let leave = move || {
        // What the kernel does not know is not a capability.
        for capability in (0..64u32).filter(|capability| bound >> capability & 1 == 0) {
            // SAFETY: the call takes numbers only.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
        }
        Ok(())
    };
    let adjust = |command: &mut Command| {
        // SAFETY: between fork and exec only system calls are made, and no memory is allocated.
        unsafe { command.pre_exec(leave) };
    };
    let nicache = Nicache::start_with(&[], &site.command(), adjust);
    wait_for_hits(
        &nicache,
        &format!("http://{}/page.html", nicache.server()),
        "hello from nginx\n",
    );
    let text = std::fs::read_to_string(format!("/proc/{}/status", nicache.pid("pid"))).unwrap();
    let left = text.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    assert_eq!(u64::from_str_radix(left.trim(), 16).unwrap() & !bound, 0);
}
