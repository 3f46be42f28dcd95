//! READ, WRITE, COMMIT.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nfs3_types::nfs3::*;
use nicache_payload::{Extent, FileId, Payload, Stability};

use crate::world::*;

#[test]
fn bytes_are_those_that_were_written() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let mut model: Vec<u8> = Vec::new();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..120 {
        let offset = random.usize(..300_000);
        let len = *random
            .choice(&[0usize, 1, 3, 511, 4096, 16_384, 16_385, 65_536, 65_537, 200_000])
            .unwrap();
        if random.bool() {
            let data: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            let stable = *random
                .choice(&[stable_how::UNSTABLE, stable_how::DATA_SYNC, stable_how::FILE_SYNC])
                .unwrap();
            let ok = client.write(&file, offset as u64, &data, stable).unwrap();
            if len > 0 {
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&data);
            }
            assert_eq!(ok.file_wcc.after.unwrap().size, model.len() as u64);
        } else {
            let (data, eof) = client.read(&file, offset as u64, len as u32).unwrap();
            let expected = model.get(offset..).unwrap_or_default();
            let expected = &expected[..expected.len().min(len)];
            assert!(data == expected, "{len} bytes at {offset}");
            assert_eq!(eof, offset + data.len() >= model.len());
        }
    }
    client.commit(&file).unwrap();
    assert!(fs::read(world.path.join("f")).unwrap() == model);
}

#[test]
fn the_longest_payload_and_more() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let info: FSINFO3res = client
        .call(nicache_nfs::protocol::Procedure::FsInfo, &FSINFO3args { fsroot: root.clone() });
    let info = result(info).unwrap();
    let data: Vec<u8> = (0..info.wtmax).map(|i| (i ^ i >> 8) as u8).collect();
    let file = client.make_file(&root, "f");
    client.write(&file, 5, &data, stable_how::UNSTABLE).unwrap();
    let (read, _) = client.read(&file, 5, info.rtmax).unwrap();
    assert!(read == data);
    let (read, eof) = client.read(&file, 0, u32::MAX).unwrap();
    assert_eq!(
        (read.len(), eof),
        (info.rtmax as usize, false),
        "more than rtmax is cut, not refused"
    );
}

#[test]
fn far_beyond_four_gigabytes() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let far = 5_000_000_000;
    client.write(&file, far, b"end", stable_how::FILE_SYNC).unwrap();
    let found = client.getattr(&file).unwrap();
    assert_eq!(found.size, far + 3);
    assert!(found.used < 1 << 20, "it is a hole");
    assert_eq!(client.read(&file, far - 2, 10).unwrap(), (b"\0\0end".to_vec(), true));
    assert_eq!(client.read(&file, 1 << 32, 4).unwrap(), (vec![0; 4], false));
    assert_eq!(client.read(&file, far + 3, 4).unwrap(), (vec![], true));
    for offset in [far + 4, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        assert_eq!(client.read(&file, offset, 4).unwrap(), (vec![], true), "{offset}");
    }
    for offset in [u64::MAX, u64::MAX - 2, i64::MAX as u64, i64::MAX as u64 - 2] {
        assert_eq!(
            client.write(&file, offset, b"xyz", stable_how::UNSTABLE).unwrap_err(),
            Stat::NFS3ERR_FBIG,
            "{offset}"
        );
    }
    assert_eq!(
        client.setattr(&file, size(u64::MAX), Nfs3Option::None).unwrap_err(),
        Stat::NFS3ERR_FBIG
    );
    client.setattr(&file, size(1 << 33), Nfs3Option::None).unwrap();
    assert_eq!(fs::metadata(world.path.join("f")).unwrap().len(), 1 << 33);
    client.setattr(&file, size(far + 1), Nfs3Option::None).unwrap();
    assert_eq!(client.read(&file, far, 10).unwrap(), (b"e".to_vec(), true));
}

#[test]
fn only_files_have_data() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let link = client.symlink(&root, "l", b"x").unwrap();
    assert_eq!(client.read(&root, 0, 1), Err(Stat::NFS3ERR_ISDIR));
    assert_eq!(
        client.write(&root, 0, b"x", stable_how::UNSTABLE).unwrap_err(),
        Stat::NFS3ERR_ISDIR
    );
    assert_eq!(client.commit(&root).unwrap_err(), Stat::NFS3ERR_ISDIR);
    assert_eq!(client.read(&link, 0, 1), Err(Stat::NFS3ERR_INVAL));
    assert_eq!(client.commit(&link).unwrap_err(), Stat::NFS3ERR_INVAL);
}

#[test]
fn a_write_takes_the_set_user_id_bit() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let path = world.path.join("f");
    for (uid, expected) in [(1000, 0o777), (0, 0o6777)] {
        fs::write(&path, "program").unwrap();
        std::os::unix::fs::chown(&path, Some(500), Some(500)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        client.act_as(uid, uid, &[]);
        let file = client.lookup(&root, "f").unwrap();
        client.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, expected, "written by {uid}");
    }
}

/// Payload that can be made to fail, to wait and to lose.
struct Faulty {
    inner: Arc<dyn Payload>,
    is_lost: AtomicU64,
    fails: AtomicBool,
    /// Somebody else is told that a write of the file failed, while this one waits.
    tells_others: AtomicBool,
}

impl Faulty {
    fn new() -> Self {
        Self {
            inner: original(),
            is_lost: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            tells_others: AtomicBool::new(false),
        }
    }

    fn lose(&self) {
        self.is_lost.fetch_add(1, Ordering::SeqCst);
    }
}

impl Payload for Faulty {
    fn read(&self, file: &File, id: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.inner.read(file, id, offset, len)
    }

    fn write(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(28));
        }
        if self.tells_others.load(Ordering::SeqCst) {
            self.lose();
        }
        self.inner.write(file, id, offset, data, stability)
    }

    fn commit(&self, file: &File, id: FileId) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            self.lose();
            return Err(io::Error::from_raw_os_error(5));
        }
        if self.tells_others.load(Ordering::SeqCst) {
            self.lose();
        }
        self.inner.commit(file, id)
    }

    fn resize(&self, file: &File, id: FileId, size: u64) -> io::Result<()> {
        self.inner.resize(file, id, size)
    }

    fn verifier(&self) -> u64 {
        self.is_lost.load(Ordering::SeqCst) + 0xdead_0000
    }
}

#[test]
fn errors_and_lost_writes_are_told() {
    let payload = Arc::new(Faulty::new());
    let world = World::with(open_rule(), payload.clone());
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let first = client.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    assert_eq!(first.committed, stable_how::UNSTABLE);
    assert_eq!(client.commit(&file).unwrap().verf, first.verf, "nothing was lost");
    let second = client.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    payload.fails.store(true, Ordering::SeqCst);
    assert_eq!(client.commit(&file).unwrap_err(), Stat::NFS3ERR_IO);
    assert_eq!(
        client.write(&file, 0, b"x", stable_how::FILE_SYNC).unwrap_err(),
        Stat::NFS3ERR_NOSPC
    );
    assert_eq!(client.read(&file, 0, 3), Err(Stat::NFS3ERR_IO));
    payload.fails.store(false, Ordering::SeqCst);
    assert_ne!(client.commit(&file).unwrap().verf, second.verf, "the client sends it again");
}

/// Of two that wait for one file's write-back, the kernel tells one that it failed.
#[test]
fn a_loss_that_somebody_else_is_told_of_is_not_taken_for_durable() {
    let payload = Arc::new(Faulty::new());
    let world = World::with(open_rule(), payload.clone());
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let first = client.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    payload.tells_others.store(true, Ordering::SeqCst);
    assert_ne!(client.commit(&file).unwrap().verf, first.verf, "the client sends it again");
    for stable in [stable_how::DATA_SYNC, stable_how::FILE_SYNC] {
        let refused = client.write(&file, 0, b"abc", stable).unwrap_err();
        assert_eq!(refused, Stat::NFS3ERR_JUKEBOX);
    }
    let second = client.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    payload.tells_others.store(false, Ordering::SeqCst);
    assert_ne!(client.commit(&file).unwrap().verf, second.verf, "it was lost meanwhile");
    client.write(&file, 0, b"abc", stable_how::FILE_SYNC).unwrap();
}

#[test]
fn a_restart_changes_the_verifier() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let before = client.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap().verf;
    let world = world.restart([9; 32]);
    let mut client = world.client();
    assert_ne!(client.commit(&file).unwrap().verf, before);
}

#[test]
fn attributes_before_a_write_are_told_only_if_nobody_else_wrote() {
    /// Two writes meet in it.
    struct Meeting(Arc<dyn Payload>, std::sync::Barrier);
    impl Payload for Meeting {
        fn read(&self, file: &File, id: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
            self.0.read(file, id, offset, len)
        }
        fn write(
            &self,
            file: &File,
            id: FileId,
            offset: u64,
            data: &[Extent],
            stability: Stability,
        ) -> io::Result<()> {
            if offset > 0 {
                self.1.wait();
            }
            self.0.write(file, id, offset, data, stability)
        }
        fn commit(&self, file: &File, id: FileId) -> io::Result<()> {
            self.0.commit(file, id)
        }
        fn resize(&self, file: &File, id: FileId, size: u64) -> io::Result<()> {
            self.0.resize(file, id, size)
        }
        fn verifier(&self) -> u64 {
            0
        }
    }
    let world = World::with(open_rule(), Arc::new(Meeting(original(), std::sync::Barrier::new(2))));
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    assert!(
        client.write(&file, 0, b"alone", stable_how::UNSTABLE).unwrap().file_wcc.before.is_some()
    );
    let wccs = std::thread::scope(|scope| {
        [100, 200]
            .map(|offset| {
                let (mut client, file) = (world.client(), file.clone());
                scope.spawn(move || {
                    client.write(&file, offset, b"together", stable_how::UNSTABLE).unwrap().file_wcc
                })
            })
            .map(|thread| thread.join().unwrap())
    });
    assert!(wccs.iter().all(|wcc| wcc.before.is_none() && wcc.after.is_some()), "{wccs:?}");
    let wcc = client.write(&file, 0, b"alone", stable_how::UNSTABLE).unwrap().file_wcc;
    assert_eq!(wcc.before.unwrap().size, 208);
}

#[test]
fn an_owner_reads_and_writes_whatever_the_mode() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    client.act_as(1000, 1000, &[]);
    let file = client.create(&root, "f", createhow3::GUARDED(mode(0o444))).unwrap();
    client.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    client.setattr(&file, mode(0), Nfs3Option::None).unwrap();
    assert_eq!(client.read(&file, 0, 3).unwrap().0, b"abc");
    assert_eq!(client.access(&file, 0x3f).unwrap(), 0, "but what opens are judged by is the mode");
    client.act_as(2000, 2000, &[]);
    assert_eq!(client.read(&file, 0, 3), Err(Stat::NFS3ERR_ACCES));
    // Who may execute it may read it, because that is how a client executes.
    fs::set_permissions(world.path.join("f"), fs::Permissions::from_mode(0o711)).unwrap();
    assert_eq!(client.read(&file, 0, 3).unwrap().0, b"abc");
    assert_eq!(
        client.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap_err(),
        Stat::NFS3ERR_ACCES
    );
    let mut byte = [0];
    File::open(world.path.join("f")).unwrap().read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, *b"a");
}
