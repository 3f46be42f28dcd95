//! Lists of keys, in the order in which they are asked for: `key`, `key size` or `key,size` in a
//! line.
//!
//! A key that is a number is the object's number, another one is hashed. A key may have commas in
//! it unless a number follows the last one; a list with such keys must be named, because other
//! columns look the same.

use std::io::{self, Write};

use memchr::memrchr;

use crate::bad::Defect;
use crate::field::number_of;
use crate::hash::id_of;
use crate::marks;
use crate::record::Record;

/// A line; its key is put into `target`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
    let (key, bytes) = match line.iter().position(u8::is_ascii_whitespace) {
        Some(end) => {
            // "key, size" is written, too.
            let key = line[..end].strip_suffix(b",").unwrap_or(&line[..end]);
            (key, Some(number_of(line[end..].trim_ascii()).ok_or(Defect::Size)?))
        }
        None => match memrchr(b',', line)
            .and_then(|comma| Some((&line[..comma], number_of(&line[comma + 1..])?)))
        {
            Some((key, bytes)) => (key, Some(bytes)),
            None => (line, None),
        },
    };
    if key.is_empty() {
        return Err(Defect::Target);
    }
    target.extend_from_slice(key);
    let object = number_of(key).unwrap_or_else(|| id_of(key));
    Ok(Record {
        object,
        bytes,
        object_bytes: bytes,
        marks: marks::of_target(key),
        ..Record::default()
    })
}

/// Writes a trace as a list of keys: the objects' numbers, each with its size if it has one.
///
/// Kept are the objects and their sizes (of the whole object, else of the transfer).
#[derive(Debug)]
pub struct KeyWriter<W> {
    output: W,
}

impl<W: Write> KeyWriter<W> {
    /// A list in `output`.
    pub fn new(output: W) -> Self {
        Self { output }
    }

    /// Writes a request.
    ///
    /// # Errors
    /// What the output says.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        match record.object_bytes.or(record.bytes) {
            Some(bytes) => writeln!(self.output, "{},{bytes}", record.object),
            None => writeln!(self.output, "{}", record.object),
        }
    }

    /// Gives the output back.
    pub fn into_inner(self) -> W {
        self.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let parsed = |line: &[u8]| {
            let mut target = Vec::new();
            parse(line, &mut target)
                .map(|record| (record.object, record.bytes, String::from_utf8(target).unwrap()))
        };
        assert_eq!(parsed(b"abc"), Ok((id_of(b"abc"), None, "abc".into())));
        assert_eq!(parsed(b"17"), Ok((17, None, "17".into())));
        assert_eq!(parsed(b"17,4096"), Ok((17, Some(4096), "17".into())));
        assert_eq!(parsed(b"17, 4096"), Ok((17, Some(4096), "17".into())));
        assert_eq!(parsed(b"a,b  4096"), Ok((id_of(b"a,b"), Some(4096), "a,b".into())));
        assert_eq!(parsed(b"a\t4096"), Ok((id_of(b"a"), Some(4096), "a".into())));
        assert_eq!(parsed(b"a,b"), Ok((id_of(b"a,b"), None, "a,b".into())));
        assert_eq!(parsed(b"a b"), Err(Defect::Size));
        assert_eq!(parsed(b"a 1 2"), Err(Defect::Size));
        assert_eq!(parsed(b",1"), Err(Defect::Target));
        assert_eq!(
            parse(b"/a.php?b", &mut Vec::new()).unwrap().marks,
            marks::of_target(b"/a.php?b")
        );
    }
}
