//! Asks for a sample each second, and shows the latest to whoever looks.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use serde::Serialize;
use tokio::sync::watch;

use crate::history::{History, Point};
use crate::sample::Sample;
use crate::{SAMPLE_INTERVAL, Source};

/// What is known now.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    /// The sample, or why there is none.
    pub sample: Result<Arc<Sample>, String>,
    /// What happened since the one before.
    pub point: Option<Point>,
}

/// A moment as a page is told of it.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<&'a Sample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    point: Option<&'a Point>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl Moment {
    /// The moment as JSON on one line, for a page of the admin port.
    pub(super) fn json(&self) -> String {
        let sample = self.sample.as_ref();
        let error = sample.err().map(String::as_str);
        let told = Told { sample: sample.ok().map(Arc::as_ref), point: self.point.as_ref(), error };
        serde_json::to_string(&told).unwrap_or_default()
    }
}

/// What the server's connections share with the sampler.
pub(super) struct Latest {
    moments: watch::Receiver<Moment>,
    history: Mutex<History>,
    followers: AtomicUsize,
    is_asked: AtomicBool,
}

impl fmt::Debug for Latest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latest").field("followers", &self.followers).finish_non_exhaustive()
    }
}

impl Latest {
    /// The latest moment.
    pub(super) fn moment(&self) -> Moment {
        self.moments.borrow().clone()
    }

    /// The next ones will have the hottest objects for a while.
    pub(super) fn ask_for_hottest(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// The last few minutes as a JSON array.
    pub(super) fn history_json(&self) -> String {
        let points: Vec<Point> = self.history().points().cloned().collect();
        serde_json::to_string(&points).unwrap_or_default()
    }

    /// All moments from now on.
    pub(super) fn follow(self: &Arc<Self>) -> Follower {
        self.followers.fetch_add(1, Ordering::Relaxed);
        Follower { moments: self.moments.clone(), latest: Arc::clone(self) }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no holder of this lock panics")
    }
}

/// Somebody who wants to see every moment. One who is slow misses some.
#[derive(Debug)]
pub(super) struct Follower {
    /// The latest moment.
    pub moments: watch::Receiver<Moment>,
    latest: Arc<Latest>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.latest.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread that asks. It ends with this value.
#[derive(Debug)]
pub(super) struct Sampler {
    latest: Arc<Latest>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Takes the first sample at once.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(source: Arc<dyn Source>) -> io::Result<Self> {
        let none = Moment { sample: Err("there is no sample yet".to_owned()), point: None };
        let (sender, moments) = watch::channel(none);
        let latest = Arc::new(Latest {
            moments,
            history: Mutex::default(),
            followers: AtomicUsize::new(0),
            is_asked: AtomicBool::new(false),
        });
        let (stop, stopped) = mpsc::channel();
        let shared = Arc::clone(&latest);
        let body = move || {
            let mut due = Instant::now();
            loop {
                let hottest = shared.is_asked.swap(false, Ordering::Relaxed)
                    || shared.followers.load(Ordering::Relaxed) > 0;
                let sample = source.sample(hottest);
                let point =
                    sample.as_ref().ok().and_then(|sample| shared.history().push(sample).cloned());
                sender.send_replace(Moment { sample, point });
                // A card that was slow to answer is not asked twice at once.
                due = (due + SAMPLE_INTERVAL).max(Instant::now());
                match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("admin-samples".into()).spawn(body)?;
        Ok(Self { latest, stop: Some(stop), thread: Some(thread) })
    }

    /// What it shows.
    pub(super) fn latest(&self) -> Arc<Latest> {
        Arc::clone(&self.latest)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.stop.take());
        // One that waits for a card that is gone ends with the process.
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}
