//! One parser for each format, and what they have in common.

use crate::bad::Defect;
use crate::format::Format;
use crate::record::Record;
use crate::{common, csv, json, keys, lis, nfs, numbers, oracle_general, tsv, vscsi, worldcup};

/// The state of reading one trace.
#[derive(Debug)]
pub(crate) enum Parser {
    /// A line's.
    Line(LineParser),
    /// A record's.
    Record(RecordParser),
}

/// Reads lines.
#[derive(Debug)]
pub(crate) enum LineParser {
    /// Of the common and combined formats.
    Common(common::Parser),
    /// Of JSON.
    Json(json::Parser),
    /// Of columns divided by tabs.
    Tsv,
    /// Of NFS replies.
    Nfs,
    /// Of keys.
    Keys,
    /// Of tables whose columns have names.
    Csv(csv::Parser),
    /// Of the ARC paper's lists of blocks.
    Lis,
}

/// Reads records of a fixed length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordParser {
    /// Of WorldCup98.
    WorldCup,
    /// Of vscsi.
    Vscsi(vscsi::Version),
    /// Of oracleGeneral.
    OracleGeneral,
    /// Of keys of 32 bits.
    U32,
    /// Of keys of 64 bits.
    U64,
}

impl Parser {
    /// A parser for a trace of this format, which begins with `start`.
    pub(crate) fn new(format: Format, start: &[u8]) -> Self {
        match format {
            Format::Common => Self::Line(LineParser::Common(common::Parser::default())),
            Format::Json => Self::Line(LineParser::Json(json::Parser::default())),
            Format::Tsv => Self::Line(LineParser::Tsv),
            Format::Nfs => Self::Line(LineParser::Nfs),
            Format::Keys => Self::Line(LineParser::Keys),
            Format::Csv(columns) => Self::Line(LineParser::Csv(csv::Parser::new(columns, start))),
            Format::Lis => Self::Line(LineParser::Lis),
            Format::WorldCup => Self::Record(RecordParser::WorldCup),
            Format::Vscsi => Self::Record(RecordParser::Vscsi(
                vscsi::Version::of(start).unwrap_or(vscsi::Version::One),
            )),
            Format::OracleGeneral => Self::Record(RecordParser::OracleGeneral),
            Format::U32 => Self::Record(RecordParser::U32),
            Format::U64 => Self::Record(RecordParser::U64),
        }
    }
}

impl LineParser {
    /// Whether a trimmed line has nothing to tell.
    pub(crate) fn is_comment(&self, line: &[u8]) -> bool {
        match (line.first(), self) {
            (None | Some(b'#'), _) => true,
            (_, Self::Nfs) => line.starts_with(nfs::HEADER_START),
            (_, Self::Csv(parser)) => parser.is_header(line),
            _ => false,
        }
    }

    /// A trimmed line that is not a comment; what was asked for is put into `target`, which is
    /// empty.
    pub(crate) fn parse(&mut self, line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
        match self {
            Self::Common(parser) => parser.parse(line, target),
            Self::Json(parser) => parser.parse(line, target),
            Self::Tsv => tsv::parse(line, target),
            Self::Nfs => nfs::parse(line, target),
            Self::Keys => keys::parse(line, target),
            Self::Csv(parser) => parser.parse(line, target),
            Self::Lis => lis::parse(line),
        }
    }
}

impl RecordParser {
    /// Bytes of a record.
    pub(crate) fn record_bytes(self) -> usize {
        match self {
            Self::WorldCup => worldcup::RECORD_BYTES,
            Self::Vscsi(version) => version.record_bytes(),
            Self::OracleGeneral => oracle_general::RECORD_BYTES,
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }

    /// A record of that many bytes.
    pub(crate) fn parse(self, bytes: &[u8]) -> Result<Record, Defect> {
        match self {
            Self::WorldCup => worldcup::parse(bytes),
            Self::Vscsi(version) => vscsi::parse(bytes, version),
            Self::OracleGeneral => oracle_general::parse(bytes),
            Self::U32 => numbers::parse_u32(bytes),
            Self::U64 => numbers::parse_u64(bytes),
        }
    }
}
