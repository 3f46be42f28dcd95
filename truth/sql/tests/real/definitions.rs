//! Tables that are made, changed, emptied and dropped while a catalogue is at hand that is not
//! fetched again: what it says with the changes heard is enough.

use nicache_sql::{Access, Target, conflicts};

use super::server::Server;
use super::{Bench, Heard, MARIADB, STRUCTURE};

impl Bench {
    /// As [`Bench::shell`], and the catalogue follows.
    fn follow(&mut self, sql: &str) -> Heard {
        let heard = self.shell(sql);
        for changed in &heard.tables_changed {
            self.catalogue.change(changed);
        }
        heard
    }
}

#[test]
fn what_changes_a_table_is_known_by_name() {
    let server = Server::mariadb();
    server.ask("", MARIADB);
    let mut bench = Bench::new(server, "definitions");
    for (sql, tables) in [
        ("TRUNCATE TABLE log", &["app.log"][..]),
        ("truncate other.t", &["other.t"]),
        ("DROP TABLE IF EXISTS nothing, `nobody`", &["app.nobody", "app.nothing", "app.\u{1}"]),
        (
            "CREATE TABLE fresh (id INT PRIMARY KEY, n INT) ENGINE=InnoDB",
            &["app.fresh", "app.\u{1}"],
        ),
        ("INSERT INTO fresh VALUES (1, 1)", &["app.fresh"]),
        ("/*!40000 ALTER TABLE `fresh` DISABLE KEYS */", &["app.fresh", "app.\u{1}"]),
        ("CREATE INDEX i ON fresh (n)", &["app.fresh", "app.\u{1}"]),
        ("UPDATE fresh SET n = 2 WHERE id = 1", &["app.fresh"]),
        (
            "BEGIN; UPDATE counters SET n = 3; ALTER TABLE fresh ADD COLUMN m INT",
            &["app.counters", "app.fresh", "app.\u{1}"],
        ),
        ("USE other; CREATE TABLE IF NOT EXISTS t (id INT)", &["other.t", "other.\u{1}"]),
        ("DROP TABLE other.t, fresh", &["app.fresh", "app.\u{1}", "other.t", "other.\u{1}"]),
    ] {
        let heard = bench.follow(sql);
        let mut tables = tables.to_vec();
        tables.sort_unstable();
        bench.expect(&heard, &tables);
    }
    // What SHOW says is one of the things that a page may be made of.
    let said = |sql: &str| bench.shell(sql).reads;
    let write = |schema: &str, name: &str| [Access::whole(Target::table(schema, name))];
    for sql in ["SHOW TABLES", "SHOW COLUMNS FROM log", "DESCRIBE log", "SHOW CREATE TABLE log"] {
        assert!(conflicts(&said(sql), &write("app", STRUCTURE)), "{sql}");
        assert!(!conflicts(&said(sql), &write("app", "log")), "{sql}");
    }
    assert!(!conflicts(&said("SELECT @@sql_mode"), &write("app", STRUCTURE)));
    for sql in [
        "CREATE TABLE copy LIKE log",
        "CREATE TABLE copy2 AS SELECT * FROM counters",
        "CREATE TABLE child (id INT, post BIGINT, FOREIGN KEY (post) REFERENCES posts (id))",
        "CREATE TABLE all_logs (id INT, what VARCHAR(50)) ENGINE=MERGE UNION=(log)",
        "CREATE TABLE elsewhere (id INT) ENGINE=CSV",
        "ALTER TABLE counters RENAME TO other.c",
        "ALTER TABLE other.c ENGINE=MyISAM",
        "TRUNCATE TABLE unheard_of",
        "TRUNCATE TABLE titles",
        "RENAME TABLE other.c TO counters",
        "CREATE TRIGGER late AFTER INSERT ON log FOR EACH ROW DELETE FROM counters",
        "DROP DATABASE other",
    ] {
        let heard = bench.shell(sql);
        assert!(!heard.everything.is_empty() && heard.schema_changed, "{sql}: {heard:?}");
    }
}

/// `'01'` is 1 to a column of numbers, and another text than `'1'`.
#[test]
fn rows_are_not_told_apart_by_a_column_that_may_be_another() {
    let server = Server::mariadb();
    server.ask("", MARIADB);
    let mut bench = Bench::new(server, "definitions");
    let reads = bench.shell("SELECT n FROM counters WHERE id = 1").reads;
    assert!(reads.iter().all(|read| !read.rows.is_empty()), "{reads:?}");
    bench.follow("ALTER TABLE counters MODIFY id VARCHAR(20)");
    for sql in ["UPDATE counters SET n = 3 WHERE id = '01'", "DELETE FROM counters WHERE id = 1"] {
        let heard = bench.follow(sql);
        bench.expect(&heard, &["app.counters"]);
        assert!(heard.visible.iter().all(|access| access.rows.is_empty()), "{heard:?}");
    }
}

/// A dump is played in with `foreign_key_checks` off: a table comes after those that refer to it.
#[test]
fn a_table_that_was_waited_for_takes_along_rows_of_others() {
    let server = Server::mariadb();
    server.ask("", MARIADB);
    server.ask("app", "SET foreign_key_checks = 0; DROP VIEW titles; DROP TABLE posts");
    let mut bench = Bench::new(server, "definitions");
    let create = "CREATE TABLE posts (id BIGINT PRIMARY KEY, title VARCHAR(50), n INT)";
    bench.follow(create);
    bench.follow("INSERT INTO posts (id) VALUES (1), (3)");
    let heard = bench.follow("DELETE FROM posts WHERE id = 1");
    bench.expect(&heard, &["app.comments", "app.posts"]);
}

/// Whatever comes of it: what has changed was announced, although the catalogue is as old as the
/// last change that it could not follow.
#[test]
fn a_catalogue_follows_changes_of_tables() {
    const STATEMENTS: [&str; 34] = [
        "CREATE TABLE IF NOT EXISTS a (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE IF NOT EXISTS b (id VARCHAR(9) PRIMARY KEY, n INT) ENGINE=MyISAM",
        "CREATE OR REPLACE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(50))",
        "CREATE OR REPLACE TABLE counters (id INT PRIMARY KEY, n INT)",
        "CREATE OR REPLACE TABLE watched (id INT PRIMARY KEY, n INT, m INT)",
        "CREATE TABLE IF NOT EXISTS other.t (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE IF NOT EXISTS watched (id INT PRIMARY KEY, n INT)",
        "DROP TABLE IF EXISTS a, b",
        "DROP TABLE IF EXISTS other.t",
        "DROP TABLE IF EXISTS watched",
        "SET foreign_key_checks = 0; DROP TABLE posts",
        "SET foreign_key_checks = 0; DROP TABLE comments",
        "SET foreign_key_checks = 0; CREATE TABLE posts (id BIGINT PRIMARY KEY, title VARCHAR(9), n INT)",
        "TRUNCATE watched",
        "TRUNCATE a",
        "SET foreign_key_checks = 0; TRUNCATE posts",
        "ALTER TABLE a MODIFY id VARCHAR(20)",
        "ALTER TABLE a MODIFY id INT, ADD INDEX (n)",
        "ALTER TABLE watched DROP COLUMN m",
        "ALTER TABLE counters ADD COLUMN IF NOT EXISTS x INT DEFAULT 5",
        "DROP INDEX n ON a",
        "INSERT INTO a (id, n) VALUES (1, 1), (2, 2)",
        "REPLACE INTO a (id, n) VALUES (1, 3)",
        "UPDATE a SET n = n + 1 WHERE id = 1",
        "INSERT INTO b (id, n) VALUES ('x', 1) ON DUPLICATE KEY UPDATE n = n + 1",
        "INSERT INTO watched (id, n) VALUES (FLOOR(RAND() * 100000), 7)",
        "UPDATE watched SET n = n + 1",
        "INSERT INTO posts (id, title) VALUES (1, 'a'), (3, 'b')",
        "INSERT INTO comments (post, body) VALUES (1, 'a'), (3, 'b')",
        "DELETE FROM posts WHERE id = 1",
        "DELETE FROM posts",
        "UPDATE titles SET title = 'c' WHERE id = 3",
        "UPDATE counters SET n = n + 1 WHERE id = 1",
        "INSERT INTO counters (id, n) VALUES (1, 1), (2, 2)",
    ];
    let server = Server::mariadb();
    server.ask("", MARIADB);
    let mut bench = Bench::new(server, "definitions");
    let (mut state, mut followed) = (7_u32, 0);
    for _ in 0..250 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let heard = bench.follow(STATEMENTS[(state >> 16) as usize % STATEMENTS.len()]);
        followed += heard.tables_changed.len();
        if heard.schema_changed {
            bench.catalogue = Bench::fetch(&bench.server);
        }
    }
    assert!(followed > 60, "{followed}");
}
