//! The server may send what it has kept of a file, while another request looks up one with the same
//! bytes and the same time.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nicache_coherence::{RefusalReason, SourceSet, Stamp, Verdict};

use crate::common::slot;
use crate::scene::{Scene, assert_refused, assert_stored};

const BODY: &[u8] = b"the same in both";

/// One file that the server has kept, and a copy of it.
struct Copies {
    scene: Scene,
    kept: PathBuf,
    copy: PathBuf,
    modified: u64,
}

impl Copies {
    fn new() -> Self {
        let scene = Scene::new();
        let [kept, copy] = ["kept/page", "copy/page"].map(|name| scene.write(name, BODY));
        let copies = Self { modified: 0, scene, kept, copy };
        let time = fs::metadata(&copies.kept).unwrap().modified().unwrap();
        File::open(&copies.copy).unwrap().set_modified(time).unwrap();
        Self { modified: fs::metadata(&copies.copy).unwrap().mtime() as u64, ..copies }
    }

    /// The server opens a file, and has it open from now on.
    fn keep(&self, path: &Path) -> File {
        let path = path.to_owned();
        self.scene.server.run(move || File::open(path).unwrap())
    }

    /// The server sends a file that it has not looked up.
    fn send_kept(&mut self) {
        let forwarded = self.scene.forward();
        let verdict = self.scene.judge(&forwarded, b"kept", Some(self.modified));
        assert_refused(&verdict, RefusalReason::NotLookedUp);
    }

    /// A reply with these bytes, while the server looks up the copy.
    fn reply(&mut self, body: &[u8]) -> (Verdict, Stamp) {
        let (copy, modified) = (self.copy.clone(), self.modified);
        let mut stamp = Stamp(0);
        let verdict = self.scene.settled(|scene| {
            let forwarded = scene.forward();
            stamp = forwarded.stamp;
            scene.serve(&copy);
            scene.judge(&forwarded, body, Some(modified))
        });
        (verdict, stamp)
    }

    fn is_void(&self, verdict: &Verdict, stamp: Stamp) -> bool {
        !self.scene.table.is_unchanged(sources(verdict).as_slice(), stamp)
    }
}

fn sources(verdict: &Verdict) -> SourceSet {
    let Verdict::Stored { sources, .. } = verdict else { panic!("{verdict:?}") };
    *sources
}

#[test]
fn what_the_server_has_open_or_may_keep_is_a_source() {
    for is_held in [true, false] {
        let mut copies = Copies::new();
        let file = copies.keep(&copies.kept);
        // Once more, by another descriptor.
        drop(copies.keep(&copies.kept));
        let _file = is_held.then_some(file);
        if !is_held {
            copies.send_kept();
        }
        let (verdict, stamp) = copies.reply(BODY);
        let folder = copies.kept.parent().unwrap().to_owned();
        assert_stored(&verdict, &[slot(&copies.copy), slot(&copies.kept), slot(&folder)]);
        File::options().write(true).open(&copies.kept).unwrap().write_all_at(b"A", 0).unwrap();
        assert!(copies.is_void(&verdict, stamp), "held: {is_held}");
    }
}

/// What was known of its bytes is no longer true.
#[test]
fn what_the_server_has_open_and_became_a_copy_is_a_source() {
    let mut copies = Copies::new();
    fs::write(&copies.kept, b"another page now").unwrap();
    let file = copies.keep(&copies.kept);
    let (_file, kept) = (file, copies.kept.clone());
    assert!(matches!(copies.scene.fill(&kept), Verdict::Stored { .. }));
    let time = fs::metadata(&copies.copy).unwrap().modified().unwrap();
    File::options().write(true).open(&kept).unwrap().write_all_at(BODY, 0).unwrap();
    File::open(&kept).unwrap().set_modified(time).unwrap();
    let (verdict, _) = copies.reply(BODY);
    assert_stored(&verdict, &[slot(&copies.copy), slot(&kept)]);
}

/// It sends the reply, closes the file, and then the reply is judged.
#[test]
fn what_the_server_has_closed_since_the_reply_is_a_source() {
    // Another test may change everything at the same moment.
    for _ in 0..20 {
        let mut copies = Copies::new();
        let file = copies.keep(&copies.kept);
        // Longer than who keeps no file has it open.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let (copy, modified) = (copies.copy.clone(), copies.modified);
        let forwarded = copies.scene.forward();
        copies.scene.serve(&copy);
        drop(file);
        let verdict = copies.scene.judge(&forwarded, BODY, Some(modified));
        if verdict != Verdict::Refused(RefusalReason::Changed) {
            assert_stored(&verdict, &[slot(&copies.copy), slot(&copies.kept)]);
            return;
        }
    }
    panic!("everything changes all the time");
}

#[test]
fn what_it_has_open_under_no_name_or_as_it_was_is_not_kept() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("removed", |page| fs::remove_file(page).unwrap()),
        ("renamed over", |page| {
            fs::write(page.with_extension("new"), b"another page now").unwrap();
            fs::rename(page.with_extension("new"), page).unwrap();
        }),
        ("its folder renamed", |page| {
            let folder = page.parent().unwrap();
            fs::rename(folder, folder.with_extension("old")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let mut copies = Copies::new();
        let _file = copies.keep(&copies.kept);
        change(&copies.kept);
        let (verdict, _) = copies.reply(BODY);
        assert_eq!(verdict, Verdict::Refused(RefusalReason::NotLookedUp), "{what}");
    }
}

/// Nor do those that a server has read which looks up whatever it sends.
#[test]
fn files_that_are_closed_do_not_matter_to_a_server_that_keeps_none() {
    let mut copies = Copies::new();
    for number in 0..40 {
        let other = copies.scene.write(&format!("other{number}/page"), BODY);
        drop(copies.keep(&other));
    }
    let (verdict, _) = copies.reply(BODY);
    assert!(!sources(&verdict).as_slice().contains(&slot(&copies.kept)));
    // From when on it is known to keep files, there are too many that it may be.
    copies.send_kept();
    let refused = [RefusalReason::TooManySources, RefusalReason::NotLookedUp];
    for _ in 0..3 {
        let (verdict, _) = copies.reply(BODY);
        assert!(matches!(verdict, Verdict::Refused(why) if refused.contains(&why)), "{verdict:?}");
    }
}

/// The same file, by a link to its folder that leads elsewhere later.
#[test]
fn each_path_by_which_it_was_opened_is_a_source() {
    let mut copies = Copies::new();
    let current = copies.scene.path("current");
    std::os::unix::fs::symlink("copy", &current).unwrap();
    let _file = copies.keep(&current.join("page"));
    // Another test may change everything at the same moment.
    let mut tries = 0;
    let (verdict, stamp) = loop {
        let (verdict, stamp) = copies.reply(BODY);
        if !copies.is_void(&verdict, stamp) {
            break (verdict, stamp);
        }
        tries += 1;
        assert!(tries < 50, "{verdict:?}");
    };
    assert_stored(&verdict, &[slot(&copies.copy)]);
    std::os::unix::fs::symlink("kept", copies.scene.path("next")).unwrap();
    fs::rename(copies.scene.path("next"), &current).unwrap();
    assert!(copies.is_void(&verdict, stamp));
}

/// Another file of the same length, and one that is known to have had other bytes.
#[test]
fn other_files_do_not_matter() {
    let mut copies = Copies::new();
    let other = copies.scene.write("other/page", b"another page now");
    let _file = copies.keep(&other);
    let folder = other.parent().unwrap().to_owned();
    for round in 0..2 {
        // Another test may change everything at the same moment.
        let holds = (0..50).any(|_| {
            let (verdict, stamp) = copies.reply(BODY);
            let sources = sources(&verdict);
            for path in [&other, &folder] {
                let found = sources.as_slice().contains(&slot(path));
                assert!(!found, "round {round}: {}", path.display());
            }
            File::options().write(true).open(&other).unwrap().write_all_at(b"A", 0).unwrap();
            !copies.is_void(&verdict, stamp)
        });
        assert!(holds, "round {round}");
    }
    // Removed, because its bytes were others.
    fs::remove_file(&other).unwrap();
    assert!(matches!(copies.reply(BODY).0, Verdict::Stored { .. }));
}

/// What a program has open that is older than the watcher.
#[test]
fn what_was_open_before_anybody_watched_is_a_source() {
    let mut copies = Copies::new();
    let kept = copies.kept.clone();
    let mut older = copies.scene.server.run(move || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec 3< $0; echo; read line"]).arg(kept);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    });
    older.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    copies.scene.registrar.handle_older_server();
    let (verdict, stamp) = copies.reply(BODY);
    assert_stored(&verdict, &[slot(&copies.copy), slot(&copies.kept)]);
    fs::rename(&copies.kept, copies.kept.with_extension("old")).unwrap();
    assert!(copies.is_void(&verdict, stamp));
    assert_refused(&copies.reply(BODY).0, RefusalReason::NotLookedUp);
    drop(older.stdin.take());
    older.wait().unwrap();
}
