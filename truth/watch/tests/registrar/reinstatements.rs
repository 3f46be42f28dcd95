//! May an entry stay after a directory on the way to its files has changed?

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nicache_coherence::{
    RecordNumber, ReinstateRequest, Reinstatement, SourceSet, SourceSlot, Stamp, Verdict,
};

use crate::fills::{set_list, set_list_by_path, set_list_by_uring};
use crate::scene::Scene;

/// An entry as the card has it.
pub(crate) struct Entry {
    stamp: Stamp,
    sources: SourceSet,
    record: RecordNumber,
}

impl Scene {
    pub(crate) fn entry(&mut self, path: &Path) -> Entry {
        self.entry_after(path, || {})
    }

    /// An entry for which the server does something else first.
    fn entry_after(&mut self, path: &Path, first: impl Fn() + Clone + Send + 'static) -> Entry {
        let mut stamp = Stamp(0);
        let verdict = self.settled(|scene| {
            let forwarded = scene.forward();
            stamp = forwarded.stamp;
            scene.server.run(first.clone());
            let body = scene.serve(path);
            let modified = fs::metadata(path).unwrap().mtime() as u64;
            scene.judge(&forwarded, &body, Some(modified))
        });
        let Verdict::Stored { sources, record, .. } = verdict else { panic!("{verdict:?}") };
        Entry { stamp, sources, record }
    }

    pub(crate) fn is_void(&self, entry: &Entry) -> bool {
        !self.table.is_unchanged(entry.sources.as_slice(), entry.stamp)
    }

    fn reinstate_once(&mut self, entry: &Entry) -> (Reinstatement, Stamp) {
        let stamp = self.table.advance_clock();
        let request = ReinstateRequest { id: 3, record: entry.record, since: entry.stamp, stamp };
        let mut resolver = self.registrar.resolver();
        let verdict = self.registrar.reinstate(&request, &mut resolver);
        assert_eq!(verdict.id, 3);
        (verdict.outcome, stamp)
    }

    /// One for which the server does something else first, and that stays when `act` was done with
    /// the number of the attempt. Another test may change everything at the same moment.
    fn staying(
        &mut self,
        path: &Path,
        first: impl Fn() + Clone + Send + 'static,
        mut act: impl FnMut(&mut Self, &Entry, usize),
    ) -> Entry {
        for attempt in 0..50 {
            let entry = self.entry_after(path, first.clone());
            act(self, &entry, attempt);
            let outcome = self.reinstate(&entry);
            if outcome == Reinstatement::Stays {
                return entry;
            }
            let everything = self.table.stamp_of(SourceSlot::EVERYTHING);
            assert!(everything >= entry.stamp, "{outcome:?}, and not everything has changed");
        }
        panic!("everything changes all the time");
    }

    /// Until nothing changes meanwhile: other tests make directories beside this one's.
    pub(crate) fn reinstate(&mut self, entry: &Entry) -> Reinstatement {
        for _ in 0..200 {
            let (outcome, _) = self.reinstate_once(entry);
            if outcome != Reinstatement::Again {
                return outcome;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Reinstatement::Again
    }
}

#[test]
fn an_entry_stays_when_something_else_is_made_or_removed_beside_its_file() {
    let mut scene = Scene::new();
    let path = scene.write("site/page", b"hello");
    let beside = scene.path("site/beside");
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |beside| fs::write(beside, b"new").unwrap(),
        |beside| {
            fs::write(beside, b"new").unwrap();
            fs::rename(beside, beside.with_extension("renamed")).unwrap();
        },
        |beside| {
            fs::write(beside, b"new").unwrap();
            fs::remove_file(beside).unwrap();
        },
        |beside| fs::create_dir(beside).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        scene.staying(
            &path,
            || {},
            |scene, entry, attempt| {
                let beside = beside.with_extension(format!("{number}-{attempt}"));
                let (_, stamp) = scene.reinstate_once(entry);
                change(&beside);
                assert!(
                    !scene.table.is_unchanged(entry.sources.as_slice(), stamp),
                    "change {number} has no witness"
                );
                assert!(scene.is_void(entry));
            },
        );
    }
}

#[test]
fn an_entry_goes_when_its_path_or_its_file_changes() {
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 15] = [
        ("written", |path| fs::write(path, b"olleh").unwrap()),
        ("touched", |path| {
            fs::File::open(path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }),
        ("its mode", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap()),
        ("removed", |path| fs::remove_file(path).unwrap()),
        ("renamed over", |path| {
            fs::write(path.with_extension("new"), b"hello").unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
        ("made again", |path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            fs::copy(path.with_extension("old"), path).map(drop).unwrap();
        }),
        ("another file there", |path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            std::os::unix::fs::symlink("page.old", path).unwrap();
        }),
        ("its directory renamed", |path| {
            let directory = path.parent().unwrap();
            fs::rename(directory, directory.with_extension("old")).unwrap();
        }),
        ("its directory replaced", |path| {
            let directory = path.parent().unwrap();
            fs::rename(directory, directory.with_extension("old")).unwrap();
            fs::create_dir(directory).unwrap();
            fs::hard_link(directory.with_extension("old").join("page"), path).unwrap();
        }),
        ("its directory's mode", |path| {
            fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        }),
        ("its directory's owner", |path| {
            std::os::unix::fs::chown(path.parent().unwrap(), Some(1), None).unwrap();
        }),
        ("its directory's list", |path| set_list(path.parent().unwrap())),
        ("the list of a directory above", |path| {
            set_list(path.parent().unwrap().parent().unwrap());
        }),
        ("its directory's list, by its path", |path| set_list_by_path(path.parent().unwrap())),
        ("its directory's list, by io_uring", |path| {
            set_list_by_uring(path.parent().unwrap(), io_uring::squeue::Flags::empty());
        }),
    ];
    let mut scene = Scene::new();
    for (number, (what, change)) in changes.into_iter().enumerate() {
        let path = scene.write(&format!("site{number}/page"), b"hello");
        let entry = scene.staying(&path, || {}, |_, _, _| {});
        change(&path);
        assert!(scene.is_void(&entry), "{what} has no witness");
        assert_eq!(scene.reinstate(&entry), Reinstatement::Gone, "{what}");
    }
}

/// An entry of an access control list that names nobody.
fn allows(tag: u16, permissions: u16) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &[0xff; 4]].concat()
}

/// Strangers do so all day: a backup, a package that is installed, a database in a container.
#[test]
fn an_entry_is_not_looked_at_when_something_elsewhere_changes() {
    let mut scene = Scene::new();
    let path = scene.write("site/page", b"hello");
    let elsewhere = scene.write("elsewhere/file", b"a file");
    let (folder, copy) = (elsewhere.parent().unwrap(), scene.path("copy"));
    let flags = rustix::fs::XattrFlags::empty();
    let changes: [(&str, &dyn Fn()); 8] = [
        ("a file's list", &|| set_list(&elsewhere)),
        ("a directory's list", &|| set_list(folder)),
        ("a file's list, by its path", &|| set_list_by_path(&elsewhere)),
        ("a directory's list, by its path", &|| set_list_by_path(folder)),
        ("a list that says what the mode says", &|| {
            let list = [&[2, 0, 0, 0][..], &allows(1, 6), &allows(4, 4), &allows(32, 4)].concat();
            for _ in 0..2 {
                rustix::fs::setxattr(&elsewhere, "system.posix_acl_access", &list, flags).unwrap();
            }
        }),
        ("a note", &|| rustix::fs::setxattr(&elsewhere, "user.note", b"note", flags).unwrap()),
        // The kernel has no change times for these; what starts services writes such notes.
        ("a note on a process", &|| {
            let _ = rustix::fs::setxattr("/sys/fs/cgroup", "trusted.note", b"note", flags);
        }),
        ("cp -a", &|| {
            let status = Command::new("cp").arg("-a").args([folder, &copy]).status().unwrap();
            assert!(status.success());
        }),
    ];
    for (what, change) in changes {
        // Another test may change everything at the same moment; then an entry is gone for good.
        let stays = (0..50).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let entry = scene.entry(&path);
            let (outcome, stamp) = scene.reinstate_once(&entry);
            change();
            outcome == Reinstatement::Stays
                && scene.table.is_unchanged(entry.sources.as_slice(), stamp)
        });
        assert!(stays, "{what}");
    }
}

#[test]
fn an_entry_goes_when_a_look_up_that_failed_would_succeed() {
    let mut scene = Scene::new();
    let path = scene.write("site/page", b"hello");
    let absent = scene.path("site/page.override");
    let asked = absent.clone();
    let entry = scene.staying(&path, move || assert!(fs::metadata(&asked).is_err()), |_, _, _| {});
    fs::write(&absent, b"").unwrap();
    assert_eq!(scene.reinstate(&entry), Reinstatement::Gone);
}

#[test]
fn a_listed_directory_may_not_change() {
    let mut scene = Scene::new();
    let path = scene.write("site/page", b"hello");
    let directory: PathBuf = scene.path("site");
    let listed = directory.clone();
    let list = move || assert_eq!(fs::read_dir(&listed).unwrap().count(), 1);
    let entry = scene.staying(&path, list, |_, _, _| {});
    fs::write(directory.join("beside"), b"").unwrap();
    assert_eq!(scene.reinstate(&entry), Reinstatement::Gone);
}

/// Reading moves the access time, which is not a change once the change time is known; the next
/// change is one all the same.
#[test]
fn a_change_of_an_inode_whose_change_time_has_settled_is_seen() {
    let mut scene = Scene::new();
    let path = scene.write("site/page", b"hello");
    for mode in [0o600, 0o644] {
        std::thread::sleep(std::time::Duration::from_millis(2100));
        let entry = scene.entry(&path);
        fs::read(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(scene.is_void(&entry), "chmod {mode:o} has no witness");
        assert_eq!(scene.reinstate(&entry), Reinstatement::Gone);
    }
}

#[test]
fn what_the_watcher_does_not_remember_goes() {
    let mut scene = Scene::new();
    let path = scene.write("site/page", b"hello");
    let mut entry = scene.entry(&path);
    let known = entry.record;
    for record in [RecordNumber(0), RecordNumber(known.0 + 1), RecordNumber(u64::MAX)] {
        entry.record = record;
        assert_eq!(scene.reinstate(&entry), Reinstatement::Gone);
    }
}

/// A directory's name leads to one of two directories in turn, whose files have different bytes. An
/// entry that stays, and whose sources have not changed since, must be what the path leads to.
#[test]
fn switches_during_the_judgement_are_seen() {
    let mut scene = Scene::new();
    let first = scene.write("site/page", b"first");
    scene.write("spare/page", b"other");
    let entry = scene.entry(&first);
    let (site, spare) = (scene.path("site"), scene.path("spare"));
    let (switches, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut stayed, mut again, mut gone) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                // Odd while a switch is under way.
                switches.fetch_add(1, Ordering::SeqCst);
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &site, rustix::fs::CWD, &spare, flags)
                    .unwrap();
                switches.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_micros(150));
            }
        });
        let began = std::time::Instant::now();
        while began.elapsed().as_secs() < 4 && (stayed < 300 || gone < 300) {
            let before = switches.load(Ordering::SeqCst);
            match scene.reinstate_once(&entry) {
                (Reinstatement::Stays, stamp) => {
                    let after = switches.load(Ordering::SeqCst);
                    if before == after && before % 2 == 0 {
                        stayed += 1;
                        assert_eq!(before % 4, 0, "the path leads to the other directory");
                    } else if !scene.table.is_unchanged(entry.sources.as_slice(), stamp) {
                        again += 1;
                    } else {
                        // The switch was over before the question was asked, or is not to be seen
                        // yet.
                        stayed += 1;
                    }
                }
                (Reinstatement::Again, _) => again += 1,
                (Reinstatement::Gone, _) => gone += 1,
            }
        }
        ended.store(true, Ordering::SeqCst);
    });
    assert!(stayed > 0 && gone > 0, "{stayed} stayed, {again} again, {gone} gone");
}
