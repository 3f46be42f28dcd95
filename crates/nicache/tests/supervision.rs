//! A card that ends or stands still: requests reach the server meanwhile, another card takes its place, and nobody sees an old page.
#![allow(unsafe_code)]

mod common;
#[path = "common/replay.rs"]
mod replay;

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use common::{Nicache, Site, assert_all_gone, kill, private_network, status, within};
use replay::{assert_coherent, number, replay_site, report_of, start_replay};
use rustix::process::Signal;

/// How long things may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// One load at a time.
static LOAD: Mutex<()> = Mutex::new(());

/// A body, from a connection of its own, if there is one within a second.
fn try_curl(url: &str) -> Option<String> {
    let output = Command::new("curl").args(["-sS", "-m", "1", "--fail", url]).output().unwrap();
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
        std::fs::write(&page, &text).unwrap();
        let back =
            within(PATIENCE, || try_curl(&url)).expect("the server is reached without a card, or with another one");
        assert_eq!(back, text);
        wait_for_another(&nicache, pid);
        wait_for_hits(&nicache, &url, &text);
        std::fs::write(&page, "edited\n").unwrap();
        assert_eq!(try_curl(&url).unwrap(), "edited\n");
    }
    assert_eq!(nicache.pid("server_pid"), server, "the server went on");
    let processes = nicache.processes();
    nicache.signal(Signal::INT);
    let status = nicache.wait(Duration::from_secs(10)).expect("it ends");
    assert!(status.success(), "{status} {}", nicache.log_text());
    assert_all_gone(&processes, Duration::from_secs(3));
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
    let _alone = LOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for handshake in ["pass-through", "card"] {
        private_network();
        let site = replay_site("");
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        let load = start_replay(&site, &nicache, &["--synthetic", "--duration", "10", "--clients", "4"]);
        for _ in 0..3 {
            let busy = || {
                let status = common::command(&["status", "--json", "--name", nicache.name()]);
                let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
                (status["counters"]["hits"].as_u64()? > 50).then(|| status["card_pid"].as_u64())?
            };
            let pid = within(PATIENCE, busy).expect("hits come in");
            kill(pid, Signal::KILL);
            wait_for_another(&nicache, pid);
        }
        let report = report_of(load);
        assert_coherent(&report);
        assert!(number(&report, "replies") > 100, "{report:#}");
        assert_eq!(status(nicache.name())["card_restarts"], 3);
    }
}

#[test]
fn without_the_watcher_everything_passes() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let mut nicache = Nicache::start(&[], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    wait_for_hits(&nicache, &url, "hello from nginx\n");
    kill(nicache.pid("watch_pid"), Signal::KILL);
    for round in 0..20 {
        let text = format!("round {round}\n");
        std::fs::write(site.folder.path().join("site/page.html"), &text).unwrap();
        assert_eq!(try_curl(&url), Some(text));
        std::thread::sleep(Duration::from_millis(50));
    }
    let expired = within(PATIENCE, || {
        try_curl(&url)?;
        (counter(&nicache, "bypass_lease") > 0).then_some(())
    });
    assert!(expired.is_some(), "{}", status(nicache.name()));
    // A card that takes the place of this one does no better, and no worse.
    let pid = status(nicache.name())["card_pid"].as_u64().unwrap();
    kill(pid, Signal::KILL);
    wait_for_another(&nicache, pid);
    assert_eq!(try_curl(&url), Some("round 19\n".into()));
    assert!(nicache.log_text().contains("nothing is cached any more"));
}

/// One connection, kept open.
struct Connection(std::net::TcpStream);

impl Connection {
    fn open(server: std::net::Ipv4Addr) -> Connection {
        let stream = std::net::TcpStream::connect((server, 80)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection(stream)
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
            let count = self.0.read(&mut buffer).unwrap();
            assert!(count > 0, "the connection was closed after: {text}");
            got.extend(&buffer[..count]);
        }
    }
}

#[test]
fn an_upgrade_keeps_all_connections() {
    let _alone = LOAD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| {
                let mut opened = 0;
                // Not for ever if the other thread has failed.
                let until = std::time::Instant::now() + 4 * PATIENCE;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) && std::time::Instant::now() < until {
                    assert_eq!(Connection::open(server).get(17), "hello from nginx\n");
                    opened += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened
            });
            let mut pid = status(nicache.name())["card_pid"].as_u64().unwrap();
            for _ in 0..3 {
                let output = common::command(&["upgrade", "--json", "--name", nicache.name(), common::NICACHE]);
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let new = status(nicache.name())["card_pid"].as_u64().unwrap();
                assert_ne!(new, pid);
                pid = new;
                kept.iter_mut().for_each(|connection| assert_eq!(connection.get(17), "hello from nginx\n"));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(opener.join().unwrap() > 10);
        });
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

#[test]
fn a_card_at_work_has_given_up_what_it_does_not_need() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let nicache = Nicache::start(&["--queues", "2"], &site.command());
    wait_for_hits(&nicache, &format!("http://{}/page.html", nicache.server()), "hello from nginx\n");
    let pid = nicache.pid("card_pid");
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut count = 0;
    for thread in threads.flatten() {
        let text = std::fs::read_to_string(thread.path().join("status")).unwrap();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        // Bit 12 is CAP_NET_ADMIN.
        let capabilities = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
        assert_eq!(capabilities & !(1 << 12), 0, "{text}");
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()), "{text}");
        count += 1;
    }
    assert!(count >= 4, "{count} threads");
}
