//! Every way of changing a page, on every file system that is watched: right after the call has
//! returned, the look-up of the page shows it, or no fill would be granted meanwhile.
//!
//! The file systems are made here, in files behind loop devices, and mounted where nobody else sees
//! them.

mod ground;
mod writers;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use nicache_coherence::{RefusalReason, SourceSlot};
use nicache_watch::{Coverage, Outcome, Resolver, Walk, settle};

use rustix::mount::{MountFlags, mount};

use crate::common::directory_on_ext4;
use crate::watcher;
use ground::mount_own;
use writers::{Site, WRITERS};

/// What was seen of a writer, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    /// Each change has raised a stamp that the page depends on.
    Seen,
    /// Some have not; but the page was open for writing or mapped then, and was granted no fill
    /// before.
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
    fn new(mount: &Path) -> Self {
        let coverage = watcher().0.coverage().clone();
        let above = walk(&coverage, mount.parent().unwrap());
        Self { coverage, above: above.slots.into_iter().collect(), worst: None, rounds: 0 }
    }

    /// Does `change`, which changes what `page` is, and judges it.
    fn see(&mut self, page: &Path, change: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let table = &watcher().1;
        let walk = walk(&self.coverage, page);
        assert!(walk.watched, "{} is not on a watched file system", page.display());
        let slots: Vec<SourceSlot> =
            walk.slots.iter().copied().filter(|slot| !self.above.contains(slot)).collect();
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
    Resolver::new(coverage.clone())
        .resolve_below(b"/", path.as_os_str().as_encoded_bytes())
        .unwrap()
}

/// Runs all writers on a file system of this type, and prints what was seen of each.
fn run_writers(kind: &'static str) {
    on_own(kind, move |mount| {
        run_all(kind, kind, mount, &|name| Site::new(mount, name));
        ensure_reading_is_no_change(mount, kind);
    });
}

/// Runs all writers on an overlay whose layers are on a file system of this type: once the page is
/// in the upper layer, once in the lower of two.
fn run_writers_on_overlay(kind: &'static str) {
    on_own(kind, move |ground| {
        let folders = ["lower", "middle", "upper", "work", "merged"].map(|name| ground.join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let [lower, middle, upper, work, merged] = &folders;
        let options = format!(
            "lowerdir={}:{},upperdir={},workdir={}",
            middle.display(),
            lower.display(),
            upper.display(),
            work.display()
        );
        let options = CString::new(options).unwrap();
        mount("overlay", merged, "overlay", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        run_all("overlay", &format!("overlay_on_{kind}, upper"), merged, &|name| {
            Site::new(merged, name)
        });
        run_all("overlay", &format!("overlay_on_{kind}, lower"), merged, &|name| {
            Site::new(lower, &format!("{name} below"))?;
            Ok(Site::at(merged, &format!("{name} below")))
        });
        ensure_reading_is_no_change(merged, kind);
    });
}

/// Mounts such a file system where this test alone sees it.
fn on_own(kind: &'static str, run: impl FnOnce(&Path) + Send + 'static) {
    std::thread::spawn(move || {
        let root = directory_on_ext4();
        let mount = root.path().join("mount");
        std::fs::create_dir(&mount).unwrap();
        mount_own(kind, &mount);
        run(&mount);
    })
    .join()
    .unwrap();
}

fn run_all(kind: &str, label: &str, mount: &Path, site: &dyn Fn(&str) -> io::Result<Site>) {
    let mut table = format!("{label}\n");
    let mut missed = Vec::new();
    for writer in WRITERS.iter().filter(|writer| writer.only.is_none_or(|only| only == kind)) {
        let mut judge = Judge::new(mount);
        let outcome = site(writer.name)
            .and_then(|site| (writer.run)(&site, &mut |page, change| judge.see(page, change)));
        let cell = match (outcome, judge.worst) {
            (Err(error), _) if is_unsupported(&error) => "not on this file system".to_owned(),
            (Err(error), _) => panic!("{label}: {}: {error}", writer.name),
            (Ok(()), None) => panic!("{label}: {} has changed nothing", writer.name),
            (Ok(()), Some(verdict)) => format!("{verdict:?} ({} changes)", judge.rounds),
        };
        if judge.worst == Some(Verdict::Missed) {
            missed.push(writer.name);
        }
        let _ = writeln!(table, "  {:<52} {cell}", writer.name);
    }
    println!("{table}RESULT writers_{label} missed={}", missed.len());
    assert!(missed.is_empty(), "{label}: not witnessed: {missed:?}");
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

#[test]
fn writers_on_overlay() {
    let coverage = watcher().0.coverage();
    for (kind, is_watched) in [
        ("ext4", coverage.ext4),
        ("xfs", coverage.xfs),
        ("btrfs", coverage.btrfs),
        ("tmpfs", coverage.tmpfs),
    ] {
        if is_watched {
            run_writers_on_overlay(kind);
        } else {
            println!("RESULT writers_overlay_on_{kind} unwatched");
        }
    }
}
