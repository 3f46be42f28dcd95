//! Against real servers and clients: every table whose contents changed was announced before, and
//! where it matters nothing else was.

mod definitions;
mod proxy;
mod server;

use std::collections::BTreeMap;
use std::process::Command;

use nicache_sql::*;
use proxy::{Proxy, Sent};
use server::Server;

/// What the sessions of some clients said.
#[derive(Debug, Default)]
struct Heard {
    visible: Vec<Access>,
    reads: Vec<Access>,
    everything: Vec<Reason>,
    schema_changed: bool,
    tables_changed: Vec<ChangedTables>,
    requests: usize,
}

impl Heard {
    fn listen(server: &Server, catalogue: &Catalogue, connections: &[Vec<Sent>]) -> Self {
        let mut heard = Self::default();
        for connection in connections {
            let mut session = Session::new(server.dialect, Some(catalogue.defaults()));
            let mut answered = true;
            for sent in connection {
                match sent {
                    Sent::Client(bytes) => {
                        answered = false;
                        session.handle_client(
                            bytes,
                            &mut Uncached,
                            Some(catalogue),
                            &mut |event| heard.take(event),
                        );
                    }
                    Sent::Server(bytes) if !answered => {
                        answered = true;
                        session.handle_server(&bytes[..bytes.len().min(64)]);
                    }
                    Sent::Server(_) => {}
                }
            }
        }
        heard
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Statement(execution) => self.reads.extend(execution.footprint.reads),
            // Only what is announced at the end of a transaction: the earlier announcement would
            // hide an omission.
            Event::InProgress { .. } => {}
            Event::BecomesVisible { writes } => self.visible.extend(writes),
            Event::Everything { reason } => self.everything.push(reason),
            Event::SchemaChanged | Event::DatabaseChanged => self.schema_changed = true,
            Event::TablesChanged(changed) => self.tables_changed.push(changed),
            Event::SchemaDoubted => {}
            Event::RequestEnd => self.requests += 1,
        }
    }

    fn announced(&self, catalog: Option<&str>, schema: &str, table: &str) -> bool {
        let target = Target { catalog: catalog.map(Into::into), ..Target::table(schema, table) };
        !self.everything.is_empty()
            || self.visible.iter().any(|access| access.target.overlaps(&target))
    }

    fn tables(&self) -> Vec<String> {
        let mut tables: Vec<String> =
            self.visible.iter().map(|access| access.target.to_string()).collect();
        tables.sort();
        tables.dedup();
        tables
    }
}

/// As what SHOW says of a schema is announced.
const STRUCTURE: &str = "\u{1}";

/// A digest of each table's rows, and of what SHOW says.
fn digests(server: &Server) -> BTreeMap<(String, String), String> {
    let mut digests = BTreeMap::new();
    match server.dialect {
        Dialect::MySql => {
            let tables = server.ask(
                "",
                "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
                 WHERE TABLE_SCHEMA IN ('app', 'other') AND TABLE_TYPE = 'BASE TABLE'",
            );
            let names: Vec<(&str, &str)> =
                tables.lines().filter_map(|line| line.split_once('\t')).collect();
            let quoted: Vec<String> =
                names.iter().map(|(schema, table)| format!("`{schema}`.`{table}`")).collect();
            let sums = server.ask(
                "",
                &format!(
                    "CHECKSUM TABLE {} EXTENDED;
                     SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLUMN_KEY
                     FROM information_schema.COLUMNS WHERE TABLE_SCHEMA IN ('app', 'other')",
                    quoted.join(", ")
                ),
            );
            // A line for each table, and then one for each column.
            let mut lines = sums.lines();
            for ((schema, table), digest) in names.into_iter().zip(&mut lines) {
                digests.insert((schema.to_owned(), table.to_owned()), digest.to_owned());
            }
            for line in lines {
                let schema = line.split('\t').next().unwrap_or_default().to_owned();
                let said = digests.entry((schema, STRUCTURE.to_owned())).or_default();
                *said = format!("{said}\n{line}");
            }
        }
        Dialect::Postgres => {
            let tables = server.ask(
                "app",
                "SELECT schemaname || E'\\t' || tablename FROM pg_tables
                 WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
            );
            for line in tables.lines() {
                let (schema, table) = line.split_once('\t').unwrap();
                let sql = format!(
                    "SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM ONLY {schema}.{table} t"
                );
                digests.insert((schema.to_owned(), table.to_owned()), server.ask("app", &sql));
            }
        }
    }
    digests
}

struct Bench {
    server: Server,
    proxy: Proxy,
    catalogue: Catalogue,
}

impl Bench {
    fn new(server: Server, proxy: &str) -> Self {
        let proxy = Proxy::start(server.other_socket(proxy), &server.socket());
        let catalogue = Self::fetch(&server);
        Self { server, proxy, catalogue }
    }

    fn fetch(server: &Server) -> Catalogue {
        let rows = server.ask("app", catalogue_query(server.dialect));
        Catalogue::parse(server.dialect, &rows).unwrap_or_else(|error| panic!("{error}: {rows}"))
    }

    /// Runs something against the proxy; whatever changed must have been announced.
    fn run(&self, what: &str, client: impl FnOnce(&Self)) -> Heard {
        let before = digests(&self.server);
        client(self);
        let heard = Heard::listen(&self.server, &self.catalogue, &self.proxy.take());
        let catalog = (self.server.dialect == Dialect::Postgres).then_some("app");
        let after = digests(&self.server);
        for table in before.keys().chain(after.keys()) {
            assert!(
                before.get(table) == after.get(table)
                    || heard.announced(catalog, &table.0, &table.1),
                "{what}: {table:?} was not announced: {heard:?}"
            );
        }
        heard
    }

    fn shell(&self, sql: &str) -> Heard {
        self.run(sql, |bench| {
            let _ = bench.server.try_ask("app", sql, &bench.proxy.socket);
        })
    }

    fn php(&self, script: &str) -> Heard {
        self.run(script, |bench| {
            let socket = match bench.server.dialect {
                Dialect::MySql => bench.proxy.socket.clone(),
                Dialect::Postgres => bench.proxy.socket.parent().unwrap().to_owned(),
            };
            let output = Command::new("php")
                .args(["-r", script])
                .env("SOCKET", socket)
                .output()
                .expect("install php-cli");
            assert!(
                output.status.success(),
                "{script}: {}",
                String::from_utf8_lossy(&output.stdout)
            );
        })
    }

    /// Nothing else was announced than these tables.
    fn expect(&self, heard: &Heard, tables: &[&str]) {
        assert_eq!(heard.everything, [], "{heard:?}");
        assert_eq!(heard.tables(), tables, "{heard:?}");
    }
}

const MARIADB: &str = "
CREATE DATABASE app; CREATE DATABASE other; USE app;
CREATE TABLE posts (id BIGINT AUTO_INCREMENT PRIMARY KEY, title VARCHAR(50) UNIQUE, n INT NOT NULL DEFAULT 0);
CREATE TABLE comments (id BIGINT AUTO_INCREMENT PRIMARY KEY, post BIGINT, body TEXT,
  FOREIGN KEY (post) REFERENCES posts (id) ON DELETE CASCADE);
CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(50));
CREATE TABLE watched (id INT PRIMARY KEY, n INT);
CREATE TABLE counters (id INT PRIMARY KEY, n INT);
CREATE TABLE at_once (id INT PRIMARY KEY, n INT) ENGINE=MyISAM;
CREATE TABLE other.t (id INT PRIMARY KEY, n INT);
CREATE VIEW titles AS SELECT id, title FROM posts WHERE n >= 0;
CREATE TRIGGER w AFTER INSERT ON watched FOR EACH ROW INSERT INTO log (what) VALUES (NEW.n);
DELIMITER //
CREATE TRIGGER w2 AFTER UPDATE ON watched FOR EACH ROW BEGIN
  UPDATE counters SET n = n + 1 WHERE id = 1; INSERT INTO other.t VALUES (NEW.n, 1); END //
CREATE PROCEDURE p() BEGIN UPDATE counters SET n = n + 10; END //
CREATE FUNCTION f() RETURNS INT BEGIN UPDATE counters SET n = n + 100; RETURN 1; END //
DELIMITER ;
INSERT INTO counters VALUES (1, 0), (2, 0); INSERT INTO at_once VALUES (1, 0); INSERT INTO watched VALUES (1, 1);
INSERT INTO posts (title) VALUES ('first'), ('second'), ('third'); INSERT INTO comments (post, body) VALUES (1, 'a'), (3, 'b');
";

#[test]
fn mariadb() {
    let server = Server::mariadb();
    server.ask("", "CREATE DATABASE app");
    let may_write = |server: &Server| Bench::fetch(server).functions_may_write();
    assert!(!may_write(&server), "the functions that it brings along");
    server.ask("app", "CREATE FUNCTION looks() RETURNS INT RETURN (SELECT COUNT(*) FROM mysql.plugin WHERE name <> REPLACE('update', 'u', 'x'))");
    server.ask("app", "CREATE PROCEDURE writes() DELETE FROM mysql.plugin");
    assert!(!may_write(&server));
    server.ask(
        "app",
        "DELIMITER //\nCREATE FUNCTION writes() RETURNS INT BEGIN DELETE FROM mysql.plugin; RETURN 1; END//",
    );
    assert!(may_write(&server));
    server.ask(
        "app",
        "DROP FUNCTION writes;\nDELIMITER //\nCREATE FUNCTION calls() RETURNS INT BEGIN CALL writes(); RETURN 1; END//",
    );
    assert!(may_write(&server));
    server.ask("app", "DROP FUNCTION calls; CREATE SEQUENCE numbers");
    assert!(!may_write(&server));
    server.ask("app", "CREATE VIEW counts AS SELECT NEXT VALUE FOR numbers");
    assert!(may_write(&server));
    server.ask("", "DROP DATABASE app");
    server.ask("", MARIADB);
    let mut bench = Bench::new(server, "proxy");
    assert!(bench.catalogue.select_may_write());
    assert!(!bench.catalogue.has_hidden_writers());

    let heard = bench.shell("SELECT * FROM titles; SHOW TABLES; SELECT 1");
    bench.expect(&heard, &[]);
    let target = |name: &str| Access::whole(Target::table("app", name));
    assert!(
        heard.reads.contains(&target("titles")) && heard.reads.contains(&target("posts")),
        "{heard:?}"
    );

    bench.expect(&bench.shell("UPDATE counters SET n = n + 1 WHERE id = 1"), &["app.counters"]);
    bench.expect(
        &bench.shell("UPDATE titles SET title = 'First' WHERE id = 1"),
        &["app.comments", "app.posts", "app.titles"],
    );
    bench.expect(&bench.shell("DELETE FROM posts WHERE id = 1"), &["app.comments", "app.posts"]);
    // Triggers are not told apart by what fires them.
    for sql in ["INSERT INTO watched VALUES (2, 2)", "UPDATE watched SET n = 5 WHERE id = 2"] {
        bench.expect(&bench.shell(sql), &["app.counters", "app.log", "app.watched", "other.t"]);
    }
    bench.expect(&bench.shell("USE other; UPDATE t SET n = n + 1"), &["other.t"]);
    bench.expect(
        &bench
            .shell("BEGIN; UPDATE counters SET n = 7; INSERT INTO log (what) VALUES ('x'); COMMIT"),
        &["app.counters", "app.log"],
    );
    bench.expect(&bench.shell("BEGIN; UPDATE counters SET n = 8; ROLLBACK"), &[]);
    bench.expect(&bench.shell("BEGIN; UPDATE at_once SET n = 8; ROLLBACK"), &["app.at_once"]);
    bench.expect(
        &bench.shell("SET autocommit = 0; UPDATE counters SET n = 9; COMMIT"),
        &["app.counters"],
    );
    bench.expect(&bench.shell("SET autocommit = 0; UPDATE counters SET n = 10"), &[]);
    bench.expect(
        &bench.shell("SET autocommit = 0; UPDATE counters SET n = 11; SET autocommit = 1"),
        &["app.counters"],
    );
    bench.expect(
        &bench.shell("BEGIN; UPDATE counters SET n = 12; BEGIN; ROLLBACK"),
        &["app.counters"],
    );
    bench.expect(
        &bench.shell(
            "START TRANSACTION; UPDATE counters SET n = 13; LOCK TABLES log WRITE; UNLOCK TABLES",
        ),
        &["app.counters"],
    );
    bench.expect(&bench.shell("/*!40000 UPDATE counters SET n = n + 1 */"), &["app.counters"]);
    for sql in [
        "CALL p()",
        "SELECT f()",
        "PREPARE s FROM 'UPDATE counters SET n = n + 1'; EXECUTE s",
        "EXECUTE IMMEDIATE 'UPDATE counters SET n = n + 1'",
        "BEGIN NOT ATOMIC UPDATE counters SET n = n + 1; END",
        "/*!100100 UPDATE counters SET n = n + 1 */",
        "SET sql_mode = 'ORACLE'; BEGIN UPDATE counters SET n = n + 1; END;",
        "XA START 'x'; UPDATE counters SET n = n + 1; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
        "CREATE TABLE copy AS SELECT * FROM counters",
        "RENAME TABLE at_once TO later",
        "SET @x = f()",
    ] {
        let heard = bench.shell(sql);
        assert!(!heard.everything.is_empty() && heard.schema_changed, "{sql}: {heard:?}");
    }
    for sql in [
        "SET sql_mode = 'ANSI_QUOTES'; UPDATE \"counters\" SET \"n\" = 20",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'; SELECT 'a\\'; UPDATE counters SET n = n + 1 WHERE 'b' <> 'c\\'",
    ] {
        let heard = bench.shell(sql);
        assert!(!heard.everything.is_empty() && !heard.schema_changed, "{sql}: {heard:?}");
    }
    bench.catalogue = Bench::fetch(&bench.server);

    const CONNECT: &str = "$c = new mysqli('localhost', 'root', '', 'app', 0, getenv('SOCKET'));";
    let php = |script: &str| bench.php(&format!("{CONNECT} {script}"));
    bench.expect(&php("$c->query('UPDATE counters SET n = 30');"), &["app.counters"]);
    bench.expect(&php("$c->select_db('other'); $c->query('UPDATE t SET n = 31');"), &["other.t"]);
    let heard = php("$s = $c->prepare('UPDATE counters SET n = ? WHERE id = ?'); $n = 40; $id = 2;
        $s->bind_param('ii', $n, $id); $s->execute(); $n = 41; $id = 1; $s->execute(); $s->close();");
    bench.expect(&heard, &["app.counters"]);
    let values: Vec<_> =
        heard.visible.iter().flat_map(|access| &access.rows).flat_map(|row| &row.values).collect();
    assert_eq!(values, [&Value::Integer(2), &Value::Integer(1)]);
    bench.expect(
        &php("$c->begin_transaction(); $c->query('UPDATE counters SET n = 50'); $c->commit();"),
        &["app.counters"],
    );
    bench.expect(
        &php("$c->autocommit(false); $c->query('UPDATE counters SET n = 51'); $c->commit();"),
        &["app.counters"],
    );
    bench.expect(
        &php("$c->multi_query('UPDATE counters SET n = 52; UPDATE log SET what = 1; SELECT 1');
            do { $r = $c->store_result(); } while ($c->more_results() && $c->next_result());"),
        &["app.counters", "app.log"],
    );
    // What is in front of it fails, so BEGIN is never reached.
    let heard = php(
        "mysqli_report(MYSQLI_REPORT_OFF); $c->multi_query('SELECT nothing FROM nowhere; BEGIN');
        $c->query('UPDATE counters SET n = 53');",
    );
    assert!(heard.announced(None, "app", "counters"));
    bench.expect(
        &php("$c->change_user('root', '', 'other'); $c->query('UPDATE t SET n = 54');"),
        &["other.t"],
    );
    let pdo = |options: &str, script: &str| {
        bench.php(&format!(
            "$c = new PDO('mysql:unix_socket=' . getenv('SOCKET') . ';dbname=app;charset=utf8mb4', 'root', '', [{options}]);
             {script}"
        ))
    };
    for emulate in ["true", "false"] {
        let heard = pdo(
            &format!("PDO::ATTR_EMULATE_PREPARES => {emulate}"),
            "$s = $c->prepare('INSERT INTO posts (title, n) VALUES (?, ?) ON DUPLICATE KEY UPDATE n = VALUES(n)');
             $s->execute(['it\\'s', 5]); $c->beginTransaction();
             $c->exec('UPDATE log SET what = 5'); $c->commit();",
        );
        bench.expect(&heard, &["app.comments", "app.log", "app.posts"]);
        assert!(heard.visible.iter().any(|access| !access.rows.is_empty()), "{heard:?}");
    }
    let heard = pdo("PDO::MYSQL_ATTR_COMPRESS => true", "$c->exec('UPDATE counters SET n = 60');");
    assert_eq!(heard.everything.first(), Some(&Reason::Compressed), "{heard:?}");
    let heard = pdo(
        "",
        "$c->exec('UPDATE counters SET n = 61 WHERE 1 /* ' . str_repeat('x', 17000000) . ' */');",
    );
    assert_eq!(heard.everything.first(), Some(&Reason::TooLarge), "{heard:?}");
}

const POSTGRES: &str = "
CREATE TABLE posts (id bigserial PRIMARY KEY, title text UNIQUE, n int NOT NULL DEFAULT 0);
CREATE TABLE comments (id bigserial PRIMARY KEY, post bigint REFERENCES posts (id) ON DELETE CASCADE, body text);
CREATE TABLE counters (id int PRIMARY KEY, n int);
CREATE TABLE watched (id int PRIMARY KEY, n int);
CREATE TABLE parent (id int, n int) PARTITION BY RANGE (id);
CREATE TABLE child_1 PARTITION OF parent FOR VALUES FROM (0) TO (10);
CREATE TABLE child_2 PARTITION OF parent FOR VALUES FROM (10) TO (20);
CREATE SCHEMA s; CREATE TABLE s.counters (id int PRIMARY KEY, n int);
CREATE VIEW titles AS SELECT id, title FROM posts WHERE n >= 0;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'UPDATE counters SET n = n + 100 RETURNING n';
CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE counters SET n = n + 1; RETURN NEW; END $$;
CREATE TRIGGER w AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION t();
CREATE PROCEDURE p() LANGUAGE sql AS 'UPDATE counters SET n = n + 10';
INSERT INTO counters VALUES (1, 0); INSERT INTO s.counters VALUES (1, 0); INSERT INTO parent VALUES (1, 1), (11, 1);
INSERT INTO posts (title) VALUES ('first'), ('second'); INSERT INTO comments (post, body) VALUES (1, 'a');
";

/// What other nodes of a cluster have committed is applied without a client.
#[test]
fn a_node_of_a_cluster_has_hidden_writers() {
    let server = Server::mariadb_of_a_cluster();
    server.ask("", "CREATE DATABASE app");
    assert!(Bench::fetch(&server).has_hidden_writers());
}

/// A subscription that cannot reach its publisher has no process most of the time, and goes on by
/// itself when it can.
#[test]
fn a_subscription_is_a_hidden_writer_while_it_is_down() {
    let server = Server::postgres();
    server.ask("", "CREATE DATABASE app");
    assert!(!Bench::fetch(&server).has_hidden_writers());
    let sql = "CREATE SUBSCRIPTION news CONNECTION 'host=/nowhere dbname=app' PUBLICATION news \
               WITH (connect = false, slot_name = 'news')";
    server.ask("app", sql);
    assert!(!Bench::fetch(&server).has_hidden_writers(), "it is not enabled");
    server.ask("app", "ALTER SUBSCRIPTION news ENABLE");
    for _ in 0..5 {
        assert!(Bench::fetch(&server).has_hidden_writers());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    server.ask("app", "ALTER SUBSCRIPTION news DISABLE");
    let has_ended = || !Bench::fetch(&server).has_hidden_writers();
    assert!((0..100).any(|_| has_ended() || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        false
    }));
}

#[test]
fn postgres() {
    let server = Server::postgres();
    server.ask("", "CREATE DATABASE app");
    server.ask("app", POSTGRES);
    let bench = Bench::new(server, "proxy");

    let heard = bench.shell("SELECT * FROM titles");
    bench.expect(&heard, &[]);
    assert!(
        heard.reads.iter().any(|access| access.target.name.as_deref() == Some("posts")),
        "{heard:?}"
    );
    let expect = |heard: &Heard, tables: &[&str]| {
        let tables: Vec<String> = tables.iter().map(|table| format!("app:{table}")).collect();
        bench.expect(heard, &tables.iter().map(String::as_str).collect::<Vec<_>>());
    };
    expect(&bench.shell("UPDATE s.counters SET n = n + 1"), &["s.counters"]);
    expect(&bench.shell("UPDATE counters SET n = n + 1"), &["public.counters", "s.counters"]);
    expect(
        &bench.shell("UPDATE titles SET title = 'First' WHERE id = 1"),
        &["public.comments", "public.posts", "public.titles"],
    );
    expect(&bench.shell("DELETE FROM posts WHERE id = 1"), &["public.comments", "public.posts"]);
    expect(
        &bench.shell("UPDATE parent SET n = 5"),
        &["public.child_1", "public.child_2", "public.parent"],
    );
    expect(&bench.shell("BEGIN; UPDATE s.counters SET n = 7; ROLLBACK"), &[]);
    expect(&bench.shell("BEGIN;\nUPDATE s.counters SET n = 8;\nCOMMIT;"), &["s.counters"]);
    expect(
        &bench.shell("BEGIN;\nSELECT 1/0;\nUPDATE s.counters SET n = 9;\nCOMMIT;\n"),
        &["s.counters"],
    );
    expect(&bench.shell("COPY comments (body) FROM STDIN;\nx\ny\n\\.\n"), &["public.comments"]);
    expect(
        &bench.shell("WITH d AS (DELETE FROM comments RETURNING 1) SELECT * FROM d"),
        &["public.comments"],
    );
    for sql in [
        "INSERT INTO watched VALUES (1, 1)",
        "SELECT f()",
        "CALL p()",
        "DO $$ BEGIN UPDATE counters SET n = 20; END $$",
        "PREPARE s AS UPDATE counters SET n = 21; EXECUTE s",
        "SET standard_conforming_strings = off; SELECT 'a\\'; UPDATE counters SET n = 22 WHERE 'b' <> 'c\\''",
        "CREATE TABLE copy AS SELECT * FROM counters",
        "BEGIN; TRUNCATE comments; COMMIT",
    ] {
        assert!(!bench.shell(sql).everything.is_empty(), "{sql}");
    }
    // In other databases nothing has changed.
    for sql in [
        "CREATE TABLE late (id int PRIMARY KEY)",
        "BEGIN;\nALTER TABLE late ADD COLUMN n int;\nCOMMIT;\n",
        "CREATE INDEX ON late (n)",
        "DROP TABLE late",
    ] {
        let heard = bench.shell(sql);
        assert!(heard.schema_changed, "{sql}");
        bench.expect(&heard, &["app:*.*"]);
    }
    let php = |script: &str| {
        bench.php(&format!(
            "$c = new PDO('pgsql:host=' . getenv('SOCKET') . ';dbname=app', 'postgres'); {script}"
        ))
    };
    let heard = php(
        "$s = $c->prepare('UPDATE posts SET n = ? WHERE id = ?'); $s->execute([5, 2]); $s->execute([6, 2]);",
    );
    expect(&heard, &["public.comments", "public.posts"]);
    let posts = |access: &&Access| access.target.name.as_deref() == Some("posts");
    assert!(
        heard
            .visible
            .iter()
            .filter(posts)
            .all(|access| access.rows[0].values == [Value::Integer(2)]),
        "{heard:?}"
    );
    expect(
        &php(
            "$c->beginTransaction(); $c->prepare('UPDATE posts SET n = 7')->execute(); $c->commit();",
        ),
        &["public.comments", "public.posts"],
    );
    expect(
        &php(
            "$c->beginTransaction(); $c->prepare('UPDATE posts SET n = 8')->execute(); $c->rollBack();",
        ),
        // Sync may end a transaction, and whether one was begun is not certain.
        &["public.comments", "public.posts"],
    );
    expect(
        &php("$c->pgsqlCopyFromArray('comments', [\"9\\t2\\tx\"], \"\\t\");"),
        &["public.comments"],
    );
}
