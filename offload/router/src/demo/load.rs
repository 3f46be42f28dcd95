//! Clients that download, at a rate, and look at every byte.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nicache_netns::Namespace;
use rustix::io::{read, retry_on_intr};

use super::stage::{FILE_BYTES, file_byte};

const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure.
const REST: Duration = Duration::from_millis(200);

/// What clients have had.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Downloads that were right.
    pub files: AtomicU64,
    /// Bytes of payload.
    pub bytes: AtomicU64,
    /// Downloads that ended early, or did not begin.
    pub failed: AtomicU64,
    /// Bytes that were others than those of the file.
    pub wrong: AtomicU64,
}

/// Clients at work. Dropping it ends them.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    loaded: Arc<Loaded>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// One client in each namespace, each at so many bytes per second.
    pub fn start<'a>(
        clients: impl IntoIterator<Item = &'a Namespace>,
        service: SocketAddr,
        bytes_per_s: u64,
    ) -> Self {
        let (stop, loaded) = (Arc::new(AtomicBool::new(false)), Arc::new(Loaded::default()));
        let expected: Arc<[u8]> = (0..FILE_BYTES).map(file_byte).collect();
        let start = |client: &Namespace| {
            let (stop, loaded, expected) =
                (Arc::clone(&stop), Arc::clone(&loaded), Arc::clone(&expected));
            client.run(move || {
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        match download(service, &expected, bytes_per_s, &stop, &loaded) {
                            Ok(()) => drop(loaded.files.fetch_add(1, Ordering::Relaxed)),
                            Err(_) if stop.load(Ordering::Relaxed) => {}
                            Err(_) => {
                                loaded.failed.fetch_add(1, Ordering::Relaxed);
                                std::thread::sleep(REST);
                            }
                        }
                    }
                })
            })
        };
        let threads = clients.into_iter().map(start).collect();
        Self { stop, loaded, threads }
    }

    /// What they have had so far.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn download(
    service: SocketAddr,
    expected: &[u8],
    bytes_per_s: u64,
    stop: &AtomicBool,
    loaded: &Loaded,
) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&service, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n")?;
    let (begun, mut at) = (Instant::now(), 0);
    let mut head = Vec::new();
    let mut bytes = vec![0; 64 * 1024];
    let mut body_at = None;
    while at < expected.len() {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = retry_on_intr(|| read(&stream, &mut bytes[..]))?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut part = &bytes[..count];
        if body_at.is_none() {
            head.extend_from_slice(part);
            let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            body_at = Some(end + 4);
            // What of this read is body.
            part = &part[(end + 4 + count).saturating_sub(head.len())..];
        }
        let len = part.len().min(expected.len() - at);
        let wrong = part[..len].iter().zip(&expected[at..at + len]).filter(|(a, b)| a != b).count();
        loaded.wrong.fetch_add(wrong as u64, Ordering::Relaxed);
        at += len;
        loaded.bytes.fetch_add(len as u64, Ordering::Relaxed);
        let due = Duration::from_secs_f64(at as f64 / bytes_per_s as f64);
        // In small steps, so the end is heard of.
        std::thread::sleep(due.saturating_sub(begun.elapsed()).min(Duration::from_millis(100)));
    }
    Ok(())
}
