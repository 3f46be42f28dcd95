//! File systems that are full, read-only, limited or mounted below an export. All in a mount
//! namespace of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use nfs3_types::nfs3::*;
use nicache_nfs::protocol::Procedure;
use nicache_nfs::{ExportConfig, Server};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use crate::world::*;

/// Runs `work` where mounts are seen by nobody else and end with it.
fn in_private_mounts(work: impl FnOnce(&Path) + Send) {
    let folder = folder();
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
                    .unwrap();
                work(folder.path());
            })
            .join()
            .unwrap();
    });
}

fn tmpfs(path: &Path, options: &str) {
    fs::create_dir_all(path).unwrap();
    let options = std::ffi::CString::new(options).unwrap();
    mount("tmpfs", path, "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
}

fn serve(path: &Path) -> (Server, Client, nfs_fh3) {
    let server =
        Server::start(config(vec![export("/export", path, open_rule())]), original()).unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let root = client.mount("/export").unwrap();
    (server, client, root)
}

/// An ext4 image of 64 MiB, mounted; `None` if the kernel does not mount it with these options.
fn ext4(folder: &Path, features: &str, options: &str) -> Option<std::path::PathBuf> {
    ext4_made_with(folder, &["-O", features], options)
}

fn ext4_made_with(folder: &Path, how: &[&str], options: &str) -> Option<std::path::PathBuf> {
    let (image, path) = (folder.join("image"), folder.join("ext4"));
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").args(how).arg(&image).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::create_dir(&path).unwrap();
    let mounted =
        Command::new("mount").args(["-o", options]).arg(&image).arg(&path).output().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    mounted.status.success().then_some(path)
}

#[test]
fn full_file_systems() {
    in_private_mounts(|folder| {
        let path = folder.join("small");
        tmpfs(&path, "size=1m,nr_inodes=10,mode=777");
        let (_server, mut client, root) = serve(&path);
        let file = client.make_file(&root, "f");
        client.write(&file, 0, &vec![1; 900_000], stable_how::UNSTABLE).unwrap();
        assert_eq!(
            client.write(&file, 900_000, &vec![1; 900_000], stable_how::UNSTABLE).unwrap_err(),
            Stat::NFS3ERR_NOSPC
        );
        let mut made = 0;
        let status = loop {
            match client.create(&root, format!("n{made}"), createhow3::GUARDED(mode(0o644))) {
                Ok(_) => made += 1,
                Err(status) => break status,
            }
        };
        assert_eq!(status, Stat::NFS3ERR_NOSPC);
        let state: FSSTAT3res =
            client.call(Procedure::FsStat, &FSSTAT3args { fsroot: root.clone() });
        let state = result(state).unwrap();
        assert_eq!((state.tbytes, state.tfiles, state.ffiles), (1 << 20, 10, 0));
        assert!(state.fbytes <= 1 << 18);
        // Space is free again without anybody asking for the file, although the server had it open:
        // a call that still holds it ends.
        client.remove(&root, "f").unwrap();
        let mut is_free = false;
        for _ in 0..500 {
            let state: FSSTAT3res =
                client.call(Procedure::FsStat, &FSSTAT3args { fsroot: root.clone() });
            let state = result(state).unwrap();
            is_free = state.fbytes > 900_000 && state.ffiles == 1;
            if is_free {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(is_free, "the file that was removed still takes its room");
    });
}

#[test]
fn read_only_file_systems() {
    in_private_mounts(|folder| {
        let path = folder.join("ro");
        tmpfs(&path, "mode=777");
        fs::write(path.join("f"), "x").unwrap();
        rustix::mount::mount_remount(&path, MountFlags::RDONLY, c"").unwrap();
        let (_server, mut client, root) = serve(&path);
        let file = client.lookup(&root, "f").unwrap();
        assert_eq!(client.read(&file, 0, 9).unwrap().0, b"x");
        assert_eq!(
            client.write(&file, 0, b"y", stable_how::UNSTABLE).unwrap_err(),
            Stat::NFS3ERR_ROFS
        );
        assert_eq!(
            client.setattr(&file, mode(0o600), Nfs3Option::None).unwrap_err(),
            Stat::NFS3ERR_ROFS
        );
        assert_eq!(
            client.create(&root, "n", createhow3::GUARDED(mode(0o644))),
            Err(Stat::NFS3ERR_ROFS)
        );
        assert_eq!(client.remove(&root, "f").unwrap_err(), Stat::NFS3ERR_ROFS);
        assert_eq!(client.access(&file, 0x3f).unwrap(), ACCESS3_READ);
    });
}

#[test]
fn what_is_mounted_below_an_export_is_not_in_it() {
    in_private_mounts(|folder| {
        let path = folder.join("outer");
        tmpfs(&path, "mode=777");
        fs::create_dir(path.join("inner")).unwrap();
        fs::write(path.join("inner/below"), "x").unwrap();
        tmpfs(&path.join("inner"), "mode=777");
        fs::write(path.join("inner/above"), "x").unwrap();
        let (_server, mut client, root) = serve(&path);
        let inner = client.lookup(&root, "inner").unwrap();
        assert_eq!(client.names(&inner).unwrap(), [b"below".to_vec()]);
        let entries = client
            .readdirplus(&root, 0, cookieverf3::default(), 4096, 4096)
            .unwrap()
            .reply
            .entries
            .into_inner();
        for entry in entries {
            let Nfs3Option::Some(attributes) = entry.name_attributes else { panic!() };
            assert_eq!(entry.fileid, attributes.fileid);
        }
    });
}

#[test]
fn quotas() {
    in_private_mounts(|folder| {
        let limit = |path: &Path| {
            Command::new("setquota").args(["-u", "1000", "0", "1024", "0", "5"]).arg(path).output()
        };
        if limit(folder).is_err() {
            eprintln!("not run: quotas, because setquota (package quota) is not installed");
            return;
        }
        let Some(path) = ext4(folder, "quota", "loop,usrquota") else {
            eprintln!("not run: quotas, because this kernel has none for ext4");
            return;
        };
        let limited = limit(&path).unwrap();
        assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
        let (_server, mut client, root) = serve(&path);
        client.act_as(1000, 1000, &[]);
        let file = client.make_file(&root, "f");
        client.write(&file, 0, &vec![1; 1 << 19], stable_how::FILE_SYNC).unwrap();
        assert_eq!(
            client.write(&file, 1 << 19, &vec![1; 1 << 20], stable_how::FILE_SYNC).unwrap_err(),
            Stat::NFS3ERR_DQUOT
        );
        let mut status = Ok(());
        for i in 0..6 {
            let made =
                client.create(&root, format!("n{i}"), createhow3::GUARDED(mode(0o644))).map(|_| ());
            status = status.and(made);
        }
        assert_eq!(status, Err(Stat::NFS3ERR_DQUOT));
        client.act_as(2000, 2000, &[]);
        client.make_file(&root, "another's");
    });
}

#[test]
fn reserved_blocks_are_not_for_users() {
    in_private_mounts(|folder| {
        let path = ext4(folder, "^quota", "loop").unwrap();
        let (_server, mut client, root) = serve(&path);
        client.act_as(1000, 1000, &[]);
        let file = client.make_file(&root, "f");
        let data = vec![1; 1 << 20];
        let status =
            (0..64).find_map(|i| client.write(&file, i << 20, &data, stable_how::FILE_SYNC).err());
        assert_eq!(status, Some(Stat::NFS3ERR_NOSPC));
        let state: FSSTAT3res =
            client.call(Procedure::FsStat, &FSSTAT3args { fsroot: root.clone() });
        let state = result(state).unwrap();
        assert!(state.fbytes > 2 << 20, "{state:?}");
        client.act_as(0, 0, &[]);
        client.write(&file, 63 << 20, &data, stable_how::FILE_SYNC).unwrap();
    });
}

/// What ext4 says of itself, and a whole file system as an export.
#[test]
fn ext4_as_a_whole() {
    in_private_mounts(|folder| {
        let path = ext4(folder, "^quota", "loop").unwrap();
        let (server, mut client, root) = serve(&path);
        let info: FSINFO3res =
            client.call(Procedure::FsInfo, &FSINFO3args { fsroot: root.clone() });
        let info = result(info).unwrap();
        let largest = info.maxfilesize;
        assert!(largest < 1 << 45, "ext4 has a bound below the protocol's: {largest}");
        let file = client.make_file(&root, "f");
        assert_eq!(
            client.setattr(&file, size(largest + 1), Nfs3Option::None).unwrap_err(),
            Stat::NFS3ERR_FBIG
        );
        client.setattr(&file, size(largest), Nfs3Option::None).unwrap();
        assert_eq!((info.time_delta.seconds, info.time_delta.nseconds), (0, 1));
        let conf: PATHCONF3res =
            client.call(Procedure::PathConf, &PATHCONF3args { object: root.clone() });
        let conf = result(conf).unwrap();
        assert_eq!(
            (conf.linkmax, conf.name_max, conf.no_trunc, conf.chown_restricted),
            (65_000, 255, true, true)
        );
        assert_eq!((conf.case_insensitive, conf.case_preserving), (false, true));
        assert_eq!(client.lookup(&root, "..").unwrap(), root);
        let state: FSSTAT3res =
            client.call(Procedure::FsStat, &FSSTAT3args { fsroot: root.clone() });
        let state = result(state).unwrap();
        assert!(state.abytes < state.fbytes, "some blocks are reserved");
        let fsid = client.getattr(&root).unwrap().fsid;
        // An export that is durable at once works as the other does.
        drop(server);
        let export = ExportConfig { is_sync: true, ..export("/export", &path, open_rule()) };
        let server = Server::start(config(vec![export]), original()).unwrap();
        let mut client = Client::connect(server.addresses()[0]);
        assert_eq!(client.getattr(&root).unwrap().fsid, fsid);
        let directory = client.mkdir(&root, "d", mode(0o755)).unwrap();
        let file = client.make_file(&directory, "f");
        client.setattr(&file, mode(0o600), Nfs3Option::None).unwrap();
        client.setattr(&directory, mode(0o700), Nfs3Option::None).unwrap();
        let link = client.symlink(&directory, "l", b"x").unwrap();
        let now = sattr3 { mtime: set_mtime::SET_TO_SERVER_TIME, ..sattr3::default() };
        client.setattr(&link, now, Nfs3Option::None).unwrap();
        client.rename((&directory, b"f"), (&root, b"g")).unwrap();
        client.link(&file, &directory, "h").unwrap();
        client.remove(&root, "g").unwrap();
        assert_eq!(fs::metadata(path.join("d/h")).unwrap().mode() & 0o7777, 0o600);
    });
}

/// Inodes of 128 bytes have times in whole seconds, and an EXCLUSIVE verifier is in these.
#[test]
fn an_exclusive_verifier_outlasts_a_restart_where_times_are_whole_seconds() {
    in_private_mounts(|folder| {
        let path = ext4_made_with(folder, &["-I", "128"], "loop").unwrap();
        for (name, verifier) in [("ones", [0xff; 8]), ("zeroes", [0; 8]), ("text", *b"verifier")] {
            let how = |verifier| createhow3::EXCLUSIVE(createverf3(verifier));
            let (server, mut client, root) = serve(&path);
            let made = client.create(&root, name, how(verifier)).unwrap();
            drop((server, client));
            let (_server, mut client, root) = serve(&path);
            assert_eq!(client.create(&root, name, how(verifier)).unwrap(), made);
            let other = verifier.map(|byte| byte ^ 1);
            assert_eq!(client.create(&root, name, how(other)), Err(Stat::NFS3ERR_EXIST));
        }
    });
}
