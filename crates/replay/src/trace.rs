//! Web logs: the common and the combined log format, plain, gzip or zstd.
//!
//! A line is `host ident user [time] "METHOD target HTTP/x.y" status bytes ...`; hosts, idents and users are not looked
//! at, so logs that leave some out (the EPA log) are read, too.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::random::mix;

/// Longest line that is looked at; a longer one is bad.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Largest file that is made from a log.
const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The log cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No line of it can be replayed.
    #[error(
        "no request in {path} can be replayed ({bad_lines} bad lines); is it a log in the common or combined format?"
    )]
    NoRequests {
        /// The log.
        path: PathBuf,
        /// Lines that are none of a log.
        bad_lines: u64,
    },
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
    /// Index into [`Trace::objects`].
    pub object: u32,
    /// HEAD instead of GET.
    pub head: bool,
}

/// A log in memory.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What is asked for.
    pub objects: Vec<Object>,
    /// The requests, in the order of the log.
    pub requests: Vec<TraceRequest>,
    /// Lines that cannot be understood.
    pub bad_lines: u64,
    /// Lines with another method than GET and HEAD.
    pub skipped_lines: u64,
    by_id: HashMap<u64, u32>,
}

impl Trace {
    /// Reads a log; `.gz` and `.zst` are recognised by their first bytes, whatever the name.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let failed = |source| TraceError::Read { path: path.to_owned(), source };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let start = file.fill_buf().map_err(failed)?;
        let trace = if start.starts_with(&[0x1f, 0x8b]) {
            Trace::read(BufReader::new(flate2::bufread::MultiGzDecoder::new(file)))
        } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            ruzstd::decoding::StreamingDecoder::new(file)
                .map_err(io::Error::other)
                .and_then(|decoder| Trace::read(BufReader::new(decoder)))
        } else {
            Trace::read(file)
        }
        .map_err(failed)?;
        if trace.requests.is_empty() {
            return Err(TraceError::NoRequests { path: path.to_owned(), bad_lines: trace.bad_lines });
        }
        Ok(trace)
    }

    /// Reads the lines of a log.
    ///
    /// # Errors
    /// Those of `lines`.
    pub fn read(mut lines: impl BufRead) -> io::Result<Trace> {
        let mut trace = Trace::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                return Ok(trace);
            }
            if line.len() as u64 == LINE_BYTES_MAX {
                skip_line(&mut lines)?;
                trace.bad_lines += 1;
                continue;
            }
            match parse(line.trim_ascii()) {
                Line::Request { target, head, bytes } => trace.push(id_of(target), bytes, head),
                Line::OtherMethod => trace.skipped_lines += 1,
                Line::Empty => {}
                Line::Bad => trace.bad_lines += 1,
            }
        }
    }

    /// Adds a request for the object `id`.
    pub fn push(&mut self, id: u64, bytes: u64, head: bool) {
        let bytes = bytes.min(OBJECT_BYTES_MAX);
        let object = *self.by_id.entry(id).or_insert_with(|| {
            self.objects.push(Object { id, bytes: 0 });
            self.objects.len() as u32 - 1
        });
        let known = &mut self.objects[object as usize].bytes;
        *known = bytes.max(*known);
        self.requests.push(TraceRequest { object, head });
    }

    /// Bytes of all objects together.
    pub fn footprint_bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }
}

fn skip_line(lines: &mut impl BufRead) -> io::Result<()> {
    loop {
        let available = lines.fill_buf()?;
        if available.is_empty() {
            return Ok(());
        }
        let newline = available.iter().position(|&byte| byte == b'\n');
        let used = newline.map_or(available.len(), |at| at + 1);
        lines.consume(used);
        if newline.is_some() {
            return Ok(());
        }
    }
}

/// FNV-1a, scrambled.
fn id_of(target: &[u8]) -> u64 {
    mix(target
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Request { target: &'a [u8], head: bool, bytes: u64 },
    OtherMethod,
    Empty,
    Bad,
}

fn parse(line: &[u8]) -> Line<'_> {
    if line.is_empty() {
        return Line::Empty;
    }
    parse_request(line).unwrap_or(Line::Bad)
}

fn parse_request(line: &[u8]) -> Option<Line<'_>> {
    let time_end = line.windows(2).position(|pair| pair == b"] ")?;
    let quoted = line[time_end + 2..].strip_prefix(b"\"")?;
    // A target may hold quotes, so the request ends at the last quote that status and bytes follow.
    let mut ends = quoted.windows(2).enumerate().rev().filter(|(_, pair)| pair == b"\" ").map(|(at, _)| at);
    let (request, bytes) = ends.find_map(|at| Some((&quoted[..at], outcome(&quoted[at + 2..])?)))?;
    let mut words = request.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let (method, target) = (words.next()?, words.next()?);
    if !method.iter().all(u8::is_ascii_uppercase) {
        return None;
    }
    Some(match method {
        b"GET" => Line::Request { target, head: false, bytes },
        b"HEAD" => Line::Request { target, head: true, bytes },
        _ => Line::OtherMethod,
    })
}

/// Status and bytes (`-`: none) at the beginning of what follows the request.
fn outcome(rest: &[u8]) -> Option<u64> {
    let mut words = rest.split(|&byte| byte == b' ');
    let status = words.next()?;
    if status.len() != 3 || !status.iter().all(u8::is_ascii_digit) {
        return None;
    }
    match words.next()? {
        b"-" => Some(0),
        digits if digits.iter().all(u8::is_ascii_digit) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LOG: &[u8] = b"a.example - - [01/Aug/1995:00:00:01 -0400] \"GET /x HTTP/1.0\" 200 1839\n\
        141.243.1.172 [29:23:53:25] \"GET /y HTTP/1.0\" 200 1497\n\
        b - u [t] \"HEAD /x HTTP/1.1\" 200 0 \"http://r/\" \"Agent \\\"7\\\"\"\n\
        b - - [t] \"GET /with\"quote HTTP/1.0\" 404 -\n\
        b - - [t] \"GET /old\" 304 0\n\
        b - - [t] \"POST /x HTTP/1.0\" 200 5\n\
        nonsense\n\n\
        b - - [t] \"GET\" 400 0\n\
        b - - [t] \"GET /x HTTP/1.0\" 200 many\n\
        \xff\xfe [t] \"\x16\x03 \x01\" 400 226\n";

    #[test]
    fn requests_are_read_and_bad_lines_counted() {
        let trace = Trace::read(LOG).unwrap();
        assert_eq!(trace.requests.len(), 5);
        assert_eq!(trace.objects.len(), 4);
        assert_eq!((trace.bad_lines, trace.skipped_lines), (4, 1));
        assert_eq!(trace.objects[0].bytes, 1839);
        assert_eq!(trace.requests[2], TraceRequest { object: 0, head: true });
        assert_eq!(trace.footprint_bytes(), 1839 + 1497);
    }

    #[test]
    fn a_line_without_end_is_bad_and_the_next_is_read() {
        let mut log = vec![b'x'; 200_000];
        log.extend_from_slice(b"\nb - - [t] \"GET /x HTTP/1.0\" 200 1\n");
        let trace = Trace::read(&log[..]).unwrap();
        assert_eq!((trace.requests.len(), trace.bad_lines), (1, 1));
    }

    #[test]
    fn packed_logs_are_unpacked() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(LOG).unwrap();
        file.write_all(&packer.finish().unwrap()).unwrap();
        assert_eq!(Trace::open(file.path()).unwrap().requests.len(), 5);

        let packed = ruzstd::encoding::compress_to_vec(LOG, ruzstd::encoding::CompressionLevel::Fastest);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&packed).unwrap();
        assert_eq!(Trace::open(file.path()).unwrap().requests.len(), 5);
    }

    #[test]
    fn the_epa_log() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/epa-http.txt.zst");
        if !path.exists() {
            println!("skipped: {} is not there", path.display());
            return;
        }
        let trace = Trace::open(&path).unwrap();
        let all = trace.requests.len() as u64 + trace.bad_lines + trace.skipped_lines;
        assert_eq!(all, 47_748);
        assert!(trace.bad_lines < 50, "{}", trace.bad_lines);
        assert!((46_000..46_200).contains(&trace.requests.len()), "{}", trace.requests.len());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let missing = Trace::open(Path::new("/no/such/log")).unwrap_err().to_string();
        assert!(missing.contains("/no/such/log"), "{missing}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let empty = Trace::open(file.path()).unwrap_err().to_string();
        assert!(empty.contains("common or combined"), "{empty}");
    }

    proptest::proptest! {
        #[test]
        fn no_line_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let _ = Trace::read(&bytes[..]);
            let mut line = b"h [t] \"".to_vec();
            line.extend_from_slice(&bytes);
            line.extend_from_slice(b"\" 200 1");
            let _ = Trace::read(&line[..]);
        }
    }
}
