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
const ADVICE: [&[u8]; 3] = [b" STRAIGHT_JOIN ", b" HIGH_PRIORITY ", b" SQL_NO_CACHE "];

/// Versions in comments below this one (5.5) are older than any server that is followed: MySQL and
/// MariaDB take what is in such a comment for a part of the text. Dumps begin with them.
const VERSION_MAX: u32 = 50_500;

/// The text as the server takes it: without advice, and with what stands in comments for older
/// versions. Up to the first quote outside of such a comment, or what else hides where a comment
/// begins.
fn without_version_comments(text: &[u8]) -> Cow<'_, [u8]> {
    let (mut told, mut rest) = (Vec::new(), text);
    loop {
        let hides = |at: &usize| {
            let here = &rest[*at..];
            matches!(here[0], b'\'' | b'"' | b'`' | b'#')
                || here.starts_with(b"--")
                || here.starts_with(b"/*")
        };
        let Some(at) = (0..rest.len()).find(hides) else { break };
        let here = &rest[at..];
        if here.starts_with(b"/*!") {
            let Some((content, behind)) = version_comment(&here[3..]) else { break };
            told.extend([&rest[..at], b" ", content, b" "].concat());
            rest = behind;
        } else if here.starts_with(b"/*")
            && let Some(behind) = comment_behind(&here[1..])
        {
            told.extend(&rest[..rest.len() - behind.len()]);
            rest = behind;
        } else {
            break;
        }
    }
    if rest.len() == text.len() { Cow::Borrowed(text) } else { Cow::Owned([&told, rest].concat()) }
}

/// What a server takes from a comment for older versions, which begins with the version, and what
/// follows the comment. `None`: it is not certain.
fn version_comment(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.windows(2).position(|two| two == b"*/")?;
    let (comment, behind) = (&text[..end], &text[end + 2..]);
    let digits = comment.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (version, content) = comment.split_at(digits);
    if ADVICE.contains(&content) && (digits == 0 || is_older(version)) {
        return Some((b"", behind));
    }
    let is_plain =
        |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'\\' | b'"' | b'#' | b';');
    let is_certain = is_older(version)
        && content.first() == Some(&b' ')
        && content.iter().all(is_plain)
        && closes_quotes(content)
        && !content.windows(2).any(|two| two == b"/*" || two == b"--");
    is_certain.then_some((content, behind))
}

/// Are all strings and quoted names closed at the end of the text? It has no escapes.
fn closes_quotes(text: &[u8]) -> bool {
    let mut within = None;
    for byte in text.iter().filter(|byte| matches!(byte, b'\'' | b'`')) {
        match within {
            None => within = Some(byte),
            Some(quote) if quote == byte => within = None,
            Some(_) => {}
        }
    }
    within.is_none()
}

fn is_older(version: &[u8]) -> bool {
    let number = core::str::from_utf8(version).ok().and_then(|text| text.parse::<u32>().ok());
    version.len() == 5 && number.is_some_and(|number| number < VERSION_MAX)
}

fn parse_all(dialect: Dialect, text: &[u8]) -> Result<Vec<Statement>, Reason> {
    if text.len() > STATEMENT_BYTES_MAX {
        return Err(Reason::TooLarge);
    }
    let text = match dialect {
        Dialect::MySql => without_version_comments(text),
        Dialect::Postgres => Cow::Borrowed(text),
    };
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

    /// As dumps are made.
    #[test]
    fn what_stands_in_comments_for_older_servers_is_said() {
        for (commented, plain) in [
            (&b"SELECT /*!40001 SQL_NO_CACHE */ `a` FROM `t`"[..], &b"SELECT `a` FROM `t`"[..]),
            (b"/*!40100 SET @@SQL_MODE='' */", b"SET @@SQL_MODE=''"),
            (b"/*!40103 SET TIME_ZONE='+00:00' */", b"SET TIME_ZONE='+00:00'"),
            (b"/*!40000 DELETE FROM t */", b"DELETE FROM t"),
            (b"/* a */ /*!40000 DELETE */ /*!40000 FROM t */", b"DELETE FROM t"),
            (
                b"START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */",
                b"START TRANSACTION WITH CONSISTENT SNAPSHOT",
            ),
        ] {
            let said = parse(Dialect::MySql, commented);
            assert_eq!(said, parse(Dialect::MySql, plain));
            let is_known = |one: &Statement| {
                one.everything.is_none() && !matches!(one.class, Class::Everything(_))
            };
            assert!(said.iter().all(is_known), "{}: {said:?}", plain.escape_ascii());
        }
    }

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
            // The first comment ends where the advice does.
            b"SELECT 1 /* /*! STRAIGHT_JOIN */ , f() /* */ FROM t",
            b"SELECT 1 # /*! STRAIGHT_JOIN */\n, f() FROM t",
            b"SELECT 1 -- /*! STRAIGHT_JOIN */\n, f() FROM t",
            // Of a newer server, of one that nobody has, in quotes, with a quote, with a comment.
            b"SELECT /*!80000 SQL_NO_CACHE */ a FROM t",
            b"SELECT /*!4000 SQL_NO_CACHE */ a FROM t",
            b"SELECT /*!040001 SQL_NO_CACHE */ a FROM t",
            b"SELECT '/*!40001 SQL_NO_CACHE */' FROM t",
            b"SELECT /*!40001 ' */ a FROM t",
            b"SELECT /*!40001 a -- */ a FROM t",
            b"SELECT /*!40001 a /* */ a FROM t",
            b"SELECT /*M!40001 SQL_NO_CACHE */ a FROM t",
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
