//! Programs in the server's network that do what nobody sees, by io_uring.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::check::Cases;
use crate::common::rings::{Ring, command};
use crate::stage::{Database, Setup, Stage};

/// Starts `ring.py` in the server's network, as an operator does who looks around there.
fn beside(stage: &Stage, words: &[&str]) -> Ring {
    let mut nsenter = Command::new("nsenter");
    nsenter.arg(format!("--net=/proc/{}/ns/net", stage.nicache.pid("server_pid")));
    nsenter.args(command(words));
    Ring::start(nsenter)
}

/// For a while no reply of this page comes from the card.
fn is_not_kept(stage: &Stage, path: &str) {
    assert_eq!(hits_for_a_while(stage, path), 0);
}

fn hits_for_a_while(stage: &Stage, path: &str) -> u64 {
    let (hits, begun) = (stage.counter("hits_dynamic"), Instant::now());
    let mut client = stage.client();
    while begun.elapsed() < Duration::from_secs(2) {
        client.get(path).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    stage.counter("hits_dynamic") - hits
}

#[test]
fn programs_that_use_io_uring() {
    let mut stage =
        Stage::start(&Setup { database: Database::MariaDb, ..Setup::default() }, |folder| {
            std::fs::write(folder.join("data/text"), "first").unwrap();
        });
    let mut cases = Cases::default();
    stage.sql("CREATE TABLE t (text VARCHAR(100)); INSERT INTO t VALUES ('first')");
    stage.script("file.php", "<?php echo file_get_contents('@FOLDER@/data/text');");
    stage.script(
        "row.php",
        "<?php $db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@);
        echo $db->query('SELECT text FROM t')->fetch_row()[0];",
    );
    let text = stage.path("data/text").display().to_string();
    let change = |stage: &Stage, to: &str| {
        stage.change("/file.php", to, || stage.replace("data/text", to));
        stage.change("/row.php", to, || {
            drop(stage.sql(&format!("UPDATE t SET text = '{to}'")));
        });
    };
    cases.run("one that waits", || {
        let _ring = beside(&stage, &["wait"]);
        change(&stage, "waits");
    });
    cases.run("one that is not a part of the server", || {
        let _ring = beside(&stage, &["open", &text]);
        change(&stage, "beside");
    });
    cases.run("one that was there", || {
        for _ in 0..3 {
            drop(beside(&stage, &["once", "open", &text]));
        }
        change(&stage, "was there");
    });
    cases.run("one that is asked", || {
        let socket = stage.path("run/tell").display().to_string();
        let _ring = beside(&stage, &["tell", &socket, &text]);
        stage.script(
            "told.php",
            "<?php $s = stream_socket_client('unix://@FOLDER@/run/tell'); fwrite($s, 'x');
            echo fgets($s);",
        );
        is_not_kept(&stage, "/told.php");
        change(&stage, "asked");
    });
    cases.run("one that a page runs", || {
        let words = command(&["once", "open", &text]);
        let words = shlex::try_join(words.iter().map(String::as_str)).unwrap();
        stage.write("data/run.sh", &words);
        stage.script("runs.php", "<?php echo shell_exec('sh @FOLDER@/data/run.sh');");
        is_not_kept(&stage, "/runs.php");
        change(&stage, "ran");
    });
    cases.run("one that a page has started, and that stays", || {
        let words = command(&["open", &text]);
        let words = shlex::try_join(words.iter().map(String::as_str)).unwrap();
        stage.write("data/start.sh", &format!("{words} >/dev/null 2>&1 & echo $!"));
        stage.script("starts.php", "<?php echo shell_exec('sh @FOLDER@/data/start.sh');");
        let started = stage.get("/starts.php").trim().parse().unwrap();
        // It takes a while to start, and what was asked for before that lives on for as long as it
        // may.
        let refused = || stage.counter("fill_refused_unseen");
        stage.wait_until(|| {
            let before = refused();
            hits_for_a_while(&stage, "/file.php") == 0 && refused() > before
        });
        crate::common::kill(started, rustix::process::Signal::KILL);
        change(&stage, "stayed");
    });
    cases.end(&mut stage);
}
