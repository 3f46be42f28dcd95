//! MySQL's statements that make, change, empty or drop tables, and nothing else: whose tables are
//! known, and what becomes of them.
//!
//! They are read word by word, and from a list of what is known to be harmless. A table with
//! foreign keys takes rows along when rows of another one go; one made from a query calls
//! functions; one of certain engines has its rows elsewhere; a renamed one takes the place of
//! another. All of these, and whatever is not in the list, may change anything.

use sqlparser::tokenizer::Token;

use crate::dialects::Dialect;
use crate::statement::{Class, Statement, TableChange, TableUse, Upsert};
use crate::target::{TableName, fold_certain};

/// Words by which more than the table itself may be concerned, wherever they stand.
const FAR: [&str; 19] = [
    "select",
    "next",
    "nextval",
    "setval",
    "values",
    "with",
    "union",
    "like",
    "references",
    "foreign",
    "connection",
    "directory",
    "tablespace",
    "import",
    "discard",
    "exchange",
    "rename",
    "sequence",
    "call",
];
/// Engines whose tables have their rows on this server, and nobody else's.
const ENGINES: [&str; 5] = ["innodb", "myisam", "aria", "memory", "heap"];
/// What the parts of an ALTER TABLE may begin with.
const ALTERATIONS: [&str; 10] = [
    "add",
    "drop",
    "modify",
    "change",
    "alter",
    "disable",
    "enable",
    "auto_increment",
    "algorithm",
    "lock",
];

/// The rest of a statement, from left to right.
struct Reader<'a>(&'a [Token]);

impl Reader<'_> {
    fn word(&self) -> Option<String> {
        match self.0.first()? {
            Token::Word(word) if word.quote_style.is_none() => {
                Some(word.value.to_ascii_lowercase())
            }
            _ => None,
        }
    }

    /// Takes one of these words, if it is next.
    fn take(&mut self, words: &[&str]) -> bool {
        let is_one = self.word().is_some_and(|word| words.contains(&word.as_str()));
        if is_one {
            self.0 = &self.0[1..];
        }
        is_one
    }

    fn take_all(&mut self, words: &[&str]) {
        while self.take(words) {}
    }

    fn take_token(&mut self, token: &Token) -> bool {
        let is_it = self.0.first() == Some(token);
        if is_it {
            self.0 = &self.0[1..];
        }
        is_it
    }

    fn name(&mut self) -> Option<Box<str>> {
        let Some((Token::Word(word), rest)) = self.0.split_first() else { return None };
        self.0 = rest;
        fold_certain(Dialect::MySql, &word.value)
    }

    fn table(&mut self) -> Option<TableName> {
        let first = self.name()?;
        if self.take_token(&Token::Period) {
            return Some(TableName { schema: Some(first), name: Some(self.name()?) });
        }
        Some(TableName { schema: None, name: Some(first) })
    }

    fn has(&self, words: &[&str]) -> bool {
        (0..self.0.len())
            .filter_map(|at| Reader(&self.0[at..]).word())
            .any(|word| words.contains(&word.as_str()))
    }

    /// Do the rows stay on the server, as far as an engine is named? `TYPE`, its older name, is
    /// often that of a column.
    fn keeps_rows(&self) -> bool {
        let mut depth = 0_u32;
        (0..self.0.len()).all(|at| {
            match self.0[at] {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            let mut rest = Reader(&self.0[at..]);
            let is_engine = rest.take(&["engine"]) || depth == 0 && rest.take(&["type"]);
            if !is_engine {
                return true;
            }
            rest.take_token(&Token::Eq);
            rest.take(&ENGINES)
        })
    }

    /// The first words of the parts between commas that stand in no parentheses.
    fn parts(&self) -> Option<Vec<String>> {
        let (mut depth, mut begins, mut found) = (0_u32, true, Vec::new());
        for at in 0..self.0.len() {
            if std::mem::take(&mut begins) {
                found.push(Reader(&self.0[at..]).word()?);
            }
            match self.0[at] {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.checked_sub(1)?,
                Token::Comma => begins = depth == 0,
                _ => {}
            }
        }
        (!begins && depth == 0).then_some(found)
    }
}

/// The statement, if it is one of those that change known tables and nothing else.
pub(crate) fn read(tokens: &[Token]) -> Option<Statement> {
    let mut reader = Reader(tokens);
    if reader.take(&["truncate"]) {
        reader.take(&["table"]);
        let table = reader.table()?;
        return reader.0.is_empty().then(|| of(TableChange::Emptied, vec![table]));
    }
    if reader.take(&["drop"]) {
        return drop(reader);
    }
    if reader.take(&["alter"]) {
        reader.take_all(&["online", "ignore"]);
        return reader.take(&["table"]).then(|| alter(reader)).flatten();
    }
    reader.take(&["create"]).then(|| create(reader)).flatten()
}

fn drop(mut reader: Reader<'_>) -> Option<Statement> {
    if reader.take(&["index"]) {
        return index(reader);
    }
    if !reader.take(&["table", "tables"]) {
        return None;
    }
    reader.take_all(&["if", "exists"]);
    let mut tables = vec![reader.table()?];
    while reader.take_token(&Token::Comma) {
        tables.push(reader.table()?);
    }
    reader.take(&["restrict", "cascade"]);
    reader.0.is_empty().then(|| of(TableChange::Dropped, tables))
}

fn alter(mut reader: Reader<'_>) -> Option<Statement> {
    reader.take_all(&["if", "exists"]);
    let table = reader.table()?;
    let is_known = !reader.has(&FAR)
        && !reader.has(&["partition", "partitioning", "engine", "type"])
        && reader.parts()?.iter().all(|word| ALTERATIONS.contains(&word.as_str()));
    is_known.then(|| of(TableChange::Altered, vec![table]))
}

fn create(mut reader: Reader<'_>) -> Option<Statement> {
    reader.take_all(&["or", "replace"]);
    if reader.take(&["table"]) {
        reader.take_all(&["if", "not", "exists"]);
        let table = reader.table()?;
        let is_known =
            reader.0.first() == Some(&Token::LParen) && !reader.has(&FAR) && reader.keeps_rows();
        return is_known.then(|| of(TableChange::Made, vec![table]));
    }
    reader.take_all(&["unique", "fulltext", "spatial"]);
    reader.take(&["index"]).then(|| index(reader)).flatten()
}

/// `... INDEX name ON table ...`
fn index(mut reader: Reader<'_>) -> Option<Statement> {
    reader.take_all(&["if", "not", "exists"]);
    reader.name()?;
    if reader.take(&["using"]) {
        reader.name()?;
    }
    if !reader.take(&["on"]) {
        return None;
    }
    let table = reader.table()?;
    (!reader.has(&FAR)).then(|| of(TableChange::Altered, vec![table]))
}

fn of(change: TableChange, tables: Vec<TableName>) -> Statement {
    let of_table = |table| TableUse { table, rows: Vec::new(), upsert: Upsert::No };
    let writes = tables.into_iter().map(of_table).collect();
    Statement { writes, ..Statement::of(Class::Tables(change)) }
}
