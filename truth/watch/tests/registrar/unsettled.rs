//! Files that change while the server looks at them, or right after, with nobody to tell: what is
//! made of them is not kept.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use nicache_clock::monotonic_ns;
use nicache_coherence::{FillRequest, FillVerdict, RefusalReason, SourceSlot, Verdict};

use crate::common::directory_on_ext4;
use crate::ground::mount_own;
use crate::scene::{Forwarded, Scene, assert_refused};

const ROUNDS: usize = 40;
/// Longer than a change is taken to be under way.
const SETTLING: Duration = Duration::from_millis(100);

impl Scene {
    /// Judges a reply that a program made.
    fn judge_dynamic(&mut self, forwarded: &Forwarded, body: &[u8]) -> Verdict {
        let request = FillRequest {
            id: 8,
            stamp: forwarded.stamp,
            asked: self.table.advance_clock(),
            forwarded_ns: forwarded.at_ns,
            finished_ns: monotonic_ns(),
            lost: forwarded.lost,
            body_len: body.len() as u64,
            body_hash: *blake3::hash(body).as_bytes(),
            last_modified: None,
            may_be_static: false,
            may_be_dynamic: true,
            previous: None,
            client: std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 1),
            target: b"/page",
        };
        let mut resolver = self.registrar.resolver();
        let FillVerdict { verdict, .. } = self.registrar.judge(&request, &mut resolver);
        verdict
    }

    /// The server reads the file and asks nothing of it, so its change time is as it was.
    fn read(&self, path: &Path) -> Vec<u8> {
        let path = path.to_owned();
        self.server.run(move || {
            let mut bytes = vec![0; 100];
            let read = fs::File::open(path).unwrap().read(&mut bytes).unwrap();
            bytes.truncate(read);
            bytes
        })
    }

    /// A request that the server answers from this file.
    fn fill_dynamic(&mut self, path: &Path) -> Verdict {
        self.settled(|scene| {
            let forwarded = scene.forward();
            let body = scene.read(path);
            once_more(scene.judge_dynamic(&forwarded, &body))
        })
    }
}

/// What others on this machine do counts as a change meanwhile, which `settled` tries again.
fn once_more(verdict: Verdict) -> Verdict {
    match verdict {
        // Other tests make directories beside this one's.
        Verdict::Outdated(reason @ RefusalReason::Changed) => Verdict::Refused(reason),
        // A database of somebody else on this machine has just been started.
        Verdict::Refused(RefusalReason::DatabaseUnclear) => {
            std::thread::sleep(Duration::from_millis(100));
            Verdict::Refused(RefusalReason::Changed)
        }
        verdict => verdict,
    }
}

/// Runs `test` with a directory on such a file system.
fn on(kind: &'static str, test: impl FnOnce(&Path) + Send + 'static) {
    std::thread::spawn(move || {
        let root = directory_on_ext4();
        let folder = root.path().join("mount");
        fs::create_dir(&folder).unwrap();
        if kind != "ext4" {
            mount_own(kind, &folder);
        }
        test(&folder);
    })
    .join()
    .unwrap();
}

/// How Btrfs and tmpfs are watched.
#[derive(PartialEq)]
enum Told {
    /// By change times: of two changes in one tick the second may not be told.
    ByTimes,
    /// At functions of the kernel.
    AtFunctions,
}

/// None if they are not.
fn told() -> Option<Told> {
    let watcher = crate::common::load(0).unwrap();
    let by_times = watcher.programs().iter().any(|program| program.name == "ctime_ns_xchg");
    if !watcher.coverage().tmpfs {
        println!("skipped: this kernel does not tell of changes on Btrfs and tmpfs");
        return None;
    }
    Some(if by_times { Told::ByTimes } else { Told::AtFunctions })
}

/// Opens through a ring, whose descriptors no system call tells of.
struct UnseenWriter {
    ring: IoUring,
}

impl UnseenWriter {
    fn new() -> Self {
        let ring = IoUring::new(8).unwrap();
        ring.submitter().register_files_sparse(1).unwrap();
        Self { ring }
    }

    fn write(&mut self, path: &CString, bytes: &[u8]) {
        let slot = types::DestinationSlot::try_from_slot_target(0).unwrap();
        let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
            .flags(libc::O_WRONLY)
            .file_index(Some(slot));
        self.run(&open.build());
        self.run(&opcode::Write::new(types::Fixed(0), bytes.as_ptr(), bytes.len() as u32).build());
        self.run(&opcode::Close::new(types::Fixed(0)).build());
    }

    fn run(&mut self, entry: &squeue::Entry) {
        // SAFETY: path and bytes outlive the wait.
        unsafe { self.ring.submission().push(entry) }.unwrap();
        self.ring.submit_and_wait(1).unwrap();
        let result = self.ring.completion().next().unwrap().result();
        assert!(result >= 0, "{}", std::io::Error::from_raw_os_error(-result));
    }
}

/// Written, read by the server, and written again within the kernel's tick by a descriptor that
/// nobody saw: the second write leaves the change time alone. Neither the reply is kept nor, later,
/// one that comes from the server's memory.
fn a_second_write_in_the_same_tick(folder: &Path) -> usize {
    let mut scene = Scene::new();
    let other = folder.join("other");
    fs::write(&other, "other").unwrap();
    let mut writer = UnseenWriter::new();
    let (mut untold, mut first_kept, mut later_kept) = (0, 0, 0);
    for round in 0..ROUNDS {
        // A file that is read often, changed each time, would be taken for data that is not kept in
        // memory.
        let page = folder.join(format!("page-{round}"));
        fs::write(&page, "-").unwrap();
        let path = CString::new(page.as_os_str().as_bytes()).unwrap();
        OpenOptions::new().write(true).open(&page).unwrap().write_all(b"A").unwrap();
        let forwarded = scene.forward();
        let body = scene.read(&page);
        assert_eq!(body, b"A");
        let before = scene.table.stamp_of(slot_of(&page));
        scene.table.advance_clock();
        writer.write(&path, b"B");
        untold += usize::from(scene.table.stamp_of(slot_of(&page)) == before);
        first_kept +=
            usize::from(matches!(scene.judge_dynamic(&forwarded, &body), Verdict::Stored { .. }));

        std::thread::sleep(SETTLING);
        let forwarded = scene.forward();
        let body = scene.read(&other);
        later_kept +=
            usize::from(matches!(scene.judge_dynamic(&forwarded, &body), Verdict::Stored { .. }));

        // Once the server has read what is there now, all is well. Linux 6.1 closes a ring's
        // descriptor a second later.
        let begun = Instant::now();
        loop {
            assert_eq!(scene.read(&page), b"B");
            std::thread::sleep(Duration::from_millis(15));
            if matches!(scene.fill_dynamic(&other), Verdict::Stored { .. }) {
                break;
            }
            assert!(begun.elapsed() < KEPT_WITHIN);
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    println!(
        "RESULT same_tick untold={untold} of={ROUNDS} first_kept={first_kept} later_kept={later_kept}"
    );
    assert_eq!((first_kept, later_kept), (0, 0));
    untold
}

/// To find it must not ask for the file's times.
fn slot_of(path: &Path) -> SourceSlot {
    use rustix::fs::{AtFlags, CWD, StatxFlags};
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::INO).unwrap();
    SourceSlot::of_device_inode(stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

/// There every write is told, but that of the second is taken for the access time if the change
/// time is as it was.
#[test]
fn a_second_write_in_the_same_tick_on_ext4() {
    on("ext4", |folder| {
        a_second_write_in_the_same_tick(folder);
    });
}

#[test]
fn a_second_write_in_the_same_tick_on_btrfs() {
    if told().is_some() {
        on("btrfs", |folder| {
            a_second_write_in_the_same_tick(folder);
        });
    }
}

#[test]
fn a_second_write_in_the_same_tick_on_tmpfs() {
    if let Some(told) = told() {
        on("tmpfs", move |folder| {
            let untold = a_second_write_in_the_same_tick(folder);
            assert!(
                untold > 0 || told == Told::AtFunctions,
                "every second write was told: this shows nothing"
            );
        });
    }
}

/// For longer than this an opening does not count whose end is not told, on a quick machine.
const OPENING: Duration = Duration::from_millis(150);
/// And this is enough on a slow one.
const KEPT_WITHIN: Duration = Duration::from_secs(60);

/// The server reads a file that somebody has mapped, who stores to it afterwards and is gone when
/// the reply is judged.
fn stores_after_the_server_has_read(folder: &Path) {
    let mut scene = Scene::new();
    let (page, other) = (folder.join("page"), folder.join("other"));
    fs::write(&page, "A").unwrap();
    fs::write(&other, "other").unwrap();
    // A first reading moves the access time, which looks like a change on ext4; here and below it
    // is not the server's.
    std::thread::sleep(Duration::from_millis(15));
    assert_eq!(fs::read(&other).unwrap(), b"other");
    let writer = OpenOptions::new().read(true).write(true).open(&page).unwrap();
    // SAFETY: a mapping of our own, given back below.
    let memory = unsafe {
        let (access, flags) = (
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::SHARED,
        );
        rustix::mm::mmap(std::ptr::null_mut(), 1, access, flags, &writer, 0).unwrap().cast::<u8>()
    };
    drop(writer);
    // SAFETY: the mapping's only byte; from here on its page needs no further fault.
    unsafe { memory.write_volatile(b'A') };
    std::thread::sleep(SETTLING);
    assert_eq!(fs::read(&page).unwrap(), b"A");
    let forwarded = scene.forward();
    let body = scene.read(&page);
    assert_eq!(body, b"A");
    // SAFETY: as above; and nobody uses it afterwards.
    unsafe {
        memory.write_volatile(b'B');
        rustix::mm::munmap(memory.cast(), 1).unwrap();
    }
    assert_refused(&scene.judge_dynamic(&forwarded, &body), RefusalReason::OpenForWriting);

    // Nor is what the server makes of it later, from its memory.
    let verdict = scene.fill_dynamic(&other);
    assert!(matches!(verdict, Verdict::Outdated(RefusalReason::Dirty)), "{verdict:?}");
    // Nobody says when the server is done with what it has read: four times as long as its slowest
    // request lately, and that is the machine's.
    let begun = Instant::now();
    let verdict = loop {
        std::thread::sleep(OPENING);
        assert_eq!(scene.read(&page), b"B");
        std::thread::sleep(OPENING);
        match scene.fill_dynamic(&other) {
            Verdict::Outdated(RefusalReason::Dirty) if begun.elapsed() < KEPT_WITHIN => {}
            verdict => break verdict,
        }
    };
    assert!(matches!(verdict, Verdict::Stored { .. }), "{verdict:?}");
}

#[test]
fn stores_after_the_server_has_read_on_ext4() {
    on("ext4", stores_after_the_server_has_read);
}

#[test]
fn stores_after_the_server_has_read_on_btrfs_and_tmpfs() {
    if told().is_some() {
        on("btrfs", stores_after_the_server_has_read);
        on("tmpfs", stores_after_the_server_has_read);
    }
}

/// A write that takes long is told when it begins, and meanwhile the server may have asked for the
/// length: a file that it did not open must have been at rest before the request came.
fn the_length_of_a_file(folder: &Path) {
    let mut scene = Scene::new();
    let page = folder.join("page");
    fs::write(&page, "A").unwrap();
    std::thread::sleep(SETTLING);
    let ask = |scene: &mut Scene| {
        let forwarded = scene.forward();
        let asked = page.clone();
        scene.server.run(move || assert!(fs::metadata(asked).is_ok()));
        (scene.judge_dynamic(&forwarded, b"1"), forwarded)
    };
    let (verdict, too_early) = ask(&mut scene);
    assert_refused(&verdict, RefusalReason::Changed);
    // This one had come before the file was seen at rest.
    assert!(!matches!(scene.judge_dynamic(&too_early, b"1"), Verdict::Stored { .. }));
    let is_kept = |scene: &mut Scene| {
        let verdict = scene.settled(|scene| once_more(ask(scene).0));
        assert!(matches!(verdict, Verdict::Stored { .. }), "{verdict:?}");
    };
    is_kept(&mut scene);
    OpenOptions::new().write(true).open(&page).unwrap().write_all_at(b"BB", 0).unwrap();
    std::thread::sleep(SETTLING);
    assert_refused(&ask(&mut scene).0, RefusalReason::Changed);
    is_kept(&mut scene);
}

#[test]
fn the_length_of_a_file_that_was_not_at_rest() {
    if told().is_some() {
        on("btrfs", the_length_of_a_file);
        on("tmpfs", the_length_of_a_file);
    }
}

/// Two files change names while the server opens one of them: what it has in its memory is of the
/// name that it asked for, and that is another file's now.
#[test]
fn names_that_are_exchanged_while_the_server_reads() {
    on("ext4", |folder| {
        const ROUNDS: usize = 400;
        let mut scene = Scene::new();
        let other = folder.join("other");
        fs::write(&other, "other").unwrap();
        let (mut late, mut kept) = (0, 0);
        for round in 0..ROUNDS {
            let (page, next) =
                (folder.join(format!("page-{round}")), folder.join(format!("next-{round}")));
            fs::write(&page, "A").unwrap();
            fs::write(&next, "B").unwrap();
            let (from, to) = (page.clone(), next);
            let writer = std::thread::spawn(move || {
                for _ in 0..round * 50 {
                    std::hint::spin_loop();
                }
                rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &from,
                    rustix::fs::CWD,
                    &to,
                    rustix::fs::RenameFlags::EXCHANGE,
                )
                .unwrap();
            });
            let body = scene.read(&page);
            writer.join().unwrap();
            if body == b"B" {
                continue;
            }
            // From the server's memory: it looks at nothing of that file.
            late += 1;
            std::thread::sleep(Duration::from_millis(25));
            let forwarded = scene.forward();
            let body = scene.read(&other);
            kept += usize::from(matches!(
                scene.judge_dynamic(&forwarded, &body),
                Verdict::Stored { .. }
            ));
            // It looks again.
            scene.read(&page);
            std::thread::sleep(Duration::from_millis(15));
        }
        println!("RESULT exchanged read_before={late} of={ROUNDS} kept={kept}");
        assert_eq!(kept, 0);
        assert!(late > 0, "the server was never before the exchange: this shows nothing");
    });
}
