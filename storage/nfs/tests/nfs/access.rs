//! Who may do what: credentials, squashing, clients, read-only exports.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nfs3_types::nfs3::*;
use nfs3_types::rpc::opaque_auth;
use nicache_nfs::{Anonymous, ClientRule, Server, Squash};

use crate::world::*;

const ALL: u32 = 0x3f;
const FILE_WRITE: u32 = ACCESS3_MODIFY | ACCESS3_EXTEND;

#[test]
fn the_kernel_decides_by_the_callers_credential() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let path = world.path.join("f");
    fs::write(&path, "x").unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(100)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o754)).unwrap();
    let file = client.lookup(&root, "f").unwrap();
    for (uid, gid, gids, expected) in [
        (1000, 1, &[][..], ACCESS3_READ | FILE_WRITE | ACCESS3_EXECUTE),
        (2000, 100, &[], ACCESS3_READ | ACCESS3_EXECUTE),
        (2000, 1, &[5, 100, 7], ACCESS3_READ | ACCESS3_EXECUTE),
        (2000, 1, &[5, 7], ACCESS3_READ),
        (0, 0, &[], ACCESS3_READ | FILE_WRITE | ACCESS3_EXECUTE),
    ] {
        client.act_as(uid, gid, gids);
        assert_eq!(client.access(&file, ALL).unwrap(), expected, "{uid}:{gid} {gids:?}");
        assert_eq!(client.access(&file, ACCESS3_READ).unwrap(), ACCESS3_READ);
        assert_eq!(client.read(&file, 0, 1).is_ok(), expected & ACCESS3_READ != 0);
        assert_eq!(
            client.write(&file, 0, b"y", stable_how::UNSTABLE).is_ok(),
            expected & FILE_WRITE != 0
        );
    }
    client.act_as(2000, 1, &[]);
    assert_eq!(
        client.access(&root, ALL).unwrap(),
        ACCESS3_READ | ACCESS3_LOOKUP | FILE_WRITE | ACCESS3_DELETE
    );
    client.act_as(0, 0, &[]);
    client.setattr(&root, mode(0o755), Nfs3Option::None).unwrap();
    client.act_as(2000, 1, &[]);
    assert_eq!(client.access(&root, ALL).unwrap(), ACCESS3_READ | ACCESS3_LOOKUP);
    assert_eq!(
        client.create(&root, "n", createhow3::GUARDED(mode(0o644))),
        Err(Stat::NFS3ERR_ACCES)
    );
    assert_eq!(client.remove(&root, "f").unwrap_err(), Stat::NFS3ERR_ACCES);
    // The sticky bit is the kernel's matter, too.
    client.act_as(0, 0, &[]);
    client.setattr(&root, mode(0o1777), Nfs3Option::None).unwrap();
    client.act_as(2000, 1, &[]);
    assert_eq!(client.remove(&root, "f").unwrap_err(), Stat::NFS3ERR_PERM);
}

/// Many threads of the server act as many users at the same time.
#[test]
fn users_do_not_mix() {
    let world = World::new();
    let (_, root) = world.mounted();
    std::thread::scope(|scope| {
        for user in 0..8u32 {
            let (world, root) = (&world, &root);
            scope.spawn(move || {
                let mut client = world.client();
                for round in 0..60u32 {
                    let uid = 3000 + user * 100 + round % 3;
                    client.act_as(uid, uid + 1, &[uid + 2]);
                    let name = format!("{user}-{round}");
                    let file =
                        client.create(root, &name, createhow3::GUARDED(mode(0o600))).unwrap();
                    client.write(&file, 0, b"mine", stable_how::UNSTABLE).unwrap();
                    let found = client.getattr(&file).unwrap();
                    assert_eq!((found.uid, found.gid), (uid, uid + 1));
                    client.act_as(uid + 50, uid + 1, &[]);
                    assert_eq!(client.read(&file, 0, 4), Err(Stat::NFS3ERR_ACCES));
                }
            });
        }
    });
}

#[test]
fn root_is_squashed_unless_it_is_not() {
    let rule = ClientRule { squash: Squash::Root, ..open_rule() };
    let world = World::with(rule, original());
    let (mut client, root) = world.mounted();
    fs::write(world.path.join("secret"), "x").unwrap();
    fs::set_permissions(world.path.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    client.act_as(0, 0, &[0]);
    let secret = client.lookup(&root, "secret").unwrap();
    assert_eq!(client.read(&secret, 0, 1), Err(Stat::NFS3ERR_ACCES));
    client.make_file(&root, "f");
    let found = fs::metadata(world.path.join("f")).unwrap();
    assert_eq!((found.uid(), found.gid()), (65534, 65534));
    client.act_as(1000, 1000, &[]);
    client.make_file(&root, "g");
    assert_eq!(fs::metadata(world.path.join("g")).unwrap().uid(), 1000);
}

#[test]
fn all_are_squashed() {
    let rule = ClientRule {
        squash: Squash::All,
        anonymous: Anonymous { uid: 77, gid: 88 },
        ..open_rule()
    };
    let world = World::with(rule, original());
    let (mut client, root) = world.mounted();
    client.act_as(1000, 1000, &[]);
    client.make_file(&root, "f");
    client.credential = opaque_auth::default();
    client.make_file(&root, "g");
    for name in ["f", "g"] {
        let found = fs::metadata(world.path.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (77, 88));
    }
}

#[test]
fn without_a_credential_one_is_nobody() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    client.credential = opaque_auth::default();
    client.make_file(&root, "f");
    assert_eq!(fs::metadata(world.path.join("f")).unwrap().uid(), 65534);
}

#[test]
fn a_read_only_export_is_not_changed() {
    let world = World::with(ClientRule { is_read_only: true, ..open_rule() }, original());
    fs::write(world.path.join("f"), "content").unwrap();
    fs::create_dir(world.path.join("d")).unwrap();
    let (mut client, root) = world.mounted();
    let file = client.lookup(&root, "f").unwrap();
    assert_eq!(client.read(&file, 0, 100).unwrap().0, b"content");
    assert_eq!(client.access(&file, ALL).unwrap() & FILE_WRITE, 0);
    assert_eq!(client.access(&root, ALL).unwrap(), ACCESS3_READ | ACCESS3_LOOKUP);
    let rofs = Stat::NFS3ERR_ROFS;
    assert_eq!(client.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap_err(), rofs);
    assert_eq!(client.commit(&file).unwrap_err(), rofs);
    assert_eq!(client.setattr(&file, mode(0o777), Nfs3Option::None).unwrap_err(), rofs);
    assert_eq!(client.create(&root, "n", createhow3::UNCHECKED(mode(0o644))), Err(rofs));
    assert_eq!(client.create(&root, "f", createhow3::UNCHECKED(size(0))), Err(rofs));
    assert_eq!(client.mkdir(&root, "n", mode(0o755)), Err(rofs));
    assert_eq!(client.symlink(&root, "n", b"x"), Err(rofs));
    assert_eq!(client.mknod(&root, "n", mknoddata3::NF3FIFO(mode(0o600))), Err(rofs));
    assert_eq!(client.remove(&root, "f").unwrap_err(), rofs);
    assert_eq!(client.rmdir(&root, "d").unwrap_err(), rofs);
    assert_eq!(client.rename((&root, b"f"), (&root, b"g")), Err(rofs));
    assert_eq!(client.link(&file, &root, "g"), Err(rofs));
    assert_eq!(fs::read(world.path.join("f")).unwrap(), b"content");
}

#[test]
fn clients_are_let_in_by_address_and_port() {
    let folder = folder();
    let own = "127.0.0.1".parse().unwrap();
    let other = "192.0.2.0/24".parse().unwrap();
    let mut exports = Vec::new();
    for (name, rule) in [
        ("/reserved", ClientRule { squash: Squash::None, ..ClientRule::new(own) }),
        ("/elsewhere", ClientRule { needs_reserved_port: false, ..ClientRule::new(other) }),
        ("/open", open_rule()),
    ] {
        let path = folder.path().join(&name[1..]);
        fs::create_dir(&path).unwrap();
        exports.push(export(name, &path, rule));
    }
    let server = Server::start(config(exports), original()).unwrap();
    let address = server.addresses()[0];
    let (mut high, mut low) = (Client::connect(address), Client::connect_reserved(address));
    assert_eq!(high.mount("/reserved"), Err(13));
    assert_eq!(high.mount("/elsewhere"), Err(13));
    assert_eq!(low.mount("/elsewhere"), Err(13));
    high.mount("/open").unwrap();
    let reserved = low.mount("/reserved").unwrap();
    low.getattr(&reserved).unwrap();
    // That somebody was let in once, and has told the handle, opens nothing for others.
    assert_eq!(high.getattr(&reserved).unwrap_err(), Stat::NFS3ERR_ACCES);
    assert_eq!(
        high.create(&reserved, "f", createhow3::UNCHECKED(mode(0o644))),
        Err(Stat::NFS3ERR_ACCES)
    );
}
