//! The formats by name.

use std::fmt;
use std::str::FromStr;

use crate::columns::{Columns, ColumnsError};

/// How a trace is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The common or combined log format; also the EPA log's, whose times have no month.
    Common,
    /// A JSON object in each line, as nginx (`escape=json`) and Caddy write them.
    Json,
    /// Columns divided by tabs: unix_time, client, method, URL, status, bytes.
    Tsv,
    /// Binary records of 20 bytes, as the log of the 1998 World Cup's site.
    WorldCup,
    /// Replies of an NFS server in columns divided by commas.
    Nfs,
    /// Block I/O of a virtual machine in binary records, version 1 or 2.
    Vscsi,
    /// Binary records of 24 bytes as libCacheSim's oracleGeneral.
    OracleGeneral,
    /// Keys, each in a line, with sizes or without.
    Keys,
    /// A table whose columns have names: those given, or those in its first line.
    Csv(Option<Columns>),
    /// Blocks of a disk in lines of four numbers, as the traces of the ARC paper (`.lis`).
    Lis,
    /// Keys as binary numbers of 32 bits, little-endian.
    U32,
    /// Keys as binary numbers of 64 bits, little-endian.
    U64,
}

/// A text that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFormat {
    /// There is none of this name.
    #[error("no format is named {0:?}; there are {names}", names = names())]
    Name(String),
    /// Its columns are not understood.
    #[error("{0}; write the columns in their order, as in csv:time,key,size")]
    Columns(#[from] ColumnsError),
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 12] = [
        Format::Common,
        Format::Json,
        Format::Tsv,
        Format::WorldCup,
        Format::Nfs,
        Format::Vscsi,
        Format::OracleGeneral,
        Format::Keys,
        Format::Csv(None),
        Format::Lis,
        Format::U32,
        Format::U64,
    ];

    /// Its name, as [`Format::from_str`] takes it, without the columns of a table.
    pub fn name(self) -> &'static str {
        match self {
            Format::Common => "common",
            Format::Json => "json",
            Format::Tsv => "tsv",
            Format::WorldCup => "worldcup",
            Format::Nfs => "nfs",
            Format::Vscsi => "vscsi",
            Format::OracleGeneral => "oracle-general",
            Format::Keys => "keys",
            Format::Csv(_) => "csv",
            Format::Lis => "lis",
            Format::U32 => "u32",
            Format::U64 => "u64",
        }
    }

    /// Whether it has records of a fixed length instead of lines.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::WorldCup | Format::Vscsi | Format::OracleGeneral | Format::U32 | Format::U64)
    }

    /// Whether its requests are for parts of files or disks, not for whole objects.
    pub fn is_of_blocks(self) -> bool {
        matches!(self, Format::Nfs | Format::Vscsi | Format::Lis)
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        if let Some(columns) = name.strip_prefix("csv:") {
            return Ok(Format::Csv(Some(columns.parse()?)));
        }
        Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| UnknownFormat::Name(name.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Common => "a log in the common or combined format",
            Format::Json => "a log of JSON lines",
            Format::Tsv => "a log in columns divided by tabs",
            Format::WorldCup => "a binary log as that of the 1998 World Cup",
            Format::Nfs => "a trace of an NFS server's replies",
            Format::Vscsi => "a vscsi trace of a disk",
            Format::OracleGeneral => "an oracleGeneral trace",
            Format::Keys => "a list of keys",
            Format::Csv(_) => "a table whose columns have names",
            Format::Lis => "a list of blocks as those of the ARC paper",
            Format::U32 => "keys of 32 bits",
            Format::U64 => "keys of 64 bits",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        let error = "xls".parse::<Format>().unwrap_err().to_string();
        assert!(Format::ALL.iter().all(|format| error.contains(format.name())), "{error}");
        let columns: Columns = "time,key".parse().unwrap();
        assert_eq!("csv:time,key".parse(), Ok(Format::Csv(Some(columns))));
        assert!("csv:time".parse::<Format>().unwrap_err().to_string().contains("must be the key"));
    }
}
