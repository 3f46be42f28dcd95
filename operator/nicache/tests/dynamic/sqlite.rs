//! SQLite: a database that is a file, changed by its own shell and by pages.

use std::process::Stdio;

use crate::check::Cases;
use crate::stage::{Setup, Stage};

fn sqlite(stage: &Stage, name: &str, sql: &str) {
    let output = stage
        .command("sqlite3")
        .arg(stage.path(&format!("data/{name}")))
        .arg(sql)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn create(stage: &Stage, name: &str, mode: &str) {
    sqlite(
        stage,
        name,
        &format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE t (id INTEGER PRIMARY KEY, text); INSERT INTO t VALUES (1, 'old')"
        ),
    );
    stage.shell(&format!("chmod 666 {}", stage.path(&format!("data/{name}")).display()));
}

fn page(stage: &Stage, name: &str, flags: &str) -> String {
    let text = "<?php $db = new SQLite3('@FOLDER@/data/@NAME@', @FLAGS@); $db->busyTimeout(2000);
        echo $db->querySingle('SELECT text FROM t WHERE id = 1');";
    stage.script(&format!("{name}.php"), &text.replace("@NAME@", name).replace("@FLAGS@", flags));
    format!("/{name}.php")
}

#[test]
fn changes() {
    changes_of(Stage::start(&Setup::default(), |_| {}));
}

/// On ext4 such a page may be kept.
#[test]
fn opened_to_write() {
    let mut stage = Stage::start(&Setup::default(), |_| {});
    let mut cases = Cases::default();
    // As programs open a database that they only read: to write to it, too.
    for mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        cases.run(&format!("{mode}, opened to read and write"), || {
            let name = format!("{mode}_both");
            create(&stage, &name, mode);
            let url = page(&stage, &name, "SQLITE3_OPEN_READWRITE | SQLITE3_OPEN_CREATE");
            stage.change(&url, "new", || sqlite(&stage, &name, "UPDATE t SET text = 'new'"));
        });
    }
    cases.run("PDO", || {
        create(&stage, "pdo", "DELETE");
        let text =
            "<?php $db = new PDO('sqlite:@FOLDER@/data/pdo'); echo $db->query('SELECT text FROM t')->fetchColumn();";
        stage.script("pdo.php", text);
        stage.change("/pdo.php", "new", || sqlite(&stage, "pdo", "UPDATE t SET text = 'new'"));
    });
    cases.run("opened to read and write, and held open by somebody else", || {
        create(&stage, "held", "DELETE");
        let url = page(&stage, "held", "SQLITE3_OPEN_READWRITE");
        let mut shell = stage.command("sqlite3");
        let mut shell = shell
            .arg(stage.path("data/held"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let mut output = std::io::BufReader::new(output);
        let mut run = |sql: &str| {
            use std::io::{BufRead, Write};
            writeln!(input, "{sql}; SELECT 'done';").unwrap();
            let mut line = String::new();
            while line.trim() != "done" {
                line.clear();
                assert!(output.read_line(&mut line).unwrap() > 0);
            }
        };
        run("UPDATE t SET text = 'first'");
        for round in 0..4 {
            stage.change(&url, &format!("v{round}"), || {
                run(&format!("UPDATE t SET text = 'v{round}'"));
            });
        }
        // From here on it may store to a mapping of it.
        run("PRAGMA mmap_size = 1048576");
        for round in 4..8 {
            stage.try_warm(&url, std::time::Duration::from_millis(500));
            run(&format!("UPDATE t SET text = 'v{round}'"));
            stage.expect(&url, &format!("v{round}"));
        }
        drop(input);
        shell.wait().unwrap();
    });
    cases.run("pages that write to it", || {
        create(&stage, "counted", "DELETE");
        stage.script(
            "count.php",
            "<?php $db = new SQLite3('@FOLDER@/data/counted'); $db->busyTimeout(2000); $db->exec('UPDATE t SET text = text + 1');",
        );
        let url = page(&stage, "counted", "SQLITE3_OPEN_READWRITE");
        sqlite(&stage, "counted", "UPDATE t SET text = 1000");
        for number in 1001..1004 {
            stage.change(&url, &number.to_string(), || drop(stage.direct("/count.php")));
        }
    });
    cases.end(&mut stage);
}

/// Pages of rows show each change of a SQLite database at once, on any stage.
pub(crate) fn changes_of(mut stage: Stage) {
    let mut cases = Cases::default();
    for mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        cases.run(mode, || {
            create(&stage, mode, mode);
            let url = page(&stage, mode, "SQLITE3_OPEN_READONLY");
            stage.change(&url, "new", || sqlite(&stage, mode, "UPDATE t SET text = 'new'"));
        });
    }
    cases.run("a transaction that takes a second", || {
        create(&stage, "slow", "DELETE");
        let url = page(&stage, "slow", "SQLITE3_OPEN_READONLY");
        stage.warm(&url);
        let mut shell = stage
            .command("sqlite3")
            .arg(stage.path("data/slow"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"BEGIN; UPDATE t SET text = 'new';\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        stage.expect(&url, "old");
        std::io::Write::write_all(&mut input, b"COMMIT;\n.quit\n").unwrap();
        shell.wait().unwrap();
        stage.expect(&url, "new");
    });
    // Writers share memory there, so such pages may never be kept; they may be right only.
    for flags in ["SQLITE3_OPEN_READONLY", "SQLITE3_OPEN_READWRITE"] {
        cases.run(&format!("write-ahead log, {flags}"), || {
            let name = format!("wal_{flags}");
            create(&stage, &name, "WAL");
            let url = page(&stage, &name, flags);
            let mut shell = stage
                .command("sqlite3")
                .arg(stage.path(&format!("data/{name}")))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
            let mut output = std::io::BufReader::new(output);
            stage.try_warm(&url, std::time::Duration::from_secs(1));
            for round in 0..4 {
                use std::io::{BufRead, Write};
                writeln!(input, "UPDATE t SET text = 'v{round}'; SELECT 'done';").unwrap();
                let mut line = String::new();
                output.read_line(&mut line).unwrap();
                stage.expect(&url, &format!("v{round}"));
            }
            drop(input);
            shell.wait().unwrap();
        });
    }
    cases.end(&mut stage);
}
