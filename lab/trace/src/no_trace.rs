//! What is not a trace, by its first bytes: programs, and other files that are known.

use std::fmt;

/// What a file is that is not a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTrace {
    /// A program in machine code.
    Program,
    /// A program that begins with `#!`.
    Script,
    /// Something known by its first bytes: an archive, a picture.
    Known(&'static str),
    /// A binary file that no format fits.
    Binary,
    /// A text that no format fits.
    Text,
}

impl fmt::Display for NoTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAME_IT: &str = "if it is a trace all the same, name its format";
        match self {
            Self::Program => f.write_str("a program"),
            Self::Script => f.write_str("a script"),
            Self::Known(what) => f.write_str(what),
            Self::Binary => write!(
                f,
                "a binary file in no format that is recognised; {NAME_IT} (keys of 32 or 64 bits must be named)"
            ),
            Self::Text => {
                write!(
                    f,
                    "a text in no format that is recognised; {NAME_IT} (a table's columns can be named, too)"
                )
            }
        }
    }
}

/// What begins so is not a trace, whatever its format is said to be.
const PROGRAMS: [(&[u8], NoTrace); 3] = [
    (b"\x7fELF", NoTrace::Program),
    (b"#!", NoTrace::Script),
    (b"\xca\xfe\xba\xbe", NoTrace::Program),
];
/// What begins so is not a trace whose format can be recognised.
const KNOWN: [(&[u8], &str); 10] = [
    (b"\xfd7zXZ\0", "packed by xz, which is not unpacked here: use `xzcat FILE | nicache ... -`"),
    (b"BZh", "packed by bzip2, which is not unpacked here: use `bzcat FILE | nicache ... -`"),
    (b"PK\x03\x04", "a zip archive"),
    (b"!<arch>", "an archive of object files"),
    (b"-----BEGIN ", "a certificate or a key"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\xd4\xc3\xb2\xa1", "a packet capture"),
];

/// Refuses programs: no trace begins as they do.
pub(crate) fn refuse_program(start: &[u8]) -> Result<(), NoTrace> {
    match PROGRAMS.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, what)) => Err(*what),
        None => Ok(()),
    }
}

/// Refuses programs, and whatever else is known not to be a trace.
pub(crate) fn refuse_known(start: &[u8]) -> Result<(), NoTrace> {
    refuse_program(start)?;
    match KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, what)) => Err(NoTrace::Known(what)),
        None => Ok(()),
    }
}
