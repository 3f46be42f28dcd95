//! The client that behaves: Linux' TCP, a few connections, files that the card has and some that it
//! cannot have; every body is compared.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use nicache_netns::Namespace;
use nicache_reply::{Method, ReplyError, ReplyReader};
use serde::{Deserialize, Serialize};

use crate::wire::Object;
use crate::wire::cpu::bind_to;

/// Connections at a time.
const CONNECTIONS: usize = 4;
/// How long a connection is used: handshakes are a part of what is looked at.
const CONNECTION: Duration = Duration::from_secs(2);
/// How long a reply may take before it counts as an error.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Every so many requests one asks for what the card cannot have.
const MISS_EVERY: u64 = 100;
/// Every so many requests one asks for the largest file, so the card has it again if somebody
/// else's changes below the same folder purge it.
const LARGE_EVERY: u64 = 501;
/// Sizes of the files that are asked for in turn, the first one for misses, too.
pub(super) const SIZES: [u64; 4] = [100, 10_000, 100_000, 1_000_000];
/// Latencies that are kept of a connection in a phase.
const LATENCIES_MAX: usize = 4_000_000;

/// Phases of an attack that are told apart.
pub(super) const PHASES: usize = 4;
/// Number of the phase in which the card gets rid of the attack.
const BETWEEN: usize = 2;
/// Number of the phase that ends everything.
const END: usize = PHASES;

/// What the client saw in one phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// How long the phase took.
    pub seconds: f64,
    /// Replies with the right body.
    pub requests: u64,
    /// Of these: to requests for what the card cannot have.
    pub misses: u64,
    /// Connections opened.
    pub connections: u64,
    /// Replies a second.
    pub requests_per_s: f64,
    /// Median latency; a handshake is in that of the connection's first request.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Replies with a wrong body.
    pub wrong: u64,
    /// What else went wrong, by kind.
    pub errors: BTreeMap<String, u64>,
}

/// What one connection's thread noted in one phase.
#[derive(Debug, Clone, Default)]
struct Notes {
    latencies_us: Vec<u32>,
    misses: u64,
    connections: u64,
    wrong: u64,
    errors: BTreeMap<String, u64>,
}

/// The client at work.
#[derive(Debug)]
pub(super) struct Client {
    phase: Arc<AtomicUsize>,
    replies: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<[Notes; PHASES]>>,
    begun: Instant,
    seconds: [f64; PHASES],
}

impl Client {
    /// Begins to ask, in phase 0, on `cpu`. While the card gets rid of an attack there is a `pause`
    /// after each reply.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        namespace: &Namespace,
        server: SocketAddr,
        cpu: usize,
        pause: Duration,
    ) -> Result<Self> {
        let (phase, replies) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let bodies: Arc<Vec<Vec<u8>>> =
            Arc::new(SIZES.iter().map(|&bytes| Object { bytes, connections: 1 }.body()).collect());
        let mut threads = Vec::new();
        for number in 0..CONNECTIONS {
            let (phase, replies, bodies) =
                (Arc::clone(&phase), Arc::clone(&replies), Arc::clone(&bodies));
            let body = move || {
                let _ = bind_to(cpu);
                Asker { server, bodies, phase, replies, pause, number: number as u64, asked: 0 }
                    .ask_until_end()
            };
            // A thread begins in the namespace of the one that starts it.
            threads.push(
                namespace
                    .run(move || std::thread::Builder::new().name("client".into()).spawn(body))?,
            );
        }
        Ok(Self { phase, replies, threads, begun: Instant::now(), seconds: [0.0; PHASES] })
    }

    /// What is noted from now on belongs to another phase.
    pub(super) fn enter(&mut self, phase: usize) {
        let before = self.phase.swap(phase, Ordering::Relaxed);
        if before < PHASES {
            self.seconds[before] += self.begun.elapsed().as_secs_f64();
        }
        self.begun = Instant::now();
    }

    /// Right replies so far.
    pub(super) fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed) as u64
    }

    /// Ends. What was seen in each phase.
    ///
    /// # Errors
    /// A thread has panicked.
    pub(super) fn end(mut self) -> Result<[Seen; PHASES]> {
        self.enter(END);
        let mut all: [Notes; PHASES] = Default::default();
        for thread in std::mem::take(&mut self.threads) {
            let notes =
                thread.join().map_err(|_| anyhow!("a thread of the client has panicked"))?;
            for (sum, part) in all.iter_mut().zip(notes) {
                sum.latencies_us.extend(part.latencies_us);
                sum.misses += part.misses;
                sum.connections += part.connections;
                sum.wrong += part.wrong;
                for (what, count) in part.errors {
                    *sum.errors.entry(what).or_default() += count;
                }
            }
        }
        let mut seconds = self.seconds.into_iter();
        Ok(all.map(|notes| seen(notes, seconds.next().unwrap_or(0.0))))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.phase.store(END, Ordering::Relaxed);
    }
}

fn seen(mut notes: Notes, seconds: f64) -> Seen {
    notes.latencies_us.sort_unstable();
    let latencies = &notes.latencies_us;
    let at = |share: f64| {
        let place = (latencies.len() as f64 * share) as usize;
        latencies.get(place.min(latencies.len().saturating_sub(1))).map_or(0.0, |us| f64::from(*us))
    };
    let requests = latencies.len() as u64;
    Seen {
        seconds,
        requests,
        misses: notes.misses,
        connections: notes.connections,
        requests_per_s: if seconds > 0.0 { requests as f64 / seconds } else { 0.0 },
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
        wrong: notes.wrong,
        errors: notes.errors,
    }
}

/// One thread: connection after connection.
struct Asker {
    server: SocketAddr,
    bodies: Arc<Vec<Vec<u8>>>,
    phase: Arc<AtomicUsize>,
    replies: Arc<AtomicUsize>,
    pause: Duration,
    number: u64,
    asked: u64,
}

impl Asker {
    fn ask_until_end(mut self) -> [Notes; PHASES] {
        let mut notes: [Notes; PHASES] = Default::default();
        let phase = Arc::clone(&self.phase);
        loop {
            // What begins in a phase belongs to it.
            let now = phase.load(Ordering::Relaxed);
            let Some(own) = notes.get_mut(now) else { return notes };
            let begun = Instant::now();
            own.connections += 1;
            let stream = TcpStream::connect_timeout(&self.server, PATIENCE).and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(stream)
            });
            match stream {
                Ok(stream) => self.use_connection(stream, begun, &mut notes),
                Err(error) => {
                    *own.errors.entry(format!("connect: {}", kind(&error))).or_default() += 1;
                    // What is refused at once shall not be asked for all the time.
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    fn use_connection(
        &mut self,
        mut stream: TcpStream,
        connected: Instant,
        notes: &mut [Notes; PHASES],
    ) {
        let mut buffer = vec![0; 64 << 10];
        let mut begun = connected;
        while connected.elapsed() < CONNECTION {
            let Some(own) = notes.get_mut(self.phase.load(Ordering::Relaxed)) else { return };
            self.asked += 1;
            let is_miss = self.asked.is_multiple_of(MISS_EVERY);
            let which = match self.asked {
                _ if is_miss => 0,
                asked if asked % LARGE_EVERY == 1 => SIZES.len() - 1,
                asked => (asked % (SIZES.len() as u64 - 1)) as usize,
            };
            let query = if is_miss {
                format!("?miss-{}-{}", self.number, self.asked)
            } else {
                String::new()
            };
            let request =
                format!("GET /object-{}{query} HTTP/1.1\r\nHost: siege\r\n\r\n", SIZES[which]);
            let answer = stream
                .write_all(request.as_bytes())
                .and_then(|()| read_reply(&mut stream, &mut buffer, &self.bodies[which]));
            match answer {
                Ok(Answer::Right { goes_on }) => {
                    if own.latencies_us.len() < LATENCIES_MAX {
                        own.latencies_us
                            .push(begun.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
                    }
                    own.misses += u64::from(is_miss);
                    self.replies.fetch_add(1, Ordering::Relaxed);
                    if !goes_on {
                        return;
                    }
                }
                Ok(Answer::Failure(line)) => {
                    *own.errors.entry(format!("reply: {line}")).or_default() += 1;
                    return;
                }
                Ok(Answer::WrongBody) => {
                    own.wrong += 1;
                    return;
                }
                Err(error) => {
                    *own.errors.entry(format!("reply: {}", kind(&error))).or_default() += 1;
                    return;
                }
            }
            if self.phase.load(Ordering::Relaxed) == BETWEEN {
                std::thread::sleep(self.pause);
            }
            begun = Instant::now();
        }
    }
}

fn kind(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "timed out".to_owned(),
        _ => error.to_string(),
    }
}

/// What an answer is.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// A success with the body of the file; the connection may go on.
    Right { goes_on: bool },
    /// A success with another body.
    WrongBody,
    /// No success; its status line, at most 40 bytes.
    Failure(String),
}

/// Reads an answer, piece by piece into `buffer`, whose body must be `body`.
fn read_reply(
    stream: &mut impl Read,
    buffer: &mut [u8],
    mut body: &[u8],
) -> std::io::Result<Answer> {
    let no_reply = |error: ReplyError| std::io::Error::new(ErrorKind::InvalidData, error);
    let mut reader = ReplyReader::default();
    let (mut goes_on, mut is_right) = (true, true);
    loop {
        let count = match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if count == 0 {
            return Err(std::io::Error::new(
                ErrorKind::UnexpectedEof,
                "closed before the reply's end",
            ));
        }
        let mut bytes = &buffer[..count];
        if !reader.is_in_body() {
            let head = reader.read_head(&mut bytes, Method::Get).map_err(no_reply)?;
            let Some(head) = head else { continue };
            if head.status != 200 {
                let line = head.bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
                let line = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
                return Ok(Answer::Failure(line));
            }
            goes_on = head.keep_alive;
        }
        let compare = |piece: &[u8]| match body.strip_prefix(piece) {
            Some(rest) => body = rest,
            None => is_right = false,
        };
        if reader.read_body(&mut bytes, compare).map_err(no_reply)? {
            is_right &= body.is_empty() && bytes.is_empty();
            return Ok(if is_right { Answer::Right { goes_on } } else { Answer::WrongBody });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_whatever_the_pieces() {
        let answer = |text: &str, piece| {
            let answer = read_reply(&mut text.as_bytes(), &mut vec![0; piece], b"hello");
            answer.map_err(|error| error.kind())
        };
        let right = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
            2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        for piece in [1, 7, 1000] {
            assert_eq!(answer(right, piece), Ok(Answer::Right { goes_on: true }));
            assert_eq!(answer(chunked, piece), Ok(Answer::Right { goes_on: false }));
            assert_eq!(answer(&right.replace("lo", "la"), piece), Ok(Answer::WrongBody));
            assert_eq!(answer(&right.replace('5', "4"), piece), Ok(Answer::WrongBody));
            assert_eq!(answer(&right.replace('5', "6"), piece), Err(ErrorKind::UnexpectedEof));
            assert_eq!(answer("SSH-2.0-x\r\n", piece), Err(ErrorKind::InvalidData));
            let busy = right.replace("200 OK", "503 Busy");
            assert_eq!(answer(&busy, piece), Ok(Answer::Failure("HTTP/1.1 503 Busy".to_owned())));
        }
    }
}
