//! What the columns of a table are.

use std::fmt;
use std::str::FromStr;

/// Most columns that are looked at.
pub(crate) const COLUMNS_MAX: usize = 24;

/// What a column says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Column {
    /// Nothing that matters here.
    #[default]
    Nothing,
    /// When, in seconds since 1970 or any other time, with a fraction or without; or a date and
    /// time.
    Time,
    /// When, in milliseconds.
    TimeMs,
    /// When, in microseconds.
    TimeUs,
    /// When, in nanoseconds.
    TimeNs,
    /// Who asked: the client.
    Client,
    /// What was asked for: the object's key.
    Key,
    /// Where: it is part of what is asked for.
    Host,
    /// A method or an operation.
    Operation,
    /// The reply's status.
    Status,
    /// The object's size in bytes; several such columns (of a key and a value) are added.
    Size,
    /// Bytes that were sent.
    Sent,
    /// How the body was coded.
    Coding,
}

/// Names of columns in the wild, in lower case; the first of each is the one that is written.
const NAMES: &[(&str, Column)] = &[
    ("-", Column::Nothing),
    ("time", Column::Time),
    ("timestamp", Column::Time),
    ("ts", Column::Time),
    ("unix_time", Column::Time),
    ("time_s", Column::Time),
    ("datetime", Column::Time),
    ("date", Column::Time),
    ("clock_time", Column::Time),
    ("time_ms", Column::TimeMs),
    ("timestamp_ms", Column::TimeMs),
    ("time_us", Column::TimeUs),
    ("timestamp_us", Column::TimeUs),
    ("time_ns", Column::TimeNs),
    ("timestamp_ns", Column::TimeNs),
    ("client", Column::Client),
    ("client_id", Column::Client),
    ("client_ip", Column::Client),
    ("clientip", Column::Client),
    ("c-ip", Column::Client),
    ("remote_addr", Column::Client),
    ("ip", Column::Client),
    ("user_id", Column::Client),
    ("key", Column::Key),
    ("obj_id", Column::Key),
    ("object_id", Column::Key),
    ("objectid", Column::Key),
    ("object", Column::Key),
    ("obj", Column::Key),
    ("id", Column::Key),
    ("url", Column::Key),
    ("uri", Column::Key),
    ("path", Column::Key),
    ("target", Column::Key),
    ("cs-uri-stem", Column::Key),
    ("request_uri", Column::Key),
    ("lbn", Column::Key),
    ("lba", Column::Key),
    ("block", Column::Key),
    ("host", Column::Host),
    ("vhost", Column::Host),
    ("cs-host", Column::Host),
    ("operation", Column::Operation),
    ("op", Column::Operation),
    ("method", Column::Operation),
    ("cs-method", Column::Operation),
    ("verb", Column::Operation),
    ("status", Column::Status),
    ("sc-status", Column::Status),
    ("status_code", Column::Status),
    ("size", Column::Size),
    ("obj_size", Column::Size),
    ("object_size", Column::Size),
    ("key_size", Column::Size),
    ("value_size", Column::Size),
    ("sent", Column::Sent),
    ("bytes", Column::Sent),
    ("sc-bytes", Column::Sent),
    ("bytes_sent", Column::Sent),
    ("body_bytes_sent", Column::Sent),
    ("response_size", Column::Sent),
    ("coding", Column::Coding),
    ("content_encoding", Column::Coding),
    ("content-encoding", Column::Coding),
    ("encoding", Column::Coding),
];

impl Column {
    /// The column of this name, in upper or lower case.
    pub fn named(name: &[u8]) -> Option<Self> {
        let name = name.trim_ascii();
        NAMES
            .iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))
            .map(|(_, column)| *column)
    }

    fn name(self) -> &'static str {
        NAMES.iter().find(|(_, column)| *column == self).map_or("-", |(name, _)| name)
    }
}

/// The columns of a table, in their order. Written as their names with commas between:
/// `time,key,size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Columns {
    of: [Column; COLUMNS_MAX],
    len: usize,
}

/// A text that does not name columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// There is no such column.
    #[error("{0:?} is not the name of a column; there are {names} (- for one that is not looked at)", names = names())]
    Unknown(String),
    /// Nothing says what is asked for.
    #[error("one of the columns must be the key")]
    NoKey,
    /// More than are looked at.
    #[error("there are more than {COLUMNS_MAX} columns")]
    TooMany,
}

fn names() -> String {
    let mut names: Vec<&str> =
        NAMES.iter().map(|(_, column)| column.name()).filter(|name| *name != "-").collect();
    names.dedup();
    names.join(", ")
}

impl Columns {
    /// The columns that a line of names tells; names that are not known are columns that are not
    /// looked at. `None` if no column is a key, or if there is but one.
    pub fn of_header<'a>(names: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut columns = Self::default();
        for name in names.take(COLUMNS_MAX) {
            columns.of[columns.len] = Column::named(name).unwrap_or(Column::Nothing);
            columns.len += 1;
        }
        (columns.len > 1 && columns.has(Column::Key)).then_some(columns)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Column> {
        self.of.into_iter().take(self.len)
    }

    /// Whether there is such a column.
    pub fn has(&self, column: Column) -> bool {
        self.iter().any(|one| one == column)
    }
}

impl FromStr for Columns {
    type Err = ColumnsError;

    fn from_str(text: &str) -> Result<Self, ColumnsError> {
        let mut columns = Self::default();
        for name in text.split(',') {
            let column = Column::named(name.as_bytes())
                .ok_or_else(|| ColumnsError::Unknown(name.to_owned()))?;
            *columns.of.get_mut(columns.len).ok_or(ColumnsError::TooMany)? = column;
            columns.len += 1;
        }
        if columns.has(Column::Key) { Ok(columns) } else { Err(ColumnsError::NoKey) }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, column) in self.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "," }, column.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let columns: Columns = "time,key,key_size,value_size,client,op,-".parse().unwrap();
        assert_eq!(columns.to_string(), "time,key,size,size,client,operation,-");
        assert_eq!(columns.to_string().parse(), Ok(columns));
        assert_eq!("time,size".parse::<Columns>(), Err(ColumnsError::NoKey));
        assert_eq!(["key"; 25].join(",").parse::<Columns>(), Err(ColumnsError::TooMany));
        let error = "key,ttl".parse::<Columns>().unwrap_err().to_string();
        assert!(error.contains("\"ttl\"") && error.contains("time, time_ms"), "{error}");
    }

    #[test]
    fn headers() {
        let of = |text: &str| {
            Columns::of_header(text.split(',').map(str::as_bytes))
                .map(|columns| columns.to_string())
        };
        assert_eq!(of("version,Time,OP,size,lbn").unwrap(), "-,time,operation,size,key");
        assert_eq!(of("key"), None);
        assert_eq!(of("time,size"), None);
    }
}
