//! A server on real files, and what a test asks the registrar about it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nicache_coherence::{
    FillRequest, FillVerdict, RefusalReason, RevisionTable, SourceSlot, Stamp, Verdict,
};
use nicache_watch::{KernelWatcher, Registrar};
use tempfile::TempDir;

use crate::common::{ServerThread, directory_on_ext4, slot};

/// A server, its files, and a registrar that follows it.
pub(crate) struct Scene<S = ServerThread> {
    pub root: TempDir,
    pub server: S,
    pub table: Arc<RevisionTable>,
    pub registrar: Registrar,
    pub watcher: KernelWatcher,
}

/// A request that was forwarded.
pub(crate) struct Forwarded {
    pub stamp: Stamp,
    pub lost: u64,
    pub at_ns: u64,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let server = ServerThread::start();
        let netns = server.netns;
        Self::of(server, netns)
    }

    pub(crate) fn fill_once(&mut self, path: &Path) -> Verdict {
        let forwarded = self.forward();
        let body = self.serve(path);
        let modified = fs::metadata(path).unwrap().mtime() as u64;
        self.judge(&forwarded, &body, Some(modified))
    }

    /// Fills until nothing changes meanwhile: other tests make directories beside this one's.
    pub(crate) fn fill(&mut self, path: &Path) -> Verdict {
        self.settled(|scene| scene.fill_once(path))
    }

    pub(crate) fn serve(&self, path: &Path) -> Vec<u8> {
        let path = path.to_owned();
        self.server.run(move || fs::read(path).unwrap())
    }
}

impl<S> Scene<S> {
    /// With a server whose network namespace this is.
    pub(crate) fn of(server: S, netns: u32) -> Self {
        let root = directory_on_ext4();
        let watcher = crate::common::load(netns).unwrap();
        assert!(watcher.coverage().ext4, "missing: {:?}", watcher.coverage().missing);
        let table = Arc::new(watcher.table().unwrap());
        let witness = Box::new(watcher.witness().unwrap());
        let registrar = Registrar::new(table.clone(), witness);
        Self { root, server, table, registrar, watcher }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A file whose first reading has passed, which sets the access time: only calls that do
    /// nothing but read are known not to count as a change by that. The times are only as fine as
    /// the kernel's tick.
    pub(crate) fn write(&self, name: &str, body: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, body).unwrap();
        loop {
            fs::read(&path).unwrap();
            let stat = fs::metadata(&path).unwrap();
            if (stat.atime(), stat.atime_nsec()) > (stat.ctime(), stat.ctime_nsec()) {
                return path;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    pub(crate) fn forward(&self) -> Forwarded {
        Forwarded {
            stamp: self.table.advance_clock(),
            lost: self.table.lost(),
            at_ns: nicache_clock::monotonic_ns(),
        }
    }

    pub(crate) fn judge(
        &mut self,
        forwarded: &Forwarded,
        body: &[u8],
        last_modified: Option<u64>,
    ) -> Verdict {
        let request = FillRequest {
            id: 7,
            stamp: forwarded.stamp,
            asked: self.table.advance_clock(),
            forwarded_ns: forwarded.at_ns,
            finished_ns: nicache_clock::monotonic_ns(),
            lost: forwarded.lost,
            body_len: body.len() as u64,
            body_hash: *blake3::hash(body).as_bytes(),
            last_modified,
            may_be_static: true,
            may_be_dynamic: false,
            previous: None,
            client: std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 1),
            target: b"/page",
        };
        let mut resolver = self.registrar.resolver();
        let FillVerdict { id, verdict } = self.registrar.judge(&request, &mut resolver);
        assert_eq!(id, 7);
        verdict
    }

    /// Forwards, lets the server look up and read `path`, and judges what it read; again while
    /// others of this machine may be the reason for a refusal: what they change, or ask a database.
    pub(crate) fn settled(&mut self, mut attempt: impl FnMut(&mut Self) -> Verdict) -> Verdict {
        let mut verdict = attempt(self);
        for _ in 0..50 {
            let Verdict::Refused(RefusalReason::Changed | RefusalReason::Decided) = verdict else {
                break;
            };
            std::thread::sleep(std::time::Duration::from_millis(5));
            verdict = attempt(self);
        }
        verdict
    }
}

#[track_caller]
pub(crate) fn assert_stored(verdict: &Verdict, expected: &[SourceSlot]) {
    let Verdict::Stored { sources, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(sources.as_slice()[0], SourceSlot::EVERYTHING);
    for slot in expected {
        assert!(sources.as_slice().contains(slot), "{slot:?} is not among {sources:?}");
    }
}

#[track_caller]
pub(crate) fn assert_refused(verdict: &Verdict, reason: RefusalReason) {
    assert_eq!(*verdict, Verdict::Refused(reason));
}

/// Every directory from the root down to the path, and the path itself.
pub(crate) fn chain(path: &Path) -> Vec<SourceSlot> {
    path.ancestors().map(slot).collect()
}
