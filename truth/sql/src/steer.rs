//! Short statements that steer the session, read word by word: transactions, SET, SHOW, USE, and
//! those that are known by their first word.

use sqlparser::tokenizer::Token;

use crate::definition;
use crate::dialects::Dialect;
use crate::functions::{Kind, kind};
use crate::reason::Reason;
use crate::statement::{Class, Setting, Statement};
use crate::target::fold_certain;

/// The words of a statement, in lower case where they are not quoted.
struct Words<'a> {
    tokens: &'a [Token],
}

impl<'a> Words<'a> {
    fn word(&self, at: usize) -> Option<String> {
        match self.tokens.get(at)? {
            Token::Word(word) if word.quote_style.is_none() => {
                Some(word.value.to_ascii_lowercase())
            }
            _ => None,
        }
    }

    fn all(&self) -> Option<Vec<String>> {
        (0..self.tokens.len()).map(|at| self.word(at)).collect()
    }

    fn has(&self, wanted: &str) -> bool {
        (0..self.tokens.len()).any(|at| self.word(at).is_some_and(|word| word == wanted))
    }
}

/// The statement, if it is one of those that are read here.
pub(crate) fn read(dialect: Dialect, tokens: &[Token]) -> Option<Statement> {
    let words = Words { tokens };
    let first = words.word(0)?;
    let statement =
        match first.as_str() {
            "select" | "insert" | "update" | "delete" | "with" | "replace" | "values" | "copy" => {
                return None;
            }
            "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint"
            | "release" => transaction(dialect, &words),
            "set" => return Some(set(dialect, tokens)),
            "show" => return Some(show(dialect, &words)),
            "describe" | "desc" | "explain" => return describe(&words),
            "use" if dialect == Dialect::MySql && tokens.len() == 2 => match &tokens[1] {
                Token::Word(name) => Class::Use(name.value.as_str().into()),
                _ => Class::Everything(Reason::Unparsable),
            },
            "create" | "drop" if is_temporary(&words) => temporary(dialect, &words),
            "create" | "alter" | "drop" | "truncate" | "rename" | "grant" | "revoke"
            | "comment" | "reindex" | "cluster" | "refresh" | "security" | "import" | "install"
            | "uninstall" => match dialect {
                Dialect::MySql => {
                    let known = definition::read(tokens);
                    return known.or_else(|| Some(Statement::of(Class::Definition)));
                }
                Dialect::Postgres if concerns_one_database(&words) => Class::DefinitionHere,
                Dialect::Postgres => Class::Definition,
            },
            "lock" | "unlock" if dialect == Dialect::MySql => Class::Lock,
            "lock" => Class::Nothing,
            "vacuum" | "analyze" | "listen" | "unlisten" | "notify" | "checkpoint" | "reset"
            | "discard" | "close" | "deallocate"
                if dialect == Dialect::Postgres =>
            {
                return Some(postgres_housekeeping(&first, &words));
            }
            _ => Class::Everything(Reason::Indirect),
        };
    Some(Statement::of(statement))
}

/// Does a statement of PostgreSQL change what is in the connection's database alone? Databases,
/// roles, tablespaces and settings are all databases'. A function that somebody has defined may
/// change those, too: it is called by queries and by what is computed for rows that are there.
fn concerns_one_database(words: &Words) -> bool {
    const SHARED: [&str; 12] = [
        "database",
        "role",
        "user",
        "group",
        "tablespace",
        "subscription",
        "publication",
        "system",
        "server",
        "extension",
        "language",
        "owned",
    ];
    const QUERIES: [&str; 5] = ["select", "execute", "values", "with", "call"];
    const COMPUTES: [&str; 3] = ["using", "default", "check"];
    let has = |list: &[&str]| list.iter().any(|word| words.has(word));
    match words.word(0).as_deref() {
        Some("create" | "drop" | "comment") => !has(&SHARED) && !has(&QUERIES),
        Some("alter") => !has(&SHARED) && !has(&QUERIES) && !has(&COMPUTES),
        _ => false,
    }
}

fn transaction(dialect: Dialect, words: &Words) -> Class {
    let Some(all) = words.all() else {
        return match words.word(0).as_deref() {
            // A savepoint's name may be quoted.
            Some("savepoint") if words.tokens.len() == 2 => Class::Savepoint,
            Some("release") if words.tokens.len() <= 3 => Class::Savepoint,
            Some("rollback") if words.has("to") && words.tokens.len() <= 5 => Class::Savepoint,
            Some("begin" | "start") => begin_with_modes(dialect, words),
            _ => Class::Everything(Reason::Unparsable),
        };
    };
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let postgres = dialect == Dialect::Postgres;
    match all.as_slice() {
        ["begin"] | ["begin", "work"] | ["start", "transaction"] => Class::Begin,
        ["begin" | "start", ..] => begin_with_modes(dialect, words),
        ["savepoint", _] | ["release", "savepoint", _] => Class::Savepoint,
        ["release", _] if postgres => Class::Savepoint,
        ["rollback", "to", _] | ["rollback", "to", "savepoint", _] => Class::Savepoint,
        ["rollback", "work" | "transaction", "to", ..] => Class::Savepoint,
        ["commit" | "end" | "rollback" | "abort", rest @ ..] => {
            if !postgres && matches!(all[0], "end" | "abort") {
                return Class::Everything(Reason::Unparsable);
            }
            let rest = match rest {
                ["work", rest @ ..] => rest,
                ["transaction", rest @ ..] if postgres => rest,
                rest => rest,
            };
            let chain = match rest {
                [] | ["and", "no", "chain"] | ["no", "release"] | ["release"] => false,
                ["and", "no", "chain", "release"] | ["and", "no", "chain", "no", "release"] => {
                    false
                }
                ["and", "chain"] | ["and", "chain", "no", "release"] => true,
                _ => return Class::Everything(Reason::Unparsable), // COMMIT PREPARED and others.
            };
            if matches!(all[0], "commit" | "end") {
                Class::Commit { chain }
            } else {
                Class::Rollback { chain }
            }
        }
        _ => Class::Everything(Reason::Unparsable),
    }
}

fn begin_with_modes(dialect: Dialect, words: &Words) -> Class {
    let known = |word: &str| {
        matches!(
            word,
            "begin"
                | "start"
                | "transaction"
                | "work"
                | "isolation"
                | "level"
                | "read"
                | "committed"
                | "repeatable"
                | "serializable"
                | "uncommitted"
                | "write"
                | "only"
                | "not"
                | "deferrable"
                | "with"
                | "consistent"
                | "snapshot"
        )
    };
    let all = (0..words.tokens.len()).all(|at| match &words.tokens[at] {
        Token::Comma => true,
        _ => words.word(at).is_some_and(|word| known(&word)),
    });
    // BEGIN NOT ATOMIC is a block.
    if all
        && (dialect == Dialect::Postgres || words.word(1).is_some_and(|word| word == "transaction"))
    {
        Class::Begin
    } else {
        Class::Everything(Reason::Unparsable)
    }
}

fn is_temporary(words: &Words) -> bool {
    let temporary = |at| words.word(at).is_some_and(|w| matches!(w.as_str(), "temporary" | "temp"));
    let table = |at| words.word(at).is_some_and(|w| w == "table");
    temporary(1) && table(2)
}

fn temporary(dialect: Dialect, words: &Words) -> Class {
    // A query inside may call functions.
    if ["select", "as", "table", "values", "execute", "with"]
        .iter()
        .any(|word| (3..words.tokens.len()).any(|at| words.word(at).is_some_and(|w| w == *word)))
    {
        return Class::Everything(Reason::Indirect);
    }
    let mut at = 3;
    while words.word(at).is_some_and(|w| matches!(w.as_str(), "if" | "not" | "exists")) {
        at += 1;
    }
    let qualified = words.tokens.get(at + 1) == Some(&Token::Period);
    let dropped_several =
        words.word(0).is_some_and(|w| w == "drop") && words.tokens.contains(&Token::Comma);
    match words.tokens.get(at) {
        Some(Token::Word(name)) if !qualified && !dropped_several => {
            fold_certain(dialect, &name.value)
                .map_or(Class::Everything(Reason::Indirect), Class::Temporary)
        }
        _ => Class::Everything(Reason::Indirect),
    }
}

fn postgres_housekeeping(first: &str, words: &Words) -> Statement {
    // ANALYZE SELECT … is MariaDB's EXPLAIN ANALYZE, not PostgreSQL's; an index function may run in
    // VACUUM, but what it changes is nobody's page.
    let settings = match first {
        "reset" | "discard" => vec![
            Setting::ReadUncommitted(false),
            if words.has("standard_conforming_strings")
                || words.has("all")
                || words.has("client_encoding")
            {
                Setting::Reset
            } else {
                Setting::Other
            },
        ],
        _ => return Statement::of(Class::Nothing),
    };
    Statement::of(Class::Set(settings))
}

/// Settings of PostgreSQL that a running server does not change, and what a connection has asked
/// for itself. The others come from files, too, that it reads again when it is told to.
const POSTGRES_FIXED: [&str; 12] = [
    "block_size",
    "client_encoding",
    "data_checksums",
    "integer_datetimes",
    "is_superuser",
    "lc_collate",
    "lc_ctype",
    "max_identifier_length",
    "server_encoding",
    "server_version",
    "server_version_num",
    "session_authorization",
];

/// Does `SHOW` of MySQL say what the server is doing (`STATUS`, `TABLE STATUS`, `PROCESSLIST`,
/// `ENGINE … STATUS`, logs, replicas)?
fn is_of_work(words: &Words) -> bool {
    const OF_WORK: [&str; 14] = [
        "status",
        "processlist",
        "open",
        "logs",
        "binlog",
        "relaylog",
        "events",
        "profile",
        "profiles",
        "replica",
        "replicas",
        "slave",
        "slaves",
        "master",
    ];
    (1..5)
        .filter_map(|at| words.word(at))
        .any(|word| OF_WORK.contains(&word.as_str()) || word.ends_with("_statistics"))
}

fn show(dialect: Dialect, words: &Words) -> Statement {
    let has_call = words.tokens.contains(&Token::LParen) && words.has("where");
    if has_call {
        return Statement::everything(Reason::Indirect);
    }
    let mut statement = Statement::of(Class::Read);
    let steady = (1..4).filter_map(|at| words.word(at)).any(|word| {
        matches!(
            word.as_str(),
            "columns"
                | "fields"
                | "tables"
                | "databases"
                | "schemas"
                | "create"
                | "collation"
                | "charset"
                | "character"
                | "index"
                | "indexes"
                | "keys"
                | "engines"
        )
    });
    statement.volatile = dialect == Dialect::MySql && !steady;
    statement.foreign = match dialect {
        // Its settings change by statements alone.
        Dialect::MySql => !steady && is_of_work(words),
        Dialect::Postgres => {
            !words.word(1).is_some_and(|setting| POSTGRES_FIXED.contains(&setting.as_str()))
        }
    };
    statement.structure = dialect == Dialect::MySql;
    statement.session = true;
    statement
}

/// DESCRIBE of a table; EXPLAIN of a statement is for the parser.
fn describe(words: &Words) -> Option<Statement> {
    let names = words.tokens[1..].iter().all(|token| {
        matches!(token, Token::Word(_) | Token::Period | Token::SingleQuotedString(_))
    });
    let queries = [
        "select", "insert", "update", "delete", "replace", "with", "values", "execute", "for",
        "table",
    ];
    let is_query =
        queries.iter().any(|word| words.has(word)) || words.has("analyze") || words.has("call");
    if names && !is_query && words.tokens.len() >= 2 {
        Some(Statement { structure: true, ..Statement::of(Class::Read) })
    } else {
        None
    }
}

/// SET in all its shapes.
fn set(dialect: Dialect, tokens: &[Token]) -> Statement {
    let result = match dialect {
        Dialect::MySql => mysql_set(&tokens[1..]),
        Dialect::Postgres => postgres_set(&tokens[1..]),
    };
    match result {
        Ok(settings) => Statement::of(Class::Set(settings)),
        Err(reason) => Statement::everything(reason),
    }
}

fn mysql_set(tokens: &[Token]) -> Result<Vec<Setting>, Reason> {
    let words = Words { tokens };
    let first = words.word(0);
    match first.as_deref() {
        Some("names") => return Ok(vec![charset(tokens.get(1))]),
        Some("charset") => return Ok(vec![charset(tokens.get(1))]),
        Some("character") if words.word(1).is_some_and(|w| w == "set") => {
            return Ok(vec![charset(tokens.get(2))]);
        }
        Some("password" | "role" | "default" | "statement" | "resource") => {
            return Err(Reason::Indirect);
        }
        _ => {}
    }
    let modes = if first.as_deref() == Some("transaction") {
        Some(0)
    } else if words.word(1).is_some_and(|w| w == "transaction") {
        match first.as_deref() {
            Some("session" | "local") => Some(1),
            _ => return Err(Reason::Global),
        }
    } else {
        None
    };
    if let Some(at) = modes {
        let text: Vec<_> = (at..tokens.len()).filter_map(|at| words.word(at)).collect();
        if text.len() + tokens.iter().filter(|t| **t == Token::Comma).count() + at != tokens.len() {
            return Err(Reason::Unparsable);
        }
        // SET TRANSACTION without a scope is for the next transaction only; the flag stays until it
        // is set again.
        return Ok(vec![if text.iter().any(|w| w == "uncommitted") {
            Setting::ReadUncommitted(true)
        } else {
            Setting::Other
        }]);
    }
    let mut settings = Vec::new();
    let mut scope_is_session = true;
    for assignment in split_at_commas(tokens) {
        settings.push(mysql_assignment(assignment, &mut scope_is_session)?);
    }
    if settings.is_empty() { Err(Reason::Unparsable) } else { Ok(settings) }
}

/// Splits at the commas that are not inside parentheses.
fn split_at_commas(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0usize;
    tokens
        .split(|token| {
            match token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && *token == Token::Comma
        })
        .collect()
}

fn mysql_assignment(tokens: &[Token], scope_is_session: &mut bool) -> Result<Setting, Reason> {
    let equals = tokens
        .iter()
        .position(|t| matches!(t, Token::Eq | Token::Assignment))
        .ok_or(Reason::Unparsable)?;
    let value = &tokens[equals + 1..];
    let mut name = String::new();
    for (at, token) in tokens[..equals].iter().enumerate() {
        match token {
            Token::Word(word) => {
                let word = word.value.to_ascii_lowercase();
                match word.as_str() {
                    "session" | "local" if at == 0 && equals > 1 => *scope_is_session = true,
                    "global" | "persist" | "persist_only" if at == 0 && equals > 1 => {
                        *scope_is_session = false;
                    }
                    _ => name.push_str(&word),
                }
            }
            Token::Period => name.push('.'),
            Token::AtSign => name.push('@'),
            _ => return Err(Reason::Unparsable),
        }
    }
    let name = match name.strip_prefix("@@") {
        Some(name) => match name.split_once('.') {
            None => name,
            Some(("session" | "local", name)) => name,
            Some(_) => return Err(Reason::Global),
        },
        // A user variable: only the value matters.
        None if name.starts_with('@') => return harmless(value).map(|()| Setting::Other),
        None if !*scope_is_session || name.contains('.') => return Err(Reason::Global),
        None => name.as_str(),
    };
    harmless(value)?;
    let literal = match value {
        [Token::Word(word)] => Some(word.value.to_ascii_lowercase()),
        [Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)] => {
            Some(text.to_ascii_lowercase())
        }
        [Token::Number(number, _)] => Some(number.clone()),
        _ => None,
    };
    Ok(match name {
        "autocommit" => Setting::Autocommit(match literal.as_deref() {
            Some("1" | "on" | "true") => Some(true),
            Some("0" | "off" | "false") => Some(false),
            _ => None,
        }),
        "sql_mode" => sql_mode(value),
        "completion_type" => Setting::CompletionType,
        "character_set_client" => charset(value.first()),
        "character_set_connection" | "character_set_results" | "collation_connection" => {
            Setting::Other
        }
        "tx_isolation" | "transaction_isolation" => match literal.as_deref() {
            Some("read-committed" | "repeatable-read" | "serializable") => {
                Setting::ReadUncommitted(false)
            }
            _ => Setting::ReadUncommitted(true),
        },
        _ => Setting::Other,
    })
}

/// A value that is computed without side effects: no query, and only functions that are known.
fn harmless(value: &[Token]) -> Result<(), Reason> {
    if value.is_empty() {
        return Err(Reason::Unparsable);
    }
    for (at, token) in value.iter().enumerate() {
        match token {
            Token::Word(word) => {
                let name = word.value.to_ascii_lowercase();
                if matches!(name.as_str(), "select" | "for" | "value") {
                    return Err(Reason::Indirect);
                }
                if value.get(at + 1) == Some(&Token::LParen)
                    && kind(Dialect::MySql, &name) == Kind::Unknown
                {
                    return Err(Reason::Function);
                }
                if at > 0
                    && value[at - 1] == Token::Period
                    && value.get(at + 1) == Some(&Token::LParen)
                {
                    return Err(Reason::Function);
                }
            }
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::HexStringLiteral(_)
            | Token::Comma
            | Token::Period
            | Token::AtSign
            | Token::LParen
            | Token::RParen
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Pipe
            | Token::Placeholder(_) => {}
            _ => return Err(Reason::Unparsable),
        }
    }
    let literal_name = value.iter().any(|t| {
        matches!(t, Token::Word(w) if
        matches!(w.value.to_ascii_lowercase().as_str(),
            "nextval" | "setval" | "get_lock" | "last_insert_id"))
    });
    if literal_name { Err(Reason::Function) } else { Ok(()) }
}

/// Modes that give a text another meaning.
fn sql_mode(value: &[Token]) -> Setting {
    let mut lexing = Setting::Other;
    for token in value {
        match token {
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => {
                let text = text.to_ascii_lowercase();
                if text.split(',').any(|mode| {
                    matches!(mode.trim(), "oracle" | "mssql" | "postgresql" | "db2" | "maxdb")
                }) {
                    return Setting::OtherLanguage;
                }
                if text.contains("ansi") || text.contains("backslash") {
                    lexing = Setting::UsualLexing(false);
                }
            }
            // A change of the present mode, or the server's own.
            Token::Word(word)
                if matches!(
                    word.value.to_ascii_lowercase().as_str(),
                    "@@sql_mode" | "@@session" | "sql_mode" | "concat" | "replace" | "concat_ws"
                ) => {}
            Token::LParen | Token::RParen | Token::Comma | Token::Period | Token::AtSign => {}
            Token::Word(word) if value.len() == 1 && !word.value.starts_with('@') => {
                let mode = word.value.to_ascii_lowercase();
                lexing = Setting::UsualLexing(false);
                if matches!(mode.as_str(), "oracle" | "mssql" | "postgresql" | "db2" | "maxdb") {
                    return Setting::OtherLanguage;
                }
            }
            _ => return Setting::OtherLanguage,
        }
    }
    lexing
}

/// Is a quote always a quote in this character set?
fn charset(token: Option<&Token>) -> Setting {
    let name = match token {
        Some(Token::Word(word)) => word.value.as_str(),
        Some(Token::SingleQuotedString(name) | Token::DoubleQuotedString(name)) => name.as_str(),
        _ => return Setting::UsualLexing(false),
    };
    if is_safe_charset(name) { Setting::Other } else { Setting::UsualLexing(false) }
}

/// Character sets in which no byte of a longer character is a quote or a backslash.
pub(crate) fn is_safe_charset(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().as_str(),
        "utf8"
            | "utf8mb3"
            | "utf8mb4"
            | "utf-8"
            | "unicode"
            | "latin1"
            | "latin2"
            | "latin5"
            | "latin9"
            | "ascii"
            | "us-ascii"
            | "sql_ascii"
            | "binary"
            | "cp1250"
            | "cp1251"
            | "win1251"
            | "win1252"
            | "koi8r"
            | "iso-8859-1"
    )
}

fn postgres_set(tokens: &[Token]) -> Result<Vec<Setting>, Reason> {
    let words = Words { tokens };
    let mut at = 0;
    if matches!(words.word(0).as_deref(), Some("session" | "local")) {
        at = 1;
    }
    match (words.word(at).as_deref(), words.word(at + 1).as_deref()) {
        (Some("time"), Some("zone")) => return Ok(vec![Setting::Other]),
        (Some("names"), _) => return Ok(vec![charset(tokens.get(at + 1))]),
        (Some("transaction" | "constraints" | "characteristics"), _) => {
            return Ok(vec![Setting::Other]);
        }
        (Some("role" | "authorization"), _) => return Ok(vec![Setting::Other]),
        _ => {}
    }
    let name = match tokens.get(at) {
        Some(Token::Word(word)) => word.value.to_ascii_lowercase(),
        _ => return Err(Reason::Unparsable),
    };
    Ok(vec![match name.as_str() {
        "client_encoding" => charset(tokens.get(at + 2)),
        "standard_conforming_strings" | "backslash_quote" => {
            let on = match tokens.get(at + 2) {
                Some(Token::Word(word)) => word.value.eq_ignore_ascii_case("on"),
                Some(Token::SingleQuotedString(text)) => text.eq_ignore_ascii_case("on"),
                _ => false,
            };
            if on && name == "standard_conforming_strings" {
                Setting::Other
            } else {
                Setting::UsualLexing(false)
            }
        }
        _ => Setting::Other,
    }])
}
