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
    pub const ALL: [Self; 12] = [
        Self::Common,
        Self::Json,
        Self::Tsv,
        Self::WorldCup,
        Self::Nfs,
        Self::Vscsi,
        Self::OracleGeneral,
        Self::Keys,
        Self::Csv(None),
        Self::Lis,
        Self::U32,
        Self::U64,
    ];

    /// Its name, as [`Format::from_str`] takes it, without the columns of a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Json => "json",
            Self::Tsv => "tsv",
            Self::WorldCup => "worldcup",
            Self::Nfs => "nfs",
            Self::Vscsi => "vscsi",
            Self::OracleGeneral => "oracle-general",
            Self::Keys => "keys",
            Self::Csv(_) => "csv",
            Self::Lis => "lis",
            Self::U32 => "u32",
            Self::U64 => "u64",
        }
    }

    /// Whether it has records of a fixed length instead of lines.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::WorldCup | Self::Vscsi | Self::OracleGeneral | Self::U32 | Self::U64)
    }

    /// Whether its requests are for parts of files or disks, not for whole objects.
    pub fn is_of_blocks(self) -> bool {
        matches!(self, Self::Nfs | Self::Vscsi | Self::Lis)
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        if let Some(columns) = name.strip_prefix("csv:") {
            return Ok(Self::Csv(Some(columns.parse()?)));
        }
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat::Name(name.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Common => "a log in the common or combined format",
            Self::Json => "a log of JSON lines",
            Self::Tsv => "a log in columns divided by tabs",
            Self::WorldCup => "a binary log as that of the 1998 World Cup",
            Self::Nfs => "a trace of an NFS server's replies",
            Self::Vscsi => "a vscsi trace of a disk",
            Self::OracleGeneral => "an oracleGeneral trace",
            Self::Keys => "a list of keys",
            Self::Csv(_) => "a table whose columns have names",
            Self::Lis => "a list of blocks as those of the ARC paper",
            Self::U32 => "keys of 32 bits",
            Self::U64 => "keys of 64 bits",
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
