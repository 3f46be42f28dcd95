//! One parser for each format, and what they have in common.

use crate::bad::Defect;
use crate::format::Format;
use crate::record::Record;
use crate::{common, csv, json, keys, lis, nfs, numbers, oracle_general, tsv, vscsi, worldcup};

/// The state of reading one trace.
#[derive(Debug)]
pub enum Parser {
    /// A line's.
    Line(LineParser),
    /// A record's.
    Record(RecordParser),
}

/// Reads lines.
#[derive(Debug)]
pub enum LineParser {
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
pub enum RecordParser {
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
    /// For a trace of this format, which begins with `start`.
    pub fn new(format: Format, start: &[u8]) -> Parser {
        match format {
            Format::Common => Parser::Line(LineParser::Common(common::Parser::default())),
            Format::Json => Parser::Line(LineParser::Json(json::Parser::default())),
            Format::Tsv => Parser::Line(LineParser::Tsv),
            Format::Nfs => Parser::Line(LineParser::Nfs),
            Format::Keys => Parser::Line(LineParser::Keys),
            Format::Csv(columns) => Parser::Line(LineParser::Csv(csv::Parser::new(columns, start))),
            Format::Lis => Parser::Line(LineParser::Lis),
            Format::WorldCup => Parser::Record(RecordParser::WorldCup),
            Format::Vscsi => {
                Parser::Record(RecordParser::Vscsi(vscsi::Version::of(start).unwrap_or(vscsi::Version::One)))
            }
            Format::OracleGeneral => Parser::Record(RecordParser::OracleGeneral),
            Format::U32 => Parser::Record(RecordParser::U32),
            Format::U64 => Parser::Record(RecordParser::U64),
        }
    }
}

impl LineParser {
    /// Whether a trimmed line has nothing to tell.
    pub fn is_comment(&self, line: &[u8]) -> bool {
        match (line.first(), self) {
            (None | Some(b'#'), _) => true,
            (_, LineParser::Nfs) => line.starts_with(nfs::HEADER_START),
            (_, LineParser::Csv(parser)) => parser.is_header(line),
            _ => false,
        }
    }

    /// A trimmed line that is no comment; what was asked for is put into `target`, which is empty.
    pub fn parse(&mut self, line: &[u8], target: &mut Vec<u8>) -> Result<Record, Defect> {
        match self {
            LineParser::Common(parser) => parser.parse(line, target),
            LineParser::Json(parser) => parser.parse(line, target),
            LineParser::Tsv => tsv::parse(line, target),
            LineParser::Nfs => nfs::parse(line, target),
            LineParser::Keys => keys::parse(line, target),
            LineParser::Csv(parser) => parser.parse(line, target),
            LineParser::Lis => lis::parse(line),
        }
    }
}

impl RecordParser {
    /// Bytes of a record.
    pub fn record_bytes(self) -> usize {
        match self {
            RecordParser::WorldCup => worldcup::RECORD_BYTES,
            RecordParser::Vscsi(version) => version.record_bytes(),
            RecordParser::OracleGeneral => oracle_general::RECORD_BYTES,
            RecordParser::U32 => 4,
            RecordParser::U64 => 8,
        }
    }

    /// A record of that many bytes.
    pub fn parse(self, bytes: &[u8]) -> Result<Record, Defect> {
        match self {
            RecordParser::WorldCup => worldcup::parse(bytes),
            RecordParser::Vscsi(version) => vscsi::parse(bytes, version),
            RecordParser::OracleGeneral => oracle_general::parse(bytes),
            RecordParser::U32 => numbers::parse_u32(bytes),
            RecordParser::U64 => numbers::parse_u64(bytes),
        }
    }
}
