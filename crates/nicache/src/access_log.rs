//! The access log of hits, in the combined log format of web servers.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::control::AccessRecord;

/// An open access log.
#[derive(Debug)]
pub struct AccessLog {
    path: PathBuf,
    file: Mutex<File>,
}

impl AccessLog {
    /// Opens the file for appending, creating it.
    pub fn open(path: &Path) -> Result<AccessLog> {
        Ok(AccessLog { path: path.to_owned(), file: Mutex::new(open_file(path)?) })
    }

    /// Opens the path anew, for log rotation.
    pub fn reopen(&self) -> Result<()> {
        let file = open_file(&self.path)?;
        *self.file.lock().expect("no holder of this lock panics") = file;
        Ok(())
    }

    /// Appends records. A full disk loses records, never requests.
    pub fn append(&self, records: &[AccessRecord], dropped: u64) {
        let text: String = records.iter().map(combined).collect();
        let written = self.file.lock().expect("no holder of this lock panics").write_all(text.as_bytes());
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), "access log: {error}");
        }
        if dropped > 0 {
            tracing::warn!(dropped, "access log: records lost because the log was too slow");
        }
    }
}

fn open_file(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot open the access log {}", path.display()))
}

/// One line of the combined log format, times in UTC.
fn combined(record: &AccessRecord) -> String {
    let quoted = |text: Option<&str>| escaped(text.unwrap_or("-"));
    format!(
        "{} - - [{}] \"{}\" {} {} \"{}\" \"{}\"\n",
        record.client,
        timestamp(record.unix_s),
        escaped(&record.request),
        record.status,
        record.body_bytes,
        quoted(record.referer.as_deref()),
        quoted(record.user_agent.as_deref()),
    )
}

/// `06/Nov/1994:08:49:37 +0000`, from the parts of the HTTP date `Sun, 06 Nov 1994 08:49:37 GMT`.
fn timestamp(unix_s: u64) -> String {
    // The last second that an HTTP date can express (year 9999).
    const LAST: u64 = 253_402_300_799;
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST)));
    let mut parts = date.split(' ').skip(1);
    let mut next = || parts.next().unwrap_or_default();
    let (day, month, year, time) = (next(), next(), next(), next());
    format!("{day}/{month}/{year}:{time} +0000")
}

/// Quotes, backslashes and everything that is no printable ASCII become `\xHH`, so that a client cannot forge a line.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\' {
            safe.push(char::from(byte));
        } else {
            let _ = write!(safe, "\\x{byte:02X}");
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> AccessRecord {
        AccessRecord {
            unix_s: 784_111_777,
            client: "10.0.0.1".parse().unwrap(),
            request: "GET /a HTTP/1.1".into(),
            status: 200,
            body_bytes: 12,
            referer: None,
            user_agent: Some("curl \"x\"\nforged".into()),
        }
    }

    #[test]
    fn a_line_cannot_be_forged() {
        let line = combined(&record());
        let wanted = "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"curl \\x22x\\x22\\x0Aforged\"\n";
        assert_eq!(line, wanted);
        assert!(timestamp(u64::MAX).ends_with("/Dec/9999:23:59:59 +0000"));
    }

    #[test]
    fn rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&path).unwrap();
        log.append(&[record()], 0);
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        log.reopen().unwrap();
        log.append(&[record(), record()], 0);
        let lines = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap().lines().count();
        assert_eq!((lines("old"), lines("access.log")), (1, 2));
        assert!(AccessLog::open(&folder.path().join("no/such")).is_err());
    }
}
