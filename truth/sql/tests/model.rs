//! Conflicts are judged right: small tables, statements in many spellings, and a model that runs
//! them.

use nicache_sql::*;
use proptest::prelude::*;

fn hex(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

/// `t(id bigint auto_increment primary key, name varchar(4) unique, n int)`.
fn catalogue() -> Catalogue {
    let (db, t) = (hex("db"), hex("t"));
    let rows = [
        format!("table\t{db}\t{t}\tInnoDB"),
        format!("column\t{db}\t{t}\t{}\tbigint\t0", hex("id")),
        format!("column\t{db}\t{t}\t{}\tstring\t4", hex("name")),
        format!("column\t{db}\t{t}\t{}\tint\t0", hex("n")),
        format!("unique\t{db}\t{t}\t{}\t{}\t1", hex("PRIMARY"), hex("id")),
        format!("unique\t{db}\t{t}\t{}\t{}\t0", hex("name"), hex("name")),
        "end".to_owned(),
    ];
    Catalogue::parse(Dialect::MySql, &rows.join("\n")).unwrap()
}

type Row = (i64, String, i64);

/// Are two texts the same to a case-insensitive collation that ignores trailing blanks?
fn same(a: &str, b: &str) -> bool {
    a.trim_end().eq_ignore_ascii_case(b.trim_end())
}

#[derive(Clone, Debug)]
enum Where {
    Id(Vec<i64>),
    Name(Vec<String>),
    N(i64),
    IdAndN(i64, i64),
    IdOrN(i64, i64),
    All,
}

impl Where {
    fn holds(&self, row: &Row) -> bool {
        match self {
            Self::Id(ids) => ids.contains(&row.0),
            Self::Name(names) => names.iter().any(|name| same(name, &row.1)),
            Self::N(n) => row.2 == *n,
            Self::IdAndN(id, n) => row.0 == *id && row.2 == *n,
            Self::IdOrN(id, n) => row.0 == *id || row.2 == *n,
            Self::All => true,
        }
    }

    fn sql(&self, quoted: bool) -> String {
        let number = |n: &i64| if quoted { format!("'{n:02}'") } else { n.to_string() };
        match self {
            Self::Id(ids) if ids.len() == 1 => format!("t.id = {}", number(&ids[0])),
            Self::Id(ids) => {
                format!("id IN ({})", ids.iter().map(number).collect::<Vec<_>>().join(", "))
            }
            Self::Name(names) if names.len() == 1 => format!("'{}' = name", names[0]),
            Self::Name(names) => {
                format!(
                    "(`NAME` IN ({}))",
                    names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(",")
                )
            }
            Self::N(n) => format!("(n = {}) AND 1=1", number(n)),
            Self::IdAndN(id, n) => format!("id = {} AND (n = {})", number(id), number(n)),
            Self::IdOrN(id, n) => format!("id = {} OR n = {}", number(id), number(n)),
            Self::All => "1".into(),
        }
    }
}

#[derive(Clone, Debug)]
enum Write {
    Update(Option<i64>, Option<String>, Option<i64>, Where),
    Delete(Where),
    Insert { id: Option<i64>, name: String, n: i64, how: u8 },
}

impl Write {
    fn sql(&self, quoted: bool) -> String {
        match self {
            Self::Update(id, name, n, condition) => {
                let mut set = vec!["n = n".to_owned()];
                set.extend(id.map(|id| format!("id = {id}")));
                set.extend(name.as_ref().map(|name| format!("name = '{name}'")));
                set.extend(n.map(|n| format!("t.n = {n}")));
                format!("UPDATE t SET {} WHERE {}", set.join(", "), condition.sql(quoted))
            }
            Self::Delete(condition) => format!("DELETE FROM t WHERE {}", condition.sql(quoted)),
            Self::Insert { id, name, n, how } => {
                let verb = if *how == 1 { "REPLACE" } else { "INSERT" };
                let tail = if *how == 2 { " ON DUPLICATE KEY UPDATE n = VALUES(n)" } else { "" };
                match id {
                    Some(id) => {
                        format!("{verb} INTO t (id, name, n) VALUES ({id}, '{name}', {n}){tail}")
                    }
                    None => format!("{verb} INTO t (name, n) VALUES ('{name}', {n}){tail}"),
                }
            }
        }
    }

    fn run(&self, table: &mut Vec<Row>) {
        let cut = |name: &String| name.chars().take(4).collect::<String>();
        match self {
            Self::Update(id, name, n, condition) => {
                let before = table.clone();
                for at in 0..table.len() {
                    if condition.holds(&before[at]) {
                        let mut row = before[at].clone();
                        row.0 = id.unwrap_or(row.0);
                        row.1 = name.as_ref().map_or(row.1, cut);
                        row.2 = n.unwrap_or(row.2);
                        let clash = |(other, at_other): (&Row, usize)| {
                            at_other != at && (other.0 == row.0 || same(&other.1, &row.1))
                        };
                        if table.iter().zip(0..).any(clash) {
                            continue;
                        }
                        table[at] = row;
                    }
                }
            }
            Self::Delete(condition) => table.retain(|row| !condition.holds(row)),
            Self::Insert { id, name, n, how } => {
                let next = table.iter().map(|row| row.0).max().unwrap_or(0) + 1;
                let row = (id.filter(|id| *id != 0).unwrap_or(next), cut(name), *n);
                let clashes = |other: &Row| other.0 == row.0 || same(&other.1, &row.1);
                match how {
                    1 => table.retain(|other| !clashes(other)),
                    2 if table.iter().any(clashes) => {
                        table.iter_mut().find(|other| clashes(other)).unwrap().2 = *n;
                        return;
                    }
                    _ if table.iter().any(clashes) => return,
                    _ => {}
                }
                table.push(row);
            }
        }
        table.sort();
    }
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "A", "a ", "b", "c", "abcd", "abcde", "ABCDF", "5", ""])
        .prop_map(str::to_owned)
}

fn condition() -> impl Strategy<Value = Where> {
    let small = 0..5i64;
    prop_oneof![
        prop::collection::vec(0..5i64, 1..3).prop_map(Where::Id),
        prop::collection::vec(name(), 1..3).prop_map(Where::Name),
        small.clone().prop_map(Where::N),
        (0..5i64, 0..5i64).prop_map(|(a, b)| Where::IdAndN(a, b)),
        (0..5i64, 0..5i64).prop_map(|(a, b)| Where::IdOrN(a, b)),
        Just(Where::All),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        (
            prop::option::of(0..5i64),
            prop::option::of(name()),
            prop::option::of(0..5i64),
            condition()
        )
            .prop_map(|(id, name, n, condition)| Write::Update(id, name, n, condition)),
        condition().prop_map(Write::Delete),
        (prop::option::of(0..5i64), name(), 0..5i64, 0..3u8)
            .prop_map(|(id, name, n, how)| Write::Insert { id, name, n, how }),
    ]
}

fn accesses(sql: &str, catalogue: &Catalogue) -> Footprint {
    let statements = parse(Dialect::MySql, sql.as_bytes());
    assert_eq!(statements.len(), 1, "{sql}");
    let context = Context { schema: Some("db"), ..Context::default() };
    let footprint = expand(&statements[0], Dialect::MySql, &context, &[], Some(catalogue));
    assert_eq!(footprint.everything, None, "{sql}");
    footprint
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_result_that_changes_was_in_conflict(
        rows in prop::collection::vec((1..5i64, name(), 0..5i64), 0..5),
        read in condition(),
        write in write(),
        quoted in any::<bool>(),
    ) {
        let mut table: Vec<Row> = Vec::new();
        for (id, name, n) in rows {
            Write::Insert { id: Some(id), name, n, how: 0 }.run(&mut table);
        }
        let result =
            |table: &[Row]| table.iter().filter(|row| read.holds(row)).cloned().collect::<Vec<_>>();
        let before = result(&table);
        write.run(&mut table);
        let catalogue = catalogue();
        let reads = accesses(&format!("SELECT * FROM t WHERE {}", read.sql(quoted)), &catalogue);
        let writes = accesses(&write.sql(!quoted), &catalogue);
        if before != result(&table) {
            prop_assert!(
                conflicts(&reads.reads, &writes.writes),
                "{} / {}: {reads:?} {writes:?}",
                read.sql(quoted),
                write.sql(!quoted)
            );
        }
    }
}

#[test]
fn rows_of_different_keys_do_not_conflict() {
    let catalogue = catalogue();
    let conflict = |read: &str, write: &str| {
        conflicts(&accesses(read, &catalogue).reads, &accesses(write, &catalogue).writes)
    };
    let read = "SELECT * FROM t WHERE name = 'a'";
    assert!(!conflict(read, "UPDATE t SET n = 5 WHERE name = 'b'"));
    assert!(!conflict(read, "DELETE FROM t WHERE name IN ('b', 'c')"));
    assert!(!conflict(read, "INSERT INTO t (name, n) VALUES ('b', 1)"));
    assert!(!conflict(
        read,
        "INSERT INTO t (name, n) VALUES ('b', 1) ON DUPLICATE KEY UPDATE n = VALUES(n)"
    ));
    assert!(!conflict(read, "REPLACE INTO t (name, n) VALUES ('b', 1)"));
    assert!(conflict(read, "REPLACE INTO t (id, name, n) VALUES (1, 'b', 1)"));
    assert!(conflict(read, "UPDATE t SET name = 'a' WHERE name = 'b'"));
    assert!(conflict(read, "INSERT INTO t (name, n) VALUES ('A ', 1)"));
    assert!(conflict(read, "UPDATE t SET n = 1 WHERE id = 7"));
    assert!(!conflict("SELECT * FROM t WHERE id = 5", "UPDATE t SET n = 1 WHERE id = '7'"));
}

#[test]
fn quoted_names_of_postgres_have_case() {
    let (s, t, upper) = (hex("public"), hex("t"), hex("T"));
    let rows = [
        format!("setting\tdatabase\t{}", hex("app")),
        format!("table\t{s}\t{t}\theap"),
        format!("table\t{s}\t{upper}\theap"),
        format!("trigger\t{s}\t{upper}\t{}", hex("DO")),
        format!("column\t{s}\t{t}\t{}\tint8\t0", hex("id")),
        "end".to_owned(),
    ];
    let catalogue = Catalogue::parse(Dialect::Postgres, &rows.join("\n")).unwrap();
    let context = Context { catalog: Some("app"), ..Context::default() };
    let footprint = |sql: &str| {
        expand(
            &parse(Dialect::Postgres, sql.as_bytes())[0],
            Dialect::Postgres,
            &context,
            &[],
            Some(&catalogue),
        )
    };
    let column =
        |sql: &str| footprint(sql).reads.iter().filter(|access| !access.rows.is_empty()).count();
    assert_eq!(column("SELECT * FROM t WHERE ID = 5"), 1);
    assert_eq!(column("SELECT * FROM t WHERE \"id\" = 5"), 1);
    assert_eq!(column("SELECT * FROM t WHERE \"Id\" = 5"), 0);
    // The trigger of one counts for both, because they are purged together.
    assert!(footprint("DELETE FROM t").everything.is_some());
    // The catalogue of another database says nothing.
    let context = Context { catalog: Some("App"), ..Context::default() };
    let statement = &parse(Dialect::Postgres, b"SELECT * FROM t")[0];
    let footprint = expand(statement, Dialect::Postgres, &context, &[], Some(&catalogue));
    assert_eq!(footprint.reads[0].target.name, None);
}
