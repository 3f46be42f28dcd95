//! The writers: each changes a page, or what a path to it leads to, in its own way.

use std::ffi::{CString, c_int, c_void};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    XattrFlags,
};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

const ROUNDS: usize = 20;
const PAGE_BYTES: usize = 20_000;
const BLOCK: u64 = 4096;

/// `site/page` and a few more files.
pub(super) struct Site {
    pub directory: PathBuf,
    pub page: PathBuf,
    /// In the same directory, of the same length, with other bytes.
    pub other: PathBuf,
    /// Another directory of the file system.
    pub elsewhere: PathBuf,
}

impl Site {
    pub(super) fn new(mount: &Path, name: &str) -> io::Result<Self> {
        let site = Self::at(mount, name);
        fs::create_dir_all(&site.directory)?;
        fs::create_dir_all(&site.elsewhere)?;
        fs::write(&site.page, vec![b'a'; PAGE_BYTES])?;
        fs::write(&site.other, vec![b'b'; PAGE_BYTES])?;
        Ok(site)
    }

    /// One that is there already.
    pub(super) fn at(mount: &Path, name: &str) -> Self {
        let root = mount.join(name.replace([' ', '/'], "-"));
        let (directory, elsewhere) = (root.join("site"), root.join("elsewhere"));
        let (page, other) = (directory.join("page"), directory.join("other"));
        Self { directory, page, other, elsewhere }
    }

    fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.page)
    }
}

/// Does a change of what the path is, and judges it.
pub(super) type See<'a> =
    dyn FnMut(&Path, &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> + 'a;

pub(super) struct Writer {
    pub name: &'static str,
    /// The one file system that has it.
    pub only: Option<&'static str>,
    pub run: fn(&Site, &mut See<'_>) -> io::Result<()>,
}

const fn on_all(name: &'static str, run: fn(&Site, &mut See<'_>) -> io::Result<()>) -> Writer {
    Writer { name, only: None, run }
}

const fn on(
    only: &'static str,
    name: &'static str,
    run: fn(&Site, &mut See<'_>) -> io::Result<()>,
) -> Writer {
    Writer { name, only: Some(only), run }
}

pub(super) const WRITERS: &[Writer] = &[
    on_all("open, write, close", open_write_close),
    on_all("pwrite", pwrite),
    on_all("write that extends, writev", extend),
    on_all("write through a second link", second_link),
    on_all("O_DIRECT", direct),
    on_all("O_DIRECT by io_submit", direct_by_aio),
    on_all("sendfile, copy_file_range, splice", copies),
    on_all("FICLONE", clone),
    on_all("FICLONERANGE", clone_range),
    on_all("truncate, ftruncate", truncate),
    on_all("open with O_TRUNC", truncate_by_opening),
    on_all("fallocate that extends", |site, see| {
        fallocate(site, see, FallocateFlags::empty(), true)
    }),
    on_all("fallocate: punch a hole", |site, see| {
        fallocate(site, see, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, false)
    }),
    on_all("fallocate: zero", |site, see| fallocate(site, see, FallocateFlags::ZERO_RANGE, false)),
    on_all("fallocate: collapse", |site, see| {
        fallocate(site, see, FallocateFlags::COLLAPSE_RANGE, false)
    }),
    on_all("fallocate: insert", |site, see| {
        fallocate(site, see, FallocateFlags::INSERT_RANGE, false)
    }),
    on_all("mmap", map),
    on_all("store to a page that is mapped", store),
    on_all("store, the descriptor closed, msync between", store_after_sync),
    on_all("io_uring: write", uring_write),
    on_all("io_uring: O_DIRECT by a worker", uring_direct),
    on_all("io_uring: open and write", uring_open_and_write),
    on_all("io_uring: fallocate", uring_fallocate),
    on_all("io_uring: ftruncate", uring_ftruncate),
    on_all("io_uring: rename, link, unlink, symlink, mkdir", uring_names),
    on_all("io_uring: setxattr", uring_xattr),
    on_all("rename over", rename_over),
    on_all("RENAME_EXCHANGE", exchange),
    on_all("RENAME_WHITEOUT", whiteout),
    on_all("rename from and to another directory", rename_across),
    on_all("rename of the directory", rename_directory),
    on_all("exchange of two directories", exchange_directories),
    on_all("unlink, link", unlink_and_link),
    on_all("create", create),
    on_all("mkdir, rmdir, symlink, mknod", other_names),
    on_all("O_TMPFILE, linkat", tmpfile),
    on_all("chmod, chown of the page", modes_of_page),
    on_all("chmod of the directory", modes_of_directory),
    on_all("utimes", times),
    on_all("setxattr, removexattr", xattr),
    on_all("access control list", access_list),
    on_all("access control list by path", access_list_by_path),
    on_all("chattr", attributes),
    on_all("write that restores the times", restored_times),
    on("ext4", "EXT4_IOC_MOVE_EXT", ext4_move),
    on("xfs", "XFS_IOC_OPEN_BY_HANDLE, write", xfs_handle),
    on("btrfs", "subvolume: create, write in it, delete", btrfs_subvolume),
    on("btrfs", "snapshot: create, write in it, delete", btrfs_snapshot),
    on("btrfs", "rename of a subvolume over", btrfs_rename),
];

fn path_of(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn checked(result: impl TryInto<i64>) -> io::Result<()> {
    if result.try_into().unwrap_or(-1) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Changes the page through a descriptor that is open all the time.
fn through(
    site: &Site,
    see: &mut See<'_>,
    mut change: impl FnMut(&File, usize) -> io::Result<()>,
) -> io::Result<()> {
    let file = site.open()?;
    (0..ROUNDS).try_for_each(|round| see(&site.page, &mut || change(&file, round)))
}

fn open_write_close(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    (0..ROUNDS)
        .try_for_each(|round| see(&site.page, &mut || fs::write(&site.page, [round as u8; 1000])))
}

fn pwrite(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    through(site, see, |file, round| file.write_all_at(&[round as u8], 3))
}

fn extend(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    through(site, see, |mut file, round| match round % 2 {
        0 => file.write_all(b"x"),
        _ => rustix::io::writev(file, &[IoSlice::new(b"y"), IoSlice::new(b"z")])
            .map(|_| ())
            .map_err(Into::into),
    })
}

fn second_link(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let link = site.elsewhere.join("link");
    fs::hard_link(&site.page, &link)?;
    (0..ROUNDS).try_for_each(|round| see(&site.page, &mut || fs::write(&link, [round as u8; 1000])))
}

#[repr(align(4096))]
struct Block([u8; BLOCK as usize]);

fn open_direct(site: &Site) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&site.page)
}

fn direct(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let file = open_direct(site)?;
    for round in 0..ROUNDS {
        let block = Block([round as u8; BLOCK as usize]);
        see(&site.page, &mut || file.write_all_at(&block.0, BLOCK * (round as u64 % 3)))?;
    }
    Ok(())
}

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

const IOCB_CMD_PWRITE: u16 = 1;

fn direct_by_aio(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let file = open_direct(site)?;
    let mut context: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word.
    checked(unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) })?;
    for round in 0..ROUNDS {
        let block = Block([round as u8; BLOCK as usize]);
        let mut request = ControlBlock {
            opcode: IOCB_CMD_PWRITE,
            fd: file.as_raw_fd() as u32,
            buffer: block.0.as_ptr() as u64,
            bytes: BLOCK,
            offset: (BLOCK * (round as u64 % 4)) as i64,
            ..ControlBlock::default()
        };
        see(&site.page, &mut || {
            let mut list = [&raw mut request];
            let mut event = [0_u64; 4];
            let no_limit = std::ptr::null::<c_void>();
            // SAFETY: request and buffer live until the completion has come.
            checked(unsafe { libc::syscall(libc::SYS_io_submit, context, 1, list.as_mut_ptr()) })?;
            // SAFETY: the kernel writes one event of 32 bytes.
            checked(unsafe {
                libc::syscall(libc::SYS_io_getevents, context, 1, 1, event.as_mut_ptr(), no_limit)
            })?;
            assert_eq!(event[2], BLOCK);
            Ok(())
        })?;
    }
    // SAFETY: made above.
    checked(unsafe { libc::syscall(libc::SYS_io_destroy, context) })
}

fn copies(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let source = File::open(&site.other)?;
    let (pipe_out, pipe_in) = rustix::pipe::pipe()?;
    through(site, see, |file, round| {
        let copied = match round % 3 {
            0 => {
                rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
                rustix::fs::sendfile(file, &source, Some(&mut 0), 500)?
            }
            1 => rustix::fs::copy_file_range(&source, Some(&mut 0), file, Some(&mut 0), 500)?,
            _ => {
                rustix::io::write(&pipe_in, &[7; 500])?;
                let flags = rustix::pipe::SpliceFlags::empty();
                rustix::pipe::splice(&pipe_out, None, file, Some(&mut 0), 500, flags)?
            }
        };
        assert_eq!(copied, 500);
        Ok(())
    })
}

const FICLONE: libc::Ioctl = 0x4004_9409_u32 as libc::Ioctl;
const FICLONERANGE: libc::Ioctl = 0x4020_940d_u32 as libc::Ioctl;

fn clone(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        fs::write(&site.other, vec![round as u8; PAGE_BYTES])?;
        let source = File::open(&site.other)?;
        let file = site.open()?;
        see(&site.page, &mut || {
            // SAFETY: the argument is a descriptor.
            checked(unsafe { libc::ioctl(file.as_raw_fd(), FICLONE, source.as_raw_fd()) })
        })?;
    }
    Ok(())
}

fn clone_range(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        fs::write(&site.other, vec![round as u8; PAGE_BYTES])?;
        let source = File::open(&site.other)?;
        let file = site.open()?;
        let range = [source.as_raw_fd() as u64, 0, BLOCK, BLOCK];
        see(&site.page, &mut || {
            // SAFETY: `struct file_clone_range` is four words.
            checked(unsafe { libc::ioctl(file.as_raw_fd(), FICLONERANGE, range.as_ptr()) })
        })?;
    }
    Ok(())
}

fn truncate_by_opening(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for _ in 0..ROUNDS {
        std::fs::write(&site.page, b"to be cut")?;
        see(&site.page, &mut || {
            rustix::fs::open(&site.page, OFlags::RDONLY | OFlags::TRUNC, Mode::empty())?;
            Ok(())
        })?;
    }
    Ok(())
}

fn truncate(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let path = path_of(&site.page);
    for round in 0..ROUNDS {
        see(&site.page, &mut || {
            // SAFETY: a valid C string.
            checked(unsafe { libc::truncate(path.as_ptr(), 5_000 + round as i64) })
        })?;
    }
    through(site, see, |file, round| file.set_len(10_000 - round as u64))
}

fn fallocate(
    site: &Site,
    see: &mut See<'_>,
    flags: FallocateFlags,
    extends: bool,
) -> io::Result<()> {
    for round in 0..ROUNDS as u64 {
        fs::write(&site.page, vec![b'c'; PAGE_BYTES])?;
        let file = site.open()?;
        let offset = if extends { BLOCK * (5 + round) } else { BLOCK };
        see(&site.page, &mut || Ok(rustix::fs::fallocate(&file, flags, offset, BLOCK)?))?;
    }
    Ok(())
}

fn map_file(file: &File) -> io::Result<*mut c_void> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    Ok(unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            BLOCK as usize,
            protection,
            MapFlags::SHARED,
            file,
            0,
        )
    }?)
}

fn unmap(address: *mut c_void) -> io::Result<()> {
    // SAFETY: mapped by `map_file`, and not used any longer.
    Ok(unsafe { rustix::mm::munmap(address, BLOCK as usize) }?)
}

fn map(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let file = site.open()?;
    (0..ROUNDS).try_for_each(|_| see(&site.page, &mut || unmap(map_file(&file)?)))
}

fn store(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let file = site.open()?;
    let address = map_file(&file)?;
    for round in 0..ROUNDS {
        see(&site.page, &mut || {
            // SAFETY: within the mapping.
            unsafe { address.cast::<u8>().write_volatile(round as u8) };
            Ok(())
        })?;
    }
    unmap(address)
}

fn store_after_sync(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let address = map_file(&site.open()?)?;
    for round in 0..ROUNDS {
        see(&site.page, &mut || {
            // SAFETY: within the mapping.
            unsafe { address.cast::<u8>().write_volatile(round as u8) };
            Ok(())
        })?;
        // SAFETY: within the mapping.
        unsafe { rustix::mm::msync(address, BLOCK as usize, MsyncFlags::SYNC) }?;
    }
    unmap(address)
}

/// One request, done. Whatever interrupts the thread ends a request that waits: it is made again.
fn uring(ring: &mut IoUring, request: &squeue::Entry) -> io::Result<i32> {
    /// What the kernel makes a call again for, and a request not (linux/errno.h).
    const ERESTARTSYS: i32 = 512;
    loop {
        // SAFETY: what the request refers to outlives this call, which waits for its end.
        unsafe { ring.submission().push(request) }.unwrap();
        let result = loop {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                submitted => submitted.map(drop)?,
            }
            if let Some(completion) = ring.completion().next() {
                break completion.result();
            }
        };
        match -result {
            libc::EINTR | ERESTARTSYS => {}
            error @ 1.. => return Err(io::Error::from_raw_os_error(error)),
            _ => return Ok(result),
        }
    }
}

fn uring_write(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    through(site, see, |file, round| {
        let bytes = [round as u8; 100];
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), 100)
            .offset(round as u64);
        assert_eq!(uring(&mut ring, &write.build())?, 100);
        Ok(())
    })
}

fn uring_direct(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    let file = open_direct(site)?;
    for round in 0..ROUNDS {
        let block = Block([round as u8; BLOCK as usize]);
        let write = opcode::Write::new(types::Fd(file.as_raw_fd()), block.0.as_ptr(), BLOCK as u32)
            .offset(BLOCK * (round as u64 % 4))
            .build()
            .flags(if round % 2 == 0 { squeue::Flags::ASYNC } else { squeue::Flags::empty() });
        see(&site.page, &mut || uring(&mut ring, &write).map(drop))?;
    }
    Ok(())
}

/// The descriptor is in the ring's own table: no system call tells of it.
fn uring_open_and_write(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    ring.submitter().register_files_sparse(1)?;
    let path = path_of(&site.page);
    for round in 0..ROUNDS {
        see(&site.page, &mut || {
            let slot = types::DestinationSlot::try_from_slot_target(0).unwrap();
            let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
                .flags(libc::O_WRONLY)
                .file_index(Some(slot));
            uring(&mut ring, &open.build())?;
            let bytes = [round as u8; 100];
            uring(&mut ring, &opcode::Write::new(types::Fixed(0), bytes.as_ptr(), 100).build())?;
            uring(&mut ring, &opcode::Close::new(types::Fixed(0)).build()).map(drop)
        })?;
    }
    Ok(())
}

fn uring_fallocate(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    through(site, see, |file, round| {
        let request = opcode::Fallocate::new(types::Fd(file.as_raw_fd()), BLOCK)
            .offset(BLOCK * (5 + round as u64));
        uring(&mut ring, &request.build()).map(drop)
    })
}

fn uring_ftruncate(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    through(site, see, |file, round| {
        let request = opcode::Ftruncate::new(types::Fd(file.as_raw_fd()), 10_000 + round as u64);
        uring(&mut ring, &request.build()).map(drop)
    })
}

fn uring_names(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    let at = types::Fd(libc::AT_FDCWD);
    let (page, other, away) =
        (path_of(&site.page), path_of(&site.other), path_of(&site.elsewhere.join("away")));
    let folder = path_of(&site.directory.join("folder"));
    for _ in 0..ROUNDS {
        fs::write(&site.other, b"new")?;
        let rename = opcode::RenameAt::new(at, other.as_ptr(), at, page.as_ptr()).build();
        see(&site.page, &mut || uring(&mut ring, &rename).map(drop))?;
        fs::hard_link(&site.page, site.elsewhere.join("away"))?;
        let unlink = opcode::UnlinkAt::new(at, page.as_ptr()).build();
        see(&site.page, &mut || uring(&mut ring, &unlink).map(drop))?;
        let link = opcode::LinkAt::new(at, away.as_ptr(), at, page.as_ptr()).build();
        see(&site.page, &mut || uring(&mut ring, &link).map(drop))?;
        fs::remove_file(&site.page)?;
        let symlink = opcode::SymlinkAt::new(at, away.as_ptr(), page.as_ptr()).build();
        see(&site.page, &mut || uring(&mut ring, &symlink).map(drop))?;
        fs::remove_file(&site.page)?;
        fs::rename(site.elsewhere.join("away"), &site.page)?;
        let mkdir = opcode::MkDirAt::new(at, folder.as_ptr()).mode(0o755).build();
        see(&site.page, &mut || uring(&mut ring, &mkdir).map(drop))?;
        fs::remove_dir(site.directory.join("folder"))?;
    }
    Ok(())
}

fn uring_xattr(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut ring = IoUring::new(8)?;
    through(site, see, |file, round| {
        let value = [round as u8; 4];
        let fd = types::Fd(file.as_raw_fd());
        let set = opcode::FSetXattr::new(fd, c"user.nicache".as_ptr(), value.as_ptr().cast(), 4);
        uring(&mut ring, &set.build()).map(drop)
    })
}

fn rename_over(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        fs::write(&site.other, format!("version {round}"))?;
        see(&site.page, &mut || fs::rename(&site.other, &site.page))?;
    }
    Ok(())
}

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, flags)?)
}

fn exchange(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let away = site.elsewhere.join("away");
    fs::copy(&site.other, &away)?;
    for round in 0..ROUNDS {
        let with = if round % 2 == 0 { &site.other } else { &away };
        see(&site.page, &mut || rename_with(with, &site.page, RenameFlags::EXCHANGE))?;
        see(&site.page, &mut || rename_with(&site.page, with, RenameFlags::EXCHANGE))?;
    }
    Ok(())
}

fn whiteout(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        let away = site.elsewhere.join(round.to_string());
        see(&site.page, &mut || rename_with(&site.page, &away, RenameFlags::WHITEOUT))?;
        see(&site.page, &mut || fs::rename(&away, &site.page))?;
    }
    Ok(())
}

fn rename_across(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let away = site.elsewhere.join("away");
    for _ in 0..ROUNDS {
        see(&site.page, &mut || fs::rename(&site.page, &away))?;
        see(&site.page, &mut || fs::rename(&away, &site.page))?;
    }
    Ok(())
}

fn rename_directory(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let away = site.elsewhere.join("away");
    for _ in 0..ROUNDS {
        see(&site.page, &mut || fs::rename(&site.directory, &away))?;
        see(&site.page, &mut || fs::rename(&away, &site.directory))?;
    }
    Ok(())
}

fn exchange_directories(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for _ in 0..ROUNDS {
        see(&site.page, &mut || {
            rename_with(&site.directory, &site.elsewhere, RenameFlags::EXCHANGE)
        })?;
    }
    Ok(())
}

fn unlink_and_link(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let away = site.elsewhere.join("away");
    fs::hard_link(&site.page, &away)?;
    for _ in 0..ROUNDS {
        see(&site.page, &mut || fs::remove_file(&site.page))?;
        see(&site.page, &mut || fs::hard_link(&away, &site.page))?;
    }
    Ok(())
}

fn create(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for _ in 0..ROUNDS {
        see(&site.page, &mut || fs::remove_file(&site.page))?;
        see(&site.page, &mut || File::create_new(&site.page).map(drop))?;
    }
    Ok(())
}

fn other_names(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    fs::remove_file(&site.page)?;
    for _ in 0..ROUNDS {
        see(&site.page, &mut || fs::create_dir(&site.page))?;
        see(&site.page, &mut || fs::remove_dir(&site.page))?;
        see(&site.page, &mut || std::os::unix::fs::symlink("other", &site.page))?;
        see(&site.page, &mut || fs::remove_file(&site.page))?;
        see(&site.page, &mut || {
            Ok(rustix::fs::mknodat(CWD, &site.page, FileType::Fifo, Mode::RUSR, 0)?)
        })?;
        see(&site.page, &mut || fs::remove_file(&site.page))?;
    }
    Ok(())
}

fn tmpfile(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for _ in 0..ROUNDS {
        fs::remove_file(&site.page)?;
        let file = rustix::fs::open(&site.directory, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR)?;
        rustix::io::write(&file, b"tmp")?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        see(&site.page, &mut || {
            Ok(rustix::fs::linkat(CWD, path.as_str(), CWD, &site.page, AtFlags::SYMLINK_FOLLOW)?)
        })?;
    }
    Ok(())
}

fn modes_of_page(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        let mode = if round % 2 == 0 { 0o600 } else { 0o644 };
        see(&site.page, &mut || fs::set_permissions(&site.page, Permissions::from_mode(mode)))?;
        see(&site.page, &mut || std::os::unix::fs::chown(&site.page, Some(round as u32), None))?;
    }
    Ok(())
}

fn modes_of_directory(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        let mode = if round % 2 == 0 { 0o700 } else { 0o755 };
        see(&site.page, &mut || {
            fs::set_permissions(&site.directory, Permissions::from_mode(mode))
        })?;
    }
    Ok(())
}

fn times(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        let time = Timespec { tv_sec: round as i64, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        see(&site.page, &mut || {
            Ok(rustix::fs::utimensat(CWD, &site.page, &times, AtFlags::empty())?)
        })?;
    }
    Ok(())
}

fn xattr(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        let file = site.open()?;
        see(&site.page, &mut || {
            Ok(rustix::fs::fsetxattr(&file, "user.nicache", &[round as u8], XattrFlags::empty())?)
        })?;
        see(&site.page, &mut || Ok(rustix::fs::fremovexattr(&file, "user.nicache")?))?;
    }
    Ok(())
}

/// `system.posix_acl_access`: owner, user 1000, group, mask, others.
fn acl(user: u16) -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, user, 1000), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 4, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn access_list(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for round in 0..ROUNDS {
        let list = acl(round as u16 % 8);
        let file = site.open()?;
        see(&site.page, &mut || {
            Ok(rustix::fs::fsetxattr(&file, "system.posix_acl_access", &list, XattrFlags::empty())?)
        })?;
    }
    Ok(())
}

fn access_list_by_path(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    const NAME: &str = "system.posix_acl_access";
    for round in 0..ROUNDS {
        let list = acl(round as u16 % 8);
        see(&site.page, &mut || {
            Ok(rustix::fs::setxattr(&site.page, NAME, &list, XattrFlags::empty())?)
        })?;
        see(&site.page, &mut || Ok(rustix::fs::lremovexattr(&site.page, NAME)?))?;
    }
    Ok(())
}

const FS_IOC_SETFLAGS: libc::Ioctl = 0x4008_6602_u32 as libc::Ioctl;
const FS_NODUMP_FL: c_int = 0x40;

fn attributes(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    through(site, see, |file, round| {
        let flags: c_int = if round % 2 == 0 { FS_NODUMP_FL } else { 0 };
        // SAFETY: the kernel reads one int.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_SETFLAGS, &raw const flags) })
    })
}

fn restored_times(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let modified = fs::metadata(&site.page)?.modified()?;
    for round in 0..ROUNDS {
        see(&site.page, &mut || {
            let file = site.open()?;
            file.write_all_at(&[round as u8; 100], 0)?;
            file.set_modified(modified)
        })?;
    }
    Ok(())
}

const EXT4_IOC_MOVE_EXT: libc::Ioctl = 0xc028_660f_u32 as libc::Ioctl;

/// Exchanges blocks with another file: the bytes of both stay what they are, says the caller.
fn ext4_move(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for _ in 0..ROUNDS {
        let (file, donor) =
            (site.open()?, OpenOptions::new().read(true).write(true).open(&site.other)?);
        (&file).write_all(&[1; PAGE_BYTES])?;
        file.sync_all()?;
        donor.sync_all()?;
        // struct move_extent: reserved, donor_fd, orig_start, donor_start, len, moved_len
        let mut request = [u64::from(donor.as_raw_fd() as u32) << 32, 0, 0, 2, 0];
        see(&site.page, &mut || {
            // SAFETY: the structure is five words.
            checked(unsafe {
                libc::ioctl(file.as_raw_fd(), EXT4_IOC_MOVE_EXT, request.as_mut_ptr())
            })
        })?;
    }
    Ok(())
}

const XFS_IOC_FD_TO_HANDLE: libc::Ioctl = 0xc038_586a_u32 as libc::Ioctl;
const XFS_IOC_OPEN_BY_HANDLE: libc::Ioctl = 0xc038_586b_u32 as libc::Ioctl;

/// `struct xfs_fsop_handlereq`.
#[repr(C)]
struct HandleRequest {
    fd: u32,
    path: *const c_void,
    open_flags: u32,
    handle: *const c_void,
    handle_bytes: u32,
    out: *mut c_void,
    out_bytes: *mut u32,
}

/// Writes by a descriptor that was opened by handle: it leaves the times alone, and no opening
/// shows it.
fn xfs_handle(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let mut handle = [0_u8; 64];
    let mut bytes = 0_u32;
    let file = File::open(&site.page)?;
    let directory = File::open(&site.directory)?;
    let null = std::ptr::null();
    let mut request = HandleRequest {
        fd: file.as_raw_fd() as u32,
        path: null,
        open_flags: 0,
        handle: null,
        handle_bytes: 0,
        out: handle.as_mut_ptr().cast(),
        out_bytes: &raw mut bytes,
    };
    // SAFETY: the kernel writes at most 64 bytes of handle, and its length.
    checked(unsafe { libc::ioctl(directory.as_raw_fd(), XFS_IOC_FD_TO_HANDLE, &raw mut request) })?;
    for round in 0..ROUNDS {
        let mut open = HandleRequest {
            fd: 0,
            path: null,
            open_flags: libc::O_RDWR as u32,
            handle: handle.as_ptr().cast(),
            handle_bytes: bytes,
            out: std::ptr::null_mut(),
            out_bytes: std::ptr::null_mut(),
        };
        see(&site.page, &mut || {
            // SAFETY: the handle is as long as the kernel said.
            let fd = unsafe {
                libc::ioctl(directory.as_raw_fd(), XFS_IOC_OPEN_BY_HANDLE, &raw mut open)
            };
            checked(fd)?;
            // SAFETY: just opened; closed below.
            rustix::io::pwrite(unsafe { BorrowedFd::borrow_raw(fd) }, &[round as u8; 10], 0)?;
            // SAFETY: nobody else knows the descriptor.
            checked(unsafe { libc::close(fd) })
        })?;
    }
    Ok(())
}

const BTRFS_IOC_SNAP_CREATE: libc::Ioctl = 0x5000_9401_u32 as libc::Ioctl;
const BTRFS_IOC_SUBVOL_CREATE: libc::Ioctl = 0x5000_940e_u32 as libc::Ioctl;
const BTRFS_IOC_SNAP_DESTROY: libc::Ioctl = 0x5000_940f_u32 as libc::Ioctl;

/// Does something with a subvolume of this name in the directory; `source`: the one that a snapshot
/// is made of.
fn subvolume(
    request: libc::Ioctl,
    directory: &Path,
    name: &str,
    source: Option<&File>,
) -> io::Result<()> {
    let directory = File::open(directory)?;
    // struct btrfs_ioctl_vol_args: fd, name
    let mut arguments = [0_u8; 4096];
    arguments[..8]
        .copy_from_slice(&source.map_or(0, |source| i64::from(source.as_raw_fd())).to_ne_bytes());
    arguments[8..8 + name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the structure is 4096 bytes.
    checked(unsafe { libc::ioctl(directory.as_raw_fd(), request, arguments.as_ptr()) })
}

fn btrfs_subvolume(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    let page = site.directory.join("volume/page");
    for round in 0..ROUNDS {
        see(&page, &mut || subvolume(BTRFS_IOC_SUBVOL_CREATE, &site.directory, "volume", None))?;
        see(&page, &mut || fs::write(&page, b"first"))?;
        see(&page, &mut || fs::write(&page, [round as u8; 100]))?;
        see(&page, &mut || fs::remove_file(&page))?;
        see(&page, &mut || subvolume(BTRFS_IOC_SNAP_DESTROY, &site.directory, "volume", None))?;
    }
    Ok(())
}

fn btrfs_snapshot(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    subvolume(BTRFS_IOC_SUBVOL_CREATE, &site.elsewhere, "source", None)?;
    let source = site.elsewhere.join("source");
    fs::write(source.join("page"), b"of the source")?;
    let source = File::open(source)?;
    let page = site.directory.join("volume/page");
    for round in 0..ROUNDS {
        see(&page, &mut || {
            subvolume(BTRFS_IOC_SNAP_CREATE, &site.directory, "volume", Some(&source))
        })?;
        see(&page, &mut || fs::write(&page, [round as u8; 100]))?;
        see(&page, &mut || subvolume(BTRFS_IOC_SNAP_DESTROY, &site.directory, "volume", None))?;
    }
    Ok(())
}

fn btrfs_rename(site: &Site, see: &mut See<'_>) -> io::Result<()> {
    for name in ["one", "two"] {
        subvolume(BTRFS_IOC_SUBVOL_CREATE, &site.directory, name, None)?;
        fs::write(site.directory.join(name).join("page"), name)?;
    }
    let (one, two) = (site.directory.join("one"), site.directory.join("two"));
    let page = one.join("page");
    for _ in 0..ROUNDS {
        see(&page, &mut || rename_with(&one, &two, RenameFlags::EXCHANGE))?;
    }
    Ok(())
}
