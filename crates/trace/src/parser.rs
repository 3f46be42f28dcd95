//! One parser for each format, and what they have in common.

use crate::bad::Defect;
use crate::format::Format;
use crate::record::Record;
use crate::{common, json, keys, nfs, oracle_general, tsv, vscsi, worldcup};

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
            Format::WorldCup => Parser::Record(RecordParser::WorldCup),
            Format::Vscsi => {
                Parser::Record(RecordParser::Vscsi(vscsi::Version::of(start).unwrap_or(vscsi::Version::One)))
            }
            Format::OracleGeneral => Parser::Record(RecordParser::OracleGeneral),
        }
    }
}

impl LineParser {
    /// Whether a trimmed line has nothing to tell.
    pub fn is_comment(&self, line: &[u8]) -> bool {
        match line.first() {
            None | Some(b'#') => true,
            _ => matches!(self, LineParser::Nfs) && line.starts_with(nfs::HEADER_START),
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
        }
    }

    /// A record of that many bytes.
    pub fn parse(self, bytes: &[u8]) -> Result<Record, Defect> {
        match self {
            RecordParser::WorldCup => worldcup::parse(bytes),
            RecordParser::Vscsi(version) => vscsi::parse(bytes, version),
            RecordParser::OracleGeneral => oracle_general::parse(bytes),
        }
    }
}
