//! Which format a log is in.

use std::fmt;

/// A format of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The common log format, and the combined one, which has more at the end of a line.
    Common,
    /// Columns divided by tabs: unix_time, client, method, URL, status, bytes.
    Tsv,
    /// Binary records of 20 bytes, as the log of the 1998 World Cup's site.
    WorldCup,
}

impl Format {
    /// The format of a log that begins with `start`. A binary one shows by the zero bytes of its first record's numbers,
    /// tabs by the first line that is no comment.
    pub fn of(start: &[u8]) -> Format {
        if start.iter().take(super::worldcup::RECORD_BYTES).any(|&byte| byte == 0) {
            return Format::WorldCup;
        }
        let mut lines = start.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.find(|line| !line.is_empty() && line[0] != b'#').unwrap_or_default();
        let columns = first.split(|&byte| byte == b'\t').count();
        if columns >= super::tsv::COLUMNS { Format::Tsv } else { Format::Common }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Common => "a log in the common or combined format",
            Format::Tsv => "a log in columns divided by tabs",
            Format::WorldCup => "a binary log as that of the 1998 World Cup",
        })
    }
}
