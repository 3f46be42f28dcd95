#![expect(clippy::disallowed_methods, reason = "real processes are looked at")]

use std::path::Path;
use std::sync::LazyLock;

use super::file::VOLATILE_CHANGES;
use super::*;
use crate::attribution::requests::Attribution;
use crate::memory::grace::Pace;
use crate::witnesses::event::Stillness;

/// A disk's.
const DISK: u32 = 8 << 20;
const CODE: Identity = Identity { dev: DISK, ino: 10 };
/// A request that was forwarded after all that happened.
const LATER: u64 = u64::MAX;
/// For which an opening counts whose end is not known.
const OPENING_NS: u64 = 100_000_000;

/// Of no process it is known when it has ended what it was at.
fn unknown() -> Ends<'static> {
    static NOBODY: LazyLock<(Attribution, Pace)> = LazyLock::new(Default::default);
    Ends { attribution: &NOBODY.0, pace: &NOBODY.1 }
}

fn opened(identity: Identity, path: &[u8], clock: Stamp, tgid: u32) -> LookupEvent {
    LookupEvent {
        clock,
        ret: 3,
        tgid,
        inode: Some(identity),
        mode: libc::S_IFREG as u16,
        size: 1,
        // Long ago.
        changed_ns: 1,
        path: path.into(),
        // What is done with one clock is over with the next.
        ..LookupEvent::blank(clock.0 * (OPENING_NS + 1))
    }
}

fn looked_at(path: &[u8], clock: Stamp) -> LookupEvent {
    LookupEvent { inode: None, mode: 0, ret: 0, ..opened(CODE, path, clock, 1) }
}

#[test]
fn a_changed_file_is_dirty_until_it_is_read() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
    table.record_change(CODE.slot());
    assert!(retained.is_dirty(&table, unknown(), LATER, 0));
    // With the same clock the reading may have been before the change.
    retained.observe(&opened(CODE, b"/a.php", table.clock(), 1), &table, unknown());
    assert!(retained.is_dirty(&table, unknown(), LATER, 0));
    retained.observe(
        &opened(Identity { dev: DISK, ino: 11 }, b"/b.php", table.advance_clock(), 1),
        &table,
        unknown(),
    );
    assert!(retained.is_dirty(&table, unknown(), LATER, 0));
    retained.observe(&looked_at(b"/a.php", table.clock()), &table, unknown());
    assert!(retained.is_dirty(&table, unknown(), LATER, 0));
    retained.observe(&opened(CODE, b"/a.php", table.clock(), 1), &table, unknown());
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
}

#[test]
fn what_only_starts_programs_is_never_dirty() {
    let own = rustix::fs::stat("/proc/self/exe").unwrap();
    let dev = rustix::fs::major(own.st_dev) << 20 | rustix::fs::minor(own.st_dev);
    let program = Identity { dev, ino: own.st_ino };
    let name = std::env::current_exe().unwrap();
    let is_dirty = |identity: Identity, path: &[u8]| {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let opening = opened(identity, path, table.advance_clock(), std::process::id());
        retained.observe(&opening, &table, unknown());
        table.record_change(identity.slot());
        retained.is_dirty(&table, unknown(), LATER, 0)
    };
    // Another file has its name, or none.
    assert!(!is_dirty(program, b"/nowhere/libz.so.1") && !is_dirty(program, b"/etc/passwd"));
    // It is written while it runs.
    assert!(is_dirty(program, name.as_os_str().as_encoded_bytes()));
    // Nobody runs it.
    assert!(is_dirty(CODE, b"/nowhere/libz.so.1"));
    assert!(!is_dirty(CODE, LOADER_CACHE));
}

#[test]
fn what_was_given_up_and_is_read_after_all_voids() {
    for waited in [DIRTY_NS_MAX - 1, DIRTY_NS_MAX] {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
        table.record_change(CODE.slot());
        assert!(retained.is_dirty(&table, unknown(), LATER, 1000));
        let late = waited >= DIRTY_NS_MAX;
        assert_eq!(retained.is_dirty(&table, unknown(), LATER, 1000 + waited), !late);
        assert!(!retained.take_renewed());
        let again = LookupEvent {
            time_ns: 1000 + waited,
            ..opened(CODE, b"/a.php", table.advance_clock(), 1)
        };
        retained.observe(&again, &table, unknown());
        assert_eq!((retained.take_renewed(), retained.take_renewed()), (late, false));
    }
}

#[test]
fn a_removed_file_is_dirty_until_the_server_finds_nothing_there() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
    table.record_change(CODE.slot());
    let look =
        |errno: i32, clock| LookupEvent { ret: -i64::from(errno), ..looked_at(b"/a.php", clock) };
    retained.observe(&look(libc::EACCES, table.advance_clock()), &table, unknown());
    assert!(retained.is_dirty(&table, unknown(), LATER, 0));
    retained.observe(&look(libc::ENOENT, table.advance_clock()), &table, unknown());
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
}

/// Another request had the server read the file while this one was being answered from the server's
/// memory.
#[test]
fn a_request_that_came_while_a_file_was_dirty_is_worth_nothing() {
    let table = RevisionTable::on_heap();
    for new in [CODE, Identity { dev: DISK, ino: 11 }] {
        let mut retained = Retained::default();
        retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
        table.record_change(CODE.slot());
        let look = opened(new, b"/a.php", table.advance_clock(), 1);
        retained.observe(&look, &table, unknown());
        assert!(retained.is_dirty(&table, unknown(), look.time_ns - 1, 0));
        assert!(retained.is_dirty(&table, unknown(), look.time_ns + OPENING_NS - 1, 0));
        assert!(!retained.is_dirty(&table, unknown(), look.time_ns + OPENING_NS, 0));
        // Looks that find nothing new make nothing dirty.
        let again = opened(new, b"/a.php", table.advance_clock(), 1);
        retained.observe(&again, &table, unknown());
        assert!(!retained.is_dirty(&table, unknown(), look.time_ns + OPENING_NS, 0));
    }
}

#[test]
fn a_replaced_file_is_dirty_until_its_path_is_read() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
    // A rename over it removes its name.
    table.record_change(CODE.slot());
    let since = table.advance_clock();
    let new = Identity { dev: DISK, ino: 11 };
    retained.observe(&opened(new, b"/a.php", since, 1), &table, unknown());
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
    assert!(!retained.has_changed(&table, since, u64::MAX));
    table.record_change(new.slot());
    assert!(retained.has_changed(&table, since, u64::MAX));
}

#[test]
fn what_is_made_up_as_it_is_read_is_not_retained() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    let stat = rustix::fs::stat("/proc/self/maps").unwrap();
    let dev = rustix::fs::major(stat.st_dev) << 20 | rustix::fs::minor(stat.st_dev);
    let identity = Identity { dev, ino: stat.st_ino };
    retained.observe(
        &opened(identity, b"/proc/self/maps", table.advance_clock(), 1),
        &table,
        unknown(),
    );
    table.record_change(identity.slot());
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0) && !retained.has(identity));
}

#[test]
fn what_is_never_read_again_does_not_block_for_ever() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
    table.record_change(CODE.slot());
    assert!(retained.is_dirty(&table, unknown(), LATER, 5));
    assert!(retained.is_dirty(&table, unknown(), LATER, 5 + DIRTY_NS_MAX - 1));
    assert!(!retained.is_dirty(&table, unknown(), LATER, 5 + DIRTY_NS_MAX));
}

#[test]
fn what_was_only_sent_is_not_retained() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    let open = opened(CODE, b"/a.css", table.advance_clock(), 1);
    let sent = LookupEvent { kind: EventKind::Sendfile, path: Box::default(), ..open.clone() };
    retained.observe(&open, &table, unknown());
    retained.observe(&sent, &table, unknown());
    table.record_change(CODE.slot());
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
    // But not if another process has read it, too.
    retained.observe(&opened(CODE, b"/a.css", table.clock(), 2), &table, unknown());
    retained.observe(&open, &table, unknown());
    retained.observe(&sent, &table, unknown());
    table.record_change(CODE.slot());
    assert!(retained.is_dirty(&table, unknown(), LATER, 0));
}

#[test]
fn a_change_concerns_only_replies_after_the_first_reading() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    let since = table.advance_clock();
    let open = opened(CODE, b"/a.txt", since, 1);
    retained.observe(&open, &table, unknown());
    table.record_change(CODE.slot());
    assert!(!retained.has_changed(&table, since, open.time_ns - 1));
    assert!(retained.has_changed(&table, since, open.time_ns));
}

/// A file on disk, and its opening as it is there.
fn on_disk(folder: &tempfile::TempDir) -> (std::path::PathBuf, impl Fn(Stamp) -> LookupEvent) {
    use std::os::unix::ffi::OsStrExt;
    let path = folder.path().join("a.php");
    std::fs::write(&path, "old").unwrap();
    let there = path.clone();
    let open = move |clock| {
        let stat = rustix::fs::stat(&there).unwrap();
        let dev = rustix::fs::major(stat.st_dev) << 20 | rustix::fs::minor(stat.st_dev);
        let changed_ns = stat.st_ctime as u64 * 1_000_000_000 + stat.st_ctime_nsec as u64;
        let identity = Identity { dev, ino: stat.st_ino };
        let stillness = Stillness { asked: true, ..Stillness::default() };
        LookupEvent {
            changed_ns,
            stillness,
            ..opened(identity, there.as_os_str().as_bytes(), clock, 1)
        }
    };
    (path, open)
}

/// The kernel stamps a file that is made shorter before it moves its change time, and again when
/// that is done.
#[test]
fn a_change_that_has_a_stamp_before_it_has_a_time_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    let (path, open) = on_disk(&folder);
    let identity = open(Stamp(0)).inode.unwrap();
    retained.observe(&open(table.advance_clock()), &table, unknown());
    let since = table.advance_clock();
    table.record_change(identity.slot());
    assert!(
        !retained.has_changed(&table, since, u64::MAX)
            && !retained.is_dirty(&table, unknown(), LATER, 0)
    );
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(&path, "new").unwrap();
    table.record_change(identity.slot());
    assert!(
        retained.has_changed(&table, since, u64::MAX)
            && retained.is_dirty(&table, unknown(), LATER, 0)
    );
}

#[test]
fn a_reading_that_moves_the_access_time_is_a_reading() {
    let folder = tempfile::tempdir().unwrap();
    for is_late in [false, true] {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let (path, open) = on_disk(&folder);
        let identity = open(Stamp(0)).inode.unwrap();
        retained.observe(&open(table.advance_clock()), &table, unknown());
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, "new").unwrap();
        table.record_change(identity.slot());
        assert!(retained.is_dirty(&table, unknown(), LATER, 0));
        let read_ns = if is_late { DIRTY_NS_MAX } else { 10 * OPENING_NS };
        let reading = LookupEvent { time_ns: read_ns, ..open(table.advance_clock()) };
        table.record_change(identity.slot());
        retained.observe(&reading, &table, unknown());
        assert_eq!(retained.take_renewed(), is_late);
        assert!(retained.is_dirty(&table, unknown(), read_ns - 1, read_ns));
        assert!(!retained.is_dirty(&table, unknown(), read_ns + OPENING_NS, read_ns));
    }
}

#[test]
fn what_was_read_while_somebody_wrote_it_is_dirty_until_it_is_read_again() {
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    let stillness = Stillness { being_written: true, ..Stillness::default() };
    let open =
        |clock: Stamp, stillness| LookupEvent { stillness, ..opened(CODE, b"/a.php", clock, 1) };
    retained.observe(&open(table.advance_clock(), stillness), &table, unknown());
    assert!(
        retained.is_dirty(&table, unknown(), LATER, 0)
            && retained.is_dirty(&table, unknown(), LATER, DIRTY_NS_MAX - 1)
    );
    assert!(!retained.is_dirty(&table, unknown(), LATER, DIRTY_NS_MAX));
    // It is waited for anew.
    let again = open(table.advance_clock(), stillness);
    retained.observe(&again, &table, unknown());
    assert!(retained.is_dirty(&table, unknown(), LATER, DIRTY_NS_MAX));
    let settled = open(table.advance_clock(), Stillness::default());
    retained.observe(&settled, &table, unknown());
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
    assert!(retained.is_dirty(&table, unknown(), settled.time_ns, 0));
    // What is read for each request although nothing is told of it is not kept.
    for _ in 0..=VOLATILE_CHANGES {
        assert!(
            !retained.is_dirty(&table, unknown(), LATER, 0)
                || retained.files[&Key { identity: CODE, path: None }].unsettled
        );
        retained.observe(&open(table.advance_clock(), stillness), &table, unknown());
    }
    assert!(!retained.is_dirty(&table, unknown(), LATER, 0));
}

fn resolver() -> Resolver {
    Resolver::new(crate::Coverage { ext4: true, ..Default::default() })
}

fn look(table: &RevisionTable) -> Look {
    Look { clock: table.advance_clock(), resolver: resolver() }
}

/// An overlay with `a.php` in its lower layer, in a mount namespace of the test's own.
struct OnOverlay {
    folder: tempfile::TempDir,
    table: std::sync::Arc<RevisionTable>,
}

impl OnOverlay {
    fn new() -> Self {
        crate::ground::own_mounts();
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("lower/a.php"), "old").unwrap();
        let path = folder.path().display();
        let options = format!("lowerdir={path}/lower,upperdir={path}/upper,workdir={path}/work");
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount(
            "overlay",
            folder.path().join("merged"),
            "overlay",
            flags,
            Some(options.as_c_str()),
        )
        .unwrap();
        Self { folder, table: RevisionTable::on_heap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// The server opens the file now, long after it was changed.
    fn open(&self) -> LookupEvent {
        self.open_name("merged/a.php")
    }

    fn open_name(&self, name: &str) -> LookupEvent {
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::fs::MetadataExt;
        std::thread::sleep(std::time::Duration::from_millis(150));
        let path = self.path(name);
        let file = std::fs::File::open(&path).unwrap();
        let ino = crate::resolve::layers::inode_number(&file).unwrap();
        let dev = self.path("merged").metadata().unwrap().dev();
        let dev = rustix::fs::major(dev) << 20 | rustix::fs::minor(dev);
        let stat = file.metadata().unwrap();
        let clock = self.table.advance_clock();
        LookupEvent {
            time_ns: nicache_clock::monotonic_ns(),
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            changed_ns: stat.ctime() as u64 * 1_000_000_000 + stat.ctime_nsec() as u64,
            on_overlay: true,
            ..opened(Identity { dev, ino }, path.as_os_str().as_bytes(), clock, 1)
        }
    }

    /// Is what was opened dirty, once it has been looked at?
    fn is_dirty(&self, retained: &mut Retained) -> bool {
        retained.verify(&mut || look(&self.table), &self.table);
        // What has changed on the way shows at the first look, and is looked at behind it.
        let _ = retained.is_dirty(&self.table, unknown(), LATER, 0);
        retained.verify(&mut || look(&self.table), &self.table);
        retained.is_dirty(&self.table, unknown(), LATER, 0)
    }

    fn change(&self, name: &str) {
        use std::os::unix::fs::MetadataExt;
        let stat = self.path(name).metadata().unwrap();
        let dev = rustix::fs::major(stat.dev()) << 20 | rustix::fs::minor(stat.dev());
        self.table.record_change(Identity { dev, ino: stat.ino() }.slot());
        self.table.advance_clock();
    }
}

/// All was told before the opening, and took effect after it.
#[test]
fn a_file_that_is_copied_up_right_after_the_server_opened_it_is_dirty() {
    let overlay = OnOverlay::new();
    let opening = overlay.open();
    let mut retained = Retained::default();
    retained.observe(&opening, &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    std::fs::File::options().write(true).open(overlay.path("merged/a.php")).unwrap();
    let mut retained = Retained::default();
    retained.observe(&opening, &overlay.table, unknown());
    assert!(overlay.is_dirty(&mut retained));
    retained.observe(&overlay.open(), &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
}

/// Of many files that are looked at together the first is behind the lock of its directory before
/// somebody has another one copied up: that is told, and is there only when all have been looked
/// at.
#[test]
fn a_file_that_is_copied_up_while_others_are_looked_at_has_changed() {
    let overlay = OnOverlay::new();
    std::fs::write(overlay.path("lower/b.php"), "old").unwrap();
    let (first, opening) = (overlay.open_name("merged/b.php"), overlay.open());
    let mut retained = Retained::default();
    retained.observe(&opening, &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    let asked = overlay.table.advance_clock();
    let has_changed = |retained: &mut Retained| retained.has_changed(&overlay.table, asked, LATER);
    // Another file's name comes into the directory.
    overlay.change("upper");
    assert!(has_changed(&mut retained));
    // The first file is looked at, and then comes the first half of a copy's coming.
    let mut begun = look(&overlay.table);
    begun.resolver.resolve(&first).unwrap();
    overlay.change("upper");
    let mut begun = Some(begun);
    // A new look waits for the other half behind the directory's lock.
    let mut begin = || {
        begun.take().unwrap_or_else(|| {
            std::fs::write(overlay.path("merged/a.php"), "new").unwrap();
            look(&overlay.table)
        })
    };
    retained.verify(&mut begin, &overlay.table);
    let text = std::fs::read_to_string(overlay.path("merged/a.php")).unwrap();
    assert_eq!(text, "new", "there was a second look");
    assert!(has_changed(&mut retained));
    // Looked at once more, it is another file.
    assert!(overlay.is_dirty(&mut retained) && has_changed(&mut retained));
}

/// Other names come into a directory on the way while files are looked at, as in that for temporary
/// files: what has not changed is found not to have all the same.
#[test]
fn a_change_on_the_way_while_files_are_looked_at_is_looked_at_at_once() {
    let overlay = OnOverlay::new();
    let mut retained = Retained::default();
    retained.observe(&overlay.open(), &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    let asked = overlay.table.advance_clock();
    overlay.change("upper");
    assert!(retained.has_changed(&overlay.table, asked, LATER));
    let mut looks = 0;
    let mut begin = || {
        looks += 1;
        let look = look(&overlay.table);
        if looks == 1 {
            overlay.change("upper");
        }
        look
    };
    retained.verify(&mut begin, &overlay.table);
    assert_eq!((looks, retained.has_changed(&overlay.table, asked, LATER)), (2, false));
}

#[test]
fn a_device_may_be_another_after_a_mount() {
    let table = RevisionTable::on_heap();
    table.advance_clock();
    let mut retained = Retained::default();
    // There was something by this number whose files are made up.
    retained.generated.insert(DISK, true);
    retained.observe(&opened(CODE, b"/a.php", table.clock(), 1), &table, unknown());
    assert!(!retained.has(CODE));
    table.record_change(SourceSlot::MOUNTS);
    retained.observe(&opened(CODE, b"/a.php", table.advance_clock(), 1), &table, unknown());
    assert!(retained.has(CODE));
}

fn identity_of(path: &Path) -> Identity {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).unwrap();
    let dev = (rustix::fs::major(file.dev()) << 20) | rustix::fs::minor(file.dev());
    Identity { dev, ino: file.ino() }
}

#[test]
fn what_is_mounted_over_a_file_changes_it_and_what_is_mounted_elsewhere_does_not() {
    crate::ground::own_mounts();
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    for name in ["code", "elsewhere"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("code/a.php");
    std::fs::write(&path, "old").unwrap();
    let identity = identity_of(&path);
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let table = RevisionTable::on_heap();
    table.advance_clock();
    let mut retained = Retained::default();
    let see = |retained: &mut Retained| {
        let since = table.advance_clock();
        retained.see_mounts(&mut resolver(), &table);
        table.stamp_of(identity.slot()) >= since
    };
    // Nobody can be asked where the paths start.
    let read = opened(identity, path.as_os_str().as_encoded_bytes(), table.clock(), 1);
    let nobody = u32::MAX >> 1;
    retained.observe(&LookupEvent { tgid: nobody, tid: nobody, ..read.clone() }, &table, unknown());
    let everything = table.stamp_of(SourceSlot::EVERYTHING);
    see(&mut retained);
    assert!(table.stamp_of(SourceSlot::EVERYTHING) > everything);
    retained.observe(&LookupEvent { tgid: thread, tid: thread, ..read }, &table, unknown());
    let mount = |name: &str| {
        let (place, flags) = (folder.path().join(name), rustix::mount::MountFlags::empty());
        rustix::mount::mount("none", place, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
    };
    mount("elsewhere");
    assert!(!see(&mut retained));
    mount("code");
    assert!(see(&mut retained));
    // Once: it is known by then.
    assert!(!see(&mut retained));
    for name in ["code", "elsewhere"] {
        rustix::mount::unmount(folder.path().join(name), rustix::mount::UnmountFlags::DETACH)
            .unwrap();
    }
    assert!(!see(&mut retained));
}

/// A pool without a process at rest has read files that were not changed lately.
#[test]
fn a_mount_is_looked_at_with_who_has_started_the_readers() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("a.php");
    std::fs::write(&path, "text").unwrap();
    let identity = identity_of(&path);
    let table = RevisionTable::on_heap();
    let mut retained = Retained::default();
    for _ in 0..2 {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let read = LookupEvent {
            tgid: child.id(),
            tid: child.id(),
            changed_ns: 1,
            time_ns: nicache_clock::monotonic_ns(),
            ..opened(identity, path.as_os_str().as_bytes(), table.advance_clock(), 1)
        };
        retained.observe(&read, &table, unknown());
        assert!(retained.has_new());
        retained.verify(&mut || look(&table), &table);
        assert!(!retained.has_new());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let everything = table.stamp_of(SourceSlot::EVERYTHING);
    retained.see_mounts(&mut resolver(), &table);
    assert_eq!(table.stamp_of(SourceSlot::EVERYTHING), everything);
}

/// In the lower layer they are one file, and share a number on the overlay; each gets a copy of its
/// own.
#[test]
fn names_of_one_file_in_a_lower_layer_are_followed_each_by_itself() {
    let overlay = OnOverlay::new();
    let mut retained = Retained::default();
    std::fs::create_dir(overlay.path("lower/b")).unwrap();
    std::fs::hard_link(overlay.path("lower/a.php"), overlay.path("lower/b/b.php")).unwrap();
    let (one, other) = (overlay.open(), overlay.open_name("merged/b/b.php"));
    assert_eq!(one.inode, other.inode);
    retained.observe(&other, &overlay.table, unknown());
    retained.observe(&one, &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    std::fs::write(overlay.path("merged/b/b.php"), "new").unwrap();
    overlay.change("upper");
    assert!(overlay.is_dirty(&mut retained));
    // To read the other one again says nothing of this.
    retained.observe(&overlay.open(), &overlay.table, unknown());
    assert!(overlay.is_dirty(&mut retained));
}

/// It is asked how another process finds the file.
#[test]
fn a_process_that_is_gone_leaves_what_it_has_read() {
    let overlay = OnOverlay::new();
    let gone = LookupEvent { tid: u32::MAX >> 1, tgid: u32::MAX >> 1, ..overlay.open() };
    let mut retained = Retained::default();
    retained.observe(&overlay.open(), &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    let mut later =
        Retained { askable: std::mem::take(&mut retained.askable), ..Retained::default() };
    later.observe(&gone, &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut later));
    std::fs::write(overlay.path("merged/a.php"), "new").unwrap();
    overlay.change("upper");
    assert!(overlay.is_dirty(&mut later));
}

/// Nobody else has opened anything: whoever has started it is asked.
#[test]
fn what_is_gone_at_once_is_known_by_who_has_started_it() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("a.php");
    std::fs::write(&path, "new").unwrap();
    let stat = std::fs::metadata(&path).unwrap();
    let dev = rustix::fs::major(stat.dev()) << 20 | rustix::fs::minor(stat.dev());
    let identity = Identity { dev, ino: stat.ino() };
    let table = RevisionTable::on_heap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let process = child.id();
    let open = |table: &RevisionTable| LookupEvent {
        tgid: process,
        tid: process,
        changed_ns: stat.ctime() as u64 * 1_000_000_000 + stat.ctime_nsec() as u64,
        time_ns: nicache_clock::monotonic_ns(),
        ..opened(identity, path.as_os_str().as_bytes(), table.advance_clock(), 1)
    };
    let mut retained = Retained::default();
    let mut is_dirty = || {
        retained.observe(&open(&table), &table, unknown());
        assert!(retained.has_new());
        retained.verify(&mut || look(&table), &table);
        retained.is_dirty(&table, unknown(), LATER, 0)
    };
    assert!(!is_dirty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_dirty());
    std::fs::rename(&path, folder.path().join("b.php")).unwrap();
    assert!(is_dirty());
}

/// The path of its lower layer leads to the overlay itself.
#[test]
fn an_overlay_that_hides_its_own_layer_is_not_vouched_for() {
    let overlay = OnOverlay::new();
    let lower = overlay.path("lower");
    let path = overlay.folder.path().display();
    std::fs::create_dir(overlay.path("upper2")).unwrap();
    std::fs::create_dir(overlay.path("work2")).unwrap();
    let options = format!("lowerdir={path}/lower,upperdir={path}/upper2,workdir={path}/work2");
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("overlay", &lower, "overlay", flags, Some(options.as_c_str())).unwrap();
    let event = LookupEvent {
        path: lower.join("a.php").to_str().unwrap().as_bytes().into(),
        ..overlay.open()
    };
    let coverage = crate::Coverage { ext4: true, ..Default::default() };
    let walk = Resolver::new(coverage).resolve(&event).unwrap();
    assert!(!walk.watched && !walk.found().unwrap().is_watched());
}

/// For how long the file had been changed when it was opened.
fn opening_delay_ns(opening: &LookupEvent) -> u64 {
    nicache_clock::unix_ns() - opening.changed_ns
}

/// The server opens it between two changes that the kernel's clock does not tell apart.
#[test]
fn a_second_change_with_the_same_time_on_an_overlay_is_seen() {
    let overlay = OnOverlay::new();
    // In one layer only.
    std::fs::write(overlay.path("merged/c.php"), "half").unwrap();
    let opening = overlay.open_name("merged/c.php");
    let opening = LookupEvent { time_ns: opening.time_ns - opening_delay_ns(&opening), ..opening };
    let mut retained = Retained::default();
    retained.observe(&opening, &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    // Something else in its folder says nothing of it.
    std::fs::write(overlay.path("merged/b.php"), "other").unwrap();
    overlay.change("upper");
    assert!(!overlay.is_dirty(&mut retained));
    // Its time is as it was.
    overlay.change("upper/c.php");
    assert!(overlay.is_dirty(&mut retained));
}

#[test]
fn what_changes_on_the_way_to_a_file_on_an_overlay_is_looked_at() {
    let overlay = OnOverlay::new();
    let mut retained = Retained::default();
    retained.observe(&overlay.open(), &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    // Another name in its folder, and then its copy.
    std::fs::write(overlay.path("merged/b.php"), "new").unwrap();
    overlay.change("upper");
    assert!(!overlay.is_dirty(&mut retained));
    std::fs::write(overlay.path("merged/a.php"), "new").unwrap();
    overlay.change("upper");
    assert!(overlay.is_dirty(&mut retained));
    retained.observe(&overlay.open(), &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    // In place.
    std::fs::write(overlay.path("merged/a.php"), "newer").unwrap();
    overlay.change("upper/a.php");
    assert!(overlay.is_dirty(&mut retained));
    retained.observe(&overlay.open(), &overlay.table, unknown());
    assert!(!overlay.is_dirty(&mut retained));
    std::fs::remove_file(overlay.path("merged/a.php")).unwrap();
    overlay.change("upper");
    assert!(overlay.is_dirty(&mut retained));
}

#[test]
fn data_that_changes_all_the_time_is_not_retained() {
    for (reads_per_change, gap_ns, is_fresh, is_kept) in [
        (1, REREAD_NS, false, true),
        (2, REREAD_NS - 1, false, true),
        (2, REREAD_NS, false, false),
        (2, REREAD_NS, true, true),
    ] {
        let table = RevisionTable::on_heap();
        let mut retained = Retained::default();
        let mut now_ns = 0;
        for _ in 0..=VOLATILE_CHANGES {
            for _ in 0..reads_per_change {
                now_ns += gap_ns;
                let event = opened(CODE, b"/data", table.advance_clock(), 1);
                // Of the year 2100, or of 1970.
                let changed_ns = if is_fresh { 4_102_444_800_000_000_000 } else { 1 };
                retained.observe(
                    &LookupEvent { time_ns: now_ns, changed_ns, ..event },
                    &table,
                    unknown(),
                );
            }
            table.record_change(CODE.slot());
        }
        assert_eq!(retained.is_dirty(&table, unknown(), LATER, now_ns), is_kept);
        assert_eq!(retained.has_changed(&table, Stamp(0), u64::MAX), is_kept);
    }
}
