//! LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK, GETATTR, SETATTR.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use nfs3_types::nfs3::*;

use crate::world::*;

#[test]
fn attributes_are_the_files_own() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let path = world.path.join("f");
    fs::write(&path, vec![1; 10_000]).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(&path, world.path.join("g")).unwrap();
    let handle = client.lookup(&root, "f").unwrap();
    let found = client.getattr(&handle).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(found.type_, ftype3::NF3REG);
    assert_eq!((found.mode, found.nlink, found.uid, found.gid), (0o4751, 2, 12, 34));
    assert_eq!((found.size, found.used, found.fileid), (10_000, meta.blocks() * 512, meta.ino()));
    for (time, seconds, nanoseconds) in [
        (found.atime, meta.atime(), meta.atime_nsec()),
        (found.mtime, meta.mtime(), meta.mtime_nsec()),
        (found.ctime, meta.ctime(), meta.ctime_nsec()),
    ] {
        assert_eq!((i64::from(time.seconds), i64::from(time.nseconds)), (seconds, nanoseconds));
    }
    assert_eq!(found.fsid, client.getattr(&root).unwrap().fsid);
    assert_eq!(client.lookup(&root, "g").unwrap(), handle, "two names, one file");
}

#[test]
fn special_files() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let device = |specdata1, specdata2| devicedata3 {
        dev_attributes: mode(0o600),
        spec: specdata3 { specdata1, specdata2 },
    };
    let fifo = client.mknod(&root, "fifo", mknoddata3::NF3FIFO(mode(0o640))).unwrap();
    let socket = client.mknod(&root, "socket", mknoddata3::NF3SOCK(mode(0o600))).unwrap();
    let character = client.mknod(&root, "null", mknoddata3::NF3CHR(device(1, 3))).unwrap();
    let block = client.mknod(&root, "block", mknoddata3::NF3BLK(device(259, 70_000))).unwrap();
    let kind = |name: &str| fs::symlink_metadata(world.path.join(name)).unwrap().file_type();
    assert!(
        kind("fifo").is_fifo()
            && kind("socket").is_socket()
            && kind("null").is_char_device()
            && kind("block").is_block_device()
    );
    for (handle, expected, rdev) in [
        (&fifo, ftype3::NF3FIFO, (0, 0)),
        (&socket, ftype3::NF3SOCK, (0, 0)),
        (&character, ftype3::NF3CHR, (1, 3)),
        (&block, ftype3::NF3BLK, (259, 70_000)),
    ] {
        let found = client.getattr(handle).unwrap();
        assert_eq!((found.type_, (found.rdev.specdata1, found.rdev.specdata2)), (expected, rdev));
        // Nobody opens them for that: a pipe would wait, a device would do something.
        assert_eq!(client.read(handle, 0, 10), Err(Stat::NFS3ERR_INVAL));
        assert_eq!(
            client.write(handle, 0, b"x", stable_how::FILE_SYNC).unwrap_err(),
            Stat::NFS3ERR_INVAL
        );
        assert_eq!(
            client.setattr(handle, size(0), Nfs3Option::None).unwrap_err(),
            Stat::NFS3ERR_INVAL
        );
        client.setattr(handle, mode(0o604), Nfs3Option::None).unwrap();
        assert_eq!(client.getattr(handle).unwrap().mode, 0o604);
    }
    client.act_as(1000, 1000, &[]);
    assert_eq!(client.mknod(&root, "x", mknoddata3::NF3CHR(device(1, 3))), Err(Stat::NFS3ERR_PERM));
    client.mknod(&root, "own", mknoddata3::NF3FIFO(mode(0o600))).unwrap();
}

#[test]
fn links() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let long = vec![b'a'; 4000];
    for (name, text) in
        [("short", &b"../some/where"[..]), ("long", &long), ("bytes", b"\xff\xfe/x")]
    {
        let link = client.symlink(&root, name, text).unwrap();
        assert_eq!(client.readlink(&link).unwrap(), text);
        assert_eq!(fs::read_link(world.path.join(name)).unwrap().as_os_str().as_bytes(), text);
        assert_eq!(client.getattr(&link).unwrap().type_, ftype3::NF3LNK);
        assert_eq!(client.lookup(&root, name).unwrap(), link, "a lookup does not follow");
    }
    assert_eq!(client.symlink(&root, "short", b"x"), Err(Stat::NFS3ERR_EXIST));
    assert_eq!(client.symlink(&root, "nul", b"a\0b"), Err(Stat::NFS3ERR_INVAL));
    assert_eq!(
        client.symlink(&root, "too-long", &vec![b'a'; 5000]),
        Err(Stat::NFS3ERR_NAMETOOLONG)
    );
    assert_eq!(client.readlink(&root), Err(Stat::NFS3ERR_INVAL));
    // A hard link to a symbolic link is one to the link itself.
    let link = client.lookup(&root, "short").unwrap();
    client.link(&link, &root, "second").unwrap();
    assert_eq!(client.getattr(&link).unwrap().nlink, 2);
    let file = client.make_file(&root, "file");
    client.link(&file, &root, "other").unwrap();
    assert_eq!(client.getattr(&file).unwrap().nlink, 2);
    assert_eq!(client.link(&file, &root, "other"), Err(Stat::NFS3ERR_EXIST));
    let directory = client.mkdir(&root, "d", mode(0o755)).unwrap();
    assert_eq!(client.link(&directory, &root, "e"), Err(Stat::NFS3ERR_PERM));
    assert_eq!(client.link(&file, &file, "e"), Err(Stat::NFS3ERR_NOTDIR));
}

#[test]
fn names_of_all_kinds() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let longest = vec![b'n'; 255];
    for name in [
        &b"plain"[..],
        b"with space",
        "Gr\u{fc}\u{df}e \u{1f600}".as_bytes(),
        b"\xff\x80\x01",
        b"-",
        b"...",
        &longest,
    ] {
        let handle = client.make_file(&root, name);
        assert_eq!(client.lookup(&root, name).unwrap(), handle);
        assert!(client.names(&root).unwrap().iter().any(|found| found == name));
        client.remove(&root, name).unwrap();
        assert_eq!(client.lookup(&root, name), Err(Stat::NFS3ERR_NOENT));
    }
    let create = || createhow3::GUARDED(mode(0o644));
    for (name, status) in [
        (&b""[..], Stat::NFS3ERR_INVAL),
        (b"a/b", Stat::NFS3ERR_INVAL),
        (b"a\0b", Stat::NFS3ERR_INVAL),
        (&[b'n'; 256], Stat::NFS3ERR_NAMETOOLONG),
        (&[b'n'; 4000], Stat::NFS3ERR_NAMETOOLONG),
        (b".", Stat::NFS3ERR_EXIST),
        (b"..", Stat::NFS3ERR_EXIST),
    ] {
        assert_eq!(client.create(&root, name, create()), Err(status));
        assert_eq!(client.mkdir(&root, name, mode(0o755)), Err(status));
        if status != Stat::NFS3ERR_EXIST {
            assert_eq!(client.lookup(&root, name), Err(status));
            assert_eq!(client.remove(&root, name).unwrap_err(), status);
            assert_eq!(client.rename((&root, name), (&root, b"x")), Err(status));
        }
    }
    assert_eq!(client.remove(&root, ".").unwrap_err(), Stat::NFS3ERR_INVAL);
    assert_eq!(client.rmdir(&root, ".").unwrap_err(), Stat::NFS3ERR_INVAL);
    assert_eq!(client.rmdir(&root, "..").unwrap_err(), Stat::NFS3ERR_EXIST);
    assert_eq!(client.rename((&root, b"."), (&root, b"x")), Err(Stat::NFS3ERR_INVAL));
    assert_eq!(client.lookup(&root, ".").unwrap(), root);
}

#[test]
fn create_in_its_three_ways() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.create(&root, "f", createhow3::UNCHECKED(mode(0o640))).unwrap();
    client.write(&file, 0, b"content", stable_how::FILE_SYNC).unwrap();
    assert_eq!(client.getattr(&file).unwrap().mode, 0o640);
    // What is there is taken, and only its size is set.
    let attributes = sattr3 { mode: Nfs3Option::Some(0o777), ..size(3) };
    assert_eq!(client.create(&root, "f", createhow3::UNCHECKED(attributes)).unwrap(), file);
    let found = client.getattr(&file).unwrap();
    assert_eq!((found.mode, found.size), (0o640, 3));
    assert_eq!(
        client.create(&root, "f", createhow3::GUARDED(mode(0o640))),
        Err(Stat::NFS3ERR_EXIST)
    );
    client.mkdir(&root, "d", mode(0o755)).unwrap();
    assert_eq!(
        client.create(&root, "d", createhow3::UNCHECKED(mode(0o640))),
        Err(Stat::NFS3ERR_EXIST)
    );

    // Every bit of a verifier counts, but for the two that not every file system's times can keep.
    for verifier in [[0xff; 8], [0; 8], *b"\x80\0\0\0\x7f\xff\xff\xff", *b"verifier"] {
        let how = |verifier| createhow3::EXCLUSIVE(createverf3(verifier));
        let made = client.create(&root, "x", how(verifier)).unwrap();
        assert_eq!(client.create(&root, "x", how(verifier)).unwrap(), made, "the same call again");
        for bit in 0..64 {
            let mut other = verifier;
            other[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit % 32 == 7 { Ok(made.clone()) } else { Err(Stat::NFS3ERR_EXIST) };
            assert_eq!(client.create(&root, "x", how(other)), expected, "bit {bit}");
        }
        assert_eq!(client.create(&root, "f", how(verifier)), Err(Stat::NFS3ERR_EXIST));
        assert_eq!(
            client.getattr(&made).unwrap().mode,
            0,
            "nobody may use it before it has its mode"
        );
        client.remove(&root, "x").unwrap();
    }
}

#[test]
fn an_exclusive_verifier_outlasts_a_restart() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let how = || createhow3::EXCLUSIVE(createverf3(*b"\xfe-beef-\x01"));
    let made = client.create(&root, "x", how()).unwrap();
    let world = world.restart([9; 32]);
    let (mut client, same_root) = world.mounted();
    assert_eq!(same_root, root);
    assert_eq!(client.create(&root, "x", how()).unwrap(), made);
}

#[test]
fn what_is_made_belongs_to_who_made_it() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    client.act_as(1000, 100, &[200]);
    let file = client.create(&root, "f", createhow3::GUARDED(mode(0o6755))).unwrap();
    let found = client.getattr(&file).unwrap();
    assert_eq!((found.uid, found.gid, found.mode), (1000, 100, 0o6755));
    // Whoever asks in vain to make it another's has it nevertheless, as with the kernel's own
    // server.
    let given = sattr3 { uid: Nfs3Option::Some(7), ..mode(0o644) };
    let file = client.create(&root, "g", createhow3::GUARDED(given.clone())).unwrap();
    assert_eq!(client.getattr(&file).unwrap().uid, 1000);
    let shared = client.mkdir(&root, "shared", mode(0o775)).unwrap();
    client
        .setattr(&shared, sattr3 { gid: Nfs3Option::Some(200), ..mode(0o2775) }, Nfs3Option::None)
        .unwrap();
    let inside = client.make_file(&shared, "f");
    assert_eq!(
        client.getattr(&inside).unwrap().gid,
        200,
        "a directory with the set-group-ID bit hands its group on"
    );
    client.act_as(0, 0, &[]);
    let file = client.create(&root, "h", createhow3::GUARDED(given)).unwrap();
    assert_eq!(client.getattr(&file).unwrap().uid, 7);
}

#[test]
fn attributes_are_set() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    client.act_as(1000, 1000, &[50]);
    let file = client.make_file(&root, "f");
    let set = |client: &mut Client, attributes| client.setattr(&file, attributes, Nfs3Option::None);
    let time = |seconds, nseconds| nfstime3 { seconds, nseconds };
    let times = sattr3 {
        atime: set_atime::SET_TO_CLIENT_TIME(time(1, 2)),
        mtime: set_mtime::SET_TO_CLIENT_TIME(time(4_000_000_000, 999_999_999)),
        ..sattr3::default()
    };
    let wcc = set(&mut client, times).unwrap();
    let found = wcc.after.unwrap();
    assert_eq!((found.atime, found.mtime), (time(1, 2), time(4_000_000_000, 999_999_999)));
    assert!(wcc.before.is_some(), "nobody else was there");
    // Numbers that the kernel would take for orders.
    for nseconds in [1_000_000_000, 0x3fff_ffff, 0x3fff_fffe, u32::MAX] {
        let bad =
            sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(time(1, nseconds)), ..sattr3::default() };
        assert_eq!(set(&mut client, bad).unwrap_err(), Stat::NFS3ERR_INVAL);
    }
    let now = sattr3 {
        atime: set_atime::SET_TO_SERVER_TIME,
        mtime: set_mtime::SET_TO_SERVER_TIME,
        ..sattr3::default()
    };
    let found = set(&mut client, now.clone()).unwrap().after.unwrap();
    assert!(found.mtime.seconds < 4_000_000_000 && found.atime.seconds > 1_000_000);
    set(&mut client, sattr3 { gid: Nfs3Option::Some(50), ..sattr3::default() }).unwrap();
    assert_eq!(
        set(&mut client, sattr3 { gid: Nfs3Option::Some(51), ..sattr3::default() }).unwrap_err(),
        Stat::NFS3ERR_PERM
    );
    assert_eq!(
        set(&mut client, sattr3 { uid: Nfs3Option::Some(1), ..sattr3::default() }).unwrap_err(),
        Stat::NFS3ERR_PERM
    );
    assert_eq!(
        set(&mut client, sattr3 { uid: Nfs3Option::Some(u32::MAX), ..sattr3::default() })
            .unwrap_err(),
        Stat::NFS3ERR_INVAL
    );
    set(&mut client, mode(0o4711)).unwrap();
    assert_eq!(client.getattr(&file).unwrap().mode, 0o4711);
    // A stranger may do none of it; who may write may set the times to now.
    client.act_as(2000, 2000, &[]);
    assert_eq!(set(&mut client, mode(0o777)).unwrap_err(), Stat::NFS3ERR_PERM);
    assert_eq!(set(&mut client, now.clone()).unwrap_err(), Stat::NFS3ERR_ACCES);
    assert_eq!(set(&mut client, size(0)).unwrap_err(), Stat::NFS3ERR_ACCES);
    client.act_as(1000, 1000, &[]);
    set(&mut client, mode(0o666)).unwrap();
    client.act_as(2000, 2000, &[]);
    set(&mut client, now).unwrap();
    set(&mut client, size(100)).unwrap();
    assert_eq!(client.getattr(&file).unwrap().size, 100);
    assert_eq!(client.setattr(&root, size(0), Nfs3Option::None).unwrap_err(), Stat::NFS3ERR_ISDIR);
}

#[test]
fn a_guard_stops_what_is_out_of_date() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let seen = client.getattr(&file).unwrap().ctime;
    client.setattr(&file, mode(0o600), Nfs3Option::Some(seen)).unwrap();
    let reply: SETATTR3res = client.call(
        nicache_nfs::protocol::Procedure::SetAttr,
        &SETATTR3args {
            object: file.clone(),
            new_attributes: mode(0o777),
            guard: Nfs3Option::Some(nfstime3 { seconds: 1, nseconds: 0 }),
        },
    );
    let Nfs3Result::Err((Stat::NFS3ERR_NOT_SYNC, failed)) = reply else { panic!("{reply:?}") };
    assert_eq!(failed.obj_wcc.after.unwrap().mode, 0o600);
}

#[test]
fn names_are_taken_away_and_changed() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let d = client.mkdir(&root, "d", mode(0o755)).unwrap();
    let e = client.mkdir(&root, "e", mode(0o755)).unwrap();
    let f = client.make_file(&d, "f");
    assert_eq!(client.rmdir(&root, "d").unwrap_err(), Stat::NFS3ERR_NOTEMPTY);
    assert_eq!(client.remove(&root, "d").unwrap_err(), Stat::NFS3ERR_ISDIR);
    assert_eq!(client.rmdir(&d, "f").unwrap_err(), Stat::NFS3ERR_NOTDIR);
    client.rename((&d, b"f"), (&e, b"g")).unwrap();
    assert_eq!(client.lookup(&e, "g").unwrap(), f, "it is still the same file");
    assert_eq!(client.lookup(&d, "f"), Err(Stat::NFS3ERR_NOENT));
    assert_eq!(client.rename((&root, b"e"), (&e, b"x")), Err(Stat::NFS3ERR_INVAL), "into itself");
    client.rename((&e, b"g"), (&e, b"g")).unwrap();
    client.rename((&root, b"e"), (&d, b"e")).unwrap();
    assert_eq!(client.lookup(&e, "..").unwrap(), d);
    let victim = client.make_file(&d, "victim");
    client.getattr(&victim).unwrap();
    client.rename((&e, b"g"), (&d, b"victim")).unwrap();
    assert_eq!(client.getattr(&victim).unwrap_err(), Stat::NFS3ERR_STALE);
    client.remove(&d, "victim").unwrap();
    assert_eq!(client.getattr(&f).unwrap_err(), Stat::NFS3ERR_STALE);
    assert_eq!(client.read(&f, 0, 1), Err(Stat::NFS3ERR_STALE));
    assert_eq!(client.write(&f, 0, b"x", stable_how::UNSTABLE).unwrap_err(), Stat::NFS3ERR_STALE);
    client.rmdir(&d, "e").unwrap();
    assert_eq!(client.lookup(&e, "x"), Err(Stat::NFS3ERR_STALE));
    assert_eq!(client.create(&e, "x", createhow3::GUARDED(mode(0o644))), Err(Stat::NFS3ERR_STALE));
}

#[test]
fn directory_attributes_tell_of_one_change_at_a_time() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let mut last = client.getattr(&root).unwrap();
    for i in 0..20 {
        client.make_file(&root, format!("f{i}"));
        let wcc = client.remove(&root, format!("f{i}")).unwrap();
        let (before, after) = (wcc.before.unwrap(), wcc.after.unwrap());
        assert!(before.ctime.seconds > 0 && before.size == last.size);
        last = after;
        let now = client.getattr(&root).unwrap();
        assert_eq!((now.mtime, now.ctime), (last.mtime, last.ctime));
    }
}
