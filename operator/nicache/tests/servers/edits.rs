//! Ways to edit a site. Each must show in the very next reply.

use std::fs;
use std::io::{Seek, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::cases::{Disturbances, REASONS, grown};
use super::common::within;
use super::site::{date, long_ago};
use super::stage::{Stage, get};
use super::table::{self, SMALL_FILE};
use super::wire::Reply;

/// Requests for a page to become a hit.
const WARMING: usize = 10;
/// More of them with a pause before each, for a server that remembers what it has looked up, and a
/// machine that is late to tell of a worker's end or a file's last write.
const WARMING_PATIENT: usize = 15;
const PAUSE: Duration = Duration::from_millis(400);
/// For what is certain to come, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// After which a file's time differs from that of any later change, and what was written to it is
/// on its way to the disk.
const SETTLED: Duration = Duration::from_millis(500);
const NEW: &[u8] = b"the new state of the file\n";

/// What the very next reply must be.
enum Shows {
    New,
    Status(u16),
    /// With this in its head.
    Field(&'static str),
}

struct Edit {
    name: &'static str,
    /// Is the file there before?
    exists: bool,
    /// Changes the file, whose folder is its own.
    act: fn(&Path),
    shows: Shows,
}

const EDITS: [Edit; 13] = [
    Edit { name: "overwritten in place", exists: true, act: overwrite, shows: Shows::New },
    Edit {
        name: "overwritten, its times set back",
        exists: true,
        act: overwrite_unseen,
        shows: Shows::New,
    },
    Edit {
        name: "truncated and written",
        exists: true,
        act: |file| fs::write(file, NEW).unwrap(),
        shows: Shows::New,
    },
    Edit {
        name: "appended to",
        exists: true,
        act: append,
        shows: Shows::Field("Content-Length: 27\n"),
    },
    Edit { name: "renamed over", exists: true, act: rename_over, shows: Shows::New },
    Edit {
        name: "deleted",
        exists: true,
        act: |file| fs::remove_file(file).unwrap(),
        shows: Shows::Status(404),
    },
    Edit {
        name: "created",
        exists: false,
        act: |file| fs::write(file, NEW).unwrap(),
        shows: Shows::New,
    },
    Edit { name: "made unreadable", exists: true, act: forbid, shows: Shows::Status(403) },
    Edit {
        name: "touched",
        exists: true,
        act: touch,
        shows: Shows::Field("Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT\n"),
    },
    Edit { name: "a link led elsewhere", exists: true, act: switch_link, shows: Shows::New },
    Edit { name: "its folder replaced", exists: true, act: replace_folder, shows: Shows::New },
    Edit {
        name: "its folder renamed",
        exists: true,
        act: rename_folder,
        shows: Shows::Status(404),
    },
    Edit { name: "written by another name", exists: true, act: write_by_link, shows: Shows::New },
];

fn overwrite(file: &Path) {
    fs::OpenOptions::new().write(true).open(file).unwrap().write_all(NEW).unwrap();
}

fn overwrite_unseen(file: &Path) {
    overwrite(file);
    date(file, long_ago());
}

fn append(file: &Path) {
    let mut file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.seek(std::io::SeekFrom::End(0)).unwrap();
    file.write_all(b"!").unwrap();
}

fn rename_over(file: &Path) {
    let beside = file.with_extension("new");
    fs::write(&beside, NEW).unwrap();
    fs::rename(beside, file).unwrap();
}

fn forbid(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o000)).unwrap();
}

fn touch(file: &Path) {
    // 1 January 2015.
    date(file, std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_420_070_400));
}

fn switch_link(file: &Path) {
    let (beside, target) = (file.with_extension("link"), file.with_extension("target"));
    fs::write(&target, NEW).unwrap();
    symlink(&target, &beside).unwrap();
    fs::rename(beside, file).unwrap();
}

fn replace_folder(file: &Path) {
    let folder = file.parent().unwrap();
    let (new, old) = (folder.with_extension("new"), folder.with_extension("old"));
    fs::create_dir(&new).unwrap();
    fs::write(new.join(file.file_name().unwrap()), NEW).unwrap();
    fs::rename(folder, old).unwrap();
    fs::rename(new, folder).unwrap();
}

fn rename_folder(file: &Path) {
    let folder = file.parent().unwrap();
    fs::rename(folder, folder.with_extension("away")).unwrap();
}

fn write_by_link(file: &Path) {
    let other = file.parent().unwrap().parent().unwrap().join("other-name");
    let _ = fs::remove_file(&other);
    fs::hard_link(file, &other).unwrap();
    fs::write(other, NEW).unwrap();
}

/// Asks until there was a hit, or it seems that there will be none. Was there?
pub(crate) fn warm(stage: &Stage, request: &[u8]) -> bool {
    // What was refused over and over is not asked about for a moment.
    warm_while(stage, request, stage.traits.keeps_files)
}

/// Asks for what is certain to become a hit.
pub(crate) fn warm_at_last(stage: &Stage, request: &[u8]) -> bool {
    within(PATIENCE, || warm_while(stage, request, true).then_some(())).is_some()
}

/// Asks until there was a hit, patiently if there may be one although nothing shows it. Was there?
fn warm_while(stage: &Stage, request: &[u8], may_hit_unseen: bool) -> bool {
    let mut disturbances = Disturbances::new(stage.counters());
    (0..WARMING + WARMING_PATIENT).any(|round| {
        if round >= WARMING {
            if !disturbances.may_hit_later(stage.counters()) && !may_hit_unseen {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        let before = stage.hits();
        stage.ask(request);
        stage.settle();
        stage.hits() > before
    })
}

/// Each edit of a file of its own, after it was asked for through the card.
pub(crate) fn check(stage: &Stage) {
    let (mut kept, mut others) = (Vec::new(), Vec::new());
    let are_hits = table::says_hit(stage.name, SMALL_FILE);
    for (number, edit) in EDITS.iter().enumerate() {
        let folder = format!("edits/{number}");
        fs::create_dir(stage.folder.path(&folder)).unwrap();
        let name = format!("{folder}/page.txt");
        let file = stage.folder.path(&name);
        if edit.exists {
            // No two files are the same; each is as long as what comes after it.
            stage.folder.put(&name, format!("the old state of file {number:3}\n").as_bytes());
        }
        let request = get(&format!("/{name}"), "");
        let may_hit_unseen = stage.traits.keeps_files || are_hits && edit.exists;
        let first = stage.counters();
        if warm_while(stage, &request, may_hit_unseen) {
            kept.push(edit.name);
        } else {
            let reasons = grown(&stage.counters(), &first, &REASONS).join(" ");
            others.push(format!("{}: {reasons}", edit.name));
        }
        (edit.act)(&file);
        let before = stage.hits();
        let reply = stage.ask(&request);
        let was_hit = stage.hits() > before;
        // Such a server may be old by itself, but the card is not.
        let may_be_old = stage.traits.keeps_files && !was_hit;
        assert!(
            may_be_old || edit.is_shown(stage, &reply),
            "{}: {}: {reply:?}",
            stage.name,
            edit.name
        );
        // Nor does what is kept from now on come from before.
        for _ in 0..3 {
            let (reply, direct) = (stage.ask(&request), stage.ask_beside(&request));
            // What the server gives may change between the two, if it is old by itself.
            assert!(
                stage.traits.keeps_files || reply == direct,
                "{}: {}: {reply:?}{direct:?}",
                stage.name,
                edit.name
            );
        }
    }
    println!("{}: {} edits of kept replies: {kept:?}", stage.name, kept.len());
    table::compare_edits(stage.name, kept.len(), &others);
}

impl Edit {
    fn is_shown(&self, stage: &Stage, reply: &Reply) -> bool {
        match self.shows {
            Shows::New => reply.body == NEW,
            Shows::Status(403) if stage.traits.is_root => reply.status() == 200,
            Shows::Status(status) => reply.status() == status,
            Shows::Field(field) => reply.head.contains(field),
        }
    }
}

/// After SIGHUP, replies are of the new configuration, whose mark is the field X-Frame-Options:
/// with one that is not usual the reply would be a dynamic one.
pub(crate) fn reload(stage: &Stage, edit: impl FnOnce()) {
    let request = get("/small.txt", "");
    assert!(warm_at_last(stage, &request), "no hit: {:?}", stage.counters());
    edit();
    std::thread::sleep(SETTLED);
    stage.nicache.signal(Signal::HUP);
    // Processes of the former configuration may take connections for a moment.
    let mut row = 0;
    let last = get("/small.txt", "Connection: close\r\n");
    let all_new = || {
        let is_new = stage.head_beside(&last).contains("X-Frame-Options: DENY");
        row = if is_new { row + 1 } else { 0 };
        (row >= 20).then_some(())
    };
    assert!(within(PATIENCE, all_new).is_some(), "{}: not reloaded", stage.name);
    for round in 0..10 {
        let reply = stage.ask(&request);
        assert_eq!(
            reply.field("x-frame-options"),
            Some("DENY"),
            "{} round {round}: {reply:?}",
            stage.name
        );
    }
    assert!(
        warm_at_last(stage, &request),
        "{}: no hit after the reload: {:?}",
        stage.name,
        stage.counters()
    );
}
