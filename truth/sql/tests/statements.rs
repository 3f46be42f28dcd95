//! What statements of real programs read and write: `statements/*.txt`, each statement with its
//! expected reads (`<`) and writes (`>`, with `^` if rows that are there may be changed by any
//! unique key) in the line below.

mod render;

use nicache_sql::{Class, Dialect, STATEMENT_BYTES_MAX, parse};

fn check(dialect: Dialect, table: &str) {
    let lines: Vec<&str> = table.lines().collect();
    for pair in lines.chunks_exact(2) {
        let found = render::text(dialect, pair[0]);
        let found = if found.is_empty() { "nothing" } else { &found };
        assert_eq!(Some(found), pair[1].strip_prefix('\t'), "{}", pair[0]);
    }
    assert!(lines.len() > 200);
}

#[test]
fn of_mysql() {
    check(Dialect::MySql, include_str!("statements/mysql.txt"));
}

#[test]
fn of_postgres() {
    check(Dialect::Postgres, include_str!("statements/postgres.txt"));
}

#[test]
fn deep_and_long_texts_neither_overflow_the_stack_nor_are_guessed() {
    let or = format!("SELECT 1 FROM t WHERE a = 0{}", " OR a = 1".repeat(50_000));
    let union = format!("SELECT 1 FROM t{}", " UNION SELECT 1 FROM t".repeat(10_000));
    let parentheses = format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let not = format!("SELECT {} 1", "NOT ".repeat(100_000));
    let minus = format!("SELECT {} 1", "- ".repeat(100_000));
    let joins = format!("SELECT 1 FROM t{}", " JOIN t".repeat(10_000));
    let casts = format!("SELECT 1{}", "::text".repeat(10_000));
    let subscripts = format!("SELECT a{}", "[1]".repeat(10_000));
    let cases = format!("SELECT {} 1", "CASE WHEN 1 THEN ".repeat(10_000));
    let dots = format!("SELECT a{}", ".b".repeat(10_000));
    for text in [or, union, parentheses, not, minus, joins, casts, subscripts, cases, dots] {
        for dialect in [Dialect::MySql, Dialect::Postgres] {
            let _ = parse(dialect, text.as_bytes());
        }
    }
    for levels in [400, 900] {
        let deep = format!("SELECT 1 FROM t WHERE a{}", " + 1".repeat(levels));
        assert_eq!(parse(Dialect::MySql, deep.as_bytes())[0].class, Class::Read);
    }
    let long = format!("SELECT '{}'", "x".repeat(STATEMENT_BYTES_MAX));
    assert_eq!(render::text(Dialect::MySql, &long), "everything(too_large)");
    let long = format!("SET @a = '{}'", "x".repeat(STATEMENT_BYTES_MAX));
    assert!(matches!(parse(Dialect::MySql, long.as_bytes())[0].class, Class::Everything(_)));
    let values = format!("INSERT INTO t (a) VALUES (1){}", ", (2)".repeat(20_000));
    assert_eq!(render::text(Dialect::MySql, &values), ">t");
}
