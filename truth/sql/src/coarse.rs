//! A first look at received bytes, simple enough for the kernel: is it certain that they change
//! nothing, so nobody needs to wait for them to be looked at?
//!
//! The specification of what the kernel's program does, byte for byte. It answers for a whole
//! buffer as one `recv` gave it; the first word is within its first [`COARSE_BYTES`] bytes, and the
//! rest is searched for two patterns up to [`COARSE_TEXT_BYTES`]. It keeps nothing between buffers.
//! The answer only spares the wait: the bytes are given to the [`crate::Session`] either way, and a
//! SELECT may call a function that writes, which only that finds. So whoever uses the answer must
//! know that there are no such functions, or pay a wait for each SELECT.

use crate::dialects::Dialect;

/// The first word of a statement is looked for in so many bytes.
pub const COARSE_BYTES: usize = 64;

/// First words of statements that change nothing, in upper case, each followed by a byte that ends
/// a word.
const WORDS: [&[u8]; 4] = [b"SELECT", b"SHOW", b"DESCRIBE", b"SET NAMES"];

/// Is it certain that the bytes change nothing (if they call no function that does)?
pub fn is_certain_read(dialect: Dialect, bytes: &[u8]) -> bool {
    dialect.server().is_certain_read(bytes)
}

/// Is the first word behind blanks and comments one of [`WORDS`], and is there no second statement?
pub(crate) fn is_read(bytes: &[u8], from: usize) -> bool {
    let end = if bytes.len() < COARSE_BYTES { bytes.len() } else { COARSE_BYTES };
    let mut at = from;
    let mut comment = false;
    while at < end {
        let byte = bytes[at];
        if comment {
            if byte == b'*' && at + 1 < end && bytes[at + 1] == b'/' {
                comment = false;
                at += 1;
            } else if byte == b'/' && at + 1 < end && bytes[at + 1] == b'*' {
                return false; // PostgreSQL nests comments, MySQL does not.
            }
        } else if byte == b'/' && at + 2 < end && bytes[at + 1] == b'*' {
            if matches!(bytes[at + 2], b'!' | b'M') {
                return false; // Not a comment to every server.
            }
            comment = true;
            at += 1;
        } else if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'(') {
            break;
        }
        at += 1;
    }
    if comment {
        return false;
    }
    for word in WORDS {
        if at + word.len() < end
            && bytes[at..at + word.len()].eq_ignore_ascii_case(word)
            && matches!(
                bytes[at + word.len()],
                b' ' | b'\t' | b'\r' | b'\n' | b'*' | b'(' | b'@' | b'/' | b'\''
            )
        {
            return is_plain_read(&bytes[at..]);
        }
    }
    false
}

/// Is there no second statement, and no INTO, which begins the name of a variable, a file or a new
/// table? Both are looked for as bytes, in strings, too.
fn is_plain_read(text: &[u8]) -> bool {
    text.len() <= COARSE_TEXT_BYTES
        && !text.contains(&b';')
        && !text.windows(4).any(|four| four.eq_ignore_ascii_case(b"INTO"))
}

/// Longer texts are not certain.
pub const COARSE_TEXT_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Vec<u8> {
        let mut packet = ((text.len() + 1) as u32).to_le_bytes()[..3].to_vec();
        packet.extend([0, 3]);
        packet.extend(text.as_bytes());
        packet
    }

    fn message(kind: u8, text: &str) -> Vec<u8> {
        let mut message = vec![kind];
        message.extend((text.len() as u32 + 5).to_be_bytes());
        message.extend(text.as_bytes());
        message.push(0);
        message
    }

    #[test]
    fn reads_are_certain_only_in_plain_sight() {
        for (text, certain) in [
            ("SELECT 1", true),
            ("  select * from t", true),
            ("/* Class::method */ SELECT 1", true),
            ("(SELECT 1) UNION (SELECT 2)", true),
            ("SHOW FULL COLUMNS FROM `wp_options`", true),
            ("SET NAMES utf8mb4", true),
            ("SELECT@@version", true),
            ("SELECT 1; DELETE FROM t", false),
            ("SELECT 1 INTO OUTFILE 'x'", false),
            ("SELECT * INTO t FROM u", false),
            ("SELECTED 1", false),
            ("/*! DELETE */ SELECT 1", false),
            ("/* unterminated", false),
            ("UPDATE t SET a = 1", false),
            ("", false),
            ("SELECT", false),
        ] {
            assert_eq!(is_certain_read(Dialect::MySql, &query(text)), certain, "{text}");
            assert_eq!(is_certain_read(Dialect::Postgres, &message(b'Q', text)), certain, "{text}");
        }
        let mut two = query("SELECT 1");
        two.extend(query("DELETE FROM t"));
        assert!(!is_certain_read(Dialect::MySql, &two));
        assert!(is_certain_read(Dialect::MySql, &[1, 0, 0, 0, 0x0e]));
        assert!(!is_certain_read(Dialect::MySql, &[1, 0, 0, 1, 0x0e]));
        assert!(!is_certain_read(Dialect::MySql, &[1, 0, 0, 0, 0x17]));
        assert!(is_certain_read(Dialect::Postgres, b"X\0\0\0\x04"));
        assert!(!is_certain_read(Dialect::Postgres, b"S\0\0\0\x04"));
        assert!(is_certain_read(Dialect::Postgres, &message(b'P', "s\0DELETE FROM t\0\0")));
        assert!(!is_certain_read(Dialect::Postgres, &message(b'E', "")));
    }
}
