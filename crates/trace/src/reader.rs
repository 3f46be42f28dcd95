//! Reads a trace, record by record.

use std::io::Read;
use std::path::Path;

use crate::bad::{BadRecords, Defect};
use crate::format::Format;
use crate::packing::{Packing, ReadError, Source};
use crate::parser::Parser;
use crate::recognise::{START_BYTES, recognise, without_mark};
use crate::record::Record;
use crate::window::{Found, Window};

/// A trace that is read.
///
/// Empty lines and lines that begin with `#` are skipped; lines and records that cannot be understood are counted
/// ([`Reader::bad`]) and skipped, lines longer than 64 KiB and a last binary record that is cut off among them.
#[derive(Debug)]
pub struct Reader<'a> {
    window: Window<'a>,
    format: Format,
    parser: Parser,
    /// Lines or records until now.
    number: u64,
    target: Vec<u8>,
    bad: BadRecords,
}

impl Reader<'static> {
    /// Opens a trace file; `-` is standard input. gzip and zstd are recognised by their first bytes, whatever the name,
    /// and so is the format unless it is given.
    ///
    /// # Errors
    /// [`ReadError`], if it cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Reader<'static>, ReadError> {
        Reader::of(Source::open(path)?, format)
    }
}

impl<'a> Reader<'a> {
    /// Reads a trace from anything, packed or not, in large pieces. [`Reader::size`] is not known.
    ///
    /// # Errors
    /// [`ReadError`], if its first bytes cannot be read.
    pub fn new(input: impl Read + Send + 'a, format: Option<Format>) -> Result<Reader<'a>, ReadError> {
        Reader::of(Source::new(input)?, format)
    }

    fn of(source: Source<'a>, format: Option<Format>) -> Result<Reader<'a>, ReadError> {
        let mut window = Window::new(source);
        let start = window.peek(START_BYTES)?;
        let start = &start[..start.len().min(START_BYTES)];
        let format = format.unwrap_or_else(|| recognise(start));
        let parser = Parser::new(format, start);
        if !format.is_binary() {
            let mark_bytes = start.len() - without_mark(start).len();
            window.skip(mark_bytes);
        }
        Ok(Reader { window, format, parser, number: 0, target: Vec::new(), bad: BadRecords::default() })
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`], if the input fails or its packing is damaged; what was read before stays good.
    pub fn read(&mut self) -> Result<Option<Record>, ReadError> {
        match &mut self.parser {
            Parser::Line(parser) => loop {
                let found = self.window.next_line()?;
                self.number += 1;
                let range = match found {
                    Found::Whole(range) => range,
                    Found::Part(range) => {
                        self.bad.push_line(self.number, self.window.bytes(range), Defect::TooLong);
                        continue;
                    }
                    Found::End => return Ok(None),
                };
                let line = self.window.bytes(range).trim_ascii();
                if parser.is_comment(line) {
                    continue;
                }
                self.target.clear();
                match parser.parse(line, &mut self.target) {
                    Ok(record) => return Ok(Some(record)),
                    Err(defect) => self.bad.push_line(self.number, line, defect),
                }
            },
            Parser::Record(parser) => loop {
                let found = self.window.next_record(parser.record_bytes())?;
                self.number += 1;
                match found {
                    Found::Whole(range) => {
                        let bytes = self.window.bytes(range);
                        match parser.parse(bytes) {
                            Ok(record) => return Ok(Some(record)),
                            Err(defect) => self.bad.push_record(self.number, bytes, defect),
                        }
                    }
                    Found::Part(range) => {
                        self.bad.push_record(self.number, self.window.bytes(range), Defect::Truncated);
                    }
                    Found::End => return Ok(None),
                }
            },
        }
    }

    /// The URL, key or file handle of the last record as it stands in the trace, but for JSON's escapes; empty for binary
    /// formats. The record's object is [`id_of`](crate::id_of) it, unless it is a key that is a number, or JSON tells a host.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// What the trace is read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How it is packed.
    pub fn packing(&self) -> Packing {
        self.window.source().packing()
    }

    /// What was skipped until now.
    pub fn bad(&self) -> &BadRecords {
        &self.bad
    }

    /// Bytes of the file (as it is packed) that were read until now; a buffer ahead of the records.
    pub fn position(&self) -> u64 {
        self.window.source().position()
    }

    /// Bytes of the file as it is packed; `None` if it is none, or a pipe.
    pub fn size(&self) -> Option<u64> {
        self.window.source().size()
    }
}
