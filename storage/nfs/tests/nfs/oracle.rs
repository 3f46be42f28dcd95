//! Does the same over NFS and on a local directory, by the same users: both must give the same
//! errors and the same tree.
//!
//! The local side does what the protocol says with system calls that are made as the user: it goes
//! from name to name without following links, and lets an owner read and write.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc;

use nfs3_types::nfs3::*;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use proptest::prelude::*;
use rustix::fs::{
    AtFlags, FileType, Gid as FsGid, Mode, OFlags, Timespec, Timestamps, Uid as FsUid, chmod,
    chownat, fstat, linkat, mkdirat, mknodat, openat, readlinkat, renameat, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::Errno;

use crate::world::*;

/// Names, from the root down.
type Where = Vec<u8>;

#[derive(Clone, Debug)]
enum Operation {
    Create { at: Where, mode: u32, is_guarded: bool },
    MkDir { at: Where, mode: u32 },
    SymLink { at: Where, text: u8 },
    MkFifo { at: Where, mode: u32 },
    Remove { at: Where },
    RmDir { at: Where },
    Rename { from: Where, to: Where },
    Link { from: Where, to: Where },
    Mode { at: Where, mode: u32 },
    Size { at: Where, size: u32 },
    Owner { at: Where, uid: Option<u32>, gid: Option<u32> },
    Time { at: Where, seconds: Option<u32> },
    Write { at: Where, offset: u32, len: u16 },
    Read { at: Where, offset: u32, len: u16 },
    ReadLink { at: Where },
    List { at: Where },
}

/// What an operation gives beside its status.
type Outcome = Result<Vec<Vec<u8>>, u32>;

const USERS: [(u32, u32); 3] = [(0, 0), (1000, 100), (1001, 101)];

fn places() -> impl Strategy<Value = Where> {
    prop::collection::vec(0..3u8, 1..4)
}

fn modes() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0o777),
        Just(0o755),
        Just(0o700),
        Just(0o644),
        Just(0o600),
        Just(0o1777),
        Just(0o2775),
        Just(0o4755),
        Just(0o444),
        Just(0)
    ]
}

fn operations() -> impl Strategy<Value = Operation> {
    use Operation as O;
    prop_oneof![
        4 => (places(), modes(), any::<bool>())
            .prop_map(|(at, mode, is_guarded)| O::Create { at, mode, is_guarded }),
        4 => (places(), modes()).prop_map(|(at, mode)| O::MkDir { at, mode }),
        1 => (places(), 0..4u8).prop_map(|(at, text)| O::SymLink { at, text }),
        1 => (places(), modes()).prop_map(|(at, mode)| O::MkFifo { at, mode }),
        2 => places().prop_map(|at| O::Remove { at }),
        1 => places().prop_map(|at| O::RmDir { at }),
        3 => (places(), places()).prop_map(|(from, to)| O::Rename { from, to }),
        2 => (places(), places()).prop_map(|(from, to)| O::Link { from, to }),
        2 => (places(), modes()).prop_map(|(at, mode)| O::Mode { at, mode }),
        2 => (places(), 0..20_000u32).prop_map(|(at, size)| O::Size { at, size }),
        1 => (places(), prop::option::of(0..3usize), prop::option::of(0..3usize))
            .prop_map(|(at, uid, gid)| O::Owner { at, uid: uid.map(|i| USERS[i].0),
                gid: gid.map(|i| USERS[i].1) }),
        1 => (places(), prop::option::of(any::<u32>()))
            .prop_map(|(at, seconds)| O::Time { at, seconds }),
        4 => (places(), 0..30_000u32, 0..9000u16)
            .prop_map(|(at, offset, len)| O::Write { at, offset, len }),
        2 => (places(), 0..30_000u32, 0..9000u16)
            .prop_map(|(at, offset, len)| O::Read { at, offset, len }),
        1 => places().prop_map(|at| O::ReadLink { at }),
        2 => places().prop_map(|at| O::List { at }),
    ]
}

fn name(part: u8) -> String {
    ["a", "b", "c"][part as usize].into()
}

fn data(offset: u32, len: u16) -> Vec<u8> {
    (0..u32::from(len)).map(|i| (offset + i).wrapping_mul(31) as u8).collect()
}

/// Over NFS.
struct Remote {
    client: Client,
    root: nfs_fh3,
}

impl Remote {
    fn walk(&mut self, parts: &[u8]) -> Result<nfs_fh3, Stat> {
        parts.iter().try_fold(self.root.clone(), |directory, &part| {
            self.client.lookup(&directory, name(part))
        })
    }

    fn parent(&mut self, at: &[u8]) -> Result<(nfs_fh3, String), Stat> {
        let (last, parents) = at.split_last().unwrap();
        let directory = self.walk(parents)?;
        if self.client.getattr(&directory)?.type_ != ftype3::NF3DIR {
            return Err(Stat::NFS3ERR_NOTDIR);
        }
        Ok((directory, name(*last)))
    }

    fn set(&mut self, at: &[u8], attributes: sattr3) -> Result<Vec<Vec<u8>>, Stat> {
        let object = self.walk(at)?;
        self.client.setattr(&object, attributes, Nfs3Option::None).map(|_| vec![])
    }

    fn run(&mut self, operation: &Operation) -> Result<Vec<Vec<u8>>, Stat> {
        use Operation as O;
        match operation {
            O::Create { at, mode: bits, is_guarded } => {
                let (directory, name) = self.parent(at)?;
                let how = if *is_guarded {
                    createhow3::GUARDED(mode(*bits))
                } else {
                    createhow3::UNCHECKED(mode(*bits))
                };
                self.client.create(&directory, name, how)?;
            }
            O::MkDir { at, mode: bits } => {
                let (directory, name) = self.parent(at)?;
                self.client.mkdir(&directory, name, mode(*bits))?;
            }
            O::SymLink { at, text } => {
                let (directory, name) = self.parent(at)?;
                self.client.symlink(&directory, name, &[b'x', b'0' + text])?;
            }
            O::MkFifo { at, mode: bits } => {
                let (directory, name) = self.parent(at)?;
                self.client.mknod(&directory, name, mknoddata3::NF3FIFO(mode(*bits)))?;
            }
            O::Remove { at } => {
                let (directory, name) = self.parent(at)?;
                self.client.remove(&directory, name)?;
            }
            O::RmDir { at } => {
                let (directory, name) = self.parent(at)?;
                self.client.rmdir(&directory, name)?;
            }
            O::Rename { from, to } => {
                let (from, to) = (self.parent(from)?, self.parent(to)?);
                self.client.rename((&from.0, from.1.as_bytes()), (&to.0, to.1.as_bytes()))?;
            }
            O::Link { from, to } => {
                let file = self.walk(from)?;
                let to = self.parent(to)?;
                self.client.link(&file, &to.0, to.1)?;
            }
            O::Mode { at, mode: bits } => return self.set(at, mode(*bits)),
            O::Size { at, size: bytes } => return self.set(at, size(u64::from(*bytes))),
            O::Owner { at, uid, gid } => {
                let optional = |id: &Option<u32>| id.map_or(Nfs3Option::None, Nfs3Option::Some);
                return self.set(
                    at,
                    sattr3 { uid: optional(uid), gid: optional(gid), ..sattr3::default() },
                );
            }
            O::Time { at, seconds } => {
                let mtime = match seconds {
                    None => set_mtime::SET_TO_SERVER_TIME,
                    Some(seconds) => {
                        set_mtime::SET_TO_CLIENT_TIME(nfstime3 { seconds: *seconds, nseconds: 7 })
                    }
                };
                return self.set(at, sattr3 { mtime, ..sattr3::default() });
            }
            O::Write { at, offset, len } => {
                let file = self.walk(at)?;
                self.client.write(
                    &file,
                    u64::from(*offset),
                    &data(*offset, *len),
                    stable_how::UNSTABLE,
                )?;
            }
            O::Read { at, offset, len } => {
                let file = self.walk(at)?;
                return self
                    .client
                    .read(&file, u64::from(*offset), u32::from(*len))
                    .map(|(data, _)| vec![data]);
            }
            O::ReadLink { at } => {
                let link = self.walk(at)?;
                return self.client.readlink(&link).map(|text| vec![text]);
            }
            O::List { at } => {
                let directory = self.walk(at)?;
                let mut names = self.client.names(&directory)?;
                names.sort();
                return Ok(names);
            }
        }
        Ok(vec![])
    }
}

/// On a local directory, by a thread that acts as the user.
struct Local {
    root: OwnedFd,
    uid: u32,
}

fn act_as(uid: u32, gid: u32) {
    for _ in 0..2 {
        setfsgid(Gid::from_raw(gid));
        setfsuid(Uid::from_raw(uid));
    }
}

impl Local {
    fn walk(&self, parts: &[u8]) -> Result<OwnedFd, Errno> {
        parts.iter().try_fold(self.root.try_clone().unwrap(), |directory, &part| {
            openat(
                &directory,
                name(part),
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
        })
    }

    fn parent(&self, at: &[u8]) -> Result<(OwnedFd, String), Errno> {
        let (last, parents) = at.split_last().unwrap();
        let directory = self.walk(parents)?;
        if FileType::from_raw_mode(fstat(&directory)?.st_mode) != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok((directory, name(*last)))
    }

    fn proc_path(file: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }

    /// A file's data, which its owner may always use. Who may execute a file may read it.
    fn open(&self, at: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = self.walk(at)?;
        let stat = fstat(&path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let proc_path = Self::proc_path(&path);
        let open = || rustix::fs::open(&proc_path, flags | OFlags::CLOEXEC, Mode::empty());
        let opened = open();
        if opened.as_ref().err() == Some(&Errno::ACCESS) {
            let may_execute = flags == OFlags::RDONLY
                && rustix::fs::accessat(
                    rustix::fs::CWD,
                    &proc_path,
                    rustix::fs::Access::EXEC_OK,
                    AtFlags::EACCESS,
                )
                .is_ok();
            if stat.st_uid == self.uid || may_execute {
                setfsuid(Uid::from_raw(0));
                let opened = open();
                setfsuid(Uid::from_raw(self.uid));
                return opened;
            }
        }
        opened
    }

    fn run(&self, operation: &Operation) -> Result<Vec<Vec<u8>>, Errno> {
        use Operation as O;
        match operation {
            O::Create { at, mode, is_guarded } => {
                let (directory, name) = self.parent(at)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                match openat(&directory, &name, flags, Mode::from_raw_mode(*mode)) {
                    Err(Errno::EXIST) if !is_guarded => {
                        let there = openat(
                            &directory,
                            &name,
                            OFlags::PATH | OFlags::NOFOLLOW,
                            Mode::empty(),
                        )?;
                        if FileType::from_raw_mode(fstat(&there)?.st_mode) != FileType::RegularFile
                        {
                            return Err(Errno::EXIST);
                        }
                    }
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
            }
            O::MkDir { at, mode } => {
                let (directory, name) = self.parent(at)?;
                mkdirat(&directory, name, Mode::from_raw_mode(*mode))?;
            }
            O::SymLink { at, text } => {
                let (directory, name) = self.parent(at)?;
                symlinkat(format!("x{text}"), &directory, name)?;
            }
            O::MkFifo { at, mode } => {
                let (directory, name) = self.parent(at)?;
                mknodat(&directory, name, FileType::Fifo, Mode::from_raw_mode(*mode), 0)?;
            }
            O::Remove { at } => {
                let (directory, name) = self.parent(at)?;
                unlinkat(&directory, name, AtFlags::empty())?;
            }
            O::RmDir { at } => {
                let (directory, name) = self.parent(at)?;
                unlinkat(&directory, name, AtFlags::REMOVEDIR)?;
            }
            O::Rename { from, to } => {
                let (from, to) = (self.parent(from)?, self.parent(to)?);
                renameat(&from.0, from.1, &to.0, to.1)?;
            }
            O::Link { from, to } => {
                let file = self.walk(from)?;
                let to = self.parent(to)?;
                linkat(
                    rustix::fs::CWD,
                    Self::proc_path(&file),
                    &to.0,
                    to.1,
                    AtFlags::SYMLINK_FOLLOW,
                )?;
            }
            O::Mode { at, mode } => {
                let file = self.walk(at)?;
                if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Symlink {
                    chmod(Self::proc_path(&file), Mode::from_raw_mode(*mode))?;
                }
            }
            O::Size { at, size } => {
                let file = self.open(at, OFlags::WRONLY)?;
                rustix::fs::ftruncate(&file, u64::from(*size))?;
            }
            O::Owner { at, uid, gid } => {
                let file = self.walk(at)?;
                if uid.is_some() || gid.is_some() {
                    chownat(
                        &file,
                        "",
                        uid.map(FsUid::from_raw),
                        gid.map(FsGid::from_raw),
                        AtFlags::EMPTY_PATH,
                    )?;
                }
            }
            O::Time { at, seconds } => {
                let file = self.walk(at)?;
                let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
                let time = match seconds {
                    None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
                    Some(seconds) => Timespec { tv_sec: i64::from(*seconds), tv_nsec: 7 },
                };
                let times = Timestamps { last_access: omit, last_modification: time };
                utimensat(&file, "", &times, AtFlags::EMPTY_PATH)?;
            }
            O::Write { at, offset, len } => {
                let file = self.open(at, OFlags::WRONLY)?;
                if *len > 0 {
                    rustix::io::pwrite(&file, &data(*offset, *len), u64::from(*offset))?;
                }
            }
            O::Read { at, offset, len } => {
                let file = self.open(at, OFlags::RDONLY)?;
                let mut data = vec![0; usize::from(*len)];
                let read = rustix::io::pread(&file, &mut data[..], u64::from(*offset))?;
                data.truncate(read);
                return Ok(vec![data]);
            }
            O::ReadLink { at } => {
                let link = self.walk(at)?;
                if FileType::from_raw_mode(fstat(&link)?.st_mode) != FileType::Symlink {
                    return Err(Errno::INVAL);
                }
                return Ok(vec![readlinkat(&link, "", vec![])?.into_bytes()]);
            }
            O::List { at } => {
                let path = self.walk(at)?;
                let directory = rustix::fs::open(
                    Self::proc_path(&path),
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK,
                    Mode::empty(),
                );
                let directory = match directory {
                    // A link that leads nowhere is not a directory either.
                    Err(Errno::LOOP) => return Err(Errno::NOTDIR),
                    other => other?,
                };
                let mut names: Vec<Vec<u8>> = rustix::fs::Dir::new(directory)?
                    .map(|entry| entry.unwrap().file_name().to_bytes().to_vec())
                    .filter(|name| name != b"." && name != b"..")
                    .collect();
                names.sort();
                return Ok(names);
            }
        }
        Ok(vec![])
    }
}

/// The protocol's number for an error.
fn number(errno: Errno) -> u32 {
    match errno {
        Errno::NAMETOOLONG => 63,
        Errno::NOTEMPTY => 66,
        Errno::LOOP => Errno::ACCESS.raw_os_error().unsigned_abs(),
        other => other.raw_os_error().unsigned_abs(),
    }
}

/// Everything that can be seen of a tree, but times that were not set.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut inodes: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let kind = meta.file_type();
        let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        let first = inodes.entry(meta.ino()).or_insert_with(|| name.clone()).clone();
        let content = if kind.is_file() {
            blake3_of(&fs::read(&path).unwrap())
        } else if kind.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else if kind.is_dir() {
            let mut entries: Vec<_> =
                fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            entries.sort_by(|a, b| b.cmp(a));
            open.extend(entries);
            String::new()
        } else {
            assert!(kind.is_fifo());
            "fifo".into()
        };
        let mtime = if meta.mtime_nsec() == 7 { meta.mtime() } else { 0 };
        let links = if kind.is_dir() { 0 } else { meta.nlink() };
        let size = if kind.is_dir() { 0 } else { meta.len() };
        let line = format!(
            "{:o} {}:{} {links} names, {size} bytes, {mtime}, first {first:?}, {content}",
            meta.mode(),
            meta.uid(),
            meta.gid()
        );
        found.insert(name, line);
    }
    found
}

fn blake3_of(bytes: &[u8]) -> String {
    format!(
        "{:?}",
        bytes.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte))
    )
}

/// A thread that executes operations locally, so the test's own thread stays who it is.
fn local_thread(root: &Path) -> (mpsc::Sender<(usize, Operation)>, mpsc::Receiver<Outcome>) {
    let (orders, to_do) = mpsc::channel::<(usize, Operation)>();
    let (done, outcomes) = mpsc::channel();
    let root = CString::new(root.as_os_str().as_bytes()).unwrap();
    std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
        rustix::process::umask(Mode::empty());
        // SAFETY: no groups, and no memory that they are read from; of this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) }, 0);
        let root = rustix::fs::open(root.as_c_str(), OFlags::PATH, Mode::empty()).unwrap();
        let mut local = Local { root, uid: 0 };
        for (user, operation) in to_do {
            let (uid, gid) = USERS[user];
            act_as(uid, gid);
            local.uid = uid;
            let outcome = local.run(&operation).map_err(number);
            act_as(0, 0);
            if done.send(outcome).is_err() {
                return;
            }
        }
    });
    (orders, outcomes)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn over_nfs_it_is_as_it_is_locally(
        steps in prop::collection::vec((0..3usize, operations()), 1..120),
    ) {
        let world = World::new();
        let other = folder();
        let local = other.path().join("local");
        fs::create_dir(&local).unwrap();
        fs::set_permissions(&local, fs::Permissions::from_mode(0o777)).unwrap();
        let (client, root) = world.mounted();
        let mut remote = Remote { client, root };
        let (orders, outcomes) = local_thread(&local);
        for (i, (user, operation)) in steps.iter().enumerate() {
            let (uid, gid) = USERS[*user];
            remote.client.act_as(uid, gid, &[]);
            let by_nfs = remote.run(operation).map_err(|status| status as u32);
            orders.send((*user, operation.clone())).unwrap();
            let locally = outcomes.recv().unwrap();
            prop_assert_eq!(by_nfs, locally, "step {}: user {} {:?}", i, uid, operation);
        }
        prop_assert_eq!(tree(&world.path), tree(&local));
    }
}
