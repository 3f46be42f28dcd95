//! MariaDB on another machine.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::check::Cases;
use crate::common::{EVENTUALLY, SOON, kill, within};
use crate::far::{FAR, Far, Kind};
use crate::load::{Seen, under_load};
use crate::pair::Pair;
use crate::stage::Watch;

fn start() -> Pair {
    prepare(Pair::start(Kind::MariaDb))
}

/// A page that waits for its database.
pub(crate) const PATIENT: &str = "/table.php";
/// The same page, for when the way to its database is cut: it gives up soon.
pub(crate) const HASTY: &str = "/hasty.php";

/// Makes tables and pages.
pub(crate) fn prepare(pair: Pair) -> Pair {
    pair.far.sql("CREATE TABLE versions (id INT PRIMARY KEY, version INT); INSERT INTO versions VALUES (1, 0)");
    pair.far.sql(
        "CREATE TABLE others (id INT PRIMARY KEY, version INT); INSERT INTO others VALUES (1, 0)",
    );
    let script =
        "<?php mysqli_report(MYSQLI_REPORT_OFF); $db = mysqli_init(); $db->options(MYSQLI_OPT_CONNECT_TIMEOUT, @CONNECT@);
        $db->options(MYSQLI_OPT_READ_TIMEOUT, @READ@);
        if (!@$db->real_connect('@FAR@', 'site', 'site', 'site')) { http_response_code(503); exit; }
        $rows = @$db->query('SELECT version FROM versions WHERE id = 1'); if (!$rows) { http_response_code(503); exit; }
        echo 'version ', $rows->fetch_row()[0];";
    for (page, connect, read) in [(PATIENT, "30", "30"), (HASTY, "2", "4")] {
        let script = script.replace("@FAR@", FAR);
        let script = script.replace("@CONNECT@", connect).replace("@READ@", read);
        pair.stage.script(page.trim_start_matches('/'), &script);
    }
    pair.stage.script("plain.php", "<?php echo 'version 0';");
    pair
}

pub(crate) fn update(far: &Far, version: usize) -> bool {
    far.try_sql(&format!("UPDATE versions SET version = {version} WHERE id = 1")).is_ok()
}

/// Runs the load of a page; what is to happen happens at its times. Afterwards everything is as
/// before.
pub(crate) fn with(
    pair: &Pair,
    page: &str,
    duration: Duration,
    mut steps: Vec<(f64, &mut dyn FnMut())>,
) -> Seen {
    pair.far.sql("UPDATE versions SET version = 0");
    pair.stage.warm(page);
    let before = pair.stage.counter("hits_dynamic");
    let far = &pair.far;
    let seen = under_load(
        pair.stage.address(),
        page,
        duration,
        |version| update(far, version),
        |at| {
            if steps.first().is_some_and(|(when, _)| at.as_secs_f64() >= *when) {
                (steps.remove(0).1)();
            }
        },
    );
    println!("  {seen:?}, {} hits", pair.stage.counter("hits_dynamic") - before);
    for (_, step) in &mut steps {
        step();
    }
    seen
}

#[test]
fn a_database_on_another_machine() {
    changes(start());
}

#[test]
fn watched_by_the_preloaded_library() {
    changes(prepare(Pair::start_with(Kind::MariaDb, false, Watch::Preload)));
}

fn changes(pair: Pair) {
    let mut cases = Cases::default();
    cases.run("an update shows in the next reply", || {
        for version in [5, 6, 7] {
            let text = format!("version {version}");
            pair.stage.change(PATIENT, &text, || assert!(update(&pair.far, version)));
        }
    });
    cases.run("the status tells of it", || {
        let status = crate::common::status(pair.stage.nicache.name());
        let database = &status["databases"][0];
        assert!(
            database["in_step"] == true && database["changes"].as_u64() >= Some(3),
            "{database}"
        );
        assert_eq!(database["database"], format!("{FAR}:3306"));
    });
    cases.run("another table does not matter", || {
        // Another test may purge the page at the same moment.
        let is_reinstated = (0..5).any(|_| {
            pair.stage.warm(PATIENT);
            let before = pair.stage.counter("reinstated");
            pair.far.sql("UPDATE others SET version = version + 1");
            assert_eq!(pair.stage.get(PATIENT), "version 7");
            pair.stage.counter("reinstated") > before
        });
        assert!(is_reinstated);
    });
    cases.run("from the other machine itself", || {
        let mut command = pair.far.inside(&[
            "mariadb",
            "--no-defaults",
            "--skip-ssl",
            "--user=site",
            "--password=site",
        ]);
        command.args(["--host", FAR, "site", "--execute", "UPDATE versions SET version = 8"]);
        pair.stage.change(PATIENT, "version 8", || assert!(command.status().unwrap().success()));
    });
    cases.run("a change of the structure that takes long, and then one through a trigger", || {
        pair.far.sql("CREATE TABLE causes (id INT); INSERT INTO causes VALUES (0)");
        let mut holder = pair.far.shell();
        holder.run("BEGIN; SELECT * FROM causes;");
        let mut shell = pair.far.shell();
        shell.send("CREATE TRIGGER effect AFTER INSERT ON causes FOR EACH ROW UPDATE versions SET version = NEW.id;");
        std::thread::sleep(Duration::from_secs(1));
        holder.run("COMMIT;");
        shell.run("");
        pair.stage.change(PATIENT, "version 31", || drop(pair.far.sql("INSERT INTO causes VALUES (31)")));
    });
    cases.run("in a transaction, on a connection that stays", || {
        let mut shell = pair.far.shell();
        shell.run("BEGIN; UPDATE versions SET version = 40;");
        assert_eq!(pair.stage.warm(PATIENT), "version 31");
        pair.stage.change(PATIENT, "version 41", || {
            drop(shell.run("UPDATE versions SET version = 41; COMMIT;"));
        });
        pair.stage.warm(PATIENT);
    });
    cases.run("a question that changes something", || {
        let mut shell = pair.far.shell();
        shell.run("DELIMITER //
            CREATE FUNCTION bump() RETURNS INT MODIFIES SQL DATA BEGIN UPDATE versions SET version = version + 1; RETURN 1; END//
            DELIMITER ;");
        pair.stage.change(PATIENT, "version 42", || drop(shell.run("SELECT bump();")));
        pair.stage.change(PATIENT, "version 43", || drop(shell.run("SELECT bump();")));
        shell.run("DROP FUNCTION bump;");
    });
    cases.run("readers and a writer", || {
        let seen = with(&pair, PATIENT, Duration::from_secs(6), Vec::new());
        assert!(seen.failed == 0 && seen.replies > 200 && seen.changes > 20, "{seen:?}");
    });
    let mut stage = pair.stage;
    cases.end(&mut stage);
}

#[test]
fn the_way_between() {
    let pair = start();
    let mut cases = Cases::default();
    cases.run("slow", || {
        let seen = with(
            &pair,
            PATIENT,
            Duration::from_secs(10),
            vec![
                (0.5, &mut || pair.slow.set(30)),
                (3.0, &mut || pair.slow.set(700)),
                (8.0, &mut || pair.slow.set(0)),
            ],
        );
        assert!(seen.replies > 100 && seen.changes > 10, "{seen:?}");
        pair.stage.warm(PATIENT);
    });
    cases.run("nothing is heard of the relay", || {
        let seen = with(
            &pair,
            HASTY,
            Duration::from_secs(12),
            vec![
                (1.0, &mut || pair.far.cut_events(true)),
                (7.0, &mut || pair.far.cut_events(false)),
            ],
        );
        assert!(seen.replies > 100 && seen.changes > 20, "{seen:?}");
        pair.stage.warm(HASTY);
    });
    cases.run("the cable is cut", || {
        let seen = with(
            &pair,
            HASTY,
            Duration::from_secs(14),
            vec![(1.0, &mut || pair.far.cable(false)), (6.0, &mut || pair.far.cable(true))],
        );
        assert!(seen.replies > 50 && seen.changes > 5, "{seen:?}");
        pair.stage.warm(HASTY);
    });
    cases.run("other pages go on", || {
        pair.stage.warm("/plain.php");
        pair.far.cut_events(true);
        let is_behind = within(SOON, || {
            let status = crate::common::status(pair.stage.nicache.name());
            (status["databases"][0]["in_step"] == false).then_some(())
        });
        let kept = pair.stage.try_warm("/plain.php", SOON);
        pair.far.cut_events(false);
        assert!(is_behind.is_some() && kept.is_some());
    });
    let mut stage = pair.stage;
    drop(pair.far);
    cases.end(&mut stage);
}

#[test]
fn the_programs() {
    let mut pair = start();
    let mut cases = Cases::default();
    cases.run("the watcher stands still", || {
        let watcher = pair.stage.nicache.pid("watch_pid");
        let seen = with(
            &pair,
            PATIENT,
            Duration::from_secs(12),
            vec![
                (1.0, &mut || kill(watcher, Signal::STOP)),
                (7.0, &mut || kill(watcher, Signal::CONT)),
            ],
        );
        assert!(seen.replies > 100 && seen.changes > 20, "{seen:?}");
        pair.stage.warm(PATIENT);
    });
    cases.run("the relay stands still", || {
        let relay = pair.far.relay();
        let seen = with(
            &pair,
            HASTY,
            Duration::from_secs(12),
            vec![
                (1.0, &mut || kill(relay, Signal::STOP)),
                (6.0, &mut || kill(relay, Signal::CONT)),
            ],
        );
        assert!(seen.replies > 50 && seen.changes > 5, "{seen:?}");
        pair.stage.warm(HASTY);
    });
    cases.run("the relay is killed, and comes back", || {
        pair.far.sql("UPDATE versions SET version = 0");
        pair.stage.warm(HASTY);
        let mut state = 0;
        let begun = Instant::now();
        // The writer does not use the relay while it is away, because nobody could.
        let far = std::sync::Mutex::new(&mut pair.far);
        let write = |version: usize| {
            let sql = format!("UPDATE versions SET version = {version} WHERE id = 1");
            far.lock().unwrap().try_sql(&sql).is_ok()
        };
        let seen = under_load(pair.stage.address(), HASTY, Duration::from_secs(12), write, |at| {
            if state == 0 && at > Duration::from_secs(1) {
                far.lock().unwrap().kill_relay();
                state = 1;
            } else if state == 1 && at > Duration::from_secs(4) {
                far.lock().unwrap().start_relay();
                state = 2;
            }
        });
        println!("  {seen:?}, {:?}", begun.elapsed());
        assert!(state == 2 && seen.replies > 50 && seen.changes > 20, "{seen:?}");
        pair.stage.warm(HASTY);
    });
    cases.run("what a killed relay had handed on", || {
        // On a busy machine the relay is there again only when the first one is done.
        let is_seen = |seconds| is_late_statement_seen(&mut pair, seconds);
        assert!([9, 45].into_iter().any(is_seen), "it was done before the relay was there again");
        pair.stage.warm(PATIENT);
    });
    let mut stage = pair.stage;
    drop(pair.far);
    cases.end(&mut stage);
}

/// A relay hands on a statement that takes so many seconds, is killed, and comes back: the page
/// shows what the statement has done. `false`: that was done before the relay came back.
fn is_late_statement_seen(pair: &mut Pair, seconds: u64) -> bool {
    pair.far.sql("UPDATE versions SET version = 0");
    let sleep = format!("SLEEP({seconds})");
    let late = format!("UPDATE versions SET version = 99 WHERE id = 1 AND {sleep} = 0");
    pair.far.try_sql_in_background(&late);
    let begun = within(SOON, || {
        let all = "SELECT INFO FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'";
        pair.far.direct(all).ok()?.contains(&sleep).then_some(())
    });
    assert!(begun.is_some(), "it is not there");
    pair.far.kill_relay();
    pair.far.start_relay();
    let there = || pair.far.direct("SELECT version FROM site.versions").unwrap().contains("99");
    let deadline = Instant::now() + Duration::from_secs(seconds) + EVENTUALLY;
    let mut asked = 0;
    while !there() {
        assert!(Instant::now() < deadline, "it is never done");
        // May be kept, if anything is wrong.
        let _ = pair.stage.client().get(PATIENT);
        asked += 1;
    }
    assert_eq!(pair.stage.get(PATIENT), "version 99");
    asked > 0
}
