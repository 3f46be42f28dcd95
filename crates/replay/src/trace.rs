//! Web logs: what was asked for, by whom, and when.
//!
//! A reader for each format (`trace/`) makes [`Record`]s; here they become objects and requests. What is kept of a log:
//!
//! | reply in the log | in the trace |
//! |---|---|
//! | 200 | a request; its bytes are the object's, unless a larger reply of the object is in the log |
//! | 206 | a request for the whole object, which has at least these bytes |
//! | 304 | a request for the whole object, since a replay keeps no copies that could be confirmed |
//! | any other status | nothing: files cannot give these replies again; counted |
//! | any status, method other than GET and HEAD | nothing; counted |
//!
//! An object is a target as it stands in the log, with its query. One of which the log has no size (it is only in 304
//! replies, or only asked for by HEAD) has none: no byte of it went over the wire then, either.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::random::mix;

mod common;
mod format;
mod record;
mod tsv;
mod worldcup;

pub use format::Format;
pub use record::{Record, Verb};

/// Longest line that is looked at; a longer one is bad.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Largest file that is made from a log.
const OBJECT_BYTES_MAX: u64 = 256 << 20;
/// Most requests of a log; 2 GiB of them.
const REQUESTS_MAX: usize = 1 << 26;
/// Bytes that the format is found out by.
const FORMAT_BYTES: u64 = 4096;

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The log cannot be opened or read.
    #[error("cannot read {path}")]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// No line of it can be replayed.
    #[error("no request in {path} can be replayed ({bad_lines} bad lines); is it {format}?")]
    NoRequests {
        /// The log.
        path: PathBuf,
        /// What it was read as.
        format: Format,
        /// Lines that are none of a log.
        bad_lines: u64,
    },
}

/// Why the bytes of a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file or its packing is damaged or not readable.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A log of records of 20 bytes does not end with a whole one.
    #[error("the log is cut off: {0} bytes follow the last whole record")]
    Truncated(usize),
    /// More requests than are held in memory.
    #[error("the log has more than {REQUESTS_MAX} requests; split it")]
    TooLong,
}

/// Something that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Hash of its target in the log.
    pub id: u64,
    /// The largest reply in the log, in bytes.
    pub bytes: u64,
}

/// A request of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// When, in seconds since an epoch of the log's own.
    pub second: u64,
    /// Bytes of the reply in the log.
    pub bytes: u64,
    /// Index into [`Trace::objects`].
    pub object: u32,
    /// Who: clients are numbered as they appear.
    pub client: u32,
    /// Status of the reply in the log.
    pub status: u16,
    /// HEAD instead of GET.
    pub head: bool,
}

/// What is in a log beside plain replies of unchanging objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceCounts {
    /// Lines or records that cannot be understood; not replayed.
    pub bad_lines: u64,
    /// Requests by another method than GET and HEAD; not replayed.
    pub other_methods: u64,
    /// Requests answered by another status than 200, 206 and 304; not replayed.
    pub other_statuses: u64,
    /// Requests answered by 304; replayed as requests for the whole object.
    pub not_modified: u64,
    /// Requests answered by 206; replayed as requests for the whole object.
    pub partial: u64,
    /// Requests whose reply was 200 with fewer bytes than the object has here: it grew or shrank, or the client left.
    pub other_sizes: u64,
    /// Objects with such replies.
    pub objects_of_other_sizes: u64,
    /// Objects without a size in the log, which are empty here.
    pub objects_without_size: u64,
}

/// A log in memory.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What is asked for.
    pub objects: Vec<Object>,
    /// The requests, in the order of the log.
    pub requests: Vec<TraceRequest>,
    /// Number of clients.
    pub clients: u32,
    /// What the log has beside.
    pub counts: TraceCounts,
    by_id: HashMap<u64, u32>,
    by_client: HashMap<u64, u32>,
}

impl Trace {
    /// Reads a log; gzip and zstd are recognised by their first bytes, whatever the name, and so is the format unless
    /// it is given.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn open(path: &Path, format: Option<Format>) -> Result<Trace, TraceError> {
        let failed = |source: ReadError| TraceError::Read { path: path.to_owned(), source };
        let (trace, format) =
            open_unpacked(path).map_err(ReadError::from).and_then(|log| Trace::read(log, format)).map_err(failed)?;
        if trace.requests.is_empty() {
            let bad_lines = trace.counts.bad_lines;
            return Err(TraceError::NoRequests { path: path.to_owned(), format, bad_lines });
        }
        Ok(trace)
    }

    /// Reads an unpacked log, and says which format it was read as.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(mut log: impl BufRead, format: Option<Format>) -> Result<(Trace, Format), ReadError> {
        let mut start = Vec::new();
        log.by_ref().take(FORMAT_BYTES).read_to_end(&mut start)?;
        let format = format.unwrap_or_else(|| Format::of(&start));
        let log = start.chain(log);
        let mut trace = Trace::default();
        match format {
            Format::Common => {
                let mut clock = common::DayClock::default();
                trace.read_lines(log, |line| common::parse(line, &mut clock))?;
            }
            Format::Tsv => trace.read_lines(log, tsv::parse)?,
            Format::WorldCup => trace.read_records(log)?,
        }
        trace.count_sizes();
        Ok((trace, format))
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`ReadError::TooLong`].
    pub fn push(&mut self, record: &Record) -> Result<(), ReadError> {
        if record.verb == Verb::Other {
            self.counts.other_methods += 1;
            return Ok(());
        }
        match record.status {
            200 => {}
            206 => self.counts.partial += 1,
            304 => self.counts.not_modified += 1,
            _ => {
                self.counts.other_statuses += 1;
                return Ok(());
            }
        }
        if self.requests.len() == REQUESTS_MAX {
            return Err(ReadError::TooLong);
        }
        let head = record.verb == Verb::Head;
        // What a server logs as the bytes of a reply without a body says nothing of the object.
        let has_body = !head && record.status != 304;
        let bytes = if has_body { record.bytes.unwrap_or(0).min(OBJECT_BYTES_MAX) } else { 0 };
        let object = *self.by_id.entry(record.object).or_insert_with(|| {
            self.objects.push(Object { id: record.object, bytes: 0 });
            self.objects.len() as u32 - 1
        });
        let known = &mut self.objects[object as usize].bytes;
        *known = bytes.max(*known);
        let client = *self.by_client.entry(record.client).or_insert_with(|| {
            self.clients += 1;
            self.clients - 1
        });
        let (second, status) = (record.second, record.status);
        self.requests.push(TraceRequest { second, bytes, object, client, status, head });
        Ok(())
    }

    /// Bytes of all objects together.
    pub fn footprint_bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    fn read_lines(
        &mut self,
        mut lines: impl BufRead,
        mut parse: impl FnMut(&[u8]) -> Option<Record>,
    ) -> Result<(), ReadError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
                lines.skip_until(b'\n')?;
                self.counts.bad_lines += 1;
                continue;
            }
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            match parse(line) {
                Some(record) => self.push(&record)?,
                None => self.counts.bad_lines += 1,
            }
        }
    }

    fn read_records(&mut self, mut log: impl Read) -> Result<(), ReadError> {
        let mut bytes = [0; worldcup::RECORD_BYTES];
        loop {
            match worldcup::read(&mut log, &mut bytes)? {
                0 => return Ok(()),
                worldcup::RECORD_BYTES => match worldcup::parse(&bytes) {
                    Some(record) => self.push(&record)?,
                    None => self.counts.bad_lines += 1,
                },
                left => return Err(ReadError::Truncated(left)),
            }
        }
    }

    fn count_sizes(&mut self) {
        let mut is_other = vec![false; self.objects.len()];
        let mut has_size = vec![false; self.objects.len()];
        for request in self.requests.iter().filter(|request| !request.head && request.status != 304) {
            let object = request.object as usize;
            has_size[object] = true;
            if request.status == 200 && request.bytes != self.objects[object].bytes {
                self.counts.other_sizes += 1;
                is_other[object] = true;
            }
        }
        self.counts.objects_of_other_sizes = is_other.iter().filter(|&&is| is).count() as u64;
        self.counts.objects_without_size = has_size.iter().filter(|&&has| !has).count() as u64;
    }
}

fn open_unpacked(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::new(File::open(path)?);
    let start = file.fill_buf()?;
    Ok(if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(file)))
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(BufReader::new(ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?))
    } else {
        Box::new(file)
    })
}

/// The number of an object or client with this name: FNV-1a, scrambled.
fn id_of(name: &[u8]) -> u64 {
    mix(name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

/// A status of three digits.
fn status_of(text: &[u8]) -> Option<u16> {
    let is_status = text.len() == 3 && text.iter().all(u8::is_ascii_digit);
    is_status.then(|| text.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')))
}

/// A number of digits; `None` also if it is too large.
fn number_of(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Bytes of a reply; `-`: not told.
fn bytes_of(text: &[u8]) -> Option<Option<u64>> {
    if text == b"-" { Some(None) } else { number_of(text).map(Some) }
}

#[cfg(test)]
mod tests;
