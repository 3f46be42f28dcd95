//! A small server with a thread per connection and, if wanted, a fault.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nicache_prove::{EditError, Editor};

/// What the server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nothing, but in chunks.
    Chunks,
    /// Nothing, but connections end after 20 replies.
    ShortConnections,
    OneEditLate,
    OldOnceIn(u64),
    FutureOnceIn(u64),
    /// While an edit is under way, the old and the new version.
    Torn,
    /// What was current at the beginning of a period of this length.
    Cache(Duration),
    /// What was current so long ago.
    Behind(Duration),
    /// Shows no new version after so many edits.
    StopsAfter(u64),
    StatusOnceIn(u64),
    MissingOnceIn(u64),
    CutOnceIn(u64),
    GarbageOnceIn(u64),
    SilentOnceIn(u64),
    /// `/pages/two` instead of `/pages/one`.
    OtherPageOnceIn(u64),
    /// `/told` says what another client is told.
    OtherClientOnceIn(u64),
    /// `/time` prints a time so old.
    Clock(Duration),
    /// The other subject is shown as it was at its first edit.
    OtherIsStale,
}

/// What the server shows.
#[derive(Debug, Default)]
pub(crate) struct Content {
    version: AtomicU64,
    /// The version whose edit is under way, or the last one.
    begun: AtomicU64,
    other: AtomicU64,
    first_other: AtomicU64,
    stopped_at: AtomicU64,
    /// When each version came.
    changes: Mutex<Vec<(Instant, u64)>>,
}

impl Content {
    fn set(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
        self.changes.lock().unwrap().push((Instant::now(), version));
    }

    /// The version at some time, or the first one.
    fn at(&self, time: Option<Instant>) -> u64 {
        let changes = self.changes.lock().unwrap();
        let passed = time.map_or(0, |time| changes.partition_point(|(came, _)| *came <= time));
        changes.get(passed.saturating_sub(1)).map_or(0, |(_, version)| *version)
    }
}

/// Changes the content in the middle of an edit that takes a while.
pub(crate) struct SlowEditor {
    pub content: Arc<Content>,
    pub takes: Duration,
}

impl Editor for SlowEditor {
    fn name(&self) -> &str {
        "version"
    }

    fn kind(&self) -> &str {
        "slow"
    }

    fn edit(&mut self, version: u64) -> Result<(), EditError> {
        self.content.begun.store(version, Ordering::SeqCst);
        std::thread::sleep(self.takes / 2);
        self.content.set(version);
        std::thread::sleep(self.takes / 2);
        Ok(())
    }
}

/// Fails after so many edits, and every other time has changed the content nevertheless.
pub(crate) struct FailingEditor {
    pub content: Arc<Content>,
    pub edits_left: u32,
    pub failed: u32,
}

impl Editor for FailingEditor {
    fn name(&self) -> &str {
        "version"
    }

    fn kind(&self) -> &str {
        "failing"
    }

    fn edit(&mut self, version: u64) -> Result<(), EditError> {
        if self.edits_left > 0 {
            self.edits_left -= 1;
            self.content.set(version);
            return Ok(());
        }
        self.failed += 1;
        if self.failed.is_multiple_of(2) {
            self.content.set(version);
        }
        Err("refused".into())
    }
}

/// Changes the subject `other`.
pub(crate) struct OtherEditor {
    pub content: Arc<Content>,
}

impl Editor for OtherEditor {
    fn name(&self) -> &str {
        "other"
    }

    fn kind(&self) -> &str {
        "at once"
    }

    fn edit(&mut self, version: u64) -> Result<(), EditError> {
        let _ = self.content.first_other.compare_exchange(
            0,
            version,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        self.content.other.store(version, Ordering::SeqCst);
        Ok(())
    }
}

/// The server. Dropping it ends it when its clients are gone.
pub(crate) struct Server {
    pub address: SocketAddr,
    pub content: Arc<Content>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(fault: Fault) -> Self {
        Self::start_with(fault, Arc::default())
    }

    pub(crate) fn start_with(fault: Fault, content: Arc<Content>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, is_over) = (Arc::clone(&content), Arc::clone(&stop));
        let started = Instant::now();
        std::thread::spawn(move || {
            let replies = Arc::new(AtomicU64::new(0));
            for stream in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let worker = Worker {
                    fault,
                    content: Arc::clone(&shown),
                    replies: Arc::clone(&replies),
                    started,
                    served: 0,
                };
                std::thread::spawn(move || worker.serve(&stream));
            }
        });
        Self { address, content, stop }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

struct Worker {
    fault: Fault,
    content: Arc<Content>,
    replies: Arc<AtomicU64>,
    started: Instant,
    served: u64,
}

impl Worker {
    /// Ends with the connection, however that comes.
    fn serve(mut self, mut stream: &TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let mut out = Vec::new();
        loop {
            let request = lines.next()?;
            let target = request.split(' ').nth(1)?.to_owned();
            let mut language = String::new();
            loop {
                let line = lines.next()?;
                if line.is_empty() {
                    break;
                }
                line.strip_prefix("Accept-Language: ")
                    .inspect(|asked| (*asked).clone_into(&mut language));
            }
            out.clear();
            let goes_on = self.reply(&target, &language, &mut out);
            stream.write_all(&out).ok()?;
            if !goes_on {
                return None;
            }
        }
    }

    /// Appends a reply. False: the connection ends here.
    fn reply(&mut self, target: &str, language: &str, out: &mut Vec<u8>) -> bool {
        self.served += 1;
        let number = self.replies.fetch_add(1, Ordering::SeqCst);
        // Not at the very beginning, where nothing is judged.
        let is_turn = |every: u64| number % every == every - 1;
        let body = match target {
            "/" => self.version(is_turn),
            "/time" => self.time(),
            "/both" => self.both(),
            "/pages/one" | "/pages/two" => {
                let is_other =
                    matches!(self.fault, Fault::OtherPageOnceIn(every) if is_turn(every));
                let shown = if is_other { "/pages/two" } else { target };
                let links = "<a href=/pages/one>one</a><a href=/pages/two>two</a>";
                format!(
                    "<link rel=canonical href='http://localhost{shown}'>{links}{}",
                    self.version(is_turn)
                )
            }
            "/told" => {
                let is_other =
                    matches!(self.fault, Fault::OtherClientOnceIn(every) if is_turn(every));
                format!(
                    "for {}.{}",
                    if is_other { "somebody" } else { language },
                    self.version(is_turn)
                )
            }
            "/empty" => String::new(),
            _ => {
                out.extend_from_slice(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                return true;
            }
        };
        let mut head = "HTTP/1.1 200 OK\r\n";
        let mut length = body.len();
        match self.fault {
            Fault::StatusOnceIn(every) if is_turn(every) => head = "HTTP/1.1 500 Oops\r\n",
            Fault::CutOnceIn(every) if is_turn(every) => length += 1,
            Fault::GarbageOnceIn(every) if is_turn(every) => {
                head = "HTTP/1.1 200 OK\r\nContent-Length: x\r\n";
            }
            Fault::SilentOnceIn(every) if is_turn(every) => return true,
            Fault::Chunks => {
                let (one, two) = body.split_at(body.len() / 2);
                let (len, last) = (one.len(), two.len());
                let head = format!("{head}Transfer-Encoding: chunked\r\n");
                let _ = write!(out, "{head}\r\n{len:x}\r\n{one}\r\n{last:x}\r\n{two}\r\n0\r\n\r\n");
                return true;
            }
            Fault::ShortConnections if self.served == 20 => {
                let _ = write!(out, "{head}Connection: close\r\n\r\n{body}");
                return false;
            }
            _ => {}
        }
        let _ = write!(out, "{head}Content-Length: {length}\r\n\r\n{body}");
        length == body.len()
    }

    fn time(&self) -> String {
        let age = if let Fault::Clock(age) = self.fault { age } else { Duration::ZERO };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        format!("time={}", (now - age).as_millis())
    }

    fn both(&self) -> String {
        let content = &self.content;
        let other =
            if self.fault == Fault::OtherIsStale { &content.first_other } else { &content.other };
        format!(
            "<p>version={} other={}</p>",
            content.version.load(Ordering::SeqCst),
            other.load(Ordering::SeqCst)
        )
    }

    fn version(&self, is_turn: impl Fn(u64) -> bool) -> String {
        let content = &self.content;
        let current = content.version.load(Ordering::SeqCst);
        let begun = content.begun.load(Ordering::SeqCst);
        let shown = match self.fault {
            Fault::OneEditLate => current.saturating_sub(1),
            // Three edits ago is old even if one is under way; in the beginning there is no such
            // version.
            Fault::OldOnceIn(every) if is_turn(every) && current > 4 => current - 3,
            Fault::FutureOnceIn(every) if is_turn(every) => current + 1000,
            Fault::Cache(period) => {
                let age = self.started.elapsed().as_nanos() % period.as_nanos();
                content.at(Instant::now().checked_sub(Duration::from_nanos(age as u64)))
            }
            Fault::Behind(time) => content.at(Instant::now().checked_sub(time)),
            Fault::StopsAfter(edits) => {
                if current <= edits {
                    content.stopped_at.fetch_max(current, Ordering::SeqCst);
                }
                content.stopped_at.load(Ordering::SeqCst)
            }
            Fault::MissingOnceIn(every) if is_turn(every) => {
                return "<p>no such thing</p>".to_owned();
            }
            // Both are possible from the begin to the end of the edit.
            Fault::Torn if begun > current && current > 0 => {
                return format!("version={current} version={begun}");
            }
            _ => current,
        };
        format!("<!doctype html><title>version={shown}</title><p>version={shown}</p>\n")
    }
}
