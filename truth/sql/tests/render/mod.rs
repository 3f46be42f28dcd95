//! Statements as short lines, to compare them with what is expected.

#![allow(dead_code, reason = "each user takes some of the functions")]

use nicache_sql::*;

fn table(used: &TableUse) -> String {
    let mut name = used.table.name.as_deref().unwrap_or("?").to_owned();
    if let Some(schema) = &used.table.schema {
        name = format!("{schema}.{name}");
    }
    for row in &used.rows {
        let values: Vec<String> = row
            .values
            .iter()
            .map(|value| match &value.literal {
                Literal::Integer(number) => number.to_string(),
                Literal::Text(text) => format!("'{text}'"),
                Literal::Parameter(at) => format!("?{at}"),
                Literal::Unknown => "?".into(),
            })
            .collect();
        name.push_str(&format!("[{}={}]", row.column, values.join("|")));
    }
    if let Upsert::AnyKey(_) = used.upsert {
        name.push('^');
    }
    name
}

pub(crate) fn statement(statement: &Statement) -> String {
    let mut line = match &statement.class {
        Class::Read => String::new(),
        Class::Write => String::new(),
        class => format!("{class:?}"),
    };
    for read in &statement.reads {
        line.push_str(&format!(" <{}", table(read)));
    }
    for write in &statement.writes {
        line.push_str(&format!(" >{}", table(write)));
    }
    if let Some(reason) = statement.everything {
        line.push_str(&format!(" everything({reason})"));
    }
    for (flag, text) in [
        (statement.volatile, "volatile"),
        (statement.session, "session"),
        (statement.locking, "locking"),
        (statement.at_once, "at_once"),
    ] {
        if flag {
            line.push_str(&format!(" {text}"));
        }
    }
    line.trim().to_owned()
}

pub(crate) fn text(dialect: Dialect, text: &str) -> String {
    let all: Vec<String> = parse(dialect, text.as_bytes()).iter().map(statement).collect();
    all.join(" ; ")
}
