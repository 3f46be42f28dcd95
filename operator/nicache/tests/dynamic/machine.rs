//! Programs that are stopped, killed and reloaded.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nicache_applications::Client;
use nicache_coherence::{LEASE_NS, LEASE_RENEWAL_NS};
use rustix::process::Signal;

use crate::check::{Cases, eventually};
use crate::common::{kill, within};
use crate::stage::{Database, Setup, Stage};

/// Has PHP-FPM begin anew.
pub(crate) fn reload_php(stage: &Stage) {
    kill(process(stage, "php-fpm: master"), Signal::USR2);
}

/// The first process of the site whose command line begins with `name`.
pub(crate) fn process(stage: &Stage, name: &str) -> u64 {
    find_process(stage, name).unwrap_or_else(|| panic!("no process {name}"))
}

/// As [`process`], if there is one.
pub(crate) fn find_process(stage: &Stage, name: &str) -> Option<u64> {
    let is_it = |pid: &u64| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(name))
    };
    stage.nicache.processes().into_iter().find(is_it)
}

/// What happens under load may happen so much later on a busy machine.
const LONGER: Duration = Duration::from_secs(60);

/// Readers and a writer of one page; every reply must show a version that was current at some time
/// from its request to its end. It goes on until the time is over and all has happened that
/// `meanwhile` does, which says so.
pub(crate) fn under_load(
    stage: &Stage,
    url: &str,
    duration: Duration,
    mut write: impl FnMut(usize),
    mut meanwhile: impl FnMut(Duration) -> bool,
) -> (u64, u64) {
    let began: Mutex<Vec<Instant>> = Mutex::new(vec![Instant::now()]);
    let ended: Mutex<Vec<Instant>> = Mutex::new(vec![Instant::now()]);
    let (replies, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (address, stop) = (stage.address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut client = Client::new(address);
                while !stop.load(Ordering::Relaxed) {
                    // Versions whose writing had ended before the request; a reply may show no
                    // older one.
                    let least = ended.lock().unwrap().len() - 1;
                    let asked = Instant::now();
                    let Some(reply) =
                        client.get(url).ok().filter(|reply| reply.status == 200) else {
                        failed.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                        continue;
                    };
                    let text = reply.text();
                    // What PHP-FPM has its process say that it ends in the middle of a request.
                    if text.is_empty() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let version: usize = text
                        .trim_matches(|c: char| !c.is_ascii_digit())
                        .parse()
                        .unwrap_or_else(|_| panic!("torn: `{text}`"));
                    let most = began.lock().unwrap().len() - 1;
                    if version < least {
                        stop.store(true, Ordering::Relaxed);
                        let since =
                            asked.saturating_duration_since(ended.lock().unwrap()[version + 1]);
                        panic!("{url}: version {version} although {least} was there, {since:?} after its end");
                    }
                    assert!(version <= most, "{url}: version {version} of {most}");
                    replies.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let start = Instant::now();
        let (mut version, mut is_done) = (0, false);
        let goes_on = |is_done: bool| {
            let past = start.elapsed();
            past < duration || !is_done && past < duration + LONGER
        };
        while goes_on(is_done) && !stop.load(Ordering::Relaxed) {
            version += 1;
            began.lock().unwrap().push(Instant::now());
            write(version);
            ended.lock().unwrap().push(Instant::now());
            is_done = meanwhile(start.elapsed());
            std::thread::sleep(Duration::from_millis(40));
        }
        stop.store(true, Ordering::Relaxed);
    });
    (replies.into_inner(), failed.into_inner())
}

const READERS: usize = 16;

/// Replies under load, some of which are the card's. On a busy machine none may be for some
/// seconds, because the page has changed again before two executions agree.
pub(crate) fn hits_under_load(stage: &Stage, path: &str, mut write: impl FnMut(usize)) {
    const ROUNDS: u32 = 8;
    let before = stage.counter("hits_dynamic");
    for _ in 0..ROUNDS {
        let (replies, failed) =
            under_load(stage, path, Duration::from_secs(4), &mut write, |_| true);
        let hits = stage.counter("hits_dynamic") - before;
        println!("  {replies} replies, {hits} hits");
        assert_eq!(failed, 0);
        if hits > 0 {
            return;
        }
        write(0);
    }
    panic!("no hits of {path}");
}

/// A page that shows a version in a file, and one that shows a version in a table.
fn versioned(stage: &Stage) {
    stage.write("data/version", "0");
    stage.script("file.php", "<?php echo 'version ', file_get_contents('@FOLDER@/data/version');");
    stage.sql("CREATE TABLE versions (id INT PRIMARY KEY, version INT); INSERT INTO versions VALUES (1, 0)");
    let script = "<?php mysqli_report(MYSQLI_REPORT_OFF); $db = @new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock');
        $rows = @$db->query('SELECT version FROM versions WHERE id = 1'); if (!$rows) { http_response_code(503); exit; }
        echo 'version ', $rows->fetch_row()[0];";
    stage.script("table.php", script);
}

fn load_stage() -> Stage {
    let stage = Stage::start(&Setup { database: Database::MariaDb, ..Setup::default() }, |_| {});
    versioned(&stage);
    stage
}

#[test]
fn writers_and_readers() {
    let mut stage = load_stage();
    let mut cases = Cases::default();
    cases.run("a file in place, and renamed over", || {
        stage.warm("/file.php");
        let write = |version: usize| {
            // In place, a reader may meet the empty file; so it is never empty here.
            stage.replace("data/version", &version.to_string());
        };
        hits_under_load(&stage, "/file.php", write);
    });
    cases.run("an include", || {
        stage.write("include/version.php", "<?php return 0;");
        stage.script(
            "include.php",
            "<?php echo 'version ', include '@FOLDER@/include/version.php';",
        );
        stage.warm("/include.php");
        let write = |version: usize| {
            stage.replace("include/version.php", &format!("<?php return {version};"));
        };
        hits_under_load(&stage, "/include.php", write);
    });
    for (name, before_it, after_it) in
        [("a table", "", ""), ("a table, in transactions", "BEGIN;", "COMMIT;")]
    {
        cases.run(name, || {
            stage.sql("UPDATE versions SET version = 0");
            stage.warm("/table.php");
            let mut shell = stage.mariadb_shell();
            let write = |version: usize| {
                shell.run(&format!(
                    "{before_it} UPDATE versions SET version = {version} WHERE id = 1;"
                ));
                if !after_it.is_empty() {
                    std::thread::sleep(Duration::from_millis(20));
                    shell.run(after_it);
                }
            };
            hits_under_load(&stage, "/table.php", write);
        });
    }
    cases.end(&mut stage);
}

/// Replies under load whose watcher neither goes on nor ends. `write`: makes another version of
/// the file that `/file.php` shows.
pub(crate) fn watcher_stands_still(stage: &Stage, write: impl Fn(usize)) {
    write(0);
    stage.warm("/file.php");
    let watcher = stage.nicache.pid("watch_pid");
    let (mut state, mut stopped) = (0, Duration::ZERO);
    let (replies, failed) =
        under_load(stage, "/file.php", Duration::from_millis(7500), write, |at| {
            if state == 0 && at > Duration::from_millis(500) {
                kill(watcher, Signal::STOP);
                (state, stopped) = (1, at);
            } else if state == 1 && at > stopped + Duration::from_secs(5) {
                kill(watcher, Signal::CONT);
                state = 2;
            }
            state == 2
        });
    if state == 1 {
        kill(watcher, Signal::CONT);
    }
    println!("  {replies} replies");
    assert!(failed == 0 && replies > 100);
    stage.warm("/file.php");
}

/// Replies under load while the server's own processes ask for files as quickly as they can.
/// `write`: as of [`watcher_stands_still`].
pub(crate) fn more_events_than_fit(stage: &Stage, write: impl Fn(usize)) {
    write(0);
    stage.warm("/file.php");
    let address = stage.address();
    stage.script("flood.php", "<?php $end = microtime(true) + 3; while (microtime(true) < $end) { clearstatcache(); @stat('/nowhere/' . rand()); } echo 'done';");
    let flood = std::thread::spawn(move || {
        Client::new(address).get("/flood.php").map(|reply| reply.text())
    });
    let (replies, failed) =
        under_load(stage, "/file.php", Duration::from_secs(4), &write, |_| true);
    assert_eq!(flood.join().unwrap().unwrap(), "done");
    println!("  {replies} replies");
    assert_eq!(failed, 0);
    write(0);
    stage.warm("/file.php");
}

#[test]
fn what_happens_to_programs() {
    let mut stage = load_stage();
    let mut cases = Cases::default();
    let write_file = &|version: usize| stage.replace("data/version", &version.to_string());
    cases.run("the watcher stands still for 5 s", || watcher_stands_still(&stage, write_file));
    cases.run("more events than the ring holds", || more_events_than_fit(&stage, write_file));
    cases.run("PHP and nginx begin anew", || {
        write_file(0);
        stage.warm("/file.php");
        let mut done = 0;
        let (replies, failed) =
            under_load(&stage, "/file.php", Duration::from_secs(5), write_file, |at| {
                if done < 2 && at > Duration::from_millis(1000 + 1500 * done) {
                    done += 1;
                    if done == 1 {
                        reload_php(&stage);
                    } else {
                        kill(process(&stage, "nginx: master"), Signal::HUP);
                    }
                }
                done == 2
            });
        println!("  {replies} replies, {failed} failed");
        assert!(replies > failed && done == 2);
        stage.warm("/file.php");
    });
    cases.end(&mut stage);
}

/// Runs something while the ring is full and nobody reads it. Was it done before the watcher's
/// lease ended? If not, nothing was served any longer, and what comes of it shows little.
fn in_a_full_ring(stage: &Stage, what: impl FnOnce()) -> bool {
    stage.script(
        "fill.php",
        "<?php for ($n = 0; $n < 80000; $n++) @stat('/nowhere/' . $n); echo 'full';",
    );
    assert_eq!(stage.get("/fill.php"), "full");
    let watcher = stage.nicache.pid("watch_pid");
    let begun = Instant::now();
    kill(watcher, Signal::STOP);
    let filled = stage.client().get("/fill.php").map(|reply| reply.text());
    what();
    let took = begun.elapsed();
    kill(watcher, Signal::CONT);
    assert_eq!(filled.unwrap(), "full");
    println!("  {took:?} without the watcher");
    // It may have been about to renew the lease.
    took < Duration::from_nanos(LEASE_NS - LEASE_RENEWAL_NS)
}

#[test]
fn what_finds_no_room_in_the_ring() {
    let mut stage = load_stage();
    let mut cases = Cases::default();
    cases.run("a change", || {
        let mut shell = stage.mariadb_shell();
        let is_in_time = || {
            shell.run("UPDATE versions SET version = 0 WHERE id = 1;");
            shell.run("SELECT 1;");
            assert_eq!(stage.warm("/table.php"), "version 0");
            let is_in_time = in_a_full_ring(&stage, || {
                drop(shell.run("UPDATE versions SET version = 1 WHERE id = 1;"));
            });
            stage.expect("/table.php", "version 1");
            is_in_time
        };
        assert!(eventually(is_in_time), "the lease has ended each time: this shows nothing");
    });
    cases.run("a change in a transaction that ends later", || {
        let mut shell = stage.mariadb_shell();
        shell.run("BEGIN;");
        stage.warm("/table.php");
        in_a_full_ring(&stage, || drop(shell.run("UPDATE versions SET version = 2 WHERE id = 1;")));
        stage.warm("/table.php");
        stage.expect("/table.php", "version 1");
        shell.run("COMMIT;");
        stage.expect("/table.php", "version 2");
    });
    cases.run("a transaction that begins", || {
        let mut shell = stage.mariadb_shell();
        shell.run("SELECT 1;");
        in_a_full_ring(&stage, || drop(shell.run("BEGIN;")));
        shell.run("UPDATE versions SET version = 3 WHERE id = 1;");
        stage.warm("/table.php");
        stage.expect("/table.php", "version 2");
        shell.run("COMMIT;");
        stage.expect("/table.php", "version 3");
    });
    cases.run("another database is chosen", || {
        let mut shell = stage.mariadb_shell();
        shell.run("CREATE DATABASE other; CREATE TABLE other.versions (id INT PRIMARY KEY, version INT); USE other;");
        shell.run("UPDATE versions SET version = 9 WHERE id = 1;");
        in_a_full_ring(&stage, || drop(shell.run("USE site;")));
        stage.warm("/table.php");
        shell.run("UPDATE versions SET version = 4 WHERE id = 1;");
        stage.expect("/table.php", "version 4");
    });
    cases.run("a client that comes", || {
        stage.warm("/table.php");
        let mut shell = None;
        in_a_full_ring(&stage, || shell = Some(stage.mariadb_shell()));
        let mut shell = shell.unwrap();
        for version in [5, 6] {
            stage.change("/table.php", &format!("version {version}"), || {
                shell.run(&format!("UPDATE versions SET version = {version} WHERE id = 1;"));
            });
        }
    });
    cases.run("a function that writes", || {
        let mut shell = stage.mariadb_shell();
        shell.run("SELECT 1;");
        stage.warm("/table.php");
        in_a_full_ring(&stage, || {
            shell.run("DELIMITER //\nCREATE FUNCTION writes() RETURNS INT BEGIN UPDATE site.versions SET version = 7; RETURN 1; END//\nDELIMITER ;");
        });
        stage.try_warm("/table.php", Duration::from_secs(2));
        shell.run("SELECT writes();");
        stage.expect("/table.php", "version 7");
        shell.run("DROP FUNCTION writes;");
    });
    cases.run("a function that is made and called at once", || {
        let mut shell = stage.mariadb_shell();
        shell.run("SELECT 1;");
        stage.warm("/table.php");
        shell.run("DELIMITER //\nCREATE FUNCTION again() RETURNS INT BEGIN UPDATE site.versions SET version = 8; RETURN 1; END//\nDELIMITER ;\nSELECT again();");
        stage.expect("/table.php", "version 8");
        shell.run("DROP FUNCTION again;");
    });
    cases.run("a script that PHP has compiled", || {
        stage.write("include/compiled.php", "<?php return 'old';");
        stage.script("compiled.php", "<?php echo include '@FOLDER@/include/compiled.php';");
        in_a_full_ring(&stage, || assert_eq!(stage.get("/compiled.php"), "old"));
        stage.change("/compiled.php", "new", || {
            stage.replace("include/compiled.php", "<?php return 'new';");
        });
    });
    cases.end(&mut stage);
}

/// For a database that was killed to begin anew.
const RECOVERY: Duration = Duration::from_secs(90);

#[test]
fn a_database_that_dies() {
    // It is not a program of the run, whose end would end everything, but of the server: a shell
    // that starts it again and again.
    let mut stage = Stage::start(
        &Setup { database: Database::MariaDb, respawn: true, ..Setup::default() },
        |_| {},
    );
    versioned(&stage);
    let mut cases = Cases::default();
    cases.run("killed under load", || {
        stage.warm("/table.php");
        let write = |version: usize| {
            // It may be away; then the writer goes on trying.
            let sql = format!("UPDATE versions SET version = {version} WHERE id = 1");
            let written = within(RECOVERY, || stage.try_sql(&sql).ok());
            assert!(written.is_some());
        };
        let mut killed = false;
        let (replies, failed) =
            under_load(&stage, "/table.php", Duration::from_secs(8), write, |at| {
                if !killed && at > Duration::from_secs(2) {
                    killed = true;
                    kill(running(&stage, "mariadbd"), Signal::KILL);
                }
                killed
            });
        println!("  {replies} replies, {failed} failed");
        assert!(killed && replies > 100);
        stage.warm("/table.php");
        stage.change("/table.php", "version 77", || {
            drop(stage.sql("UPDATE versions SET version = 77"));
        });
    });
    cases.run("a table in memory is empty after that", || {
        stage.sql("CREATE TABLE memory (id INT) ENGINE=MEMORY; INSERT INTO memory VALUES (1)");
        let script = "<?php mysqli_report(MYSQLI_REPORT_OFF); $db = @new mysqli(null, 'site', 'site', 'site', 0, '@FOLDER@/run/mariadb.sock');
            $rows = @$db->query('SELECT COUNT(*) FROM memory'); if (!$rows) { http_response_code(503); exit; } echo 'rows ', $rows->fetch_row()[0];";
        stage.script("memory.php", script);
        assert_eq!(stage.warm("/memory.php"), "rows 1");
        kill(running(&stage, "mariadbd"), Signal::KILL);
        std::thread::sleep(Duration::from_millis(100));
        assert!(within(RECOVERY, || stage.try_sql("SELECT 1").ok()).is_some());
        stage.expect("/memory.php", "rows 0");
    });
    cases.end(&mut stage);
}

/// Whoever vouches for freshness is gone: nothing is served any more, and nothing stale until then.
#[test]
fn the_watcher_is_killed() {
    the_watcher_is_killed_of(load_stage());
}

/// Nothing is served from the card once its watcher is killed, and nothing stale until then, on any
/// stage with load.
pub(crate) fn the_watcher_is_killed_of(stage: Stage) {
    stage.warm("/file.php");
    let watcher = stage.nicache.pid("watch_pid");
    let mut killed = None;
    let write = |version: usize| stage.replace("data/version", &version.to_string());
    let (replies, failed) = under_load(&stage, "/file.php", Duration::from_secs(3), write, |at| {
        if killed.is_none() && at > Duration::from_secs(1) {
            killed = Some(at);
            kill(watcher, Signal::KILL);
        }
        killed.is_some_and(|killed| at > killed + Duration::from_secs(1))
    });
    println!("  {replies} replies, {failed} failed");
    assert!(killed.is_some() && replies > 50);
}

/// The process of the site that runs this program.
fn running(stage: &Stage, program: &str) -> u64 {
    let is_it = |pid: &&u64| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim() == program)
    };
    *stage.nicache.processes().iter().find(is_it).unwrap_or_else(|| panic!("no process {program}"))
}
