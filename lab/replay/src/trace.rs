//! Web logs: what was asked for, by whom, and when.
//!
//! The readers of `nicache-trace` make [`Record`]s; here they become objects and requests. What is
//! kept of a log:
//!
//! | reply in the log | in the trace |
//! |---|---|
//! | 200, or none (lists of keys have no statuses) | a request; its bytes are the object's, unless a larger reply of the object is in the log |
//! | 206 | a request for the whole object, which has at least these bytes |
//! | 304 | a request for the whole object, because a replay keeps no copies that could be confirmed |
//! | any other status | nothing: files cannot give these replies again; counted |
//! | any status, method other than GET and HEAD | nothing; counted |
//!
//! An object is a target as it stands in the log, with its query. One of which the log has no size
//! (it is only in 304 replies, or only asked for by HEAD) has none: no byte of it went over the
//! wire then, either.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use nicache_trace::{BadRecords, Format, ReadError, Reader, Record, Verb};
use serde::Serialize;

/// Largest file that is made from a log.
const OBJECT_BYTES_MAX: u64 = 256 << 20;
/// Most requests of a log; 2 GiB of them.
const REQUESTS_MAX: usize = 1 << 26;
const US_PER_SECOND: u64 = 1_000_000;

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The log cannot be opened or read.
    #[error("cannot read {path}")]
    Read {
        /// The log.
        path: PathBuf,
        /// Why the log cannot be read.
        source: ReadError,
    },
    /// No line of it can be replayed.
    #[error(
        "no request in {path} can be replayed ({bad_lines} bad lines{first_bad}); is it {format}?"
    )]
    NoRequests {
        /// The log.
        path: PathBuf,
        /// What it was read as.
        format: Format,
        /// Lines that are none of a log.
        bad_lines: u64,
        /// The first of them, and what is wrong with it.
        first_bad: String,
    },
    /// Requests for parts of files or disks.
    #[error("{0} has no objects that a web server could serve; replay a web log or a list of keys")]
    Blocks(Format),
    /// Most of it is something else.
    #[error(
        "only {good} lines or records can be understood, and {strange} cannot{first_bad}; if it is something else, name its format"
    )]
    Strange {
        /// Lines or records that can be understood.
        good: u64,
        /// The others.
        strange: u64,
        /// The first of them, and what is wrong with it.
        first_bad: String,
    },
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
    /// Requests whose reply was 200 with fewer bytes than the object has here: it grew or shrank,
    /// was coded (gzip), or the client left.
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
    /// Why it ends before its end, if its packing is damaged or cut off; the requests until there
    /// are replayed.
    pub cut_off: Option<String>,
    by_id: HashMap<u64, u32>,
    by_client: HashMap<u64, u32>,
}

impl Trace {
    /// Reads a log; gzip and zstd are recognised by their first bytes, whatever the name, and so is
    /// the format unless it is given.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let failed = |source: ReadError| TraceError::Read { path: path.to_owned(), source };
        let mut reader = Reader::open(path, format).map_err(failed)?;
        let trace = Self::read_all(&mut reader, failed)?;
        if trace.requests.is_empty() {
            let (bad_lines, first_bad) = (trace.counts.bad_lines, told(reader.bad()));
            return Err(TraceError::NoRequests {
                path: path.to_owned(),
                format: reader.format(),
                bad_lines,
                first_bad,
            });
        }
        Ok(trace)
    }

    /// Reads a log, packed or not, and says which format it was read as.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn read(
        log: impl Read + Send,
        format: Option<Format>,
    ) -> Result<(Self, Format), TraceError> {
        let failed =
            |source: ReadError| TraceError::Read { path: PathBuf::from("the log"), source };
        let mut reader = Reader::new(log, format).map_err(failed)?;
        Ok((Self::read_all(&mut reader, failed)?, reader.format()))
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`TraceError::TooLong`].
    pub fn push(&mut self, record: &Record) -> Result<(), TraceError> {
        if !matches!(record.verb, Verb::Get | Verb::Head) {
            self.counts.other_methods += 1;
            return Ok(());
        }
        let status = if record.status == 0 { 200 } else { record.status };
        match status {
            200 => {}
            206 => self.counts.partial += 1,
            304 => self.counts.not_modified += 1,
            _ => {
                self.counts.other_statuses += 1;
                return Ok(());
            }
        }
        if self.requests.len() == REQUESTS_MAX {
            return Err(TraceError::TooLong);
        }
        let head = record.verb == Verb::Head;
        // What a server logs as the bytes of a reply without a body says nothing of the object.
        let has_body = !head && status != 304;
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
        let second = record.time_us / US_PER_SECOND;
        self.requests.push(TraceRequest { second, bytes, object, client, status, head });
        Ok(())
    }

    /// Bytes of all objects together.
    pub fn footprint_bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    fn read_all(
        reader: &mut Reader<'_>,
        failed: impl Fn(ReadError) -> TraceError,
    ) -> Result<Self, TraceError> {
        if reader.format().is_of_blocks() {
            return Err(TraceError::Blocks(reader.format()));
        }
        let (mut trace, mut good) = (Self::default(), 0u64);
        while let Some(record) = reader.read().map_err(&failed)? {
            good += 1;
            trace.push(&record)?;
        }
        trace.counts.bad_lines = reader.bad().count;
        // Of what is more than half something else nothing can be learned.
        let strange = trace.counts.bad_lines - reader.bad().no_requests;
        if good > 0 && strange > good {
            return Err(TraceError::Strange { good, strange, first_bad: told(reader.bad()) });
        }
        trace.cut_off = reader.damage().map(ToString::to_string);
        trace.count_sizes();
        Ok(trace)
    }

    fn count_sizes(&mut self) {
        let mut is_other = vec![false; self.objects.len()];
        let mut has_size = vec![false; self.objects.len()];
        for request in self.requests.iter().filter(|request| !request.head && request.status != 304)
        {
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

/// The first bad line, for an error's text.
fn told(bad: &BadRecords) -> String {
    bad.first.first().map_or_else(String::new, |bad| {
        format!("; line {}: {}: {}", bad.number, bad.defect, bad.text)
    })
}

#[cfg(test)]
mod tests;
