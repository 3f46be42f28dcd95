//! SQL text becomes statements: what each reads and writes, as far as the text alone tells.
//!
//! Nothing here is specific to a connection or to the state of the database, so the result for a
//! text may be kept and used again. The parser is asked only for SELECT, INSERT, UPDATE, DELETE and
//! their kin; short statements that steer the session are read by word (`steer.rs`). Whatever is
//! not understood in full is [`Class::Everything`].

use std::borrow::Cow;

use sqlparser::dialect::{MySqlDialect, PostgreSqlDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};

use crate::dialects::Dialect;
use crate::reason::Reason;
use crate::statement::{Class, Statement};
use crate::steer;
use crate::walk;

/// Longer statements are not looked at.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;

/// Operators and keywords that may each add a level to the tree. The walk is recursive: this bounds
/// its stack.
const LEVELS_MAX: usize = 1000;

/// Levels of parentheses.
const PARENTHESES_MAX: usize = 50;

/// Parses a text of one or several statements.
///
/// If one of them may do anything, so may the whole text: its parts may be those of a block.
pub fn parse(dialect: Dialect, text: &[u8]) -> Vec<Statement> {
    match parse_all(dialect, text) {
        Ok(statements) => statements,
        Err(reason) if reason != Reason::Setting && keeps_session(text) => {
            vec![Statement { everything: Some(reason), ..Statement::of(Class::Write) }]
        }
        Err(reason) => vec![Statement::everything(reason)],
    }
}

/// Is the text, whatever the meaning of its quotes, one statement that changes no setting and no
/// transaction?
pub(crate) fn keeps_session(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 6] = [b"select", b"insert", b"update", b"delete", b"replace", b"with"];
    is_one_of(&WORDS, text)
}

/// Is the text, whatever the meaning of its quotes, one statement that changes at most its own
/// session, and no structure?
pub(crate) fn keeps_structure(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 8] =
        [b"set", b"show", b"use", b"begin", b"start", b"rollback", b"savepoint", b"release"];
    // `SET STATEMENT ... FOR` runs any other statement.
    const OTHERWISE: [&[u8]; 3] = [b"global", b"persist", b"statement"];
    let is_otherwise = |word: &[u8]| OTHERWISE.iter().any(|other| word.eq_ignore_ascii_case(other));
    is_one_of(&WORDS, text) && !text.split(|b| !b.is_ascii_alphabetic()).any(is_otherwise)
}

/// Is it one statement that begins with one of these words?
fn is_one_of(words: &[&[u8]], text: &[u8]) -> bool {
    let mut rest = text.trim_ascii();
    if let Some(comment) = rest.strip_prefix(b"/*") {
        if matches!(comment.first(), Some(b'!' | b'M')) {
            return false;
        }
        let Some(end) = comment.windows(2).position(|two| two == b"*/") else { return false };
        // PostgreSQL's comments may be nested.
        if comment[..end].contains(&b'/') {
            return false;
        }
        rest = comment[end + 2..].trim_ascii_start();
    }
    let word = rest.split(|b| !b.is_ascii_alphabetic()).next().unwrap_or_default();
    words.iter().any(|known| word.eq_ignore_ascii_case(known)) && !rest.contains(&b';')
}

/// Does the text mean the same whatever the settings of quotes, escapes and character sets?
pub fn is_plain(text: &[u8]) -> bool {
    let mut rest = text;
    let mut in_quotes = false;
    // Behind these nobody can say without the settings what is within quotes.
    let mut certain = true;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\\' | b'"' => return false,
            b'\'' => in_quotes = !in_quotes,
            b'`' | b'#' | b'$' if !in_quotes => certain = false,
            b'-' if !in_quotes && rest.starts_with(b"-") => certain = false,
            b'/' if !in_quotes && certain && rest.starts_with(b"*") => match comment_behind(rest) {
                Some(behind) => rest = behind,
                None => certain = false,
            },
            b' '..=b'~' | b'\t' | b'\r' | b'\n' => {}
            _ => return false,
        }
    }
    true
}

/// What follows a comment that every server takes for one, at whose star the text begins.
fn comment_behind(text: &[u8]) -> Option<&[u8]> {
    let text = &text[1..];
    let end = text.windows(2).position(|two| two == b"*/")?;
    let (comment, behind) = (&text[..end], &text[end + 2..]);
    let is_usual = !matches!(comment.first(), Some(b'!' | b'M'))
        && !comment.windows(2).any(|two| two == b"/*")
        && comment.iter().all(|b| matches!(b, b' '..=b'~' | b'\t' | b'\r' | b'\n'));
    is_usual.then_some(behind)
}

/// Comments that MySQL reads as advice on how to join, and nothing else.
const ADVICE: [&[u8]; 3] =
    [b"/*! STRAIGHT_JOIN */", b"/*! HIGH_PRIORITY */", b"/*! SQL_NO_CACHE */"];

/// The text without advice, if that stands before anything quoted.
fn without_advice(text: &[u8]) -> Cow<'_, [u8]> {
    let unquoted = text.iter().position(|b| matches!(b, b'\'' | b'"' | b'`')).unwrap_or(text.len());
    let begins = |at: &usize| text[*at..unquoted].starts_with(b"/*!");
    let Some(at) = (0..unquoted).find(begins) else { return Cow::Borrowed(text) };
    match ADVICE.iter().find(|advice| text[at..unquoted].starts_with(advice)) {
        Some(advice) => Cow::Owned([&text[..at], b" ", &text[at + advice.len()..]].concat()),
        None => Cow::Borrowed(text),
    }
}

fn parse_all(dialect: Dialect, text: &[u8]) -> Result<Vec<Statement>, Reason> {
    if text.len() > STATEMENT_BYTES_MAX {
        return Err(Reason::TooLarge);
    }
    let text = if dialect == Dialect::MySql { without_advice(text) } else { Cow::Borrowed(text) };
    let text = &*text;
    if dialect == Dialect::MySql {
        for pair in text.windows(3) {
            match pair {
                [b'/', b'*', b'!' | b'M'] => return Err(Reason::VersionComment),
                // A comment to some servers, twice minus to the parser.
                [b'-', b'-', c] if c.is_ascii_control() && !matches!(c, b'\t' | b'\n' | b'\r') => {
                    return Err(Reason::Lexing);
                }
                _ => {}
            }
        }
    }
    let text = match core::str::from_utf8(text) {
        Ok(text) => text.into(),
        // Bytes that are not UTF-8 stand for themselves; no certain name or value contains them.
        Err(_) => Cow::Owned(
            text.iter()
                .map(|b| if b.is_ascii() { *b as char } else { char::REPLACEMENT_CHARACTER })
                .collect::<String>(),
        ),
    };
    let mysql = MySqlDialect {};
    let postgres = PostgreSqlDialect {};
    let grammar: &dyn sqlparser::dialect::Dialect = match dialect {
        Dialect::MySql => &mysql,
        Dialect::Postgres => &postgres,
    };
    let mut tokens = Tokenizer::new(grammar, &text).tokenize().map_err(|_| Reason::Unparsable)?;
    tokens.retain(|token| match token {
        // Optimizer hints may change settings for the statement, but not what it touches.
        Token::Whitespace(
            Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_),
        ) => false,
        Token::Whitespace(_) => false,
        _ => true,
    });
    check_depth(&tokens)?;
    number_parameters(&mut tokens);
    let mut statements = Vec::new();
    for part in tokens.split(|token| *token == Token::SemiColon) {
        if part.is_empty() {
            continue;
        }
        let statement = match steer::read(dialect, part) {
            Some(statement) => statement,
            None => {
                // MySQL's older spelling of FOR SHARE.
                let (part, shares) = match part {
                    [
                        front @ ..,
                        Token::Word(a),
                        Token::Word(b),
                        Token::Word(c),
                        Token::Word(d),
                    ] if dialect == Dialect::MySql
                        && [a, b, c, d]
                            .iter()
                            .map(|word| word.value.to_ascii_lowercase())
                            .eq(["lock", "in", "share", "mode"]) =>
                    {
                        (front, true)
                    }
                    _ => (part, false),
                };
                let mut parser = Parser::new(grammar)
                    .with_recursion_limit(PARENTHESES_MAX)
                    .with_tokens(part.to_vec());
                let parsed = parser.parse_statement().map_err(|_| Reason::Unparsable)?;
                if parser.peek_token_ref().token != Token::EOF {
                    return Err(Reason::Unparsable);
                }
                let mut statement = walk::statement(dialect, &parsed);
                statement.locking |= shares;
                statement
            }
        };
        if let Class::Everything(reason) = statement.class {
            return Err(reason);
        }
        statements.push(statement);
    }
    if statements.is_empty() {
        statements.push(Statement::of(Class::Nothing));
    }
    Ok(statements)
}

fn check_depth(tokens: &[Token]) -> Result<(), Reason> {
    let mut levels = 0;
    for token in tokens {
        levels += usize::from(match token {
            Token::SemiColon => {
                levels = 0;
                false
            }
            Token::Word(word) => {
                word.quote_style.is_none()
                    && !matches!(
                        word.keyword,
                        Keyword::NoKeyword | Keyword::NULL | Keyword::TRUE | Keyword::FALSE
                    )
                    && !matches!(
                        word.keyword,
                        Keyword::DEFAULT | Keyword::ROW | Keyword::AS | Keyword::ID
                    )
            }
            Token::Number(..) | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => {
                false
            }
            Token::Comma
            | Token::Period
            | Token::LParen
            | Token::RParen
            | Token::Placeholder(_) => false,
            _ => true,
        });
        if levels > LEVELS_MAX {
            return Err(Reason::TooLarge);
        }
    }
    Ok(())
}

/// `?` becomes `?0`, `?1` …; PostgreSQL's are numbered from 1.
fn number_parameters(tokens: &mut [Token]) {
    let mut next = 0;
    for token in tokens {
        if let Token::Placeholder(name) = token
            && name == "?"
        {
            *name = format!("?{next}");
            next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_left_out_before_anything_quoted() {
        let plain = b"SELECT /* A\\B::c */  a FROM t WHERE b = 'x'";
        let advised = b"SELECT /* A\\B::c */ /*! STRAIGHT_JOIN */ a FROM t WHERE b = 'x'";
        assert_eq!(parse(Dialect::MySql, advised), parse(Dialect::MySql, plain));
        for text in [
            &b"SELECT /*! STRAIGHT_JOIN, f() */ a FROM t"[..],
            b"SELECT /*! INTO OUTFILE 'x' */ a FROM t",
            b"SELECT '' /*! STRAIGHT_JOIN */ FROM t",
            b"SELECT /*! STRAIGHT_JOIN */ /*! f() */ a FROM t",
        ] {
            let statements = parse(Dialect::MySql, text);
            assert!(
                statements.iter().all(
                    |one| one.everything.is_some() || matches!(one.class, Class::Everything(_))
                ),
                "{statements:?}"
            );
        }
    }
}
