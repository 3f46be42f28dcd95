//! PostgreSQL: changes of all kinds.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::Signal;

use crate::check::Cases;
use crate::common::kill;
use crate::databases::silent_client;
use crate::rules::outer_pid;
use crate::stage::{Database, Setup, Stage};

fn stage() -> Stage {
    Stage::start(&Setup { database: Database::Postgres, ..Setup::default() }, |_| {})
}

fn page(stage: &Stage, name: &str, query: &str) -> String {
    let text = "<?php $db = pg_connect('host=@PG@ dbname=site user=postgres');
        foreach (pg_fetch_all(pg_query($db, \"@QUERY@\")) as $row) echo implode(' ', $row), '. ';";
    stage.script(&format!("{name}.php"), &text.replace("@QUERY@", query));
    format!("/{name}.php")
}

fn table(stage: &Stage, name: &str) -> String {
    stage.psql(&format!(
        "CREATE TABLE {name} (id INT PRIMARY KEY, text TEXT); INSERT INTO {name} VALUES (1, 'old'), (2, 'other')"
    ));
    page(stage, name, &format!("SELECT text FROM {name} WHERE id = 1"))
}

/// Neither what is asked nor the end of the process that answered makes a page suspect.
#[test]
fn questions_make_nothing_suspect() {
    let stage = stage();
    let url = table(&stage, "asked");
    // A column that has a sequence changes nothing about that.
    stage.psql("CREATE TABLE numbered (id SERIAL PRIMARY KEY)");
    stage.expect_quiet(&url, || drop(stage.psql("SELECT text FROM asked")));
    stage.psql("CREATE SEQUENCE counted");
    let url = page(&stage, "counted", "SELECT last_value FROM counted");
    stage.change(&url, "5000", || drop(stage.psql("SELECT SetVal('counted', 5000)")));
}

#[test]
fn changes() {
    changes_of(stage());
}

/// Pages of rows show each change of the rows at once, on any stage with PostgreSQL.
pub(crate) fn changes_of(mut stage: Stage) {
    let mut cases = Cases::default();
    cases.run("psql", || {
        let url = table(&stage, "plain");
        stage.change(&url, "new", || drop(stage.psql("UPDATE plain SET text = 'new' WHERE id = 1")));
        let upsert = "INSERT INTO plain VALUES (1) ON CONFLICT (id) DO UPDATE SET text = 'newest'";
        stage.change(&url, "newest", || drop(stage.psql(upsert)));
        let with = "WITH a AS (UPDATE plain SET text = 'by-with' WHERE id = 1 RETURNING 1) SELECT * FROM a";
        stage.change(&url, "by-with", || drop(stage.psql(with)));
    });
    cases.run("transactions", || {
        let url = table(&stage, "slow");
        stage.warm(&url);
        let mut shell = stage.psql_shell();
        shell.run("BEGIN; UPDATE slow SET text = 'new' WHERE id = 1;");
        stage.expect(&url, "old");
        shell.run("COMMIT;");
        stage.expect(&url, "new");
        shell.run("BEGIN; UPDATE slow SET text = 'wrong' WHERE id = 1;");
        shell.run("ROLLBACK;");
        stage.expect(&url, "new");
        shell.run("BEGIN; UPDATE slow SET text = 'newer' WHERE id = 1; SAVEPOINT a; UPDATE slow SET text = 'wrong'; ROLLBACK TO a;");
        stage.expect(&url, "new");
        shell.run("END;");
        stage.expect(&url, "newer");
        shell.run("BEGIN; UPDATE slow SET text = 'prepared' WHERE id = 1;");
        drop(shell);
        stage.expect(&url, "newer");
    });
    cases.run("a client that changes something and falls silent", || {
        silent_client(&stage, &table(&stage, "silent"), stage.psql_shell());
    });
    cases.run("COPY", || {
        let count = page(&stage, "copied", "SELECT COUNT(*) FROM copied");
        stage.psql("CREATE TABLE copied (id INT)");
        let mut shell = stage.psql_shell();
        stage.change(&count, "2.", || drop(shell.run("COPY copied FROM STDIN;\n1\n2\n\\.")));
        stage.write("data/rows", "3\n");
        let sql = format!("COPY copied FROM '{}'", stage.path("data/rows").display());
        stage.change(&count, "3.", || drop(stage.psql(&sql)));
    });
    cases.run("structure, views, triggers", || {
        let url = table(&stage, "base");
        stage.psql("CREATE MATERIALIZED VIEW kept AS SELECT text FROM base WHERE id = 1");
        stage.psql("CREATE VIEW seen AS SELECT text FROM base WHERE id = 1");
        let (kept, seen) = (page(&stage, "kept", "SELECT text FROM kept"),
            page(&stage, "seen", "SELECT text FROM seen"));
        stage.change(&seen, "new", || drop(stage.psql("UPDATE base SET text = 'new' WHERE id = 1")));
        stage.change(&kept, "new", || drop(stage.psql("REFRESH MATERIALIZED VIEW kept")));
        stage.psql("CREATE TABLE source (text TEXT)");
        stage.psql("CREATE FUNCTION copies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE base SET text = NEW.text WHERE id = 1; RETURN NEW; END $$");
        stage.psql("CREATE TRIGGER t AFTER INSERT ON source FOR EACH ROW EXECUTE FUNCTION copies()");
        stage.change(&url, "by-trigger", || drop(stage.psql("INSERT INTO source VALUES ('by-trigger')")));
        stage.change(&url, "by-do", || drop(stage.psql("DO $$ BEGIN EXECUTE 'UPDATE ba' || 'se SET text = ''by-do'' WHERE id = 1'; END $$")));
        stage.change(&seen, "third", || drop(stage.psql("CREATE OR REPLACE VIEW seen AS SELECT 'third'::text AS text")));
        let count = page(&stage, "count", "SELECT 'rows ' || COUNT(*) FROM base");
        stage.change(&count, "rows 0", || drop(stage.psql("TRUNCATE base")));
    });
    cases.run("the structure changes while a statement waits", || {
        let url = table(&stage, "filled");
        stage.psql("CREATE TABLE queue (id INT)");
        stage.psql("CREATE FUNCTION fills() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); UPDATE filled SET text = 'by a trigger' WHERE id = 1; RETURN NEW; END $$");
        stage.warm(&url);
        let (mut holder, mut waiter) = (stage.psql_shell(), stage.psql_shell());
        holder.run("BEGIN; LOCK TABLE queue IN ACCESS EXCLUSIVE MODE;");
        waiter.send("INSERT INTO queue VALUES (1);");
        let waiting = "SELECT 'waiting ' || COUNT(*) FROM pg_locks WHERE NOT granted";
        stage.wait_until(|| stage.psql(waiting).contains("waiting 1"));
        holder.run("CREATE TRIGGER t AFTER INSERT ON queue FOR EACH ROW EXECUTE FUNCTION fills();");
        holder.run("COMMIT;");
        stage.try_warm(&url, Duration::from_millis(800));
        waiter.run("");
        stage.expect(&url, "by a trigger");
    });
    cases.end(&mut stage);
}

/// What others make in databases of their own, on the same server.
#[test]
fn other_databases() {
    let stage = stage();
    let url = table(&stage, "mine");
    stage.psql("CREATE DATABASE other");
    stage.psql_in("other", "CREATE TABLE rows (id INT)");
    stage.expect_kept(&url, || {
        for text in [
            "CREATE TABLE words (id INT PRIMARY KEY)",
            "ALTER TABLE words ADD COLUMN word TEXT",
            "CREATE INDEX ON words (word)",
            "DROP TABLE words",
        ] {
            stage.psql_in("other", text);
        }
    });
    stage.change(&url, "new", || drop(stage.psql("UPDATE mine SET text = 'new' WHERE id = 1")));
}

#[test]
fn functions_that_write() {
    functions_that_write_of(stage());
}

/// A SELECT that changes something by a function that it calls shows at once, on any stage with
/// PostgreSQL.
pub(crate) fn functions_that_write_of(mut stage: Stage) {
    let mut cases = Cases::default();
    cases.run("a function that was made by a client which is gone when the watcher looks", || {
        let url = table(&stage, "gone");
        let watcher = stage.nicache.pid("watch_pid");
        kill(watcher, Signal::STOP);
        stage.psql("CREATE FUNCTION goes(t TEXT) RETURNS INT LANGUAGE sql AS $$ UPDATE gone SET text = t WHERE id = 1; SELECT 1 $$");
        kill(watcher, Signal::CONT);
        std::thread::sleep(Duration::from_millis(500));
        stage.change(&url, "new", || drop(stage.psql("SELECT goes('new')")));
    });
    cases.run("a function", || {
        let url = table(&stage, "called");
        stage.psql("CREATE FUNCTION writes(t TEXT) RETURNS INT LANGUAGE sql AS $$ UPDATE called SET text = t WHERE id = 1; SELECT 1 $$");
        std::thread::sleep(Duration::from_millis(500));
        stage.change(&url, "new", || drop(stage.psql("SELECT writes('new')")));
        let mut shell = stage.psql_shell();
        stage.warm(&url);
        shell.run("BEGIN; SELECT writes('newer');");
        stage.expect(&url, "new");
        shell.run("COMMIT;");
        stage.expect(&url, "newer");
        // The connection is quiet before: nothing but this has the page looked at again.
        shell.run("SELECT 1;");
        stage.change(&url, "third", || drop(shell.run("SELECT writes('third');")));
    });
    cases.run("a sequence", || {
        stage.psql("CREATE SEQUENCE numbers");
        let url = page(&stage, "numbers", "SELECT last_value FROM numbers");
        stage.change(&url, "5000", || drop(stage.psql("SELECT setval('numbers', 5000)")));
    });
    cases.end(&mut stage);
}

/// What is not a row of a table that somebody has made: each is a source, or the page is not kept.
#[test]
fn what_the_database_says_of_itself() {
    let setup =
        Setup { options: &["--recheck", "5s"], database: Database::Postgres, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    cases.run("comments, rights and settings", || {
        stage.psql("CREATE TABLE described (id INT); CREATE ROLE visitor");
        for (name, ask, change, new) in [
            (
                "comment",
                "SELECT obj_description('described'::regclass)",
                "COMMENT ON TABLE described IS 'a comment'",
                "a comment",
            ),
            (
                "right",
                "SELECT 'may ' || has_table_privilege('visitor', 'described', 'SELECT')",
                "GRANT SELECT ON described TO visitor",
                "may true",
            ),
            ("of-role", "SHOW work_mem", "ALTER ROLE postgres SET work_mem = '7MB'", "7MB"),
            (
                "of-database",
                "SELECT current_setting('lock_timeout')",
                "ALTER DATABASE site SET lock_timeout = 71",
                "71ms",
            ),
            (
                "role",
                "SELECT rolname FROM pg_roles WHERE rolname LIKE 'late%'",
                "CREATE ROLE latecomer",
                "latecomer",
            ),
        ] {
            let url = page(&stage, name, ask);
            let is_kept = stage.change_of_any(&url, new, || drop(stage.psql(change)));
            println!("  {name}: kept {is_kept}");
        }
    });
    cases.run("settings in files", || {
        let url = page(&stage, "file-setting", "SHOW geqo_threshold");
        stage.change_of_any(&url, "72", || {
            stage.psql("ALTER SYSTEM SET geqo_threshold = 72");
            stage.psql("SELECT pg_reload_conf()");
            stage.wait_until(|| stage.psql("SHOW geqo_threshold").contains("72"));
        });
        // Nobody says a word: the server's own file, and its signal.
        let auto = stage.path("db/postgresql.auto.conf");
        stage.change_of_any(&url, "73", || {
            let text = std::fs::read_to_string(&auto).unwrap().replace("72", "73");
            std::fs::write(&auto, text).unwrap();
            let pid = std::fs::read_to_string(stage.path("db/postmaster.pid")).unwrap();
            let leader =
                outer_pid(&stage.nicache.processes(), pid.lines().next().unwrap()).unwrap();
            kill(leader, Signal::HUP);
            stage.wait_until(|| stage.psql("SHOW geqo_threshold").contains("73"));
        });
    });
    cases.run("foreign tables", || {
        stage.write("data/rows.csv", "old\n");
        let file = stage.path("data/rows.csv").display().to_string();
        stage.psql("CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw");
        stage.psql(&format!(
            "CREATE FOREIGN TABLE outside (text TEXT) SERVER files OPTIONS (filename '{file}', format 'csv')"
        ));
        let url = page(&stage, "outside", "SELECT text FROM outside");
        let is_kept = stage.change_of_any(&url, "new", || stage.write("data/rows.csv", "new\n"));
        println!("  file_fdw: kept {is_kept}");
        stage.psql("CREATE VIEW through AS SELECT text FROM outside");
        let url = page(&stage, "through", "SELECT text FROM through");
        stage.change_of_any(&url, "newer", || stage.replace("data/rows.csv", "newer\n"));
    });
    cases.end(&mut stage);
}

/// A client that sends a question and, behind it, asks for a statement that it has prepared before.
#[test]
fn several_messages_at_once() {
    let mut stage = stage();
    let mut cases = Cases::default();
    cases.run("a prepared update behind a question", || {
        let url = table(&stage, "piped");
        let mut socket = UnixStream::connect(stage.path("run/.s.PGSQL.5432")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let startup = b"\0\x03\0\0user\0postgres\0database\0site\0\0";
        let mut bytes = (startup.len() as u32 + 4).to_be_bytes().to_vec();
        bytes.extend(startup);
        socket.write_all(&bytes).unwrap();
        until_ready(&mut socket);
        let update = b"u\0UPDATE piped SET text = 'new' WHERE id = 1\0\0\0";
        socket.write_all(&[message(b'P', update), message(b'S', b"")].concat()).unwrap();
        until_ready(&mut socket);
        let batch = [
            message(b'P', b"\0SELECT 1\0\0\0"),
            message(b'B', b"\0\0\0\0\0\0\0\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'B', b"\0u\0\0\0\0\0\0\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
        ];
        stage.change(&url, "new", || {
            socket.write_all(&batch.concat()).unwrap();
            until_ready(&mut socket);
        });
    });
    cases.end(&mut stage);
}

fn message(kind: u8, text: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((text.len() as u32 + 4).to_be_bytes());
    bytes.extend(text);
    bytes
}

/// Reads messages up to ReadyForQuery.
fn until_ready(socket: &mut UnixStream) {
    loop {
        let mut head = [0; 5];
        socket.read_exact(&mut head).unwrap();
        let mut rest = vec![0; u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4];
        socket.read_exact(&mut rest).unwrap();
        assert_ne!(head[0], b'E', "{}", String::from_utf8_lossy(&rest));
        if head[0] == b'Z' {
            return;
        }
    }
}
