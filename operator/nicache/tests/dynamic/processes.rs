//! Processes of the server that come and go: as the load is, they mean nothing; with new scripts,
//! they void what the others made.

use std::collections::{BTreeMap, HashSet};
use std::process::Command;
use std::time::{Duration, Instant};

use nicache_applications::Client;
use nicache_prove::{EditError, Outcome, Page, Plan, Readers, Subject};

use crate::check::{Cases, PATIENCE, eventually};
use crate::common::{
    self, Nicache, SOON, family, holds_within, is_running, kill, kill_if_there, private_network,
    within,
};
use crate::machine::process;
use crate::rules::{carry_out, outer_pid, way};
use crate::stage::{Setup, Stage};
use rustix::process::Signal;

/// Debian's own way of managing processes, with few requests for each so they change all the
/// time.
const POOL: &str = "pm = dynamic
pm.start_servers = 1
pm.min_spare_servers = 1
pm.max_spare_servers = 2
pm.max_requests = 3";

/// Asks the server itself, `at_once` times at a time; which processes have answered.
fn ask_directly(stage: &Stage, path: &str, at_once: usize) -> HashSet<String> {
    let address = stage.address();
    std::thread::scope(|scope| {
        let ask =
            || Client::new(address).request("GET", path, &[("X-Direct", "1")], b"").unwrap().text();
        let asking: Vec<_> = (0..at_once).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_pool_that_grows_and_shrinks() {
    let options = &["--path=pattern = '/kept*', recheck = '1m'"];
    let mut stage =
        Stage::start(&Setup { pool: POOL, workers: 8, options, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    stage.script("kept.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    stage.script("away.php", "<?php usleep(20000); echo getmypid();");
    stage.write("data/text", "first");
    cases.run("pages stay", || {
        // Those of the start are told from each other by what was started between them.
        for _ in 0..10 {
            ask_directly(&stage, "/away.php", 3);
        }
        stage.warm("/kept.php");
        let (before, mut processes) = (stage.counters(), HashSet::new());
        let hits = |now: &BTreeMap<String, u64>| now["hits_dynamic"] - before["hits_dynamic"];
        // If each process voided the page, hardly one request in ten would be a hit. A busy machine
        // needs more requests than a quiet one.
        for round in 0..120 {
            processes.extend(ask_directly(&stage, "/away.php", 1 + round % 6));
            assert_eq!(stage.get("/kept.php"), "first");
            let now = stage.counters();
            if processes.len() > 20 && hits(&now) >= 16 {
                println!(
                    "  {} hits in {} requests while {} processes came and went",
                    hits(&now),
                    round + 1,
                    processes.len()
                );
                return;
            }
        }
        let now = stage.counters();
        panic!("{} hits, {} processes; {before:#?}, then {now:#?}", hits(&now), processes.len());
    });
    cases.run("a change shows", || {
        for number in 0..5 {
            stage.warm("/kept.php");
            stage.write("data/text", &number.to_string());
            ask_directly(&stage, "/away.php", 4);
            assert_eq!(stage.get("/kept.php"), number.to_string());
        }
    });
    cases.end(&mut stage);
}

/// A pool that has no process until somebody comes, and none again a moment later, as hosts of many
/// small sites have it. The page is kept although the request has waited for what a process does at
/// its start.
#[test]
fn a_pool_that_is_empty_at_rest() {
    const EMPTY: &str = "pm = ondemand\npm.process_idle_timeout = 1s";
    const ONCE: &str = "pm = ondemand\npm.process_idle_timeout = 1s\npm.max_requests = 1";
    // PHP-FPM looks once a second and counts whole seconds: the process has ended after three.
    for (pool, pause) in [(EMPTY, Duration::from_millis(3400)), (ONCE, Duration::from_millis(30))] {
        let options = &["--path=pattern = '/kept*', recheck = '1m'"];
        let mut stage =
            Stage::start(&Setup { pool, workers: 4, options, ..Setup::default() }, |_| {});
        let mut cases = Cases::default();
        let account = "posix_getpwnam('nobody')['name']";
        let read = "file_get_contents('@FOLDER@/data/text')";
        stage.script("kept.php", &format!("<?php echo {account}, ' ', {read};"));
        stage.write("data/text", "first");
        // Was it a hit?
        let visit = |page: &str, text: &str| {
            std::thread::sleep(pause);
            let before = stage.counter("hits_dynamic");
            let said = ask_for_longer(&stage, page);
            let hits = stage.counter("hits_dynamic") - before;
            assert_eq!(said, format!("nobody {text}"), "{hits} from the card: {:?}", stage.told());
            hits > 0
        };
        // A busy machine needs more visits than a quiet one.
        let is_kept = |page: &str, limit: Duration| {
            let begun = Instant::now();
            let mut visits = (1..).take_while(|&number| number <= 12 || begun.elapsed() < limit);
            visits.find(|_| visit(page, "first"))
        };
        cases.run("a page is kept", || {
            let visits = is_kept("/kept.php", PATIENCE);
            println!("  a hit at visit {visits:?}");
            assert!(visits.is_some(), "{:#?}", stage.counters());
        });
        // All paths are looked up again then, those of processes that are gone, too.
        cases.run("it stays when something is mounted elsewhere while no process is there", || {
            let mut round = 0;
            let stays = || {
                // Another page each time: one that has been purged several times is put aside.
                round += 1;
                let page = format!("/kept.php?round={round}");
                is_kept(&page, Duration::ZERO).is_some() && {
                    std::thread::sleep(pause);
                    let mut mounts = Command::new("unshare");
                    mounts.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
                    assert!(mounts.status().unwrap().success());
                    let before = stage.counter("hits_dynamic");
                    assert_eq!(ask_for_longer(&stage, &page), "nobody first");
                    stage.counter("hits_dynamic") > before
                }
            };
            assert!(eventually(stays), "it is looked for in vain: {:?}", stage.told());
        });
        cases.run("a change shows", || {
            for number in 0..3 {
                stage.write("data/text", &number.to_string());
                visit("/kept.php", &number.to_string());
            }
        });
        cases.end(&mut stage);
    }
}

/// What a page shows. PHP-FPM is told of a connection once. If it then believes that its last
/// process, which is about to end, takes it, the connection waits until another one comes, with a
/// card or without. So what the server itself has left unanswered is asked for again.
fn ask_for_longer(stage: &Stage, path: &str) -> String {
    let is_unanswered = |line: &&str| line.contains(path) && line.contains(" 499 ");
    let unanswered = || {
        let log = std::fs::read_to_string(stage.path("log/access.log")).unwrap();
        log.lines().filter(is_unanswered).count()
    };
    let before = unanswered();
    // The client has gone afterwards, which the server's log then says.
    let asked = stage.client().get(path);
    match asked {
        Ok(reply) => reply.text(),
        Err(error) => {
            assert!(
                holds_within(SOON, || unanswered() > before),
                "the server has answered, or was not asked: {error:#}"
            );
            stage.get(path)
        }
    }
}

/// `--recheck` where nobody says another.
const T_AT_FIRST: Duration = Duration::from_secs(1);
/// For executions and the machine's other work.
const LATE: Duration = Duration::from_secs(8);

/// What PHP-FPM had sent until it was killed is not kept, and what a page says because a program
/// that it runs was killed lasts no longer than T.
#[test]
fn executions_that_are_interrupted() {
    let mut stage =
        Stage::start(&Setup { workers: 2, php: &["display_errors=1"], ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    stage.script("first.php", "<?php echo 'text';");
    stage.warm("/first.php");
    let (master, address) = (process(&stage, "php-fpm: master"), stage.address());
    // A reply each time that it was interrupted, until there are six.
    let interrupted =
        |url: &str, processes: &(dyn Fn() -> Vec<u64> + Sync), is_cut: &dyn Fn(&str) -> bool| {
            let cut = (0..60).filter(|_| {
                std::thread::scope(|scope| {
                    // A connection's end without a whole reply is an error.
                    let asked = scope.spawn(|| {
                        Client::new(address)
                            .get(url)
                            .map_or_else(|_| "cut".to_owned(), |reply| reply.text())
                    });
                    // The card may ask once more for itself meanwhile.
                    while !asked.is_finished() {
                        std::thread::sleep(Duration::from_millis(120));
                        processes().into_iter().for_each(|pid| {
                            kill_if_there(pid, Signal::KILL);
                        });
                    }
                    let text = asked.join().unwrap();
                    is_cut(&text)
                })
            });
            assert_eq!(cut.take(6).count(), 6, "interrupted replies of {url}");
        };
    let is_whole = |stage: &Stage, url: &str| {
        let ends = |text: String| text.ends_with(", end").then_some(());
        let whole = || Client::new(address).get(url).ok().and_then(|reply| ends(reply.text()));
        assert!(within(T_AT_FIRST + LATE, whole).is_some(), "{}", stage.get(url));
        assert!(stage.warm(url).ends_with(", end"));
    };
    cases.run("PHP-FPM's process is killed", || {
        stage.script(
            "killed.php",
            "<?php echo str_repeat('x', 9000); flush(); usleep(250000); echo ', end';",
        );
        let processes = || family(master).into_iter().filter(|pid| *pid != master).collect();
        interrupted("/killed.php", &processes, &|text| text == "cut");
        is_whole(&stage, "/killed.php");
    });
    cases.run("a program that the page runs is killed", || {
        stage.script(
            "runs.php",
            "<?php echo shell_exec('echo -n beginning; sleep 0.25; echo -n \", end\"');",
        );
        let is_shell = |pid: &u64| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sh\n")
        };
        let processes = || family(master).into_iter().filter(is_shell).collect();
        interrupted("/runs.php", &processes, &|text| text == "beginning");
        is_whole(&stage, "/runs.php");
    });
    cases.end(&mut stage);
}

/// A server with a pool of processes whose parent looks at nothing: each loads the script by itself
/// when it is born, and keeps it.
const PREFORK: &str = r#"
import email.utils, os, signal, socket, sys, time
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", 80))
listener.listen(256)
children = []
open(sys.argv[2], "w").write(str(os.getpid()))
def child():
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP, signal.SIGTERM))
    text = open(sys.argv[1], "rb").read()
    while True:
        connection, _ = listener.accept()
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            more = connection.recv(4096)
            if not more:
                break
            request += more
        if request:
            date = email.utils.formatdate(usegmt=True).encode()
            head = b"HTTP/1.1 200 OK\r\nDate: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % (date, len(text)) + text)
        connection.close()
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGTERM))
while True:
    old, children = children, []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            child()
        children.append(pid)
    # For a while both answer.
    time.sleep(0.1)
    for pid in old:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    if signal.sigwait((signal.SIGHUP, signal.SIGTERM)) == signal.SIGTERM:
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        break
"#;

/// For a while the old and the new processes answer; then only the new ones.
#[test]
fn others_that_have_loaded_a_new_script() {
    private_network();
    let folder =
        tempfile::Builder::new().prefix("nicache-dynamic-").tempdir_in("/var/lib").unwrap();
    let [program, script, pid] =
        ["server.py", "script", "pid"].map(|name| folder.path().join(name));
    std::fs::write(&program, PREFORK).unwrap();
    std::fs::write(&script, "release=1.").unwrap();
    let words = ["/usr/bin/python3".into(), program, script.clone(), pid.clone()];
    let words = words.map(|word: std::path::PathBuf| word.display().to_string());
    let mut nicache = Nicache::start(&["--recheck", "10s"], &words);
    let address = std::net::SocketAddr::from((nicache.server(), 80));
    assert!(within(Duration::from_secs(10), || Client::new(address).get("/").ok()).is_some());
    let inner = std::fs::read_to_string(pid).unwrap();
    let master = outer_pid(&nicache.processes(), &inner).unwrap();
    let edit = move |version: u64| -> Result<(), EditError> {
        std::fs::write(&script, format!("release={version}."))?;
        // Time enough for pages that are made as before.
        std::thread::sleep(Duration::from_millis(200));
        let old: Vec<u64> =
            common::family(master).into_iter().filter(|pid| *pid != master).collect();
        kill(master, Signal::HUP);
        let all_gone = || (!old.iter().any(|pid| is_running(*pid))).then_some(());
        within(Duration::from_secs(10), all_gone).ok_or("the old processes are there")?;
        Ok(())
    };
    let subject = Subject::new(Box::new(way("release", "reload", edit)));
    let mut plan = Plan::new(address, vec![Page::new("/")], vec![subject]);
    plan.readers = Readers { connections: 2, ..Readers::default() };
    plan.edits_per_second = 1.0;
    plan.burst = 1;
    plan.duration = Some(Duration::from_secs(12));
    let report = carry_out(plan);
    assert_eq!(report.outcome(), Outcome::Proven, "{report}\n{}", nicache.log_text());
    let status = common::status(nicache.name());
    assert!(status["counters"]["hits_dynamic"].as_u64().unwrap() > 100, "{:#}", status["counters"]);
}
