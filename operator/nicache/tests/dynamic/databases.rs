//! MariaDB: changes of all kinds, by all kinds of clients.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::check::Cases;
use crate::stage::{Database, Setup, Shell, Stage};

/// A page that shows rows of a query.
fn page(stage: &Stage, name: &str, query: &str) -> String {
    let text = "<?php $db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@);
        foreach ($db->query(\"@QUERY@\") as $row) echo implode(' ', $row), '. ';";
    stage.script(&format!("{name}.php"), &text.replace("@QUERY@", query));
    format!("/{name}.php")
}

/// A page that shows a row of a table of its own, whose text is `old`.
fn table(stage: &Stage, name: &str, options: &str) -> String {
    stage.sql(&format!(
        "CREATE TABLE {name} (id INT PRIMARY KEY, text VARCHAR(100)) {options};
         INSERT INTO {name} VALUES (1, 'old'), (2, 'other')"
    ));
    page(stage, name, &format!("SELECT text FROM {name} WHERE id = 1"))
}

/// Changes of the table `silent`, of which `url` shows the first row, by one who says nothing
/// afterwards.
pub(crate) fn silent_client(stage: &Stage, url: &str, mut shell: Shell) {
    for round in 0..5 {
        stage.warm(url);
        shell.send(&format!("UPDATE silent SET text = 'round {round}' WHERE id = 1;"));
        let text = format!("round {round}");
        stage.wait_until(|| stage.direct(url).contains(&text));
        // It is done, so the page is kept again although the client does not say that it is
        // content.
        stage.expect(url, &text);
    }
    stage.warm(url);
    shell.send("BEGIN; UPDATE silent SET text = 'not yet' WHERE id = 1;");
    std::thread::sleep(Duration::from_millis(200));
    stage.expect(url, "round 4");
    shell.send("COMMIT;");
    stage.wait_until(|| stage.direct(url).contains("not yet"));
    stage.expect(url, "not yet");
}

fn stage() -> Stage {
    Stage::start(&Setup { database: Database::MariaDb, ..Setup::default() }, |_| {})
}

/// Neither what is asked nor that the asker goes makes a page suspect, although Debian's MariaDB
/// has functions from its beginning.
#[test]
fn questions_make_nothing_suspect() {
    let stage = stage();
    let url = table(&stage, "asked", "");
    stage.sql("CREATE SEQUENCE counted");
    stage.expect_quiet(&url, || {
        drop(stage.sql("SELECT text FROM asked; SHOW TABLES; SELECT COUNT(*) FROM asked"));
    });
    let url = page(&stage, "counted", "SELECT next_not_cached_value FROM counted");
    stage.change(&url, "5001", || drop(stage.sql("SELECT SetVal(counted, 5000)")));
    stage.change(&url, "6001", || {
        drop(stage.sql("SELECT NEXT VALUE FOR counted; SELECT SETVAL(counted, 6000)"));
    });
}

#[test]
fn changes_of_rows() {
    changes_of_rows_of(stage());
}

/// Pages of rows show each change of the rows at once, on any stage with MariaDB.
pub(crate) fn changes_of_rows_of(mut stage: Stage) {
    let mut cases = Cases::default();
    cases.run("update by the shell", || {
        let url = table(&stage, "plain", "");
        stage.change(&url, "new", || drop(stage.sql("UPDATE plain SET text = 'new' WHERE id = 1")));
        // Another row is not a reason to lose the page for good.
        stage.sql("UPDATE plain SET text = 'another' WHERE id = 2");
        stage.warm(&url);
    });
    cases.run("insert, delete, replace, on duplicate key", || {
        let url = table(&stage, "several", "");
        let all = page(&stage, "several_all", "SELECT text FROM several ORDER BY id");
        let count = page(&stage, "several_count", "SELECT COUNT(*) FROM several WHERE id > 2");
        stage.change(&count, "1. ", || drop(stage.sql("INSERT INTO several VALUES (3, 'third')")));
        stage.change(&all, "fourth", || drop(stage.sql("INSERT INTO several SELECT 4, 'fourth'")));
        stage.change(&count, "0. ", || drop(stage.sql("DELETE FROM several WHERE id > 2")));
        stage.change(&url, "new", || drop(stage.sql("REPLACE INTO several VALUES (1, 'new')")));
        let upsert = "INSERT INTO several VALUES (1, '') ON DUPLICATE KEY UPDATE text = 'newest'";
        stage.change(&url, "newest", || drop(stage.sql(upsert)));
    });
    cases.run("a transaction that is committed a second later", || {
        let url = table(&stage, "slow", "");
        stage.warm(&url);
        let mut shell = stage.mariadb_shell();
        shell.run("BEGIN; UPDATE slow SET text = 'new' WHERE id = 1;");
        stage.expect(&url, "old");
        shell.run("COMMIT;");
        stage.expect(&url, "new");
        shell.run("SET autocommit = 0; UPDATE slow SET text = 'newer' WHERE id = 1;");
        stage.expect(&url, "new");
        // Whatever ends a transaction by itself.
        shell.run("CREATE TABLE IF NOT EXISTS slow_other (id INT);");
        stage.expect(&url, "newer");
        shell.run("UPDATE slow SET text = 'set' WHERE id = 1;");
        stage.expect(&url, "newer");
        shell.run("SET autocommit = 1;");
        stage.expect(&url, "set");
    });
    cases.run("a client that changes something and falls silent", || {
        silent_client(&stage, &table(&stage, "silent", ""), stage.mariadb_shell());
    });
    cases.run("a transaction that is undone", || {
        let url = table(&stage, "undone", "");
        stage.warm(&url);
        let mut shell = stage.mariadb_shell();
        shell.run("START TRANSACTION; UPDATE undone SET text = 'new' WHERE id = 1;");
        stage.expect(&url, "old");
        shell.run("ROLLBACK;");
        stage.expect(&url, "old");
        shell.run("START TRANSACTION; UPDATE undone SET text = 'new' WHERE id = 1;");
        drop(shell);
        stage.expect(&url, "old");
    });
    cases.run("savepoints and distributed transactions", || {
        let url = table(&stage, "xa", "");
        stage.warm(&url);
        let mut shell = stage.mariadb_shell();
        shell.run("BEGIN; UPDATE xa SET text = 'new' WHERE id = 1; SAVEPOINT a;");
        shell.run("UPDATE xa SET text = 'wrong' WHERE id = 1; ROLLBACK TO SAVEPOINT a;");
        stage.expect(&url, "old");
        shell.run("COMMIT AND CHAIN;");
        stage.expect(&url, "new");
        shell.run("COMMIT; XA START 'x'; UPDATE xa SET text = 'elsewhere' WHERE id = 1; XA END 'x'; XA PREPARE 'x';");
        drop(shell);
        stage.change(&url, "elsewhere", || drop(stage.sql("XA COMMIT 'x'")));
    });
    cases.run("a slow reader", || {
        stage.sql("CREATE TABLE slowly (id INT PRIMARY KEY, text VARCHAR(20)); INSERT INTO slowly VALUES (1, 'v0'), (2, 'v0')");
        let url = page(&stage, "slowly", "SELECT text, SLEEP(0.1) FROM slowly");
        assert_eq!(stage.get(&url), "v0 0. v0 0. ");
        let script = "<?php $db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@);
            $a = $db->query('SELECT text FROM slowly WHERE id = 1')->fetch_row()[0]; usleep(200000);
            echo $a, ' ', $db->query('SELECT text FROM slowly WHERE id = 2')->fetch_row()[0];";
        stage.script("slow_reader.php", script);
        stage.warm("/slow_reader.php");
        for round in 1..4 {
            let address = stage.address();
            stage.sql(&format!("UPDATE slowly SET text = 'u{round}'"));
            let reader =
                std::thread::spawn(move || nicache_applications::Client::new(address)
                    .get("/slow_reader.php").unwrap());
            std::thread::sleep(Duration::from_millis(100));
            stage.sql(&format!("UPDATE slowly SET text = 'v{round}'"));
            println!("  {}", reader.join().unwrap().text());
            stage.expect("/slow_reader.php", &format!("v{round} v{round}"));
        }
    });
    cases.run("locked tables", || {
        let url = table(&stage, "locked", "");
        stage.warm(&url);
        let mut shell = stage.mariadb_shell();
        shell.run(
            "LOCK TABLES locked WRITE; UPDATE locked SET text = 'new' WHERE id = 1; UNLOCK TABLES;",
        );
        stage.expect(&url, "new");
    });
    cases.run("other engines", || {
        for engine in ["MyISAM", "MEMORY", "Aria"] {
            let url = table(&stage, &format!("engine_{engine}"), &format!("ENGINE={engine}"));
            let sql = format!("UPDATE engine_{engine} SET text = 'new' WHERE id = 1");
            stage.change(&url, "new", || drop(stage.sql(&sql)));
        }
        // What cannot be undone is there before the end of the transaction.
        let mut shell = stage.mariadb_shell();
        stage.change("/engine_MyISAM.php", "newer", || {
            shell.run("BEGIN; UPDATE engine_MyISAM SET text = 'newer' WHERE id = 1;");
        });
        shell.run("ROLLBACK;");
        stage.expect("/engine_MyISAM.php", "newer");
    });
    cases.run("prepared statements and several at once", || {
        let url = table(&stage, "prepared", "");
        let connect = "$db = new mysqli('@HOST@', 'site', 'site', 'site', 0, @SOCKET@); $v = $_GET['v'];";
        let dsn = "mysql:@DSN@;dbname=site";
        let pdo = |emulate: &str| {
            format!(
                "$db = new PDO('{dsn}', 'site', 'site', [PDO::ATTR_EMULATE_PREPARES => {emulate}]); $v = $_GET['v'];
                 $s = $db->prepare('UPDATE prepared SET text = ? WHERE id = ?'); $s->execute([$v, 1]);"
            )
        };
        let scripts = [
            ("mysqli", format!("{connect} $s = $db->prepare('UPDATE prepared SET text = ? WHERE id = 1'); $s->bind_param('s', $v); $s->execute();")),
            ("multi", format!("{connect} $db->multi_query(\"SELECT 1; UPDATE prepared SET text = '$v' WHERE id = 1\"); do $db->store_result(); while ($db->next_result());")),
            ("emulated", pdo("true")),
            ("native", pdo("false")),
            ("text", format!("{connect} $db->query(\"PREPARE p FROM 'UPDATE prepared SET text = ? WHERE id = 1'\"); $db->query(\"SET @v = '$v'\"); $db->query('EXECUTE p USING @v');")),
            ("immediate", format!("{connect} $db->query(\"EXECUTE IMMEDIATE 'UPDATE prepared SET text = \\\"$v\\\" WHERE id = 1'\");")),
        ];
        for (name, script) in scripts {
            stage.script(&format!("set_{name}.php"), &format!("<?php {script} echo 'set';"));
            let new = format!("by-{name}");
            stage.change(&url, &new,
                || assert_eq!(stage.get(&format!("/set_{name}.php?v={new}")), "set"));
        }
    });
    cases.run("a page that asks by prepared statements", || {
        table(&stage, "asked", "");
        stage.script(
            "asked_native.php",
            "<?php $db = new PDO('mysql:@DSN@;dbname=site', 'site', 'site', [PDO::ATTR_EMULATE_PREPARES => false]);
             $s = $db->prepare('SELECT text FROM asked WHERE id = ?'); $s->execute([1]); echo $s->fetchColumn();",
        );
        stage.change("/asked_native.php", "new", || drop(stage.sql("UPDATE asked SET text = 'new' WHERE id = 1")));
        stage.script(
            "asked_kept.php",
            "<?php $db = new mysqli('p:@HOST@', 'site', 'site', 'site', 0, @SOCKET@);
             $s = $db->prepare('SELECT text FROM asked WHERE id = 1'); $s->execute(); echo $s->get_result()->fetch_row()[0];",
        );
        stage.change("/asked_kept.php", "newer", || drop(stage.sql("UPDATE asked SET text = 'newer' WHERE id = 1")));
    });
    cases.run("large statements", || {
        stage.sql("CREATE TABLE large (id INT PRIMARY KEY, text MEDIUMTEXT); INSERT INTO large VALUES (1, 'old')");
        let url = page(&stage, "large", "SELECT LEFT(text, 9), LENGTH(text) FROM large WHERE id = 1");
        for (round, size) in [5000, 70_000].into_iter().enumerate() {
            let text = "x".repeat(size);
            let sql = format!("UPDATE large SET text = 'new{round} {text}' WHERE id = 1");
            stage.change(&url, &format!("new{round}"), || drop(stage.sql(&sql)));
        }
    });
    cases.end(&mut stage);
}

#[test]
fn changes_by_other_things() {
    changes_by_other_things_of(stage());
}

/// Pages of rows show changes by views, triggers, procedures and the like at once, on any stage
/// with MariaDB.
pub(crate) fn changes_by_other_things_of(mut stage: Stage) {
    let mut cases = Cases::default();
    cases.run("view, trigger, cascade, procedure", || {
        table(&stage, "base", "");
        stage.sql("CREATE VIEW seen AS SELECT id, text FROM base");
        let url = page(&stage, "seen", "SELECT text FROM seen WHERE id = 1");
        stage.change(&url, "by-table", || drop(stage.sql("UPDATE base SET text = 'by-table' WHERE id = 1")));
        let base = page(&stage, "base", "SELECT text FROM base WHERE id = 1");
        stage.change(&base, "by-view", || drop(stage.sql("UPDATE seen SET text = 'by-view' WHERE id = 1")));
        stage.sql("CREATE TABLE source (id INT PRIMARY KEY, text VARCHAR(100)) ENGINE=InnoDB;
            CREATE TRIGGER copies AFTER INSERT ON source FOR EACH ROW UPDATE base SET text = NEW.text WHERE id = 1");
        stage.change(&base, "by-trigger", || drop(stage.sql("INSERT INTO source VALUES (1, 'by-trigger')")));
        stage.sql("CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES source (id) ON DELETE CASCADE) ENGINE=InnoDB;
            INSERT INTO child VALUES (7, 1)");
        let child = page(&stage, "child", "SELECT CONCAT('rows ', COUNT(*)) FROM child");
        stage.change(&child, "rows 0", || drop(stage.sql("DELETE FROM source WHERE id = 1")));
        stage.sql("CREATE PROCEDURE sets(t VARCHAR(100)) UPDATE base SET text = t WHERE id = 1");
        stage.change(&base, "by-procedure", || drop(stage.sql("CALL sets('by-procedure')")));
    });
    cases.run("the structure changes", || {
        let url = table(&stage, "structure", "");
        let star = page(&stage, "star", "SELECT * FROM structure ORDER BY id");
        stage.change(&star, "added", || {
            drop(stage.sql("ALTER TABLE structure ADD COLUMN more VARCHAR(20) DEFAULT 'added'"));
        });
        stage.sql("CREATE TABLE structure2 LIKE structure; INSERT INTO structure2 VALUES (1, 'renamed', '')");
        stage.change(&url, "renamed", || {
            drop(stage.sql("RENAME TABLE structure TO structure3, structure2 TO structure"));
        });
        stage.sql("CREATE VIEW shown AS SELECT 'first' AS text");
        let view = page(&stage, "shown", "SELECT text FROM shown");
        stage.change(&view, "second", || drop(stage.sql("CREATE OR REPLACE VIEW shown AS SELECT 'second' AS text")));
        let count = page(&stage, "structure_count", "SELECT CONCAT('rows ', COUNT(*)) FROM structure");
        stage.change(&count, "rows 0", || drop(stage.sql("TRUNCATE TABLE structure")));
        stage.sql("CREATE FUNCTION says() RETURNS VARCHAR(20) DETERMINISTIC RETURN 'first'");
        let function = page(&stage, "function", "SELECT says() FROM structure3 LIMIT 1");
        // It may be one that writes, and then its page is not kept.
        stage.try_warm(&function, Duration::from_secs(1));
        stage.sql("CREATE OR REPLACE FUNCTION says() RETURNS VARCHAR(20) DETERMINISTIC RETURN 'second'");
        stage.expect(&function, "second");
    });
    cases.run("the structure changes while a statement is at work", || {
        stage.sql("CREATE TABLE owner (id INT PRIMARY KEY) ENGINE=InnoDB;
            CREATE TABLE owned (id INT PRIMARY KEY, owner INT, KEY (owner)) ENGINE=InnoDB;
            INSERT INTO owner VALUES (1), (2), (3), (4); INSERT INTO owned SELECT id, id FROM owner");
        let url = page(&stage, "owned", "SELECT CONCAT('rows ', COUNT(*)) FROM owned");
        // By then the structure is known.
        stage.warm(&url);
        let (mut holder, mut slow) = (stage.mariadb_shell(), stage.mariadb_shell());
        holder.run("BEGIN; SELECT * FROM owner WHERE id = 4 FOR UPDATE;");
        slow.send("DELETE FROM owner;");
        stage.wait_until(|| stage.sql("SHOW PROCESSLIST").contains("DELETE FROM owner"));
        // Whoever imports or migrates says so, and then nobody waits for those who use the other
        // table.
        stage.sql("SET foreign_key_checks = 0;
            ALTER TABLE owned ADD FOREIGN KEY (owner) REFERENCES owner (id) ON DELETE CASCADE");
        stage.try_warm(&url, Duration::from_secs(1));
        holder.run("COMMIT;");
        slow.run("");
        assert!(stage.direct(&url).contains("rows 3"), "a row has gone with its owner");
        stage.expect(&url, "rows 3");
    });
    cases.run("the structure changes while a statement waits", || {
        let url = table(&stage, "filled", "");
        stage.sql("CREATE TABLE queue (id INT PRIMARY KEY) ENGINE=InnoDB");
        stage.warm(&url);
        let (mut holder, mut waiter) = (stage.mariadb_shell(), stage.mariadb_shell());
        holder.run("LOCK TABLES queue WRITE;");
        waiter.send("INSERT INTO queue VALUES (1);");
        stage.wait_until(|| stage.sql("SHOW PROCESSLIST").contains("Waiting for table metadata lock"));
        holder.run("CREATE TRIGGER fills AFTER INSERT ON queue FOR EACH ROW UPDATE filled SET text = 'by a trigger' WHERE id = 1;");
        stage.try_warm(&url, Duration::from_secs(1));
        holder.run("UNLOCK TABLES;");
        waiter.run("");
        stage.expect(&url, "by a trigger");
    });
    cases.run("LOAD DATA and many connections", || {
        let url = table(&stage, "loaded", "");
        stage.write("data/rows", "1\tnew\n");
        let sql = format!(
            "LOAD DATA LOCAL INFILE '{}' REPLACE INTO TABLE loaded",
            stage.path("data/rows").display()
        );
        stage.change(&url, "new", || drop(stage.sql_with(&["--local-infile=1"], &sql)));
    });
    cases.end(&mut stage);
}

/// Clients and a server that were there before.
#[test]
fn begun_before() {
    let setup = Setup { database: Database::MariaDb, outside: true, ..Setup::default() };
    let (mut open, mut idle) = (None, None);
    let mut stage = Stage::start(&setup, |folder| {
        let mut shell = Shell::mariadb(folder);
        shell.run("CREATE TABLE early (id INT PRIMARY KEY, text VARCHAR(100)); INSERT INTO early VALUES (1, 'old'), (2, 'old');");
        shell.run("BEGIN; UPDATE early SET text = 'new' WHERE id = 1;");
        open = Some(shell);
        idle = Some(Shell::mariadb(folder));
    });
    let (mut open, mut idle) = (open.unwrap(), idle.unwrap());
    let mut cases = Cases::default();
    let (first, second) = (
        page(&stage, "first", "SELECT text FROM early WHERE id = 1"),
        page(&stage, "second", "SELECT text FROM early WHERE id = 2"),
    );
    cases.run("a transaction that was open", || {
        stage.change(&first, "new", || {
            // Only the statement itself, nothing behind it.
            open.send("COMMIT;");
            stage.wait_until(|| stage.direct(&first).contains("new"));
        });
    });
    cases.run("a client that was idle", || {
        stage.change(&second, "new", || {
            drop(idle.run("UPDATE early SET text = 'new' WHERE id = 2;"));
        });
    });
    cases.run("the same again", || {
        stage.change(&second, "newer", || {
            drop(idle.run("UPDATE early SET text = 'newer' WHERE id = 2;"));
        });
    });
    cases.end(&mut stage);
}

#[test]
fn encrypted_clients() {
    let mut stage =
        Stage::start(&Setup { database: Database::MariaDb, tls: true, ..Setup::default() }, |_| {});
    let mut cases = Cases::default();
    cases.run("a client on TLS", || {
        let url = table(&stage, "secret", "");
        assert!(stage.sql("SHOW VARIABLES LIKE 'have_ssl'").contains("YES"));
        stage.change(&url, "new", || {
            drop(stage.sql_with(&["--ssl"], "UPDATE secret SET text = 'new' WHERE id = 1"));
        });
    });
    cases.end(&mut stage);
}

/// A SELECT that changes something by a function that it calls.
#[test]
fn functions_that_write() {
    functions_that_write_of(stage());
}

/// A SELECT that changes something by a function that it calls shows at once, on any stage with
/// MariaDB.
pub(crate) fn functions_that_write_of(mut stage: Stage) {
    let mut cases = Cases::default();
    cases.run("a function called by SELECT", || {
        let url = table(&stage, "called", "");
        stage.sql(
            "DELIMITER //
CREATE FUNCTION writes(t VARCHAR(100)) RETURNS INT BEGIN UPDATE called SET text = t WHERE id = 1; RETURN 1; END//",
        );
        std::thread::sleep(Duration::from_millis(500));
        stage.change(&url, "new", || drop(stage.sql("SELECT writes('new')")));
        let mut shell = stage.mariadb_shell();
        shell.run("BEGIN; SELECT writes('newer');");
        stage.expect(&url, "new");
        shell.run("COMMIT;");
        stage.expect(&url, "newer");
    });
    cases.run("a sequence", || {
        stage.sql("CREATE SEQUENCE numbers");
        let url = page(&stage, "numbers", "SELECT next_not_cached_value FROM numbers");
        let old = stage.warm(&url);
        let next: u64 = stage
            .sql("SELECT NEXTVAL(numbers); SELECT SETVAL(numbers, 5000)")
            .lines()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        stage.expect_all(
            &url,
            |reply| reply != old && reply.contains("5001"),
            &format!("5001, not {next}"),
        );
    });
    cases.end(&mut stage);
}

/// What changes without any client is never late.
#[test]
fn what_the_database_changes_by_itself() {
    let setup =
        Setup { options: &["--recheck", "5s"], database: Database::MariaDb, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    cases.run("settings, rights and comments", || {
        for (name, ask, change, new) in [
            ("global", "SELECT @@GLOBAL.max_error_count", "SET GLOBAL max_error_count = 71", "71"),
            ("grants", "SHOW GRANTS", "GRANT RELOAD ON *.* TO site@localhost", "RELOAD"),
        ] {
            let url = page(&stage, name, ask);
            let old = stage.warm(&url);
            assert!(!old.contains(new), "{old}");
            stage.sql(change);
            stage.expect(&url, new);
        }
    });
    cases.run("what the server says of its work", || {
        stage.sql("CREATE TABLE counted (id INT PRIMARY KEY) ENGINE=MyISAM");
        let asked = "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_NAME = 'counted'";
        let url = page(&stage, "rows", asked);
        for id in 0..20 {
            stage.get(&url);
            stage.sql(&format!("INSERT INTO counted VALUES ({id})"));
            assert!(stage.get(&url).contains(&(id + 1).to_string()), "{id}");
        }
    });
    cases.run("an event", || {
        let url = table(&stage, "timed", "");
        stage.warm(&url);
        stage.sql("SET GLOBAL event_scheduler = ON; CREATE EVENT soon ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL 2 SECOND DO UPDATE timed SET text = 'new' WHERE id = 1");
        let mut client = stage.client();
        let mut new_since = None;
        let begun = Instant::now();
        // On a busy machine the event may come late; its page is looked at for a while after it.
        while begun.elapsed() < Duration::from_secs(6)
            || new_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(2))
                && begun.elapsed() < Duration::from_secs(60)
        {
            let is_new = stage.sql("SELECT text FROM timed WHERE id = 1").contains("new");
            if is_new {
                new_since.get_or_insert_with(Instant::now);
            }
            let late = new_since.map(|since| since.elapsed());
            let shown = client.get(&url).unwrap().text();
            let slack = Duration::from_millis(300);
            assert!(shown.contains("new") || late.is_none_or(|late| late < slack),
                "old for {late:?}");
        }
        assert!(new_since.is_some(), "the event did not happen");
    });
    cases.run("an event again and again", || {
        stage.sql("CREATE TABLE ticks (n INT); INSERT INTO ticks VALUES (0)");
        let url = page(&stage, "ticks", "SELECT n FROM ticks");
        stage.sql("CREATE EVENT often ON SCHEDULE EVERY 1 SECOND DO UPDATE ticks SET n = n + 1");
        let (mut client, begun, mut before) = (stage.client(), Instant::now(), 0);
        let number = |text: &str| {
            text.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
        };
        while begun.elapsed() < Duration::from_secs(4)
            || before <= 1 && begun.elapsed() < Duration::from_secs(60)
        {
            before = number(&stage.sql("SELECT n FROM ticks")).max(before);
            let shown = client.get(&url).unwrap().text();
            assert!(number(&shown) >= before, "{shown} although {before} was there");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(before > 1, "the event did not happen");
        stage.sql("DROP EVENT often; SET GLOBAL event_scheduler = OFF");
        stage.warm(&url);
    });
    cases.end(&mut stage);
}

/// A server whose changes another one applies to itself.
struct Primary {
    folder: tempfile::TempDir,
    process: Child,
}

impl Primary {
    /// In the network namespace of the stage's server.
    fn start(stage: &Stage) -> Self {
        let folder =
            tempfile::Builder::new().prefix("nicache-primary-").tempdir_in("/var/lib").unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        let data = format!("--datadir={}", folder.path().join("db").display());
        // A server that starts deletes what it takes for left behind in a folder that all share.
        let temporary = format!("--tmpdir={}", folder.path().display());
        let made = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--skip-test-db",
                "--user=www-data",
                "--skip-innodb-use-native-aio",
                &data,
                &temporary,
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", stage.nicache.pid("server_pid")));
        command.args([
            "mariadbd",
            "--no-defaults",
            "--user=www-data",
            "--skip-innodb-use-native-aio",
            &data,
            &temporary,
        ]);
        command.args([
            "--bind-address=127.0.0.1",
            "--port=3399",
            "--server-id=1",
            "--log-bin=changes",
        ]);
        command.arg("--innodb-buffer-pool-size=16M").arg("--open-files-limit=512");
        command.arg(format!("--socket={}", folder.path().join("sock").display()));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let primary = Self { folder, process };
        stage.wait_until(|| primary.try_sql("SELECT 1").is_some());
        primary
    }

    fn try_sql(&self, text: &str) -> Option<String> {
        let socket = format!("--socket={}", self.folder.path().join("sock").display());
        let said = Command::new("mariadb")
            .args([
                "--no-defaults",
                "--batch",
                "--skip-column-names",
                "--user=root",
                &socket,
                "--execute",
                text,
            ])
            .output()
            .unwrap();
        said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned())
    }

    fn sql(&self, text: &str) {
        self.try_sql(text).unwrap_or_else(|| panic!("the primary does not take {text}"));
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Rows of a page that are never older than what the database said before it was asked for. It goes
/// on beyond `time`, up to ten times as long, until the number there is above `enough`.
fn is_never_late(stage: &Stage, url: &str, query: &str, time: Duration, enough: u64) -> u64 {
    let number = |text: &str| {
        text.chars().filter(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap()
    };
    let (mut client, begun, mut before) = (stage.client(), Instant::now(), 0);
    while begun.elapsed() < time || before <= enough && begun.elapsed() < 10 * time {
        before = number(&stage.sql(query)).max(before);
        let shown = client.get(url).unwrap().text();
        assert!(number(&shown) >= before, "{shown} although {before} was there");
        std::thread::sleep(Duration::from_millis(5));
    }
    before
}

/// Tables that are made, altered, emptied and dropped: pages that show them change at once, others
/// stay.
#[test]
fn changes_of_tables() {
    let mut stage = stage();
    let mut cases = Cases::default();
    cases.run("those of another site of the server", || {
        let url = table(&stage, "mine", "");
        stage.sql("CREATE DATABASE other");
        stage.expect_kept(&url, || {
            stage.sql(
                "CREATE TABLE other.words (id INT PRIMARY KEY); INSERT INTO other.words VALUES (1);
                 ALTER TABLE other.words ADD COLUMN n INT; UPDATE other.words SET n = 1;
                 TRUNCATE other.words; DROP TABLE other.words",
            );
        });
        stage.change(&url, "new", || drop(stage.sql("UPDATE mine SET text = 'new' WHERE id = 1")));
    });
    cases.run("one that the site shows", || {
        let rows = page(&stage, "rows", "SELECT CONCAT('rows ', COUNT(*)) FROM shown");
        let columns = page(&stage, "columns", "SHOW COLUMNS FROM shown");
        let tables = page(&stage, "tables", "SHOW TABLES");
        stage.sql("CREATE TABLE shown (id INT PRIMARY KEY); INSERT INTO shown VALUES (1), (2)");
        stage.change(&rows, "rows 0", || drop(stage.sql("TRUNCATE shown")));
        let alter = "ALTER TABLE shown ADD COLUMN extra INT";
        stage.change(&columns, "extra", || drop(stage.sql(alter)));
        let create = "CREATE TABLE besides (id INT PRIMARY KEY)";
        stage.change(&tables, "besides", || drop(stage.sql(create)));
        let anew = "CREATE OR REPLACE TABLE shown (id VARCHAR(9) PRIMARY KEY)";
        stage.sql("INSERT INTO shown VALUES (1, 1)");
        stage.change(&rows, "rows 0", || drop(stage.sql(anew)));
        let one =
            page(&stage, "one", "SELECT CONCAT('found ', COUNT(*)) FROM shown WHERE id = '1'");
        stage.change(&one, "found 1", || drop(stage.sql("INSERT INTO shown VALUES ('1')")));
        stage.change(&one, "found 0", || drop(stage.sql("UPDATE shown SET id = '01'")));
    });
    cases.end(&mut stage);
}

/// What a replica applies, and what is in another server's tables, is never late.
#[test]
fn what_another_server_changes() {
    let setup =
        Setup { options: &["--recheck", "5s"], database: Database::MariaDb, ..Setup::default() };
    let mut stage = Stage::start(&setup, |_| {});
    let mut cases = Cases::default();
    cases.run("a replica", || {
        const ENOUGH: u64 = 5;
        let other = table(&stage, "before_replication", "");
        stage.warm(&other);
        let primary = Primary::start(&stage);
        primary.sql("CREATE USER applier@'%' IDENTIFIED BY 'secret'; GRANT REPLICATION SLAVE ON *.* TO applier@'%'");
        primary.sql("CREATE DATABASE IF NOT EXISTS site; CREATE TABLE site.mirrored (n INT); INSERT INTO site.mirrored VALUES (0)");
        stage.sql("SET GLOBAL server_id = 2; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 3399, MASTER_USER = 'applier', MASTER_PASSWORD = 'secret'; START SLAVE");
        stage.wait_until(|| stage.try_sql("SELECT n FROM mirrored")
            .is_ok_and(|said| said.starts_with('0')));
        let url = page(&stage, "mirrored", "SELECT n FROM mirrored");
        let stop = AtomicBool::new(false);
        let last = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    primary.sql("UPDATE site.mirrored SET n = n + 1");
                    std::thread::sleep(Duration::from_millis(300));
                }
            });
            let last = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let query = "SELECT n FROM mirrored";
                is_never_late(&stage, &url, query, Duration::from_secs(8), ENOUGH)
            }));
            stop.store(true, Ordering::Relaxed);
            last.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        assert!(last > ENOUGH, "the replica has applied {last} changes");
        stage.sql("STOP SLAVE; RESET SLAVE ALL");
        stage.warm(&url);
    });
    cases.run("a table of another server", || {
        stage.sql("CREATE TABLE original (n INT); INSERT INTO original VALUES (0); INSTALL SONAME 'ha_federatedx'");
        let socket = stage.path("run/mariadb.sock");
        stage.sql(&format!("CREATE SERVER there FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'localhost', USER 'site', PASSWORD 'site', DATABASE 'site', SOCKET '{}')", socket.display()));
        stage.sql("CREATE TABLE there (n INT) ENGINE=FEDERATED CONNECTION='there/original'");
        let url = page(&stage, "federated", "SELECT n FROM there");
        for round in 1..20 {
            stage.get(&url);
            stage.get(&url);
            stage.sql("UPDATE original SET n = n + 1");
            let shown = stage.get(&url);
            assert!(shown.contains(&round.to_string()), "{shown} after {round} changes");
        }
    });
    cases.end(&mut stage);
}
