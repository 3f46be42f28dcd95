//! Writes files back before their payload fills the memory, and knows which files are dirty.
//!
//! A dirty file that is removed is emptied instead.
//!
//! It has a descriptor of every dirty file. They are closed by its own thread or by those of
//! requests, never by the threads of the device: closing the last one of a removed file makes the
//! file system write, which those threads answer.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nicache_filemap::{Wait, drop_pages, not_plain, write_back};
use nicache_payload::FileId;

use crate::cache::Cache;
use crate::keyed::put_again;
use crate::locks::Locks;

/// Dirty files at once; more are written back by whoever makes one more.
const FILES_MAX: usize = 256;
/// Files of which it is remembered that they may be written.
const CHECKED_MAX: usize = 1 << 16;
/// How often clean files are let go, and the policy hears of the time.
const PERIOD: Duration = Duration::from_secs(1);

pub(crate) struct Flusher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A file that is being written to.
#[must_use]
pub(crate) struct Noted {
    _file: Arc<File>,
}

struct Shared {
    cache: Arc<Cache>,
    locks: Arc<Locks>,
    files: Mutex<HashMap<FileId, Arc<File>>>,
    checked: Mutex<HashSet<FileId>>,
    is_ending: AtomicBool,
}

impl Flusher {
    pub(crate) fn start(cache: Arc<Cache>) -> io::Result<Self> {
        let (locks, files, checked) = (Arc::new(Locks::new()), Mutex::default(), Mutex::default());
        let shared =
            Arc::new(Shared { cache, locks, files, checked, is_ending: AtomicBool::new(false) });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("flusher".to_owned()).spawn(move || shared.run())?
        };
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn locks(&self) -> &Arc<Locks> {
        &self.shared.locks
    }

    /// Refuses files whose pages do not simply go to their places: keys in them would go elsewhere.
    pub(crate) fn check(&self, file: &File, id: FileId) -> io::Result<()> {
        let mut checked = lock(&self.shared.checked);
        if checked.contains(&id) {
            return Ok(());
        }
        if let Some(reason) = not_plain(file)? {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("inode {}: {reason}", id.inode),
            ));
        }
        if checked.len() >= CHECKED_MAX {
            checked.clear();
        }
        checked.insert(id);
        Ok(())
    }

    /// A file is about to be written to. Until the caller drops what this returns, the file is not
    /// let go, although nothing of it is dirty so far.
    pub(crate) fn note(&self, file: &File, id: FileId) -> io::Result<Noted> {
        let mut files = lock(&self.shared.files);
        let noted = match files.entry(id) {
            Entry::Occupied(place) => Arc::clone(place.get()),
            Entry::Vacant(place) => Arc::clone(place.insert(Arc::new(file.try_clone()?))),
        };
        Ok(Noted { _file: noted })
    }

    /// After a write, without a lock: asks for write-back if there is much, and waits for it if
    /// there are many files.
    pub(crate) fn relieve(&self, last: FileId) {
        if self.shared.cache.is_pressed() {
            self.shared.cache.ask_for_write_back();
        }
        if lock(&self.shared.files).len() > FILES_MAX {
            if let Some((id, file)) = self.shared.dirty_other(last) {
                self.shared.write_back(id, &file);
            }
            self.shared.let_go();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.shared.cache.ask_for_write_back();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        while !self.is_ending.load(Ordering::Acquire) {
            self.cache.wait_for_pressure(PERIOD);
            self.cache.index().handle_time(Instant::now());
            if self.cache.is_pressed() {
                self.relieve();
            }
            self.empty_removed();
            self.let_go();
        }
        lock(&self.files).clear();
    }

    /// Writes back the dirtiest files until there is room.
    fn relieve(&self) {
        let mut by_dirt: Vec<(usize, FileId, Arc<File>)> = {
            let files = lock(&self.files);
            let index = self.cache.index();
            files
                .iter()
                .map(|(id, file)| (index.dirty_blocks(*id), *id, Arc::clone(file)))
                .collect()
        };
        by_dirt.sort_by_key(|(blocks, ..)| std::cmp::Reverse(*blocks));
        for (_, id, file) in by_dirt.into_iter().filter(|(blocks, ..)| *blocks > 0) {
            self.write_back(id, &file);
            if !self.cache.is_pressed() {
                return;
            }
        }
        if self.cache.budget.waiting() > 0 {
            // The logical unit keeps what no flush has covered.
            if let Err(error) = self.cache.lun.flush() {
                self.cache.handle_lun_error(&error);
            }
        }
    }

    /// A dirty file other than this one. One whose write failed is taken only if all others' have,
    /// too.
    fn dirty_other(&self, last: FileId) -> Option<(FileId, Arc<File>)> {
        let files = lock(&self.files);
        let index = self.cache.index();
        files
            .iter()
            .filter(|(id, _)| **id != last && index.dirty_blocks(**id) > 0)
            .min_by_key(|(id, _)| index.has_failed(**id))
            .map(|(id, file)| (*id, Arc::clone(file)))
    }

    fn write_back(&self, id: FileId, file: &File) {
        let literals = self.cache.index().literals_of(id);
        let written = write_back(file, 0, 0, Wait::Yes);
        if let Err(error) = &written {
            self.cache.change_verifier();
            tracing::warn!("inode {}: write-back: {error}", id.inode);
        }
        // The kernel tells of an error once, and perhaps the file was locked then, or somebody else
        // was told.
        let is_lost = {
            let index = self.cache.index();
            index.has_failed(id) && !index.keys_of(id).is_empty()
        };
        if written.is_err() || is_lost {
            // The kernel takes the pages for lost. Their payload is here, so their keys go into the
            // file again; clients send again, too.
            if let Some(_lock) = self.locks.try_write(id)
                && let Err(error) = put_again(&self.cache, file, id)
            {
                tracing::error!(
                    "inode {}: what was not written cannot be written again: {error}",
                    id.inode
                );
            }
            return;
        }
        self.cache.index().handle_literals_written(id, &literals);
        let _ = drop_pages(file, 0, 0);
    }

    /// What was removed needs no writing, and its space is wanted. Whoever still has it open finds
    /// it empty.
    fn empty_removed(&self) {
        let files: Vec<(FileId, Arc<File>)> =
            lock(&self.files).iter().map(|(id, file)| (*id, Arc::clone(file))).collect();
        for (id, file) in files {
            if rustix::fs::fstat(&*file).is_ok_and(|attributes| attributes.st_nlink == 0)
                && let Some(_lock) = self.locks.try_write(id)
                && file.set_len(0).is_ok()
            {
                let mut index = self.cache.index();
                index.cut(id, 0);
                index.take_failed(id);
            }
        }
    }

    /// Closes the files that are clean, and to which nobody is writing. If a write of one failed
    /// before, the index still knows.
    fn let_go(&self) {
        let clean: Vec<Arc<File>> = {
            let mut files = lock(&self.files);
            let index = self.cache.index();
            // A writer has its own reference until the index has what it wrote. So whoever sees
            // none, under the index's lock, sees what was written, too.
            let is_idle = |file: &Arc<File>| Arc::strong_count(file) == 1;
            files
                .extract_if(|id, file| is_idle(file) && index.dirty_blocks(*id) == 0)
                .map(|(_, file)| file)
                .collect()
        };
        drop(clean);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
