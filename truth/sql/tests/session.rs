//! What connections say: transactions, settings, prepared statements, gaps, and what cannot be
//! followed.

use nicache_sql::*;

struct Client {
    session: Session,
    heard: Vec<String>,
    structure_changed: bool,
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = (payload.len() as u32).to_le_bytes()[..3].to_vec();
    packet.push(sequence);
    packet.extend(payload);
    packet
}

fn handshake(capabilities: u32, collation: u8) -> Vec<u8> {
    let mut payload = (0x8208 | capabilities).to_le_bytes().to_vec();
    payload.extend([0; 4]);
    payload.push(collation);
    payload.extend([0; 23]);
    payload.extend(b"root\0\0app\0");
    packet(1, &payload)
}

fn message(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend((rest.len() as u32 + 4).to_be_bytes());
    message.extend(rest);
    message
}

fn startup(more: &[u8]) -> Vec<u8> {
    let mut rest = b"\0\x03\0\0user\0postgres\0database\0app\0".to_vec();
    rest.extend(more);
    rest.push(0);
    let mut bytes = (rest.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend(rest);
    bytes
}

fn defaults() -> Defaults {
    Defaults { autocommit: true, usual_lexing: true, read_uncommitted: false, usual_language: true }
}

/// Tables a to d, in the database app.
fn catalogue(dialect: Dialect) -> Catalogue {
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let schema = hex(if dialect == Dialect::MySql { "app" } else { "public" });
    let mut rows = format!("setting\tdatabase\t{}\n", hex("app"));
    for table in ["a", "b", "c", "d"] {
        rows.push_str(&format!("table\t{schema}\t{}\tInnoDB\n", hex(table)));
    }
    Catalogue::parse(dialect, &(rows + "end")).unwrap()
}

impl Client {
    fn new(session: Session) -> Self {
        Self { session, heard: Vec::new(), structure_changed: false }
    }

    fn mysql() -> Self {
        let mut client = Self::new(Session::new(Dialect::MySql, Some(defaults())));
        assert_eq!(client.send(&handshake(0, 45)), "");
        client
    }

    fn postgres() -> Self {
        let mut client = Self::new(Session::new(Dialect::Postgres, Some(defaults())));
        assert_eq!(client.send(&startup(b"")), "");
        client
    }

    /// What is heard when the server receives this, in short.
    fn send(&mut self, bytes: &[u8]) -> String {
        let catalogue = catalogue(self.session.dialect());
        let (heard, structure_changed) = (&mut self.heard, &mut self.structure_changed);
        let names = |list: &[Access]| {
            let names: Vec<&str> =
                list.iter().map(|access| access.target.name.as_deref().unwrap_or("*")).collect();
            names.join(" ")
        };
        self.session.handle_client(bytes, &mut Uncached, Some(&catalogue), &mut |event| {
            heard.push(match event {
                Event::Statement(execution) if execution.footprint.reads.is_empty() => return,
                Event::Statement(execution) => {
                    format!(
                        "reads {}-{}",
                        names(&execution.footprint.reads),
                        execution.snapshot_age
                    )
                }
                Event::InProgress { writes } => format!("later {}", names(&writes)),
                Event::BecomesVisible { writes } => format!("now {}", names(&writes)),
                Event::Everything { reason } => reason.to_string(),
                Event::SchemaChanged | Event::DatabaseChanged => {
                    *structure_changed = true;
                    return;
                }
                Event::TablesChanged(_) | Event::SchemaDoubted | Event::RequestEnd => return,
            });
        });
        core::mem::take(&mut self.heard).join(", ")
    }

    fn query(&mut self, text: &str) -> String {
        match self.session.dialect() {
            Dialect::MySql => self.send(&packet(0, &[b"\x03", text.as_bytes()].concat())),
            Dialect::Postgres => self.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat())),
        }
    }
}

#[test]
fn transactions_announce_what_they_wrote_when_they_end() {
    for mut client in [Client::mysql(), Client::postgres()] {
        assert_eq!(client.query("INSERT INTO a VALUES (1)"), "now a");
        assert_eq!(client.query("SELECT 1 FROM a"), "reads a-0");
        client.query("BEGIN");
        assert_eq!(client.query("INSERT INTO a VALUES (1)"), "later a");
        assert_eq!(client.query("INSERT INTO b VALUES (1)"), "later b");
        assert_eq!(client.query("SELECT 1 FROM c"), "reads c-2");
        assert_eq!(client.query("COMMIT"), "now a b");
        assert_eq!(client.query("SELECT 1 FROM c"), "reads c-0");
        client.query("BEGIN");
        assert_eq!(client.query("INSERT INTO a VALUES (1)"), "later a");
        assert_eq!(client.query("ROLLBACK"), "");
        assert_eq!(client.query("INSERT INTO a VALUES (1)"), "now a");
        // Whether the second statement is reached is not certain.
        client.query("SELECT 1; BEGIN");
        assert_eq!(client.query("INSERT INTO a VALUES (1)"), "later a");
        assert_eq!(client.query("SELECT 1; ROLLBACK"), "");
        assert_eq!(client.query("COMMIT"), "now a");
    }
}

#[test]
fn what_is_not_understood_leaves_the_session_only_where_that_is_certain() {
    let mut client = Client::mysql();
    assert_eq!(client.query("SELECT 1 FROM a PROCEDURE ANALYSE()"), "reads *-0, unparsable");
    assert_eq!(client.query(r#"UPDATE a SET x = "it\"s""#), "reads a-0, now a");
    assert_eq!(client.query("CALL p()"), "indirect");
    assert!(client.query("UPDATE a SET x = 1").ends_with("later a"));
    assert_eq!(client.query(r#"UPDATE a SET x = "it\"s""#), "lexing");
    assert_eq!(client.query("COMMIT"), "now *");
    let mut client = Client::mysql();
    client.query("SET NAMES gbk");
    assert_eq!(client.query(r"SELECT '\' FROM a"), "lexing");
    assert_eq!(client.query("SELECT 'x' FROM a"), "reads a-0");
    client.query("SET sql_mode = 'ORACLE'");
    assert_eq!(client.query("SELECT 'x' FROM a"), "setting");
}

#[test]
fn databases_are_certain_once_the_server_agrees() {
    let mut client = Client::mysql();
    client.send(&packet(0, b"\x02other"));
    client.session.handle_server(&packet(1, b"\0\0\0\x02\0\0\0"));
    assert_eq!(client.query("DELETE FROM a"), "reads *-0, unknown_table");
    let mut client = Client::mysql();
    client.send(&packet(0, b"\x02other"));
    client.session.handle_server(&packet(1, b"\xff\0\0#42000no"));
    assert_eq!(client.query("DELETE FROM a"), "reads a-0, now a");
}

#[test]
fn prepared_statements_are_known_by_the_servers_reply() {
    let mut client = Client::mysql();
    client.send(&packet(0, b"\x16DELETE FROM a WHERE id = ?"));
    client.session.handle_server(&packet(1, b"\0\x07\0\0\0\0\0\x01\0\0\0\0"));
    assert_eq!(
        client.send(&packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0\0\x01\x03\0\x05\0\0\0")),
        "reads a-0, now a"
    );
    assert_eq!(client.send(&packet(0, b"\x17\x08\0\0\0\0\x01\0\0\0")), "unknown_statement");
    client.send(&packet(0, b"\x19\x07\0\0\0"));
    assert_eq!(client.send(&packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0")), "unknown_statement");
    // Two commands, one answer: whose it is is not certain. The last prepared is.
    let mut client = Client::mysql();
    client.send(&[packet(0, b"\x16DELETE FROM a"), packet(0, b"\x0e")].concat());
    client.session.handle_server(&packet(1, b"\0\x07\0\0\0\0\0\0\0\0\0\0"));
    assert_eq!(client.send(&packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0")), "unknown_statement");
    let mut client = Client::mysql();
    client.send(&packet(0, b"\x16DELETE FROM a"));
    assert_eq!(client.send(&packet(0, b"\x17\xff\xff\xff\xff\0\x01\0\0\0")), "reads a-0, now a");
}

#[test]
fn opaque_connections_stay_so() {
    for (capabilities, reason) in [(1 << 11, "encrypted"), (1 << 5, "compressed")] {
        let mut client = Client::new(Session::new(Dialect::MySql, Some(defaults())));
        assert_eq!(client.send(&handshake(capabilities, 45)), reason);
        assert_eq!(client.query("SELECT 1 FROM a"), reason);
    }
    let mut client = Client::new(Session::new(Dialect::Postgres, Some(defaults())));
    client.send(b"\0\0\0\x08\x04\xd2\x16\x2f");
    client.session.handle_server(b"S");
    assert_eq!(client.send(b"\x16\x03\x01"), "encrypted");
    let mut client = Client::new(Session::new(Dialect::Postgres, Some(defaults())));
    client.send(b"\0\0\0\x08\x04\xd2\x16\x2f");
    client.session.handle_server(b"N");
    client.send(&startup(b""));
    assert_eq!(client.query("SELECT 1 FROM a"), "reads a-0");
}

#[test]
fn a_connection_is_picked_up_only_behind_a_reply() {
    let mut client = Client::new(Session::in_the_middle(Dialect::MySql));
    assert_eq!(client.query("SELECT 1 FROM app.a"), "gap");
    assert_eq!(client.query("SELECT 1 FROM app.a"), "gap");
    client.session.handle_server(b"x");
    assert_eq!(client.send(b"\x09\0\0\x00\x03half"), "gap");
    client.session.handle_server(b"x");
    assert_eq!(client.query("DELETE FROM app.a"), "reads a-0, later a");
    assert_eq!(client.query("COMMIT"), "now *");
    let mut client = Client::new(Session::in_the_middle(Dialect::Postgres));
    client.session.handle_server(b"Z\0\0\0\x05I");
    assert_eq!(client.query("SELECT 1 FROM a"), "gap");
    let mut client = Client::mysql();
    client.query("SELECT 1");
    client.session.handle_gap(&mut |_| {});
    client.session.handle_server(b"x");
    assert_eq!(client.query("DELETE FROM app.a"), "reads a-0, later a");
}

#[test]
fn postgres_executes_what_was_bound() {
    let parse = |name: &str, text: &str| {
        message(b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"].concat())
    };
    let bind = |name: &str| message(b'B', &[b"\0", name.as_bytes(), b"\0\0\0\0\0\0\0"].concat());
    let execute = || message(b'E', b"\0\0\0\0\0");
    let sync = || message(b'S', b"");
    let mut client = Client::postgres();
    assert_eq!(client.send(&parse("s", "DELETE FROM a")), "");
    assert_eq!(client.send(&[bind("s"), execute()].concat()), "reads a-0, now a");
    // The transaction of the request ends here.
    assert_eq!(client.send(&sync()), "now a");
    assert_eq!(client.send(&sync()), "");
    // The server may have refused the second text.
    client.send(&[parse("s", "DELETE FROM b"), sync()].concat());
    assert_eq!(client.send(&[bind("s"), execute()].concat()), "unknown_statement");
    let mut client = Client::postgres();
    let batch = [
        parse("", "DELETE FROM a"),
        bind(""),
        execute(),
        parse("", "DELETE FROM b"),
        bind(""),
        execute(),
    ];
    assert_eq!(client.send(&batch.concat()), "reads a-0, now a, reads b-0, now b");
    assert_eq!(client.send(&sync()), "now a b");
    assert_eq!(client.send(&message(b'F', b"\0\0\0\x01")), "command");
    assert_eq!(client.send(&message(b'?', b"")), "malformed");
    assert_eq!(client.query("SELECT 1 FROM a"), "malformed");
}

#[test]
fn postgres_copies_are_visible_when_they_end() {
    let mut client = Client::postgres();
    assert_eq!(client.query("COPY a FROM STDIN"), "now a");
    assert_eq!(client.send(&message(b'd', b"1\n")), "");
    assert_eq!(client.send(&message(b'c', b"")), "now a");
}

#[test]
fn temporary_tables_are_their_own() {
    let mut client = Client::mysql();
    client.query("CREATE TEMPORARY TABLE scratch (a int)");
    assert_eq!(client.query("INSERT INTO scratch VALUES (1)"), "now scratch");
    client.send(&packet(0, b"\x1f"));
    assert_eq!(client.query("INSERT INTO scratch VALUES (1)"), "reads *-0, unknown_table");
}

/// On a busy server with sessions that are not understood the structure would never be known
/// otherwise.
#[test]
fn what_is_not_understood_for_its_quotes_changes_the_structure_only_if_it_may() {
    for dialect in [Dialect::MySql, Dialect::Postgres] {
        let (mut client, setting) = match dialect {
            Dialect::MySql => (Client::mysql(), "SET sql_mode = 'ANSI_QUOTES'"),
            Dialect::Postgres => (Client::postgres(), "SET standard_conforming_strings = off"),
        };
        client.query(setting);
        for (text, changes) in [
            (r"SELECT '\n' FROM a", false),
            (r"/* by */ BEGIN -- it's\", false),
            (r"/* by */ UPDATE a SET x = '\'", false),
            (r"SHOW TABLES LIKE 'a\_b'", false),
            (r"SET NAMES 'ut\f8'", false),
            (r"SELECT '\'; DROP TABLE a", true),
            (r"SET GLOBAL sql_mode = '\'", true),
            (r"SET STATEMENT max_statement_time = 1 FOR CREATE TABLE x (a int) COMMENT '\'", true),
            (r"EXPLAIN ANALYZE CREATE TABLE x AS SELECT '\'", true),
            (r"CREATE TABLE x (a int) COMMENT '\'", true),
            (r"CALL p('\')", true),
        ] {
            client.structure_changed = false;
            assert_eq!(client.query(text), "lexing", "{dialect:?} {text}");
            assert_eq!(client.structure_changed, changes, "{dialect:?} {text}");
        }
    }
}

#[test]
fn a_transaction_changes_the_structure_if_something_in_it_may_have() {
    let mut client = Client::postgres();
    client.query("SET standard_conforming_strings = off");
    for (text, changes) in [(r"SELECT '\'", false), (r"CREATE TABLE x (a text DEFAULT '\')", true)]
    {
        client.query("BEGIN");
        client.query(text);
        client.structure_changed = false;
        assert_eq!(client.query("COMMIT"), "now *", "{text}");
        assert_eq!(client.structure_changed, changes, "{text}");
    }
}

#[test]
fn comments_say_nothing_of_quotes() {
    let mut client = Client::mysql();
    client.query("SET sql_mode = 'ANSI_QUOTES'");
    assert_eq!(
        client.query(r"SELECT /* It\'s \Wiki */ 1 FROM a WHERE b = 'c' /* \ */"),
        "reads a-0"
    );
    for text in [
        r"SELECT '/* \' */ FROM a",
        r"SELECT 1 FROM a -- '
          /* \ */",
        r"SELECT 1 FROM a # '
          /* \ */",
        r"SELECT /* /* \ */ 1 FROM a",
        r"SELECT /*! \ */ 1 FROM a",
        r"SELECT $$ ' $$ /* \ */ FROM a",
        r"SELECT `'` /* \ */ FROM a",
        r"SELECT 1 /* \",
        r"SELECT 1 /*/ \ */ \ */",
    ] {
        assert_eq!(client.query(text), "lexing", "{text}");
    }
}
