//! Readers and a writer of one page: no reply may be older than a change that had ended before its
//! request.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nicache_applications::Client;

use crate::common::Stop;

const READERS: usize = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// On a busy machine it goes on until there are more replies and changes than these, so much longer
/// at most.
const ENOUGH: (u64, usize) = (200, 20);
const LONGER: Duration = Duration::from_secs(20);

/// What has been seen.
#[derive(Debug)]
pub(crate) struct Seen {
    pub replies: u64,
    /// Requests that the server could not answer.
    pub failed: u64,
    pub changes: usize,
}

/// `write` sets the version, tries until it is done, and gives up when told to; it returns whether
/// the change is done.
pub(crate) fn under_load(
    address: SocketAddr,
    url: &str,
    duration: Duration,
    mut write: impl FnMut(usize) -> bool + Send,
    mut meanwhile: impl FnMut(Duration),
) -> Seen {
    // When the writing of each version had ended.
    let ended: Mutex<Vec<usize>> = Mutex::new(vec![0]);
    let begun: Mutex<usize> = Mutex::new(0);
    let (replies, failed, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let mut changes = 0;
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut client = Client::new(address);
                while !stop.load(Ordering::Relaxed) {
                    let least = *ended.lock().unwrap().last().unwrap();
                    let asked = Instant::now();
                    let Some(reply) =
                        client.get(url).ok().filter(|reply| reply.status == 200) else {
                        failed.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                        continue;
                    };
                    let text = reply.text();
                    let version = text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<usize>();
                    let version = version.unwrap_or_else(|_| panic!("torn: `{text}`"));
                    let most = *begun.lock().unwrap();
                    if version < least || version > most {
                        stop.store(true, Ordering::Relaxed);
                        panic!(
                            "{url}: version {version}, not from {least} to {most}, {:?} after the request",
                            asked.elapsed()
                        );
                    }
                    replies.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
            });
        }
        let writer = scope.spawn(|| {
            let mut done = 0;
            for version in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                *begun.lock().unwrap() = version;
                // A change that was not answered may be there or not, now or later.
                if write(version) {
                    ended.lock().unwrap().push(version);
                    done += 1;
                }
                std::thread::sleep(Duration::from_millis(40));
            }
            done
        });
        let _stop = Stop(&stop);
        let start = Instant::now();
        let lacks_some = || {
            replies.load(Ordering::Relaxed) <= ENOUGH.0
                || ended.lock().unwrap().len() <= ENOUGH.1 + 1
        };
        let goes_on = |past: Duration| past < duration || past < duration + LONGER && lacks_some();
        while goes_on(start.elapsed()) && !stop.load(Ordering::Relaxed) {
            meanwhile(start.elapsed());
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        changes = writer.join().unwrap();
    });
    Seen { replies: replies.into_inner(), failed: failed.into_inner(), changes }
}
