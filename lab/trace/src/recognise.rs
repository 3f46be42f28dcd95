//! Which format a trace has, by its first bytes.
//!
//! Advice from a file that is not a trace is worse than an error, so a format is taken only if most
//! of the beginning is good for it, and what must be so in it is: times that go on, next accesses
//! that are what they say.

use std::collections::HashMap;

use crate::format::Format;
use crate::json::joined::{Joined, Joiner};
use crate::no_trace::{NoTrace, refuse_known};
use crate::parser::{LineParser, Parser};
use crate::record::Record;
use crate::{csv, oracle_general, vscsi, worldcup};

/// Bytes that a format is recognised by: more than the longest line.
pub(crate) const START_BYTES: usize = 96 * 1024;
/// A binary trace has a zero among its first bytes: numbers are smaller than their fields.
const BINARY_BYTES: usize = 48;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The text formats whose lines no other text has; of two that as many lines are of, the first is
/// taken.
const TEXTS: [Format; 4] = [Format::Common, Format::Json, Format::Nfs, Format::Tsv];
/// Of a log so many parts in a hundred of the first lines must be good.
const LOG_PERCENT: usize = 10;
/// So many in a hundred of the first lines must be good of a format that other texts may look like
/// by chance.
const LIST_PERCENT: usize = 90;
/// So many in a hundred of the first lines of a table must be good, beside its line of names.
const TABLE_PERCENT: usize = 50;
/// Share of good records in a binary trace.
const BINARY_SHARE: f64 = 0.9;
/// Any word is a key, a damaged line or a line of columns' names, too. So lines are keys only if
/// there are so many times as many of them as of any other format.
const KEYS_PER_LINE: usize = 2;

/// The format of a trace that begins with `start`; of one without a line, the common one.
///
/// # Errors
/// What it is instead of a trace.
pub(crate) fn recognise(start: &[u8]) -> Result<Format, NoTrace> {
    refuse_known(start)?;
    if start.iter().take(BINARY_BYTES).any(|&byte| byte == 0) {
        binary(start).ok_or(NoTrace::Binary)
    } else {
        text(without_mark(start), start.len() < START_BYTES)
    }
}

fn binary(start: &[u8]) -> Option<Format> {
    if let Some(version) = vscsi::Version::of(start) {
        let share = share(start.chunks_exact(version.record_bytes()), |bytes| {
            vscsi::parse(bytes, version).ok()
        });
        return (share >= BINARY_SHARE).then_some(Format::Vscsi);
    }
    let worldcup = share(start.chunks_exact(worldcup::RECORD_BYTES), |bytes| {
        worldcup::parse_plausible(bytes).and_then(Result::ok)
    });
    let records = || start.chunks_exact(oracle_general::RECORD_BYTES);
    let next = NextAccesses::of(records());
    let mut index = 0;
    let oracle = share(records(), |bytes| {
        index += 1;
        oracle_general::parse(bytes)
            .ok()
            .filter(|_| next.is_right(index - 1, oracle_general::next_access(bytes)))
    });
    let (share, format) = if oracle > worldcup {
        (oracle, Format::OracleGeneral)
    } else {
        (worldcup, Format::WorldCup)
    };
    (share >= BINARY_SHARE).then_some(format)
}

/// Where the objects of an oracleGeneral trace's first records come again, to see whether their
/// next accesses are right.
struct NextAccesses {
    /// By record: the next one of its object among the first records.
    next: Vec<Option<usize>>,
}

impl NextAccesses {
    fn of<'a>(records: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut next: Vec<Option<usize>> = Vec::new();
        let mut last = HashMap::new();
        for (index, bytes) in records.enumerate() {
            next.push(None);
            if let Some(before) =
                bytes.get(4..12).and_then(|object| last.insert(object.to_owned(), index))
            {
                next[before] = Some(index);
            }
        }
        Self { next }
    }

    /// Whether record `index` may have this next access: the number of a record that is counted
    /// from 1 (by some tools from 0).
    fn is_right(&self, index: usize, told: i64) -> bool {
        let told = if told == -1 || told == i64::MAX { None } else { usize::try_from(told).ok() };
        match (self.next[index], told) {
            (Some(next), Some(told)) => told == next + 1 || told == next,
            (Some(_), None) => false,
            // It lies behind the first records; no trace has 2^48 of them.
            (None, Some(told)) => told >= self.next.len() && told < 1 << 48,
            (None, None) => true,
        }
    }
}

/// A text without the byte order mark that some editors begin one with.
pub(crate) fn without_mark(start: &[u8]) -> &[u8] {
    start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start)
}

/// The share of records that can be read and come in the order of time. Those of other formats
/// seldom are.
fn share<'a>(
    records: impl Iterator<Item = &'a [u8]>,
    mut parse: impl FnMut(&[u8]) -> Option<Record>,
) -> f64 {
    let (mut all, mut good, mut last_us) = (0u32, 0u32, 0);
    for bytes in records {
        all += 1;
        if let Some(record) = parse(bytes) {
            good += u32::from(record.time_us >= last_us);
            last_us = record.time_us;
        }
    }
    f64::from(good) / f64::from(all.max(1))
}

fn text(start: &[u8], is_all: bool) -> Result<Format, NoTrace> {
    // The last line may go on after the bytes that are looked at.
    let whole_bytes = if is_all { start.len() } else { memchr::memrchr(b'\n', start).unwrap_or(0) };
    let whole = &start[..whole_bytes];
    let lines = || {
        whole.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !is_empty(line))
    };
    let all = lines().count();
    if all == 0 {
        // An empty log, or one of comments alone; a program's bytes may begin with the sign of a
        // comment, too.
        let is_plain = std::str::from_utf8(whole)
            .is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()));
        return if is_all && is_plain { Ok(Format::Common) } else { Err(NoTrace::Text) };
    }
    let mut target = Vec::new();
    let mut good = |format: Format| {
        let Parser::Line(mut parser) = Parser::new(format, start) else { return 0 };
        match format {
            Format::Json => good_json(&mut parser, whole, &mut target),
            _ => lines().filter(|line| is_good(&mut parser, line, &mut target)).count(),
        }
    };
    let mut best = (0, Format::Common);
    for format in TEXTS {
        let good = good(format);
        if good > best.0 {
            best = (good, format);
        }
    }
    if best.0 == 0 && lines().next().is_some_and(|first| csv::header_of(first).is_some()) {
        let table = Format::Csv(None);
        if good(table) * 100 >= (all - 1) * TABLE_PERCENT {
            return Ok(table);
        }
    }
    if good(Format::Lis) * 100 >= all * LIST_PERCENT {
        return Ok(Format::Lis);
    }
    let keys = good(Format::Keys);
    if keys > KEYS_PER_LINE * best.0 && keys * 100 >= all * LIST_PERCENT && !lines().any(is_no_key)
    {
        return Ok(Format::Keys);
    }
    // At least one line is good.
    if best.0 > 0 && best.0 * 100 >= all * LOG_PERCENT { Ok(best.1) } else { Err(NoTrace::Text) }
}

fn is_empty(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"#")
}

/// Whether a line has more columns than a key and a size, and would pass for a key that has commas;
/// or bytes that a key seldom has and a program's text does.
fn is_no_key(line: &[u8]) -> bool {
    let is_target = line.starts_with(b"/") || memchr::memmem::find(line, b"://").is_some();
    memchr::memchr_iter(b',', line).count() > 1
        || line.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t')
        || (!is_target && line.iter().any(|byte| b"()[]{}<>;'\"`\\!?&$^".contains(byte)))
        || std::str::from_utf8(line).is_err()
}

fn is_good(parser: &mut LineParser, line: &[u8], target: &mut Vec<u8>) -> bool {
    target.clear();
    !parser.is_comment(line) && parser.parse(line, target).is_ok()
}

/// Lines that are part of objects which are good.
fn good_json(parser: &mut LineParser, whole: &[u8], target: &mut Vec<u8>) -> usize {
    let (mut joiner, mut good, mut going) = (Joiner::default(), 0, 0);
    for line in whole.split(|&byte| byte == b'\n') {
        let mut joined = joiner.push(line);
        if joined == Joined::Broken {
            going = 0;
            joined = joiner.push(line);
        }
        match joined {
            Joined::Nothing | Joined::Broken => {}
            Joined::Going => going += 1,
            Joined::Line => good += usize::from(is_good(parser, line.trim_ascii(), target)),
            Joined::Object => {
                good += (std::mem::take(&mut going) + 1)
                    * usize::from(is_good(parser, joiner.object(), target));
            }
        }
    }
    good
}
