//! Which format a trace has, by its first bytes.

use crate::format::Format;
use crate::parser::{LineParser, Parser};
use crate::record::Record;
use crate::{oracle_general, vscsi, worldcup};

/// Bytes that a format is recognised by.
pub const START_BYTES: usize = 16 * 1024;
/// A binary trace has a zero among its first bytes: numbers are smaller than their fields.
const BINARY_BYTES: usize = 48;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The text formats; of two that as many lines are of, the first is taken.
const TEXTS: [Format; 4] = [Format::Common, Format::Json, Format::Nfs, Format::Tsv];
/// Any word is a key, a damaged line or a line of columns' names, too. So lines are keys only if there are so many times
/// as many of them as of any other format.
const KEYS_PER_LINE: usize = 2;

/// The format of a trace that begins with `start`; of none, the common one, so that its errors speak of a log.
pub fn recognise(start: &[u8]) -> Format {
    if start.iter().take(BINARY_BYTES).any(|&byte| byte == 0) { binary(start) } else { text(without_mark(start)) }
}

fn binary(start: &[u8]) -> Format {
    if vscsi::Version::of(start).is_some() {
        return Format::Vscsi;
    }
    let worldcup = share(start.chunks_exact(worldcup::RECORD_BYTES), |bytes| worldcup::parse(bytes).ok());
    let mut index = 0;
    let oracle = share(start.chunks_exact(oracle_general::RECORD_BYTES), |bytes| {
        let next = oracle_general::next_access(bytes);
        index += 1;
        // An access that is next comes later, even if it is counted from 0; no trace has 2^48 of them.
        let is_next = next == -1 || next == i64::MAX || (index..1 << 48).contains(&next);
        oracle_general::parse(bytes).ok().filter(|_| is_next)
    });
    if oracle > worldcup { Format::OracleGeneral } else { Format::WorldCup }
}

/// A text without the byte order mark that some editors begin one with.
pub fn without_mark(start: &[u8]) -> &[u8] {
    start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start)
}

/// The share of records that can be read and come in the order of time. Those of other formats seldom are.
fn share<'a>(records: impl Iterator<Item = &'a [u8]>, mut parse: impl FnMut(&[u8]) -> Option<Record>) -> f64 {
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

fn text(start: &[u8]) -> Format {
    // The last line may go on after the bytes that are looked at.
    let is_all = start.len() + BYTE_ORDER_MARK.len() < START_BYTES;
    let whole_bytes = if is_all { start.len() } else { memchr::memrchr(b'\n', start).unwrap_or(0) };
    let whole = &start[..whole_bytes];
    let lines = || whole.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut target = Vec::new();
    let mut good = |format: Format| {
        let Parser::Line(mut parser) = Parser::new(format, start) else { return 0 };
        lines().filter(|line| is_good(&mut parser, line, &mut target)).count()
    };
    let mut best = (0, Format::Common);
    for format in TEXTS {
        let good = good(format);
        if good > best.0 {
            best = (good, format);
        }
    }
    let are_keys = good(Format::Keys) > KEYS_PER_LINE * best.0 && !lines().any(is_of_columns);
    if are_keys { Format::Keys } else { best.1 }
}

/// Whether a line has more columns than a key and a size: it would pass for a key that has commas.
fn is_of_columns(line: &[u8]) -> bool {
    memchr::memchr_iter(b',', line).count() > 1
}

fn is_good(parser: &mut LineParser, line: &[u8], target: &mut Vec<u8>) -> bool {
    target.clear();
    !parser.is_comment(line) && parser.parse(line, target).is_ok()
}
