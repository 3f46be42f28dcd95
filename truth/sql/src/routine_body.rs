//! Can calling a function of MySQL or MariaDB change something, by the text of its body?
//!
//! `SQL_DATA_ACCESS` (NO SQL, READS SQL DATA) is what the author says, and the server does not hold
//! the author to it. So the words of the body are looked at: a function without any of those with
//! which a statement that changes something must be written changes nothing by itself. What other
//! functions do that it calls is in their bodies. Servers bring functions along (the schema `sys`),
//! and all of theirs are found harmless.

/// Words that make a body one that may change something, in lower case. Whether they are names
/// there, or are in reach, does not matter.
const WRITERS: [&str; 25] = [
    "alter",
    "binlog",
    "call",
    "commit",
    "create",
    "delete",
    "drop",
    "dumpfile",
    "execute",
    "flush",
    "grant",
    "immediate",
    "insert",
    "install",
    "kill",
    "lastval",
    "load",
    "next",
    "nextval",
    "outfile",
    "rename",
    "revoke",
    "setval",
    "truncate",
    "update",
];

/// A word in lower case, or another byte.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Byte(u8),
    /// A text or a quoted name.
    Quoted,
}

/// May a function with this body change something? What is not understood may.
pub(crate) fn may_write(body: &[u8]) -> bool {
    tokens(body)
        .is_none_or(|tokens| (0..tokens.len()).any(|at| writes(&tokens[..at], &tokens[at..])))
}

fn writes(before: &[Token], from: &[Token]) -> bool {
    let Some(Token::Word(word)) = from.first() else { return false };
    let is = |at: usize, byte: u8| from.get(at) == Some(&Token::Byte(byte));
    let says =
        |at: usize, text: &str| matches!(from.get(at), Some(Token::Word(word)) if word == text);
    match &**word {
        // As a function it makes a text of another one.
        "replace" => !is(1, b'('),
        // The value of a setting, unless something is assigned to it.
        "global" => {
            let is_setting =
                before.ends_with(&[Token::Byte(b'@'), Token::Byte(b'@')]) && is(1, b'.');
            !is_setting
                || !matches!(from.get(2), Some(Token::Word(_)))
                || is(3, b'=')
                || is(3, b':')
        }
        // What the server measures of itself is not a table.
        "update" => !(says(1, "performance_schema") && is(2, b'.') && says(4, "set")),
        word => WRITERS.contains(&word),
    }
}

fn tokens(body: &[u8]) -> Option<Vec<Token>> {
    let (mut tokens, mut rest) = (Vec::new(), body);
    while let Some((&first, after)) = rest.split_first() {
        rest = match first {
            b'\'' | b'"' | b'`' => {
                tokens.push(Token::Quoted);
                skip_quoted(first, after)?
            }
            b'#' => skip_line(after),
            b'-' if after.starts_with(b"-") && after.get(1).is_none_or(|&byte| byte <= b' ') => {
                skip_line(after)
            }
            b'/' if after.starts_with(b"*") => skip_comment(&after[1..])?,
            _ if is_word(first) => {
                let len = rest.iter().position(|&byte| !is_word(byte)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(len);
                tokens.push(Token::Word(String::from_utf8_lossy(word).to_ascii_lowercase()));
                after
            }
            _ => {
                if first > b' ' {
                    tokens.push(Token::Byte(first));
                }
                after
            }
        };
    }
    Some(tokens)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// Behind the closing quote. Whether a backslash escapes is up to the session that made the
/// function: a body in which that matters is not understood.
fn skip_quoted(quote: u8, text: &[u8]) -> Option<&[u8]> {
    let at = text.iter().position(|&byte| byte == quote || (byte == b'\\' && quote != b'`'))?;
    if text[at] != quote {
        // Escaped or not, neither byte is the quote.
        text.get(at + 1).filter(|&&byte| byte != quote)?;
        return skip_quoted(quote, &text[at + 2..]);
    }
    Some(&text[at + 1..])
}

fn skip_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
    &text[end..]
}

/// Behind the end of a comment. One that some servers take for part of the statement is not
/// understood, nor are comments in comments.
fn skip_comment(text: &[u8]) -> Option<&[u8]> {
    if text.starts_with(b"!") || text.starts_with(b"M!") {
        return None;
    }
    let end = text.windows(2).position(|two| two == b"*/")?;
    let (comment, rest) = text.split_at(end);
    (!comment.windows(2).any(|two| two == b"/*")).then(|| &rest[2..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_only_looks_is_harmless() {
        for body in [
            "RETURN 1",
            "BEGIN DECLARE total INT; SELECT SUM(price) INTO total FROM items WHERE id = wanted; RETURN total; END",
            "RETURN REPLACE(name, 'insert into x', \"update\")",
            "BEGIN -- delete nothing\n RETURN REPLACE (a, '`', '``'); END",
            "BEGIN # drop\n /* update */ WHILE i < 3 DO SET i = i + 1; END WHILE; RETURN i; END",
            "RETURN (SELECT `delete` FROM updates WHERE inserted = 'it''s')",
            "RETURN CONCAT('a\\n', b, '\\\\', '\\\"')",
            "RETURN IF(@@global.datadir LIKE 'x', @@GLOBAL.tmpdir, '')",
            "BEGIN UPDATE performance_schema.threads SET instrumented = 'NO'; RETURN 1; END",
            "",
        ] {
            assert!(!may_write(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn what_may_write_is_not() {
        for body in [
            "BEGIN UPDATE items SET n = n + 1; RETURN 1; END",
            "BEGIN replace into items VALUES (1); RETURN 1; END",
            "BEGIN Replace items VALUES (1); RETURN 1; END",
            "BEGIN DELETE/**/FROM items; RETURN 1; END",
            "BEGIN CALL change_all(); RETURN 1; END",
            "RETURN NEXTVAL(numbers)",
            "RETURN NEXT VALUE FOR numbers",
            "BEGIN SELECT 1 INTO OUTFILE '/tmp/x'; RETURN 1; END",
            "BEGIN SET GLOBAL sql_mode = ''; RETURN 1; END",
            "BEGIN SET @@global.sql_mode = ''; RETURN 1; END",
            "BEGIN SET @@global . sql_mode := ''; RETURN 1; END",
            "BEGIN SET @@global.`sql_mode` = ''; RETURN 1; END",
            "BEGIN UPDATE performance_schema.threads, items SET n = 1; RETURN 1; END",
            "BEGIN UPDATE performance_schema.threads JOIN items SET n = 1; RETURN 1; END",
            "BEGIN /*! DELETE FROM items */; RETURN 1; END",
            "BEGIN /*M!100100 DELETE FROM items */; RETURN 1; END",
            "BEGIN /* /* */ DELETE FROM items; */ RETURN 1; END",
            "BEGIN SET a = 1--1; DELETE FROM items; RETURN 1; END",
            "RETURN 'open",
            "RETURN /* open",
            // Where a backslash escapes, the text ends behind the statement.
            "BEGIN SET a = '\\'; DELETE FROM items; SET b = '\\'; RETURN 1; END",
            "BEGIN SET a = '\\\\'; DELETE FROM items; RETURN 1; END",
        ] {
            assert!(may_write(body.as_bytes()), "{body}");
        }
    }

    proptest! {
        /// A statement that writes, behind anything that is complete, is found; and nothing panics.
        #[test]
        fn a_writer_is_found_behind_anything(
            before in proptest::collection::vec("[a-z ]{0,9}|'[a-z/*#-]{0,5}'|\"[a-z']{0,5}\"|`[a-z\\\\]{0,4}`|-- [a-z'\"]{0,5}\n|#['`]\n|/[*] [a-z'\"]{0,5}[*]/", 0..9),
            noise in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let body = format!("{} ; DELETE FROM items", before.join(" "));
            prop_assert!(may_write(body.as_bytes()), "{}", body);
            may_write(&noise);
        }
    }
}
