//! Reading ahead: whoever reads a file from front to back finds the next blocks here.
//!
//! [`Streams`] decides, without I/O and clock; [`ReadAhead`] has threads that read. Several
//! requests of one client are under way at a time and overtake each other, so "from front to back"
//! means: near where the last ones ended.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nicache_initiator::BLOCK_BYTES;
use nicache_payload::FileId;

use crate::cache::Cache;
use crate::index::Reader;
use crate::locks::Locks;

/// Threads that read.
const THREADS: usize = 2;
/// Runs that wait for a thread; more are not read ahead.
const QUEUE_MAX: usize = 32;
/// Files whose readers are remembered. When there are more, all begin anew.
const STREAMS_MAX: usize = 4096;
/// How far a request may be from where the last ones ended, in blocks: as much as a client has
/// under way.
const SLACK: u64 = 512;
/// Requests in a row before anything is read ahead.
const STREAK: u32 = 3;
/// What is read ahead first, and at most, in blocks.
const WINDOW_FIRST: u64 = 32;
const WINDOW_MAX: u64 = 256;

/// How a file was read lately.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where the farthest request ended.
    next: u64,
    /// Up to where blocks were asked for ahead.
    until: u64,
    streak: u32,
    window: u64,
}

/// Who reads which file from front to back.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: HashMap<FileId, Stream, RandomState>,
}

impl Streams {
    /// Blocks `first` to `end` of a file with `size` blocks are read. Which ones should be read
    /// ahead: the first, and how many.
    pub(crate) fn handle_read(
        &mut self,
        id: FileId,
        first: u64,
        end: u64,
        size: u64,
        window_max: u64,
    ) -> Option<(u64, u64)> {
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&id) {
            self.streams.clear();
        }
        let fresh = Stream { next: end, until: end, streak: 1, window: WINDOW_FIRST };
        let Some(stream) = self.streams.get_mut(&id) else {
            self.streams.insert(id, fresh);
            return None;
        };
        if first + SLACK < stream.next || first > stream.next + SLACK {
            *stream = fresh;
            return None;
        }
        if end > stream.next {
            stream.next = end;
            stream.streak = stream.streak.saturating_add(1);
        }
        // Only when half of what was asked for is used up, so runs are long.
        if stream.streak < STREAK || stream.until > stream.next + stream.window / 2 {
            return None;
        }
        let from = stream.until.max(stream.next);
        let to = (stream.next + stream.window).min(size);
        stream.window = (stream.window * 2).min(WINDOW_MAX).min(window_max);
        if from >= to {
            return None;
        }
        stream.until = to;
        Some((from, to - from))
    }
}

/// Threads that read ahead. They end with it.
pub(crate) struct ReadAhead {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    cache: Arc<Cache>,
    locks: Arc<Locks>,
    streams: Mutex<Streams>,
    queue: Mutex<Queue>,
    filled: Condvar,
    window_max: u64,
}

#[derive(Default)]
struct Queue {
    runs: VecDeque<Run>,
    is_ending: bool,
}

struct Run {
    file: File,
    id: FileId,
    first: u64,
    count: u64,
}

impl ReadAhead {
    pub(crate) fn start(cache: Arc<Cache>, locks: Arc<Locks>) -> io::Result<Self> {
        // A cache that is small for what is read ahead would lose it before it is used.
        let window_max = (cache.budget.bytes_max() / BLOCK_BYTES / 64) as u64;
        let (streams, queue, filled) = (Mutex::default(), Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { cache, locks, streams, queue, filled, window_max });
        let mut this = Self { shared, threads: Vec::new() };
        for number in 0..THREADS {
            let shared = Arc::clone(&this.shared);
            let thread = std::thread::Builder::new().name(format!("ahead-{number}"));
            this.threads.push(thread.spawn(move || shared.run())?);
        }
        Ok(this)
    }

    /// Blocks `first` to `end` of a file with `size` blocks are about to be read.
    pub(crate) fn note(&self, file: &File, id: FileId, first: u64, end: u64, size: u64) {
        let ahead =
            lock(&self.shared.streams).handle_read(id, first, end, size, self.shared.window_max);
        let Some((first, count)) = ahead else { return };
        // Reading ahead is worth no waiting: not for memory, and not for a descriptor.
        if self.shared.cache.is_pressed() || lock(&self.shared.queue).runs.len() >= QUEUE_MAX {
            return;
        }
        let Ok(file) = file.try_clone() else { return };
        lock(&self.shared.queue).runs.push_back(Run { file, id, first, count });
        self.shared.filled.notify_one();
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.is_ending = true;
        queue.runs.clear();
        drop(queue);
        self.shared.filled.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some(run) = self.next() {
            // Of a file that changes meanwhile nothing is read that is not there: places are looked
            // up under the file's lock.
            let _lock = self.locks.read(run.id);
            let blocks =
                run.file.metadata().map_or(0, |found| found.len().div_ceil(BLOCK_BYTES as u64));
            let count = run.count.min(blocks.saturating_sub(run.first));
            if count > 0
                && let Err(error) =
                    self.cache.chunks(&run.file, run.id, run.first, count, Reader::Ahead)
            {
                tracing::debug!("inode {}: reading ahead: {error}", run.id.inode);
            }
        }
    }

    fn next(&self) -> Option<Run> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.is_ending {
                return None;
            }
            if let Some(run) = queue.runs.pop_front() {
                return Some(run);
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { inode: 1, generation: 1 };

    #[test]
    fn a_reader_from_front_to_back_has_every_block_read_ahead_once() {
        let mut streams = Streams::default();
        let mut asked = Vec::new();
        for first in (0..4000).step_by(8) {
            asked.extend(
                streams
                    .handle_read(FILE, first, first + 8, 4000, WINDOW_MAX)
                    .map(|run| (first, run)),
            );
        }
        let mut until = asked[0].1.0;
        for (read, (first, count)) in &asked {
            assert!(*first == until && *count > 0 && *first >= read + 8, "{asked:?}");
            until += count;
        }
        assert_eq!(until, 4000);
        assert!(asked.len() < 4000 / 8 / 8, "runs are long: {asked:?}");
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_reader() {
        let mut streams = Streams::default();
        let order = [1, 0, 3, 2, 5, 4, 7, 6];
        assert!(
            order
                .iter()
                .any(|i| streams.handle_read(FILE, i * 8, i * 8 + 8, 4000, WINDOW_MAX).is_some())
        );
    }

    #[test]
    fn who_reads_here_and_there_has_nothing_read_ahead() {
        let mut streams = Streams::default();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let first = random.u64(..10_000_000);
            assert_eq!(streams.handle_read(FILE, first, first + 1, 10_000_000, WINDOW_MAX), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_read_behind_the_end(reads: Vec<(u16, u8)>, size: u16) {
            let mut streams = Streams::default();
            let size = u64::from(size);
            for (first, count) in reads {
                let first = u64::from(first);
                if let Some((from, count)) =
                    streams.handle_read(FILE, first, first + u64::from(count), size, WINDOW_MAX)
                {
                    proptest::prop_assert!(
                        count > 0 && from + count <= size && count <= WINDOW_MAX + SLACK
                    );
                }
            }
        }
    }
}
