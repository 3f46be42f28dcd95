//! A machine that is slow, or busy with other things: the server is reached all the time, nothing
//! is stale, nothing is killed for being late, and what is late joins.
#![allow(unsafe_code)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{
    EVENTUALLY, Nicache, SOON, Site, holds_within, kill, private_network, status, within,
};
use rustix::process::Signal;

/// How long things may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

fn get(url: &str) -> Output {
    Command::new("curl").args(["-sS", "-m", "10", "--fail", url]).output().unwrap()
}

fn body(url: &str) -> String {
    let output = get(url);
    assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Nothing while the server is being started again.
fn try_body(url: &str) -> Option<String> {
    let output = get(url);
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn children(pid: u64) -> Vec<u64> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap_or_default().split_whitespace().map(|child| child.parse().unwrap()).collect()
}

fn counter(nicache: &Nicache, name: &str) -> u64 {
    status(nicache.name())["counters"][name].as_u64().unwrap_or(0)
}

/// Asks until there is a hit. Each reply must be what is there.
fn wait_for_hits(nicache: &mut Nicache, url: &str, text: &str) {
    let before = counter(nicache, "hits");
    let hit = within(PATIENCE, || {
        assert_eq!(body(url), text);
        (counter(nicache, "hits") > before).then_some(())
    });
    assert!(hit.is_some(), "no hits: {}\n{}", status(nicache.name()), nicache.log_text());
}

fn command_line(pid: u64) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn parent(pid: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The child with this role of the nicache with this name, as soon as there is one.
fn child_of(name: &str, role: &str) -> Option<u64> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    processes.find(|&pid| {
        command_line(pid).get(1).is_some_and(|command| command == role)
            && parent(pid)
                .is_some_and(|parent| command_line(parent).iter().any(|word| word == name))
    })
}

/// What happens to watchers as they start.
struct Fate<'a> {
    name: &'a str,
    /// How many were met.
    met: AtomicU32,
    over: AtomicBool,
}

impl Fate<'_> {
    /// Does to the first watchers what is to be done to them. One that was too fast for that is the
    /// last.
    fn meet(&self, most: u32, mut act: impl FnMut(u32, u64) -> bool) {
        let mut last = None;
        while !self.over.load(Ordering::Relaxed) && self.met.load(Ordering::Relaxed) < most {
            match child_of(self.name, "watch") {
                Some(pid) if last != Some(pid) => {
                    last = Some(pid);
                    let met = self.met.load(Ordering::Relaxed);
                    let met = if act(met, pid) { met + 1 } else { most };
                    self.met.store(met, Ordering::Relaxed);
                }
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

/// Starts a server whose first `most` watchers meet a fate.
fn with_fate(
    name: &str,
    most: u32,
    command: &[String],
    act: impl FnMut(u32, u64) -> bool + Send,
) -> Nicache {
    let fate = Fate { name, met: AtomicU32::new(0), over: AtomicBool::new(false) };
    let fate = &fate;
    std::thread::scope(|scope| {
        scope.spawn(move || fate.meet(most, act));
        let nicache = Nicache::start(&["--name", name], command);
        let hits = within(PATIENCE, || {
            assert_eq!(
                body(&format!("http://{}/page.html", nicache.server())),
                "hello from nginx\n"
            );
            (fate.met.load(Ordering::Relaxed) == most).then_some(())
        });
        fate.over.store(true, Ordering::Relaxed);
        assert!(hits.is_some(), "{} of {most} watchers", fate.met.load(Ordering::Relaxed));
        nicache
    })
}

#[test]
fn a_watcher_that_is_late_joins() {
    private_network();
    let site = Site::with("", "root @ROOT@/site; autoindex on;");
    let name = format!("late-{}", std::process::id());
    let mut stopped = 0;
    // Somebody starts nginx again when it ends.
    let words: Vec<String> = site.command().iter().map(|word| format!("'{word}'")).collect();
    let forever = format!("while :; do {}; done", words.join(" "));
    let command = ["sh".to_owned(), "-c".to_owned(), forever];
    let mut nicache = with_fate(&name, 1, &command, |_, pid| {
        kill(pid, Signal::STOP);
        stopped = pid;
        true
    });
    let (page, server) = (site.folder.path().join("site/page.html"), nicache.pid("server_pid"));
    let url = format!("http://{}/page.html", nicache.server());
    for round in 0..4 {
        std::fs::write(&page, format!("{round}\n")).unwrap();
        assert_eq!((body(&url), body(&url)), (format!("{round}\n"), format!("{round}\n")));
    }
    let before = status(&name);
    assert!(
        before["watch_unavailable"].as_str().is_some_and(|why| why.contains("not watched yet")),
        "{before}"
    );
    assert!(
        before["counters"]["not_caching"].is_string() && before["counters"]["hits"] == 0,
        "{before}"
    );
    let why = common::command(&["why", "--name", &name, &url]);
    assert!(String::from_utf8_lossy(&why.stdout).contains("not watched yet"), "{why:?}");

    kill(stopped, Signal::CONT);
    wait_for_hits(&mut nicache, &url, "3\n");
    // What the server computes rests on what it has read before anybody watched, and with it what
    // its children compute.
    let listing = format!("http://{}/", nicache.server());
    let list = || {
        for _ in 0..6 {
            assert!(body(&listing).contains("page.html"));
        }
    };
    list();
    let nginx = children(children(server)[0])[0];
    kill(nginx, Signal::HUP);
    let workers = children(nginx);
    assert!(within(SOON, || (children(nginx) != workers).then_some(())).is_some());
    list();
    let after = status(&name);
    assert!(after["watch_unavailable"].is_null() && after["watch_pid"] == stopped, "{after}");
    assert_eq!(after["counters"]["hits_dynamic"].as_u64().unwrap_or(0), 0, "{after}");
    assert!(counter(&nicache, "fill_refused_server_older") > 0, "{after}");
    // What is started again is seen from its begin on.
    kill(nginx, Signal::TERM);
    for round in 0..3 {
        let before = counter(&nicache, "hits_dynamic");
        let hit = within(PATIENCE, || {
            let listed = try_body(&listing)?;
            assert_eq!(listed.matches(">news-").count(), round, "{listed}");
            (counter(&nicache, "hits_dynamic") > before).then_some(())
        });
        assert!(hit.is_some(), "round {round}: {}", status(&name));
        std::fs::write(site.folder.path().join(format!("site/news-{round}")), "new").unwrap();
        assert_eq!(body(&listing).matches(">news-").count(), round + 1);
    }
    for round in 0..4 {
        std::fs::write(&page, format!("again {round}\n")).unwrap();
        assert_eq!(body(&url), format!("again {round}\n"));
    }
    assert_eq!((nicache.pid("server_pid"), after["card_restarts"].as_u64()), (server, Some(0)));
    let log = nicache.log_text();
    for line in ["the watcher is not ready after", "files are cached from now on"] {
        assert!(log.contains(line) && !log.contains("killed"), "{log}");
    }
    nicache.signal(Signal::INT);
    assert!(nicache.wait(SOON).expect("it ends").success(), "{}", nicache.log_text());
}

/// Watchers are killed at each step of their start, and others follow: has one been met in time?
fn is_started_again_when_killed(attempt: usize) -> bool {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let name = format!("killed-{}-{attempt}", std::process::id());
    let mut is_killed = false;
    let mut nicache = with_fate(&name, 3, &site.command(), |number, pid| {
        std::thread::sleep(Duration::from_millis([0, 20, 80][number as usize]));
        kill(pid, Signal::STOP);
        // One that has attached everything may have begun to watch, and is another test's.
        let is_early = !has_links(pid);
        kill(pid, if is_early { Signal::KILL } else { Signal::CONT });
        is_killed |= is_early;
        is_early
    });
    let url = format!("http://{}/page.html", nicache.server());
    wait_for_hits(&mut nicache, &url, "hello from nginx\n");
    std::fs::write(site.folder.path().join("site/page.html"), "new\n").unwrap();
    assert_eq!(body(&url), "new\n");
    let log = nicache.log_text();
    assert!(!is_killed || log.contains("the watcher was ended by signal 9 at its start"), "{log}");
    is_killed
}

#[test]
fn watchers_that_are_killed_as_they_start_are_started_again() {
    // A watcher may have attached everything before this test is given a processor; but not each
    // time.
    let mut attempts = 0..;
    let is_met = || is_started_again_when_killed(attempts.next().unwrap());
    assert!(holds_within(2 * EVENTUALLY, is_met), "each watcher was too fast");
}

fn has_links(pid: u64) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| std::fs::read_link(file.path()).ok())
        .any(|file| file.ends_with("anon_inode:bpf_link"))
}

fn status_or_none(name: &str) -> Option<serde_json::Value> {
    let output = common::command(&["status", "--json", "--name", name]);
    serde_json::from_slice(&output.stdout).ok()
}

/// Processes that want all of one CPU.
struct Hogs(Vec<Child>);

impl Hogs {
    fn new(count: usize, cpu: usize) -> Self {
        let hog = |_| {
            let mut command = Command::new("taskset");
            command
                .args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null());
            command.spawn().unwrap()
        };
        Self((0..count).map(hog).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// A process that may run for a millisecond in each second, by a group of its own in whichever
/// hierarchy has the CPU controller. What remains goes back to the group that it was in.
struct Throttled {
    group: PathBuf,
    back: PathBuf,
}

impl Throttled {
    /// `None`: this machine has no such controller.
    fn new(pid: u64) -> Option<Self> {
        let (root, settings) = [
            (
                "/sys/fs/cgroup/cpu",
                &[("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", "1000")][..],
            ),
            ("/sys/fs/cgroup", &[("cpu.max", "1000 1000000")][..]),
        ]
        .into_iter()
        .find(|(root, _)| Path::new(root).join("cgroup.procs").exists())?;
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let is_cpu = |line: &&str| {
            line.starts_with("0::") || line.split(':').nth(1).is_some_and(|name| name == "cpu")
        };
        let own = groups.lines().filter(is_cpu).max_by_key(|line| !line.starts_with("0::"))?;
        let back = Path::new(root).join(own.splitn(3, ':').nth(2)?.trim_start_matches('/'));
        let group = Path::new(root).join(format!("nicache-test-{pid}"));
        std::fs::create_dir(&group).ok()?;
        let throttled = Self { group, back };
        let write = |(name, value): (&str, &str)| std::fs::write(throttled.group.join(name), value);
        settings
            .iter()
            .copied()
            .chain([("cgroup.procs", &*pid.to_string())])
            .try_for_each(write)
            .ok()?;
        Some(throttled)
    }

    fn was_throttled(&self) -> bool {
        let stat = std::fs::read_to_string(self.group.join("cpu.stat")).unwrap_or_default();
        stat.lines()
            .filter_map(|line| line.strip_prefix("nr_throttled "))
            .any(|count| count.trim() != "0")
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        for pid in
            std::fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default().lines()
        {
            let _ = std::fs::write(self.back.join("cgroup.procs"), pid);
        }
        let _ = within(SOON, || std::fs::remove_dir(&self.group).ok());
    }
}

#[test]
fn a_card_that_is_not_given_a_processor_is_left_alone() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    let mut nicache = Nicache::start(&[], &site.command());
    let url = format!("http://{}/page.html", nicache.server());
    wait_for_hits(&mut nicache, &url, "hello from nginx\n");
    let card = nicache.pid("card_pid");
    if let Some(throttled) = Throttled::new(card) {
        let netns = nicache.pid("pid");
        let until = Instant::now() + Duration::from_secs(4);
        let clients = (0..8).map(|_| {
            let url = url.clone();
            let ask = move || {
                while Instant::now() < until {
                    let _ = Command::new("curl")
                        .args(["-sS", "-m", "2", "-o", "/dev/null", &url])
                        .output();
                }
            };
            std::thread::spawn(move || common::inside(netns, ask))
        });
        clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().unwrap());
        assert!(throttled.was_throttled());
        assert_eq!(nicache.process.try_wait().unwrap(), None, "{}", nicache.log_text());
    } else {
        println!("no CPU controller of control groups: not tried");
    }
    let alive =
        within(PATIENCE, || Some(status_or_none(nicache.name())?["card_pid"].as_u64()? == card));
    assert_eq!(alive, Some(true), "the same card serves: {}", nicache.log_text());
    wait_for_hits(&mut nicache, &url, "hello from nginx\n");
    let log = nicache.log_text();
    assert!(!log.contains("is killed"), "{log}");
    // One that stands still for no reason is found.
    let stopped = Instant::now();
    kill(card, Signal::STOP);
    let other = || (status_or_none(nicache.name())?["card_pid"].as_u64()? != card).then_some(());
    assert!(within(PATIENCE, other).is_some(), "{}", nicache.log_text());
    println!("another card after {:?}", stopped.elapsed());
}

#[test]
fn the_first_request_is_answered() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    for is_busy in [false, false, false, true, true] {
        let _hogs = is_busy.then(|| (Hogs::new(2, 0), Hogs::new(2, 1)));
        let nicache = Nicache::start(&[], &site.command());
        assert_eq!(body(&format!("http://{}/page.html", nicache.server())), "hello from nginx\n");
    }
}

/// A card is held up for a moment as soon as its server has been started: is that announced
/// afterwards?
fn is_announced_after_the_card_goes_on(site: &Site, attempt: usize) -> bool {
    let name = format!("mute-{}-{attempt}", std::process::id());
    let goes_on = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hold = scope.spawn(|| {
            within(PATIENCE, || child_of(&name, "server"));
            let card = child_of(&name, "card").expect("the card comes before the server");
            kill(card, Signal::STOP);
            // Shorter than what is taken for a card that stands still.
            std::thread::sleep(Duration::from_millis(300));
            goes_on.store(true, Ordering::SeqCst);
            kill(card, Signal::CONT);
            card
        });
        let nicache = Nicache::start(&["--name", &name], &site.command());
        let is_announced_first = !goes_on.load(Ordering::SeqCst);
        assert_eq!(body(&format!("http://{}/page.html", nicache.server())), "hello from nginx\n");
        // If this test was not given a processor in time, there is another card, and frames have
        // passed without one.
        let is_other = nicache.pid("card_pid") != hold.join().unwrap();
        !is_announced_first || is_other
    })
}

#[test]
fn a_server_behind_a_card_that_does_not_pass_its_frames_is_not_announced() {
    private_network();
    let site = Site::with("", "root @ROOT@/site;");
    // The card may be held up too late, because the test does not always get a processor at once;
    // but not each time.
    let mut attempts = 0..;
    let is_announced_after =
        || is_announced_after_the_card_goes_on(&site, attempts.next().unwrap());
    assert!(
        holds_within(2 * EVENTUALLY, is_announced_after),
        "it is announced while no frame passes"
    );
}
