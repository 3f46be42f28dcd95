//! Every way of changing a page, on every file system that is watched: right after the call has returned, the look-up of the page shows it,
//! or no fill would be granted meanwhile.
//!
//! The file systems are made here, in files behind loop devices, and mounted where nobody else sees them.

mod ground;
mod writers;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use nicache_coherence::{RefusalReason, SourceSlot};
use nicache_watch::{Coverage, Outcome, Resolver, Walk, settle};

use crate::common::directory_on_ext4;
use crate::watcher;
use ground::mount_own;
use writers::{Site, WRITERS};

/// What was seen of a writer, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Each change has raised a stamp that the page depends on.
    Seen,
    /// Some have not; but the page was open for writing or mapped then, and was granted no fill before.
    Held,
    /// A change that nobody has seen, and a fill would have been granted just before.
    Missed,
}

/// Judges changes of pages below a mount.
struct Judge {
    coverage: Coverage,
    /// What lies above the mount and is none of the file system's.
    above: BTreeSet<SourceSlot>,
    worst: Option<Verdict>,
    rounds: usize,
}

impl Judge {
    fn new(mount: &Path) -> Judge {
        let coverage = watcher().0.coverage().clone();
        let above = walk(&coverage, mount.parent().unwrap());
        Judge { coverage, above: above.slots.into_iter().collect(), worst: None, rounds: 0 }
    }

    /// Does `change`, which changes what `page` is, and judges it.
    fn see(&mut self, page: &Path, change: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let table = &watcher().1;
        let walk = walk(&self.coverage, page);
        assert!(walk.watched, "{} is not on a watched file system", page.display());
        let slots: Vec<SourceSlot> = walk.slots.iter().copied().filter(|slot| !self.above.contains(slot)).collect();
        for &slot in &slots {
            table.watch(slot);
        }
        // As in a fill: who comes later must be seen by the witness.
        let held = match &walk.outcome {
            Outcome::Found(node) if node.kind == rustix::fs::FileType::RegularFile => {
                matches!(settle(node), Err(RefusalReason::OpenForWriting))
            }
            _ => false,
        };
        let stamp = table.advance_clock();
        let epoch = table.epoch();
        change()?;
        let verdict = match (table.is_unchanged(&slots, stamp), held) {
            (false, _) => {
                assert_ne!(table.epoch(), epoch, "the epoch has not moved");
                Verdict::Seen
            }
            (true, true) => Verdict::Held,
            (true, false) => Verdict::Missed,
        };
        self.worst = self.worst.max(Some(verdict));
        self.rounds += 1;
        Ok(())
    }
}

fn walk(coverage: &Coverage, path: &Path) -> Walk {
    Resolver::new(coverage.clone()).resolve_below(b"/", path.as_os_str().as_encoded_bytes()).unwrap()
}

/// Runs all writers on a file system of this type, and prints what was seen of each.
fn run_writers(kind: &'static str) {
    std::thread::spawn(move || {
        let root = directory_on_ext4();
        let mount = root.path().join("mount");
        std::fs::create_dir(&mount).unwrap();
        mount_own(kind, &mount);
        let mut table = format!("{kind}\n");
        let mut missed = Vec::new();
        for writer in WRITERS.iter().filter(|writer| writer.only.is_none_or(|only| only == kind)) {
            let mut judge = Judge::new(&mount);
            let outcome = Site::new(&mount, writer.name)
                .and_then(|site| (writer.run)(&site, &mut |page, change| judge.see(page, change)));
            let cell = match (outcome, judge.worst) {
                (Err(error), _) if is_unsupported(&error) => "not on this file system".to_owned(),
                (Err(error), _) => panic!("{kind}: {}: {error}", writer.name),
                (Ok(()), None) => panic!("{kind}: {} has changed nothing", writer.name),
                (Ok(()), Some(verdict)) => format!("{verdict:?} ({} changes)", judge.rounds),
            };
            if judge.worst == Some(Verdict::Missed) {
                missed.push(writer.name);
            }
            let _ = writeln!(table, "  {:<52} {cell}", writer.name);
        }
        println!("{table}RESULT writers_{kind} missed={}", missed.len());
        assert!(missed.is_empty(), "{kind}: not witnessed: {missed:?}");
        ensure_reading_is_no_change(&mount, kind);
    })
    .join()
    .unwrap();
}

fn is_unsupported(error: &io::Error) -> bool {
    let codes = [libc::EOPNOTSUPP, libc::EINVAL, libc::ENOTTY, libc::ENOSYS, libc::EXDEV];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// A witness that takes reading for changing would hold, and keep nothing.
fn ensure_reading_is_no_change(mount: &Path, kind: &str) {
    let site = Site::new(mount, "reading").unwrap();
    let table = &watcher().1;
    let mut changed = 0;
    for _ in 0..100 {
        let walk = walk(watcher().0.coverage(), &site.page);
        let slots = &walk.slots[walk.slots.len() - 2..];
        let stamp = table.advance_clock();
        std::fs::read(&site.page).unwrap();
        std::fs::read_dir(&site.directory).unwrap().count();
        std::fs::metadata(&site.page).unwrap();
        changed += usize::from(!table.is_unchanged(slots, stamp));
    }
    assert!(changed < 10, "{kind}: {changed} of 100 readings count as changes");
}

#[test]
fn writers_on_ext4() {
    run_writers("ext4");
}

#[test]
fn writers_on_xfs() {
    if watcher().0.coverage().xfs {
        run_writers("xfs");
    } else {
        println!("RESULT writers_xfs unwatched: {:?}", watcher().0.coverage().missing);
    }
}

#[test]
fn writers_on_btrfs() {
    if watcher().0.coverage().btrfs {
        run_writers("btrfs");
    } else {
        println!("RESULT writers_btrfs unwatched: {:?}", watcher().0.coverage().missing);
    }
}

#[test]
fn writers_on_tmpfs() {
    if watcher().0.coverage().tmpfs {
        run_writers("tmpfs");
    } else {
        println!("RESULT writers_tmpfs unwatched: {:?}", watcher().0.coverage().missing);
    }
}
