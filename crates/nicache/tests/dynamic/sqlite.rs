//! SQLite: a database that is a file, changed by its own shell and by pages.

use std::process::Stdio;

use crate::check::Cases;
use crate::stage::{Setup, Stage};

fn sqlite(stage: &Stage, name: &str, sql: &str) {
    let output = stage.command("sqlite3").arg(stage.path(&format!("data/{name}"))).arg(sql).output().unwrap();
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

/// The same on another stage.
pub fn changes_of(mut stage: Stage) {
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
        let mut shell = stage.command("sqlite3").arg(stage.path("data/slow")).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = shell.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"BEGIN; UPDATE t SET text = 'new';\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        stage.expect(&url, "old");
        std::io::Write::write_all(&mut input, b"COMMIT;\n.quit\n").unwrap();
        shell.wait().unwrap();
        stage.expect(&url, "new");
    });
    // Writers share memory there, so that such pages may never be kept; they may be right only.
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
