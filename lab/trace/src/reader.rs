//! Reads a trace, record by record.

use std::io::Read;
use std::path::Path;

use crate::bad::{BadRecords, Defect};
use crate::format::Format;
use crate::json::joined::{Joined, Joiner};
use crate::no_trace::refuse_program;
use crate::packing::{Packing, ReadError, Source};
use crate::parser::Parser;
use crate::recognise::{START_BYTES, recognise, without_mark};
use crate::record::Record;
use crate::window::{Found, LINE_BYTES_MAX, Window};

/// A trace that is read.
///
/// Empty lines and lines that begin with `#` are skipped; lines and records that cannot be
/// understood are counted ([`Reader::bad`]) and skipped, lines longer than 64 KiB and a last binary
/// record that is cut off among them.
#[derive(Debug)]
pub struct Reader<'a> {
    window: Window<'a>,
    format: Format,
    parser: Parser,
    /// Of JSON: objects that go on over several lines.
    joiner: Option<Joiner>,
    /// Lines or records until now.
    number: u64,
    target: Vec<u8>,
    bad: BadRecords,
}

impl Reader<'static> {
    /// Opens a trace file; `-` is standard input. gzip and zstd are recognised by their first
    /// bytes, whatever the name, and so is the format unless it is given.
    ///
    /// # Errors
    /// [`ReadError`], if it cannot be opened, its first bytes cannot be read, or it is not a trace.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, ReadError> {
        Reader::of(Source::open(path)?, format)
    }
}

impl<'a> Reader<'a> {
    /// Reads a trace from anything, packed or not, in large pieces. [`Reader::size`] is not known.
    ///
    /// # Errors
    /// [`ReadError`], if its first bytes cannot be read, or it is not a trace.
    pub fn new(input: impl Read + Send + 'a, format: Option<Format>) -> Result<Self, ReadError> {
        Reader::of(Source::new(input)?, format)
    }

    fn of(source: Source<'a>, format: Option<Format>) -> Result<Self, ReadError> {
        let mut window = Window::new(source);
        let start = window.peek(START_BYTES)?;
        let is_empty = start.is_empty();
        let start = &start[..start.len().min(START_BYTES)];
        let format = match format {
            Some(format) => refuse_program(start).map(|()| format),
            None => recognise(start),
        };
        let parser = format.as_ref().map(|format| Parser::new(*format, without_mark(start)));
        let mark_bytes = start.len() - without_mark(start).len();
        if is_empty && let Some(damage) = window.take_damage() {
            return Err(damage);
        }
        let (format, parser) = match (format, parser) {
            (Ok(format), Ok(parser)) => (format, parser),
            (Err(no_trace), _) | (_, Err(&no_trace)) => return Err(ReadError::NoTrace(no_trace)),
        };
        if !format.is_binary() {
            window.skip(mark_bytes);
        }
        let joiner = (format == Format::Json).then(Joiner::default);
        Ok(Reader {
            window,
            format,
            parser,
            joiner,
            number: 0,
            target: Vec::new(),
            bad: BadRecords::default(),
        })
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`], if the input fails; what was read before stays good. Where its packing is
    /// damaged or cut off, the trace ends: see [`Reader::damage`].
    pub fn read(&mut self) -> Result<Option<Record>, ReadError> {
        match &mut self.parser {
            Parser::Line(parser) => loop {
                let found = self.window.next_line()?;
                self.number += 1;
                let range = match found {
                    Found::Whole(range) => range,
                    Found::Part(range) => {
                        let is_cut =
                            self.window.damage().is_some() && range.len() <= LINE_BYTES_MAX;
                        let defect = if is_cut { Defect::Truncated } else { Defect::TooLong };
                        self.bad.push_line(self.number, self.window.bytes(range), defect);
                        continue;
                    }
                    Found::End => {
                        if let Some(rest) = self.joiner.take().as_ref().and_then(Joiner::rest) {
                            self.bad.push_line(self.number, rest, Defect::Json);
                        }
                        return Ok(None);
                    }
                };
                let whole = self.window.bytes(range);
                let mut line = whole.trim_ascii();
                if parser.is_comment(line) {
                    continue;
                }
                if let Some(joiner) = &mut self.joiner {
                    // Nearly all logs have an object in each line.
                    if joiner.is_idle() && line.starts_with(b"{") && line.ends_with(b"}") {
                        self.target.clear();
                        match parser.parse(line, &mut self.target) {
                            Ok(record) => return Ok(Some(record)),
                            Err(Defect::Json) => {}
                            Err(defect) => {
                                self.bad.push_line(self.number, line, defect);
                                continue;
                            }
                        }
                    }
                    let mut joined = joiner.push(whole);
                    if joined == Joined::Broken {
                        self.bad.push_line(self.number, joiner.object(), Defect::Json);
                        joined = joiner.push(whole);
                    }
                    match joined {
                        Joined::Nothing | Joined::Going | Joined::Broken => continue,
                        Joined::Line => line = line.strip_suffix(b",").unwrap_or(line),
                        Joined::Object => line = joiner.object(),
                    }
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
                        self.bad.push_record(
                            self.number,
                            self.window.bytes(range),
                            Defect::Truncated,
                        );
                    }
                    Found::End => return Ok(None),
                }
            },
        }
    }

    /// The URL, key or file handle of the last record as it stands in the trace, but for JSON's
    /// escapes; empty for binary formats. The record's object is [`id_of`](crate::id_of) it, unless
    /// it is a key that is a number, or JSON tells a host.
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

    /// Why the end is not the trace's own: its packing is damaged or cut off there. What was read
    /// before is good.
    pub fn damage(&self) -> Option<&ReadError> {
        self.window.damage()
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
