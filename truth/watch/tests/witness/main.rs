//! Every way of changing a file, really done: after the call has returned, the slot of the file or
//! of a directory on its path has a stamp not below a clock that was advanced before, and the epoch
//! has moved.
//!
//! Needs the capabilities to load eBPF programs and an ext4 file system.

#[path = "../common/mod.rs"]
mod common;
mod filesystems;
mod listening;
mod sendings;
mod statements;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use common::{ServerThread, directory_on_ext4, slot};
use nicache_coherence::{RevisionTable, SourceSlot};
use nicache_watch::KernelWatcher;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use tempfile::TempDir;

const ROUNDS: usize = 300;

fn watcher() -> &'static (KernelWatcher, RevisionTable) {
    static WATCHER: OnceLock<(KernelWatcher, RevisionTable)> = OnceLock::new();
    WATCHER.get_or_init(|| {
        let watcher = crate::common::load(0).unwrap();
        let table = watcher.table().unwrap();
        (watcher, table)
    })
}

/// Does `change`, and panics unless one of the slots that `sources` named before shows it.
#[track_caller]
fn assert_witnessed(sources: &[SourceSlot], change: impl FnOnce()) {
    let table = &watcher().1;
    for &source in sources {
        table.watch(source);
    }
    let stamp = table.advance_clock();
    let epoch = table.epoch();
    change();
    assert!(!table.is_unchanged(sources, stamp), "no source has a new stamp");
    assert_ne!(table.epoch(), epoch, "the epoch has not moved");
}

/// A file `site/page` in a fresh directory.
struct Site {
    _root: TempDir,
    directory: PathBuf,
    page: PathBuf,
}

impl Site {
    fn new() -> Self {
        let root = directory_on_ext4();
        let directory = root.path().join("site");
        fs::create_dir(&directory).unwrap();
        let page = directory.join("page");
        fs::write(&page, vec![b'a'; 20_000]).unwrap();
        Self { _root: root, directory, page }
    }

    /// What an entry made of the page depends on here.
    fn sources(&self) -> [SourceSlot; 3] {
        [slot(self._root.path()), slot(&self.directory), slot(&self.page)]
    }

    fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.page).unwrap()
    }

    /// Changes the page `ROUNDS` times through a descriptor that is open all the time; its own slot
    /// must show it.
    fn change_through_open_file(&self, mut change: impl FnMut(&File, usize)) {
        let file = self.open();
        for round in 0..ROUNDS {
            assert_witnessed(&[slot(&self.page)], || change(&file, round));
        }
    }
}

#[test]
fn pwrite() {
    Site::new()
        .change_through_open_file(|file, round| file.write_all_at(&[round as u8], 3).unwrap());
}

#[test]
fn write_and_writev_that_extend() {
    Site::new().change_through_open_file(|mut file, round| {
        if round % 2 == 0 {
            file.write_all(b"x").unwrap();
        } else {
            rustix::io::writev(file, &[std::io::IoSlice::new(b"y"), std::io::IoSlice::new(b"z")])
                .unwrap();
        }
    });
}

#[test]
fn truncate_and_ftruncate() {
    let site = Site::new();
    let path = CString::new(site.page.as_os_str().as_bytes()).unwrap();
    site.change_through_open_file(|file, round| {
        if round % 2 == 0 {
            file.set_len(10_000 + round as u64).unwrap();
        } else {
            // SAFETY: a valid C string.
            assert_eq!(unsafe { libc::truncate(path.as_ptr(), 5_000 + round as i64) }, 0);
        }
    });
}

#[test]
fn fallocate_and_punched_holes() {
    let site = Site::new();
    let file = site.open();
    for round in 0..ROUNDS {
        file.write_all_at(&[1; 8192], 4096).unwrap();
        let flags = match round % 4 {
            0 => FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
            1 => FallocateFlags::ZERO_RANGE,
            2 => FallocateFlags::COLLAPSE_RANGE,
            _ => FallocateFlags::INSERT_RANGE,
        };
        assert_witnessed(&[slot(&site.page)], || {
            rustix::fs::fallocate(&file, flags, 4096, 4096).unwrap();
        });
    }
}

#[test]
fn direct_writes() {
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let site = Site::new();
    let file =
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&site.page).unwrap();
    for round in 0..ROUNDS {
        let block = Block([round as u8; 4096]);
        assert_witnessed(&[slot(&site.page)], || {
            file.write_all_at(&block.0, 4096 * (round as u64 % 3)).unwrap();
        });
    }
}

#[test]
fn io_uring_writes() {
    use io_uring::{IoUring, opcode, types};
    let mut ring = IoUring::new(8).unwrap();
    Site::new().change_through_open_file(|file, round| {
        let bytes = [round as u8; 100];
        let write =
            opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), bytes.len() as u32)
                .offset(round as u64)
                .build();
        // SAFETY: the buffer and the descriptor live until the completion has come.
        unsafe { ring.submission().push(&write) }.unwrap();
        ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.completion().next().unwrap().result(), 100);
    });
}

#[test]
fn io_uring_direct_writes_by_a_worker() {
    use io_uring::{IoUring, opcode, squeue, types};
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let site = Site::new();
    let mut ring = IoUring::new(8).unwrap();
    let file =
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&site.page).unwrap();
    for round in 0..ROUNDS {
        let block = Block([round as u8; 4096]);
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), block.0.as_ptr(), 4096)
            .offset(4096 * (round as u64 % 4))
            .build()
            .flags(if round % 2 == 0 { squeue::Flags::ASYNC } else { squeue::Flags::empty() });
        assert_witnessed(&[slot(&site.page)], || {
            // SAFETY: the buffer and the descriptor live until the completion has come.
            unsafe { ring.submission().push(&write) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            assert_eq!(ring.completion().next().unwrap().result(), 4096);
        });
    }
}

#[test]
fn sendfile_copy_file_range_and_splice_into_the_file() {
    let site = Site::new();
    let source_path = site.directory.join("source");
    fs::write(&source_path, vec![b'b'; 1000]).unwrap();
    let source = File::open(&source_path).unwrap();
    let (pipe_out, pipe_in) = rustix::pipe::pipe().unwrap();
    site.change_through_open_file(|file, round| {
        let copied = match round % 3 {
            0 => {
                rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0)).unwrap();
                rustix::fs::sendfile(file, &source, Some(&mut 0), 500).unwrap()
            }
            1 => {
                rustix::fs::copy_file_range(&source, Some(&mut 0), file, Some(&mut 0), 500).unwrap()
            }
            _ => {
                rustix::io::write(&pipe_in, &[7; 500]).unwrap();
                let flags = rustix::pipe::SpliceFlags::empty();
                rustix::pipe::splice(&pipe_out, None, file, Some(&mut 0), 500, flags).unwrap()
            }
        };
        assert_eq!(copied, 500);
    });
}

#[test]
fn truncating_by_opening_and_shared_mappings() {
    let site = Site::new();
    let own = [slot(&site.page)];
    for _ in 0..ROUNDS {
        fs::write(&site.page, [b'a'; 4096]).unwrap();
        let file = site.open();
        let mut address = std::ptr::null_mut();
        assert_witnessed(&own, || {
            use rustix::mm::{MapFlags, ProtFlags, mmap};
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh mapping at an address of the kernel's choice.
            address =
                unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, &file, 0) }
                    .unwrap();
        });
        // SAFETY: mapped above, 4096 bytes, and unmapped once.
        unsafe {
            address.cast::<u8>().write_volatile(1);
            rustix::mm::munmap(address, 4096).unwrap();
        }
        assert_witnessed(&own, || {
            drop(rustix::fs::open(&site.page, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()));
        });
    }
}

#[test]
fn a_store_to_a_clean_page_of_a_shared_mapping() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
    let site = Site::new();
    let file = site.open();
    file.sync_all().unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let address = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, &file, 0)
    }
    .unwrap();
    for round in 0..20 {
        // SAFETY: within the mapping of 4096 bytes.
        assert_witnessed(&[slot(&site.page)], || unsafe {
            address.cast::<u8>().write_volatile(round);
        });
        // SAFETY: the mapping is page-aligned and 4096 bytes long.
        unsafe { rustix::mm::msync(address, 4096, MsyncFlags::SYNC) }.unwrap();
    }
    // SAFETY: mapped above and not used any longer.
    unsafe { rustix::mm::munmap(address, 4096) }.unwrap();
}

#[test]
fn rename_over_and_exchange() {
    let site = Site::new();
    let other = site.directory.join("other");
    for round in 0..ROUNDS {
        fs::write(&other, format!("version {round}")).unwrap();
        let sources = site.sources();
        if round % 2 == 0 {
            assert_witnessed(&sources[1..], || fs::rename(&other, &site.page).unwrap());
        } else {
            assert_witnessed(&sources[1..], || {
                rustix::fs::renameat_with(CWD, &other, CWD, &site.page, RenameFlags::EXCHANGE)
                    .unwrap();
            });
        }
    }
}

#[test]
fn rename_from_and_to_another_directory() {
    let site = Site::new();
    let elsewhere = site._root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for _ in 0..ROUNDS {
        assert_witnessed(&[slot(&site.directory)], || {
            fs::rename(&site.page, elsewhere.join("p")).unwrap();
        });
        assert_witnessed(&[slot(&site.directory)], || {
            fs::rename(elsewhere.join("p"), &site.page).unwrap();
        });
    }
}

#[test]
fn rename_and_exchange_of_a_parent_directory() {
    let site = Site::new();
    let away = site._root.path().join("away");
    for round in 0..ROUNDS {
        let parent = [slot(site._root.path())];
        assert_witnessed(&parent, || fs::rename(&site.directory, &away).unwrap());
        if round % 2 == 0 {
            fs::create_dir(&site.directory).unwrap();
            assert_witnessed(&parent, || {
                rustix::fs::renameat_with(CWD, &away, CWD, &site.directory, RenameFlags::EXCHANGE)
                    .unwrap();
            });
            fs::remove_dir(&away).unwrap();
        } else {
            assert_witnessed(&parent, || fs::rename(&away, &site.directory).unwrap());
        }
    }
}

#[test]
fn unlink_create_and_link() {
    let site = Site::new();
    let second_name = site._root.path().join("second-name");
    for _ in 0..ROUNDS {
        let directory = [slot(&site.directory)];
        fs::hard_link(&site.page, &second_name).unwrap();
        assert_witnessed(&directory, || fs::remove_file(&site.page).unwrap());
        assert_witnessed(&directory, || fs::hard_link(&second_name, &site.page).unwrap());
        fs::remove_file(&second_name).unwrap();
        assert_witnessed(&directory, || fs::remove_file(&site.page).unwrap());
        assert_witnessed(&directory, || drop(File::create_new(&site.page).unwrap()));
        let subdirectory = site.directory.join("subdirectory");
        assert_witnessed(&directory, || fs::create_dir(&subdirectory).unwrap());
        assert_witnessed(&directory, || fs::remove_dir(&subdirectory).unwrap());
    }
}

#[test]
fn write_through_another_hard_link() {
    let site = Site::new();
    let second_name = site._root.path().join("second-name");
    fs::hard_link(&site.page, &second_name).unwrap();
    let file = OpenOptions::new().write(true).open(&second_name).unwrap();
    for _ in 0..ROUNDS {
        assert_witnessed(&[slot(&site.page)], || file.write_all_at(b"linked", 0).unwrap());
    }
}

#[test]
fn symlink_replaced() {
    let site = Site::new();
    let link = site.directory.join("link");
    let fresh = site.directory.join("fresh");
    for round in 0..ROUNDS {
        let directory = [slot(&site.directory)];
        assert_witnessed(&directory, || {
            std::os::unix::fs::symlink(format!("page-{round}"), &fresh).unwrap();
        });
        assert_witnessed(&directory, || fs::rename(&fresh, &link).unwrap());
        if round % 3 == 0 {
            assert_witnessed(&directory, || fs::remove_file(&link).unwrap());
        }
    }
}

#[test]
fn tmpfile_linked_in() {
    let site = Site::new();
    for round in 0..ROUNDS {
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let file = rustix::fs::open(&site.directory, flags, Mode::RUSR).unwrap();
        rustix::io::write(&file, b"tmp").unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let name = site.directory.join(format!("linked-{round}"));
        assert_witnessed(&[slot(&site.directory)], || {
            rustix::fs::linkat(CWD, path.as_str(), CWD, &name, AtFlags::SYMLINK_FOLLOW).unwrap();
        });
    }
}

#[test]
fn mode_times_and_attributes() {
    let site = Site::new();
    let own = [slot(&site.page)];
    let file = site.open();
    for round in 0..ROUNDS {
        let mode = if round % 2 == 0 { 0o600 } else { 0o644 };
        assert_witnessed(&own, || {
            fs::set_permissions(&site.page, fs::Permissions::from_mode(mode)).unwrap();
        });
        let directory = [slot(&site.directory)];
        let mode = if round % 2 == 0 { 0o700 } else { 0o755 };
        assert_witnessed(&directory, || {
            fs::set_permissions(&site.directory, fs::Permissions::from_mode(mode)).unwrap();
        });
        let time = Timespec { tv_sec: round as i64, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        assert_witnessed(&own, || {
            rustix::fs::utimensat(CWD, &site.page, &times, AtFlags::empty()).unwrap();
        });
        let flags = rustix::fs::XattrFlags::empty();
        assert_witnessed(&own, || {
            rustix::fs::fsetxattr(&file, "user.nicache", &[round as u8], flags).unwrap();
        });
        assert_witnessed(&own, || {
            rustix::fs::setxattr(&site.page, "user.nicache", &[!(round as u8)], flags).unwrap();
        });
    }
}

#[test]
fn a_write_that_restores_the_times() {
    let site = Site::new();
    let stat = fs::metadata(&site.page).unwrap();
    for round in 0..ROUNDS {
        assert_witnessed(&[slot(&site.page)], || {
            fs::write(&site.page, [round as u8; 100]).unwrap();
            File::options()
                .write(true)
                .open(&site.page)
                .unwrap()
                .set_modified(stat.modified().unwrap())
                .unwrap();
        });
    }
}

#[test]
fn mounts() {
    use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
    let site = Site::new();
    let over = site._root.path().join("over");
    fs::create_dir(&over).unwrap();
    let directory = site.directory.clone();
    let in_own_namespace = std::thread::spawn(move || {
        // SAFETY: this thread alone moves to a mount namespace of its own and holds no files that
        // it shares.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        for _ in 0..50 {
            assert_witnessed(&[SourceSlot::MOUNTS], || mount_bind(&over, &directory).unwrap());
            assert_witnessed(&[SourceSlot::MOUNTS], || {
                unmount(&directory, UnmountFlags::empty()).unwrap();
            });
        }
    });
    in_own_namespace.join().unwrap();
}

#[test]
fn a_write_below_a_bind_mount() {
    use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
    let site = Site::new();
    let over = site._root.path().join("over");
    fs::create_dir(&over).unwrap();
    let own = [slot(&site.page)];
    std::thread::spawn(move || {
        // SAFETY: as in `mounts`.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        mount_bind(&site.directory, &over).unwrap();
        let file = OpenOptions::new().write(true).open(over.join("page")).unwrap();
        for _ in 0..ROUNDS {
            assert_witnessed(&own, || file.write_all_at(b"bound", 0).unwrap());
        }
        drop(file);
        // A program that another test is just starting may still have the file.
        unmount(&over, UnmountFlags::DETACH).unwrap();
    })
    .join()
    .unwrap();
}

/// Maps a file for writing as a 32-bit program does: other numbers, other registers.
#[test]
fn mapping_for_writing_through_int_0x80() {
    use rustix::mm::{MapFlags, ProtFlags};
    let site = Site::new();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::from_bits_retain(libc::MAP_32BIT as u32);
    // SAFETY: a fresh anonymous mapping, below 4 GiB as 32-bit calls need it.
    let low = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, protection, flags) }
        .unwrap();
    let path = CString::new(site.page.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is shorter than the page.
    unsafe {
        low.cast::<u8>()
            .copy_from_nonoverlapping(path.as_ptr().cast(), path.as_bytes_with_nul().len());
    };
    let call = |number: i64, first: i64, second: i64| -> i64 {
        let result: i64;
        // SAFETY: int 0x80 clobbers r8 to r11 and returns in rax; rbx is put back.
        unsafe {
            std::arch::asm!(
                "xchg rbx, {first}", "int 0x80", "xchg rbx, {first}",
                first = inout(reg) first => _,
                inlateout("rax") number => result,
                in("rcx") second, in("rdx") 0,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        result
    };
    for _ in 0..ROUNDS {
        let fd = call(5, low as i64, i64::from(libc::O_RDWR));
        assert!(fd >= 0, "open: {fd}");
        // What the oldest mmap is told, in memory: where, how long, protection, flags, descriptor,
        // from where. SAFETY: behind the path, which is shorter than 2 KiB, and within the page.
        let told = unsafe { low.cast::<u8>().add(2048) }.cast::<[u32; 6]>();
        // SAFETY: as above; mappings are aligned.
        unsafe { told.write([0, 4096, 3, libc::MAP_SHARED as u32, fd as u32, 0]) };
        let mut address = 0;
        assert_witnessed(&[SourceSlot::EVERYTHING], || address = call(90, told as i64, 0));
        assert!(!(-4095..=0).contains(&(address as i32)), "mmap: {address}");
        assert_eq!((call(91, address, 4096), call(6, fd, 0)), (0, 0));
    }
    // SAFETY: mapped above and not used any longer.
    unsafe { rustix::mm::munmap(low, 4096) }.unwrap();
}

#[test]
fn kernel_and_user_space_agree_on_the_slots_of_many_inodes() {
    let root = directory_on_ext4();
    let table = &watcher().1;
    for n in 0..2_000 {
        let path = root.path().join(n.to_string());
        let file = File::create(&path).unwrap();
        let stamp = table.advance_clock();
        file.write_all_at(b"x", 0).unwrap();
        assert!(table.stamp_of(slot(&path)) >= stamp, "inode {n}");
    }
}

#[test]
fn reading_changes_nothing() {
    let site = Site::new();
    // As if the file were old: the witness of inode changes must not take an access time for a
    // change.
    let table = &watcher().1;
    let old = PathBuf::from("/etc/passwd");
    for path in [&old, &site.page] {
        let sources = [slot(path), slot(path.parent().unwrap())];
        fs::read(path).unwrap();
        fs::read_dir(path.parent().unwrap()).unwrap().count();
        let mut changed = 0;
        for _ in 0..ROUNDS {
            let stamp = table.advance_clock();
            fs::read(path).unwrap();
            fs::read_dir(path.parent().unwrap()).unwrap().count();
            fs::metadata(path).unwrap();
            changed += usize::from(!table.is_unchanged(&sources, stamp));
        }
        assert!(
            changed < ROUNDS / 10,
            "{changed} of {ROUNDS} readings of {} count as changes",
            path.display()
        );
    }
}

/// The access time of a file that has just been written. What puts it on the disk may come between,
/// now and then.
#[test]
fn the_first_reading_of_a_new_file_is_no_change() {
    let table = &watcher().1;
    let site = Site::new();
    let (mut moved, mut changed) = (0, 0);
    for round in 0..ROUNDS {
        let page = site.directory.join(format!("page-{round}"));
        fs::write(&page, b"new").unwrap();
        let written = fs::metadata(&page).unwrap();
        let stamp = table.advance_clock();
        fs::read(&page).unwrap();
        changed += usize::from(!table.is_unchanged(&[slot(&page)], stamp));
        let read = fs::metadata(&page).unwrap();
        moved += usize::from(
            (read.atime(), read.atime_nsec()) != (written.atime(), written.atime_nsec()),
        );
    }
    assert!(
        changed < ROUNDS / 10,
        "{changed} of {ROUNDS} first readings count as changes; {moved} moved the access time"
    );
}

/// The access time of a file whose last change is long past.
#[test]
fn the_first_reading_of_an_old_file_is_no_change() {
    let table = &watcher().1;
    let old = Path::new("/usr/bin/env");
    let before = fs::symlink_metadata(old).unwrap();
    let file = File::open(old).unwrap();
    let sources = [slot(&fs::canonicalize(old).unwrap())];
    let stamp = table.advance_clock();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    assert!(table.is_unchanged(&sources, stamp));
    assert_eq!(before.len(), file.metadata().unwrap().len());
}

#[test]
fn processes_of_the_server_come_and_go() {
    let server = ServerThread::start();
    let watcher = crate::common::load(server.netns).unwrap();
    let table = watcher.table().unwrap();
    let run = || std::process::Command::new("/bin/true").status().unwrap();
    // One that holds no socket at which it could be asked says nothing to anybody. Another test may
    // change everything at the same moment.
    let is_silent = (0..50).any(|_| {
        let stamp = table.advance_clock();
        server.run(run);
        table.stamp_of(SourceSlot::EVERYTHING) < stamp
    });
    assert!(is_silent);
    // A process of its own, because the first descriptors are looked at, and here all tests share
    // them.
    const PROGRAM: &str = r#"
import socket, subprocess, sys
for line in sys.stdin:
    if line == "listen\n":
        listener = socket.create_server(("0.0.0.0", 0))
    else:
        subprocess.run(["/bin/true"], check=True)
    print("done", flush=True)
"#;
    let mut program = server.run(|| {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    });
    let mut said = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut asked = program.stdin.take().unwrap();
    let mut ask = |what: &str| {
        asked.write_all(what.as_bytes()).unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "done");
    };
    let stamp = table.advance_clock();
    ask("listen\n");
    assert!(table.stamp_of(SourceSlot::EVERYTHING) >= stamp, "it listens");
    for _ in 0..20 {
        let stamp = table.advance_clock();
        ask("run\n");
        assert!(table.stamp_of(SourceSlot::EVERYTHING) >= stamp);
    }
    drop(asked);
    program.wait().unwrap();
}

/// One that may serve pages has started it: its paths cannot be looked up any longer.
#[test]
fn a_program_of_a_page_that_changes_its_root_voids_everything() {
    let server = ServerThread::start();
    let watcher = crate::common::load(server.netns).unwrap();
    let table = watcher.table().unwrap();
    let site = Site::new();
    let socket = site.directory.join("socket");
    let _connection = server.run(move || {
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        (client, listener.accept().unwrap())
    });
    for _ in 0..20 {
        let stamp = table.advance_clock();
        server.run(|| {
            let run = std::process::Command::new("chroot").args(["/", "/bin/true"]).status();
            assert!(run.unwrap().success());
        });
        assert!(table.stamp_of(SourceSlot::EVERYTHING) >= stamp);
    }
}

#[test]
fn a_writer_on_another_processor_is_seen_when_its_write_returns() {
    let site = Site::new();
    let table = &watcher().1;
    let source = slot(&site.page);
    table.watch(source);
    let (tell, told) = std::sync::mpsc::sync_channel::<u64>(0);
    let (go, wait) = std::sync::mpsc::sync_channel::<()>(0);
    let file = site.open();
    let writer = std::thread::spawn(move || {
        for round in 0..20_000_u64 {
            wait.recv().unwrap();
            file.write_all_at(&round.to_le_bytes(), 0).unwrap();
            tell.send(round).unwrap();
        }
    });
    let mut missed = 0;
    for _ in 0..20_000 {
        let stamp = table.advance_clock();
        let epoch = table.epoch();
        go.send(()).unwrap();
        told.recv().unwrap();
        missed += u32::from(table.stamp_of(source) < stamp || table.epoch() == epoch);
    }
    writer.join().unwrap();
    assert_eq!(missed, 0);
}

#[test]
fn without_privileges_the_error_says_so() {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    let error = std::thread::spawn(|| {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).unwrap();
        crate::common::load(0).unwrap_err()
    })
    .join()
    .unwrap();
    assert!(matches!(error, nicache_watch::WatchError::NoPrivilege(_)), "{error}");
}

#[test]
fn the_kernels_own_refusal_is_told_as_missing_privileges() {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    let error = std::thread::spawn(|| {
        // SAFETY: this thread alone leaves for a user namespace of its own, where its capabilities
        // count for nothing in the kernel's eyes; it shares no files with others afterwards.
        let own = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) };
        if own.is_err() {
            // A process with several threads may not; then only the capability that programs need
            // is dropped.
            let few = CapabilitySet::BPF;
            let sets = CapabilitySets {
                effective: few,
                permitted: few,
                inheritable: CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, sets).unwrap();
        }
        crate::common::load(0).unwrap_err()
    })
    .join()
    .unwrap();
    assert!(matches!(error, nicache_watch::WatchError::NoPrivilege(_)), "{error}");
}

#[test]
fn links_keep_the_witnesses_after_the_watcher_is_gone() {
    let watcher = crate::common::load(0).unwrap();
    let table = watcher.table().unwrap();
    let links: Vec<_> =
        watcher.link_fds().map(|link| link.as_fd().try_clone_to_owned().unwrap()).collect();
    drop(watcher);
    let site = Site::new();
    let file = site.open();
    let stamp = table.advance_clock();
    file.write_all_at(b"x", 0).unwrap();
    assert!(table.stamp_of(slot(&site.page)) >= stamp);
    drop(links);
    // Links are detached in the background, one after the other.
    let detached = (0..3000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let stamp = table.advance_clock();
        file.write_all_at(b"x", 0).unwrap();
        table.stamp_of(slot(&site.page)) < stamp
    });
    assert!(detached);
}

#[test]
fn all_hold_where_the_kernel_stops_tasks_in_witnesses() {
    common::run_all_expecting_stops("all_hold_where_the_kernel_stops_tasks_in_witnesses");
}
