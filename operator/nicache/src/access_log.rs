//! The access log of hits, in the combined log format of web servers.
//!
//! A thread of its own writes it. A full disk, one that hangs, a pipe whose reader stands still or
//! is gone lose lines, which are counted; nobody waits for them.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::control::AccessRecord;

/// Batches of lines that may wait to be written: some hundred thousand lines.
const QUEUE: usize = 256;
/// What a pipe takes as a whole or not at all (`PIPE_BUF`).
const WHOLE_BYTES: usize = 4096;
/// How long another file, or the end, waits for what is being written.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two words about lines that were lost.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// An open access log.
#[derive(Debug)]
pub(crate) struct AccessLog {
    path: PathBuf,
    jobs: Option<SyncSender<Job>>,
    lost: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Job {
    Lines { text: String, lines: u64 },
    Reopen { file: File, done: SyncSender<()> },
}

impl AccessLog {
    /// Opens the file for appending, creating it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        let (jobs, taken) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            path: path.to_owned(),
            file,
            lost: Arc::clone(&lost),
            told: None,
            told_lost: 0,
        };
        let run = move || writer.run(&taken);
        let writer = std::thread::Builder::new().name("access log".into()).spawn(run)?;
        Ok(Self { path: path.to_owned(), jobs: Some(jobs), lost, writer: Some(writer) })
    }

    /// Opens the path anew, for log rotation.
    ///
    /// # Errors
    /// It cannot be opened, or what came before is not written yet.
    pub(crate) fn reopen(&self) -> Result<()> {
        let file = open_file(&self.path)?;
        let (done, is_done) = sync_channel(1);
        let is_taken = self
            .jobs
            .as_ref()
            .is_some_and(|jobs| jobs.try_send(Job::Reopen { file, done }).is_ok());
        if !is_taken || is_done.recv_timeout(PATIENCE).is_err() {
            bail!(
                "the access log {} is no longer written, so it is not opened anew: is the disk full, or the reader of a pipe asleep?",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Appends records, of which `dropped` were lost before. Never waits.
    pub(crate) fn append(&self, records: &[AccessRecord], dropped: u64) {
        self.lost.fetch_add(dropped, Ordering::Relaxed);
        let lines = records.len() as u64;
        let job = Job::Lines { text: records.iter().map(combined).collect(), lines };
        if self.jobs.as_ref().is_none_or(|jobs| jobs.try_send(job).is_err()) {
            self.lost.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Lines that were lost so far.
    #[cfg(test)]
    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.jobs = None;
        let Some(writer) = self.writer.take() else { return };
        // One that hangs ends with the process.
        let (ended, is_over) = channel();
        let joined = std::thread::Builder::new().name("end of log".into()).spawn(move || {
            let _ = writer.join();
            let _ = ended.send(());
        });
        if joined.is_ok() {
            let _ = is_over.recv_timeout(PATIENCE);
        }
    }
}

/// The thread that writes.
struct Writer {
    path: PathBuf,
    file: File,
    lost: Arc<AtomicU64>,
    told: Option<Instant>,
    told_lost: u64,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>) {
        let mut last = None;
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Lines { text, lines } => {
                    let written = self.write(&text);
                    if let Err((error, done)) = written {
                        self.lost.fetch_add(lines.saturating_sub(done), Ordering::Relaxed);
                        last = Some(error);
                    }
                }
                Job::Reopen { file, done } => {
                    self.file = file;
                    let _ = done.send(());
                }
            }
            self.tell(last.as_ref());
        }
        self.told = None;
        self.tell(last.as_ref());
    }

    /// Whole lines at a time. An error comes with the lines that were written before it.
    fn write(&mut self, text: &str) -> Result<(), (io::Error, u64)> {
        let (mut begin, mut end, mut done, mut waiting) = (0, 0, 0, 0);
        for line in text.split_inclusive('\n').chain([""]) {
            if end > begin && (line.is_empty() || end + line.len() - begin > WHOLE_BYTES) {
                self.file.write_all(&text.as_bytes()[begin..end]).map_err(|error| (error, done))?;
                (begin, done, waiting) = (end, done + waiting, 0);
            }
            end += line.len();
            waiting += 1;
        }
        Ok(())
    }

    fn tell(&mut self, last: Option<&io::Error>) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost == self.told_lost || self.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return;
        }
        let reason = last.map_or_else(|| "too slow".to_owned(), ToString::to_string);
        tracing::warn!(path = %self.path.display(), lost = lost - self.told_lost, "lines of the access log are lost: {reason}");
        (self.told, self.told_lost) = (Some(Instant::now()), lost);
    }
}

/// A pipe is written to without waiting for its reader.
fn open_file(path: &Path) -> Result<File> {
    let opened =
        OpenOptions::new().append(true).create(true).custom_flags(libc::O_NONBLOCK).open(path);
    opened
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => {
                anyhow::anyhow!("nobody reads the pipe {}: start its reader first", path.display())
            }
            _ => error.into(),
        })
        .with_context(|| format!("cannot open the access log {}", path.display()))
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

/// Quotes, backslashes and everything that is not a printable ASCII become `\xHH`, so a client
/// cannot forge a line.
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
        drop(log);
        let lines =
            |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap().lines().count();
        assert_eq!((lines("old"), lines("access.log")), (1, 2));
        assert!(AccessLog::open(&folder.path().join("no/such")).is_err());
    }
    /// A pipe's reader stands still, and then is gone: lines are lost and counted, each other one
    /// is whole, and nobody waits.
    #[test]
    fn a_reader_that_stands_still() {
        use std::io::Read as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert!(
            format!("{:#}", AccessLog::open(&path).unwrap_err()).contains("nobody reads the pipe")
        );
        let mut reader =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let log = AccessLog::open(&path).unwrap();
        let (begun, all) = (Instant::now(), 2000 * 100);
        for _ in 0..2000 {
            log.append(&vec![record(); 100], 0);
        }
        // Had each batch waited, it would have taken 2000 times the patience.
        assert!(log.reopen().is_ok() && begun.elapsed() < PATIENCE * 200);
        let mut text = Vec::new();
        let _ = reader.read_to_end(&mut text);
        let line = combined(&record());
        assert!(text.len() > WHOLE_BYTES && text.len() % line.len() == 0);
        assert!(text.chunks(line.len()).all(|read| read == line.as_bytes()));
        assert_eq!(log.lost() + (text.len() / line.len()) as u64, all);
        drop(reader);
        log.append(&[record()], 0);
        let lost = Arc::clone(&log.lost);
        drop(log);
        assert_eq!(lost.load(Ordering::Relaxed) + (text.len() / line.len()) as u64, all + 1);
    }
}
