//! May a reply become an entry?

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nicache_coherence::{FILL_REQUEST_BYTES_MAX, FillRequest, FillVerdict, RefusalReason, Verdict};
use nicache_watch::Witness;

use crate::common::{
    Directories, ServerProcess, ServerThread, directory_on_ext4, slot, wait_for_its_end,
};
use crate::scene::{Forwarded, Scene, assert_refused, assert_stored, chain};

#[test]
fn a_file_that_was_opened_and_sent_is_stored_with_its_whole_path() {
    let mut scene = Scene::new();
    let page = scene.write("site/page", b"hello");
    let verdict = scene.fill(&page);
    assert_stored(&verdict, &chain(&page));
    let Verdict::Stored { sources, .. } = verdict else { unreachable!() };
    assert!(sources.as_slice().iter().all(|&slot| scene.table.is_watched(slot)));
    assert_eq!(scene.registrar.counters().stored, 1);
}

#[test]
fn a_relative_path_and_one_below_a_descriptor_start_where_the_server_started() {
    let mut scene = Scene::new();
    let page = scene.write("site/deep/page", b"hello");
    let directory = Arc::new(File::open(scene.path("site")).unwrap());
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let read_below = |directory: Arc<File>, path: &'static str| {
        move || {
            let flags = rustix::fs::OFlags::RDONLY;
            let page =
                rustix::fs::openat(&directory, path, flags, rustix::fs::Mode::empty()).unwrap();
            // The last to hold it closes it.
            drop(directory);
            let mut body = Vec::new();
            File::from(page).read_to_end(&mut body).unwrap();
            body
        }
    };
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let body = scene.server.run(read_below(directory.clone(), "deep/./../deep/page"));
        scene.judge(&forwarded, &body, Some(modified))
    });
    assert_stored(
        &verdict,
        &[slot(&page), slot(page.parent().unwrap()), slot(&scene.path("site"))],
    );

    // Closed before the judgement: nobody knows any more where the path started.
    let forwarded = scene.forward();
    let body = scene.server.run(read_below(directory, "deep/page"));
    assert_refused(&scene.judge(&forwarded, &body, Some(modified)), RefusalReason::Io);
}

/// By which path it was opened is known, and holds as long as that leads there.
#[test]
fn a_descriptor_that_the_server_has_opened_and_closed_starts_where_it_was_opened() {
    fn open_folder(path: &Path) -> rustix::fd::OwnedFd {
        use rustix::fs::OFlags;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
    }
    fn open_below(folder: &rustix::fd::OwnedFd, name: &str) -> rustix::io::Result<File> {
        use rustix::fs::OFlags;
        rustix::fs::openat(folder, name, OFlags::RDONLY, rustix::fs::Mode::empty()).map(File::from)
    }
    fn read(mut page: File) -> Vec<u8> {
        let mut body = Vec::new();
        page.read_to_end(&mut body).unwrap();
        body
    }
    let mut scene = Scene::new();
    let page = scene.write("site/deep/page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let site = scene.path("site");
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let site = site.clone();
        let body = scene.server.run(move || {
            let site = open_folder(&site);
            let deep = open_below(&site, "deep").unwrap();
            read(open_below(&deep.into(), "page").unwrap())
        });
        scene.judge(&forwarded, &body, Some(modified))
    });
    assert_stored(&verdict, &[slot(&page), slot(page.parent().unwrap()), slot(&site)]);

    // Another folder has its name: what is missing below the old one may come there unseen.
    let opened = {
        let site = site.clone();
        scene.server.run(move || open_folder(&site))
    };
    fs::rename(&site, scene.path("old")).unwrap();
    let page = scene.write("site/deep/page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let opened = Arc::new(opened);
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let (page, opened) = (page.clone(), opened.clone());
        let body = scene.server.run(move || {
            let folder = opened.try_clone().unwrap();
            open_below(&folder, "missing").unwrap_err();
            read(File::open(page).unwrap())
        });
        scene.judge(&forwarded, &body, Some(modified))
    });
    assert_refused(&verdict, RefusalReason::Io);
}

#[test]
fn a_thread_that_has_ended_looked_up_as_its_process_does() {
    let server = ServerProcess::start();
    let netns = server.netns;
    let mut scene = Scene::of(server, netns);
    let page = scene.write("site/page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let body = scene.server.serve_by_a_thread_that_ends(&page, Directories::OfTheProcess);
        scene.judge(&forwarded, &body, Some(modified))
    });
    assert_stored(&verdict, &chain(&page));

    // One with directories of its own cannot be asked for them any longer.
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let body = scene.server.serve_by_a_thread_that_ends(&page, Directories::Own);
        // That it has its own is a change of everything.
        let forwarded = Forwarded { stamp: scene.table.advance_clock(), ..forwarded };
        scene.judge(&forwarded, &body, Some(modified))
    });
    assert_refused(&verdict, RefusalReason::Io);
}

#[test]
fn a_process_outside_is_not_asked_what_its_ended_thread_looked_up() {
    // Only this thread of the test is in the server's network namespace: that the process moves its
    // root would not be noticed.
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let path = page.clone();
        let (tid, body) = scene.server.run(move || {
            // SAFETY: gettid has no preconditions.
            std::thread::spawn(move || (unsafe { libc::gettid() }, fs::read(path).unwrap()))
                .join()
                .unwrap()
        });
        wait_for_its_end(std::process::id(), tid);
        scene.judge(&forwarded, &body, Some(modified))
    });
    assert_refused(&verdict, RefusalReason::Io);
}

#[test]
fn the_directories_of_symbolic_links_are_sources() {
    let mut scene = Scene::new();
    let page = scene.write("releases/2/page", b"hello");
    fs::create_dir(scene.path("links")).unwrap();
    std::os::unix::fs::symlink("../releases/2", scene.path("links/current")).unwrap();
    std::os::unix::fs::symlink(scene.path("links/current/"), scene.path("docroot")).unwrap();
    let verdict = scene.fill(&scene.path("docroot/page"));
    let mut expected = chain(&page);
    expected.push(slot(&scene.path("links")));
    assert_stored(&verdict, &expected);
}

#[test]
fn another_body_another_date_and_no_date_are_refused() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let forwarded = scene.forward();
    scene.serve(&page);
    assert_refused(
        &scene.judge(&forwarded, b"HELLO", Some(modified)),
        RefusalReason::NoMatchingFile,
    );
    assert_refused(
        &scene.judge(&forwarded, b"hello!", Some(modified)),
        RefusalReason::NoMatchingFile,
    );
    assert_refused(
        &scene.judge(&forwarded, b"hello", Some(modified + 1)),
        RefusalReason::ModifiedMismatch,
    );
    assert_refused(&scene.judge(&forwarded, b"hello", None), RefusalReason::ModifiedMismatch);
    assert_refused(&scene.judge(&forwarded, b"", Some(modified)), RefusalReason::EmptyBody);
    assert_stored(&scene.fill(&page), &chain(&page));
}

#[test]
fn a_server_that_looks_nothing_up_is_not_trusted() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let held = File::open(&page).unwrap();
    let forwarded = scene.forward();
    let body = scene.server.run(move || {
        let mut body = vec![0; 5];
        held.read_exact_at(&mut body, 0).unwrap();
        body
    });
    let verdict = scene.judge(&forwarded, &body, Some(fs::metadata(&page).unwrap().mtime() as u64));
    assert_refused(&verdict, RefusalReason::NotLookedUp);
}

/// Another access control list: mode and owner stay, with what group and others may do (POSIX
/// 1003.1e draft 17, as in linux/posix_acl_xattr.h). Each is another one.
fn access_list() -> Vec<u8> {
    static USER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let user = USER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let nobody = u32::MAX;
    // Owner, a user, group, mask, others.
    let entries = [(1, 6, nobody), (2, 4, user), (4, 0, nobody), (16, 4, nobody), (32, 4, nobody)];
    let mut list = 2u32.to_le_bytes().to_vec();
    entries.iter().for_each(|&(tag, permissions, id)| list.extend(entry(tag, permissions, id)));
    list
}

/// Sets an access list by a descriptor.
pub(crate) fn set_list(page: &Path) {
    let file = File::open(page).unwrap();
    rustix::fs::fsetxattr(
        file,
        "system.posix_acl_access",
        &access_list(),
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
}

/// Sets an access list by the path.
pub(crate) fn set_list_by_path(page: &Path) {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(page, "system.posix_acl_access", &access_list(), flags).unwrap();
}

/// Sets an access list through io_uring, which tells of its end or not.
pub(crate) fn set_list_by_uring(page: &Path, flags: io_uring::squeue::Flags) {
    use io_uring::{IoUring, opcode};
    let (path, list) =
        (std::ffi::CString::new(page.as_os_str().as_encoded_bytes()).unwrap(), access_list());
    let name = c"system.posix_acl_access";
    let set = opcode::SetXattr::new(
        name.as_ptr(),
        list.as_ptr().cast(),
        path.as_ptr(),
        list.len() as u32,
    );
    let mut ring = IoUring::new(8).unwrap();
    // SAFETY: name, list and path outlive the wait below.
    unsafe { ring.submission().push(&set.build().flags(flags)).unwrap() };
    ring.submit().unwrap();
    let mut is_set = || {
        let failed = ring.completion().next().is_some_and(|completion| completion.result() < 0);
        assert!(!failed, "the list cannot be set");
        let mut now = [0; 64];
        let len = rustix::fs::getxattr(page, "system.posix_acl_access", &mut now[..]);
        len.is_ok_and(|len| now[..len] == *list).then_some(())
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while is_set().is_none() {
        assert!(std::time::Instant::now() < deadline, "the list is not set");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A file that the server has open and only looks for is kept as long as nothing has changed of who
/// may read it.
#[test]
fn a_file_that_is_held_open_is_kept_while_the_server_could_open_it_again() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let held = Arc::new(File::open(&page).unwrap());
    let mut look = |before: &dyn Fn(&Scene, &Path)| {
        // Another test may mount something, which counts as a change of all access control lists.
        (0..50)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                fs::set_permissions(&page, fs::Permissions::from_mode(0o644)).unwrap();
                before(&scene, &page);
                let forwarded = scene.forward();
                let (path, held) = (page.clone(), held.clone());
                let (body, modified) = scene.server.run(move || {
                    let mut body = vec![0; 5];
                    held.read_exact_at(&mut body, 0).unwrap();
                    (body, fs::metadata(path).unwrap().mtime())
                });
                scene.judge(&forwarded, &body, Some(modified as u64))
            })
            .find(|verdict| *verdict != Verdict::Refused(RefusalReason::Changed))
    };
    let refused = Some(Verdict::Refused(RefusalReason::NotLookedUp));
    // Somebody else has opened it.
    assert_eq!(look(&|_, page| drop(fs::read(page).unwrap())), refused);
    let open = |scene: &Scene, page: &Path| drop(scene.serve(page));
    // The same mount makes a file that was opened before it one that was not looked up.
    let mut is_stored = |before: &dyn Fn(&Scene, &Path)| {
        (0..20).any(|_| matches!(look(before), Some(Verdict::Stored { .. })))
    };
    assert!(is_stored(&open));
    assert!(is_stored(&|scene, page| {
        open(scene, page);
        fs::write(page, b"hello").unwrap();
    }));
    for (number, change) in [
        |page: &Path| fs::set_permissions(page, fs::Permissions::from_mode(0o600)).unwrap(),
        |page: &Path| std::os::unix::fs::chown(page, Some(1), None).unwrap(),
        |page: &Path| std::os::unix::fs::chown(page, None, Some(1)).unwrap(),
        |page: &Path| set_list(page),
        |page: &Path| set_list_by_uring(page, io_uring::squeue::Flags::empty()),
        |page: &Path| set_list_by_uring(page, io_uring::squeue::Flags::SKIP_SUCCESS),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            look(&|scene, page| {
                open(scene, page);
                change(page);
            }),
            refused,
            "change {number}"
        );
        std::os::unix::fs::chown(&page, Some(0), Some(0)).unwrap();
        let _ = rustix::fs::removexattr(&page, "system.posix_acl_access");
    }
    // To look at a file by a descriptor that gives no right to read it is not to open it.
    let by_path_alone = |scene: &Scene, page: &Path| {
        fs::set_permissions(page, fs::Permissions::from_mode(0o640)).unwrap();
        let page = page.to_owned();
        let flags = rustix::fs::OFlags::PATH;
        scene
            .server
            .run(move || drop(rustix::fs::open(page, flags, rustix::fs::Mode::empty()).unwrap()));
    };
    assert_eq!(look(&by_path_alone), refused);
}

#[test]
fn a_change_after_the_forward_is_refused() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let changes: [fn(&Path); 3] = [
        |page| fs::write(page.with_file_name("sibling"), "x").unwrap(),
        |page| fs::rename(page, page.with_file_name("away")).unwrap(),
        |page| fs::remove_file(page.with_file_name("away")).unwrap(),
    ];
    for change in changes {
        if !page.exists() {
            fs::copy(page.with_file_name("away"), &page).unwrap();
        }
        let modified = fs::metadata(&page).unwrap().mtime() as u64;
        let forwarded = scene.forward();
        scene.serve(&page);
        change(&page);
        assert_refused(&scene.judge(&forwarded, b"hello", Some(modified)), RefusalReason::Changed);
    }
}

#[test]
fn what_changes_before_the_forward_does_not_matter_and_what_changes_later_voids_the_entry() {
    let mut scene = Scene::new();
    scene.write("page", b"HELLO");
    let page = scene.write("page", b"hello");
    // Blocks are allocated a little later, which counts as a change in a file's first minute.
    let mut tries = (0..100).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let forwarded = scene.forward();
        let body = scene.serve(&page);
        let verdict =
            scene.judge(&forwarded, &body, Some(fs::metadata(&page).unwrap().mtime() as u64));
        (forwarded, verdict)
    });
    let (forwarded, verdict) =
        tries.find(|(_, verdict)| matches!(verdict, Verdict::Stored { .. })).unwrap();
    drop(tries);
    let Verdict::Stored { sources, .. } = verdict else { unreachable!() };
    assert!(scene.table.is_unchanged(sources.as_slice(), forwarded.stamp));
    let epoch = scene.table.epoch();
    fs::write(&page, b"HELLO").unwrap();
    assert_ne!(scene.table.epoch(), epoch);
    assert!(!scene.table.is_unchanged(sources.as_slice(), forwarded.stamp));
}

#[test]
fn a_file_open_for_writing_or_mapped_writable_is_refused() {
    let mut scene = Scene::new();
    let page = scene.write("page", &[b'a'; 4096]);
    let writer = OpenOptions::new().read(true).write(true).open(&page).unwrap();
    assert_refused(&scene.fill(&page), RefusalReason::OpenForWriting);
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address =
        unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, &writer, 0) }
            .unwrap();
    drop(writer);
    assert_refused(&scene.fill(&page), RefusalReason::OpenForWriting);
    // SAFETY: mapped above and not used any longer.
    unsafe { munmap(address, 4096) }.unwrap();
    assert_stored(&scene.fill(&page), &[slot(&page)]);
}

#[test]
fn failed_look_ups_make_their_directory_a_source() {
    let mut scene = Scene::new();
    let page = scene.write("site/page", b"hello");
    let elsewhere = scene.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let missing = elsewhere.join("no/such/.htaccess");
        scene.server.run(move || assert!(File::open(missing).is_err()));
        let body = scene.serve(&page);
        scene.judge(&forwarded, &body, Some(fs::metadata(&page).unwrap().mtime() as u64))
    });
    assert_stored(&verdict, &chain(&elsewhere));
    let Verdict::Stored { sources, .. } = verdict else { unreachable!() };
    let epoch = scene.table.epoch();
    fs::create_dir_all(elsewhere.join("no")).unwrap();
    assert_ne!(scene.table.epoch(), epoch);
    assert!(!scene.table.is_unchanged(sources.as_slice(), scene.table.clock()));
}

#[test]
fn a_look_up_that_would_now_succeed_is_refused() {
    let mut scene = Scene::new();
    let page = scene.write("site/page", b"hello");
    let override_file = scene.path("site/.htaccess");
    let forwarded = scene.forward();
    let missing = override_file.clone();
    scene.server.run(move || assert!(fs::metadata(missing).is_err()));
    let body = scene.serve(&page);
    fs::write(&override_file, "Deny from all").unwrap();
    let verdict = scene.judge(&forwarded, &body, Some(fs::metadata(&page).unwrap().mtime() as u64));
    assert_refused(&verdict, RefusalReason::Changed);
}

#[test]
fn other_files_that_were_opened_are_sources_and_equal_files_all_count() {
    let mut scene = Scene::new();
    let page = scene.write("site/page", b"hello");
    let twin = scene.write("twins/twin", b"hello");
    let settings = scene.write("settings", b"option = 1");
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        scene.serve(&settings);
        scene.serve(&twin);
        let body = scene.serve(&page);
        scene.judge(&forwarded, &body, Some(fs::metadata(&page).unwrap().mtime() as u64))
    });
    assert_stored(
        &verdict,
        &[slot(&page), slot(&settings), slot(&twin), slot(&scene.path("twins"))],
    );
}

/// Opens a file and sends it with sendfile, as nginx does.
fn send(path: PathBuf) -> usize {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let file = File::open(path).unwrap();
    let sent = rustix::fs::sendfile(&ours, &file, Some(&mut 0), 1 << 16).unwrap();
    drop(theirs);
    sent
}

#[test]
fn files_sent_as_other_replies_are_no_sources_so_that_many_requests_at_once_can_be_filled() {
    let mut scene = Scene::new();
    let page = scene.write("site/page", b"hello");
    let others: Vec<_> = (0..200)
        .map(|n| scene.write(&format!("site/other-{n}"), format!("other {n}").as_bytes()))
        .collect();
    // Only files whose last change is over for good are told apart.
    std::thread::sleep(std::time::Duration::from_millis(3_100));
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let to_send = others.clone();
        let sent_page = page.clone();
        scene.server.run(move || {
            for path in to_send {
                assert!(send(path) > 0);
            }
            assert_eq!(send(sent_page), 5);
        });
        scene.judge(&forwarded, b"hello", Some(modified))
    });
    assert_stored(&verdict, &chain(&page));
    let Verdict::Stored { sources, .. } = &verdict else { unreachable!() };
    // Beside it there are everything and what is mounted.
    assert!(sources.as_slice().len() <= chain(&page).len() + 2, "{sources:?}");

    // One of them changes: not this entry's business, but this fill cannot tell any more whose
    // bytes it saw.
    let forwarded = scene.forward();
    let (other, sent_page) = (others[0].clone(), page.clone());
    scene.server.run(move || send(other) + send(sent_page));
    fs::write(&others[0], b"hello").unwrap();
    assert!(matches!(scene.judge(&forwarded, b"hello", Some(modified)), Verdict::Refused(_)));

    // Opened, but not sent: a source like any other; and there are too many.
    let forwarded = scene.forward();
    scene.server.run(move || {
        for path in &others {
            File::open(path).unwrap();
        }
    });
    let body = scene.serve(&page);
    assert_refused(&scene.judge(&forwarded, &body, Some(modified)), RefusalReason::TooManySources);
}

#[test]
fn unwatched_file_systems_are_refused_and_harmless_devices_are_not() {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    let in_memory = tempfile::tempdir().unwrap();
    // SAFETY: this thread, and those that it starts, move to a mount namespace of their own; it
    // holds no files.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    mount("ramfs", in_memory.path(), "ramfs", MountFlags::empty(), None).unwrap();
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let unwatched = in_memory.path().join("page");
    fs::write(&unwatched, b"hello").unwrap();
    assert_refused(&scene.fill(&unwatched), RefusalReason::UnwatchedFilesystem);

    let link = in_memory.path().join("link");
    std::os::unix::fs::symlink(&page, &link).unwrap();
    assert_refused(&scene.fill(&link), RefusalReason::UnwatchedFilesystem);

    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let forwarded = scene.forward();
    scene.server.run(|| File::open("/proc/uptime").unwrap());
    scene.serve(&page);
    assert_refused(
        &scene.judge(&forwarded, b"hello", Some(modified)),
        RefusalReason::UnwatchedFilesystem,
    );

    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        scene
            .server
            .run(|| (File::open("/dev/null").unwrap(), File::open("/dev/urandom").unwrap()));
        scene.serve(&page);
        scene.judge(&forwarded, b"hello", Some(modified))
    });
    assert_stored(&verdict, &[slot(&page)]);
}

#[test]
fn lost_or_forgotten_events_are_refused() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let before_the_registrar = Forwarded { at_ns: 1, ..scene.forward() };
    scene.serve(&page);
    assert_refused(
        &scene.judge(&before_the_registrar, b"hello", Some(modified)),
        RefusalReason::EventsLost,
    );

    let forwarded = scene.forward();
    scene.serve(&page);
    scene.table.record_lost();
    assert_refused(&scene.judge(&forwarded, b"hello", Some(modified)), RefusalReason::EventsLost);
}

#[test]
fn a_full_ring_is_counted_and_the_fill_refused() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let forwarded = scene.forward();
    let busy = page.clone();
    scene.server.run(move || {
        for _ in 0..50_000 {
            fs::metadata(&busy).unwrap();
        }
    });
    assert!(scene.table.lost() > forwarded.lost);
    scene.serve(&page);
    assert_refused(&scene.judge(&forwarded, b"hello", Some(modified)), RefusalReason::EventsLost);
    assert_stored(&scene.fill(&page), &chain(&page));
}

#[test]
fn the_change_time_of_a_file_that_is_open_for_writing_tells_nothing() {
    let root = directory_on_ext4();
    let server = ServerThread::start();
    let watcher = crate::common::load(server.netns).unwrap();
    let mut witness = watcher.witness().unwrap();
    let path = root.path().join("script");
    fs::write(&path, "1").unwrap();
    let mut read = |path: &PathBuf, writes: bool| {
        let opened = path.clone();
        server.run(move || drop(OpenOptions::new().read(true).write(writes).open(opened).unwrap()));
        let mut changed_ns = None;
        let ino = fs::metadata(path).unwrap().ino();
        witness.drain(&mut |event| {
            if event.inode.is_some_and(|inode| inode.ino == ino) {
                changed_ns = Some(event.changed_ns);
            }
        });
        changed_ns.unwrap()
    };
    let time = |path: &PathBuf| {
        let stat = fs::metadata(path).unwrap();
        stat.ctime() as u64 * 1_000_000_000 + stat.ctime_nsec() as u64
    };
    for writes in [false, true] {
        assert_eq!(read(&path, writes), time(&path));
        let writer = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(read(&path, writes), 0);
        drop(writer);
        assert_eq!(read(&path, writes), time(&path));
    }
}

/// A program beside the server that writes all the time.
struct Writer(std::process::Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// On a machine's own network: what others do has decided nothing, also after events were lost.
#[test]
fn neighbors_decide_nothing_after_a_loss() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let log = scene.path("log");
    scene.registrar.handle_older_server();
    let script = format!("exec 3<>{0}; while :; do echo >&3; done", log.display());
    let start =
        move || std::process::Command::new("sh").args(["-c", script.as_str()]).spawn().unwrap();
    let _writer = Writer(scene.server.run(start));
    while fs::metadata(&log).map_or(0, |log| log.len()) == 0 {
        std::thread::yield_now();
    }
    let slots = chain(&page);
    assert_stored(&scene.fill(&page), &slots);
    scene.table.record_lost();
    assert_stored(&scene.fill(&page), &slots);
}

#[test]
fn a_server_with_io_uring_is_never_trusted() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    assert_stored(&scene.fill(&page), &[slot(&page)]);
    // Libraries look whether the kernel has it, and containers forbid it.
    scene.server.run(|| assert!(io_uring::IoUring::new(0).is_err()));
    assert_stored(&scene.fill(&page), &[slot(&page)]);
    let ask = |request: io_uring::squeue::Entry| {
        let mut ring = io_uring::IoUring::new(2).unwrap();
        // SAFETY: what the request refers to is static.
        unsafe { ring.submission().push(&request).unwrap() };
        ring.submit_and_wait(1).unwrap();
        ring.completion().next().unwrap().result()
    };
    if !crate::common::expects_stops() {
        scene.server.run(move || ask(io_uring::opcode::Nop::new().build()));
        assert_stored(&scene.fill(&page), &[slot(&page)]);
    }
    let path = c"/dev/null".as_ptr();
    let open = io_uring::opcode::OpenAt::new(io_uring::types::Fd(libc::AT_FDCWD), path).build();
    scene.server.run(move || assert!(ask(open) >= 0));
    assert_refused(&scene.fill(&page), RefusalReason::Unseen);
}

/// Opens what a handle stands for, on the file system that `page` is on.
fn open_by_handle(page: &Path, handle: &[u8; 136]) -> std::io::Result<File> {
    let mount = File::open(page)?;
    // SAFETY: the handle says how long it is, and outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            handle.as_ptr(),
            libc::O_RDONLY,
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a descriptor that nobody else has.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[test]
fn a_server_that_opens_by_handles_is_never_trusted() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    // struct file_handle: how long, of which kind, and what.
    let mut handle = [0_u8; 136];
    handle[..4].copy_from_slice(&128_u32.to_ne_bytes());
    let path = std::ffi::CString::new(page.as_os_str().as_encoded_bytes()).unwrap();
    let mut mount = 0;
    // SAFETY: path, handle and mount outlive the call, and the handle says how long it is.
    let named = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &raw mut mount,
            0,
        )
    };
    assert_eq!(named, 0);
    // A handle of nothing.
    let elsewhere = page.clone();
    scene.server.run(move || open_by_handle(&elsewhere, &[0; 136]).unwrap_err());
    assert_stored(&scene.fill(&page), &[slot(&page)]);
    let opened = page.clone();
    scene.server.run(move || open_by_handle(&opened, &handle).unwrap());
    assert_refused(&scene.fill(&page), RefusalReason::Unseen);
}

#[test]
fn a_change_of_the_servers_directory_voids_everything() {
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let forwarded = scene.forward();
    scene.serve(&page);
    let here = scene.path("");
    scene.server.run(move || {
        // A process that can be asked for something.
        let _listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        // SAFETY: the thread gets a working directory of its own; nothing else is shared that it
        // would miss.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }.unwrap();
        std::env::set_current_dir(here).unwrap();
    });
    assert_refused(&scene.judge(&forwarded, b"hello", Some(modified)), RefusalReason::Changed);
    let verdict = scene.settled(|scene| {
        let forwarded = scene.forward();
        let body = scene.serve(Path::new("page"));
        scene.judge(&forwarded, &body, Some(modified))
    });
    assert_stored(&verdict, &[slot(&page), slot(page.parent().unwrap())]);
}

/// The kernel sends a signal to whoever holds a lease when a writer comes; the default ends the
/// process.
#[test]
fn writers_that_come_during_the_judgement_do_no_harm() {
    let mut scene = Scene::new();
    let body = vec![b'x'; 1 << 20];
    let page = scene.write("page", &body);
    let modified = fs::metadata(&page).unwrap().mtime() as u64;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (stopped, written) = (stop.clone(), page.clone());
    let writer = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let file = OpenOptions::new().write(true).open(&written).unwrap();
            file.write_all_at(b"y", 0).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            drop(file);
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    });
    for _ in 0..100 {
        let forwarded = scene.forward();
        scene.serve(&page);
        if let Verdict::Stored { sources, .. } = scene.judge(&forwarded, &body, Some(modified)) {
            assert!(!sources.as_slice().is_empty());
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}

/// The server's first reading of a file moves the access time. Changes of other tests beside it may
/// refuse a few.
#[test]
fn a_first_fill_is_not_refused_for_the_access_time() {
    let mut scene = Scene::new();
    let mut refused = 0;
    for n in 0..50 {
        let page = scene.path(&format!("fresh-{n}"));
        fs::write(&page, format!("page {n}")).unwrap();
        refused +=
            usize::from(matches!(scene.fill_once(&page), Verdict::Refused(RefusalReason::Changed)));
        assert_stored(&scene.fill(&page), &[slot(&page)]);
    }
    assert!(refused < 25, "{refused} of 50 first fills of files just written were refused");
}

#[test]
fn the_watcher_serves_a_card_until_it_hangs_up() {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
    let mut scene = Scene::new();
    let page = scene.write("page", b"hello");
    let (card, watcher) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let table = scene.table.clone();
    let server = &scene.server;
    let registrar = &mut scene.registrar;
    std::thread::scope(|scope| {
        let service =
            scope.spawn(move || nicache_watch::run_watcher(registrar, vec![watcher], None));
        while !table.lease_holds(nicache_clock::boottime_ns()) {
            std::thread::yield_now();
        }
        // Other tests make directories beside this one's; see `Scene::fill`.
        let verdict = (0..50).map(|_| {
            let (stamp, forwarded_ns) = (table.advance_clock(), nicache_clock::monotonic_ns());
            let served = page.clone();
            server.run(move || fs::read(served).unwrap());
            let request = FillRequest {
                id: 42,
                stamp,
                asked: table.advance_clock(),
                forwarded_ns,
                finished_ns: nicache_clock::monotonic_ns(),
                lost: table.lost(),
                body_len: 5,
                body_hash: *blake3::hash(b"hello").as_bytes(),
                last_modified: Some(fs::metadata(&page).unwrap().mtime() as u64),
                may_be_static: true,
                may_be_dynamic: false,
                previous: None,
                client: std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 1),
                target: b"/page",
            };
            let mut out = [0; FILL_REQUEST_BYTES_MAX];
            rustix::net::send(&card, request.encode(&mut out), SendFlags::empty()).unwrap();
            let mut answer = [0; 1024];
            let (len, _) = rustix::net::recv(&card, &mut answer[..], RecvFlags::empty()).unwrap();
            let verdict = FillVerdict::decode(&answer[..len]).unwrap();
            assert_eq!(verdict.id, 42);
            verdict.verdict
        });
        let verdict = { verdict }
            .find(|verdict| *verdict != Verdict::Refused(RefusalReason::Changed))
            .unwrap();
        assert_stored(&verdict, &[slot(&page)]);
        drop(card);
        service.join().unwrap().unwrap();
        assert!(!table.lease_holds(nicache_clock::boottime_ns()));
    });
}
