//! Handles: forged, stale, of other exports, of files that were moved out.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::Opaque;
use nicache_nfs::{ClientRule, ExportError, HandleKey, Server, ServerConfig, ServerError};

use crate::world::*;

#[test]
fn a_forged_handle_is_refused() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    let bytes = file.data.to_vec();
    assert!(bytes.len() <= 64);
    for bit in 0..8 * bytes.len() {
        let mut forged = bytes.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            client.getattr(&nfs_fh3 { data: Opaque::owned(forged) }).unwrap_err(),
            Stat::NFS3ERR_BADHANDLE,
            "bit {bit}"
        );
    }
    for len in 0..bytes.len() {
        assert_eq!(
            client.getattr(&nfs_fh3 { data: Opaque::owned(bytes[..len].to_vec()) }).unwrap_err(),
            Stat::NFS3ERR_BADHANDLE
        );
    }
}

#[test]
fn a_handle_lasts_as_long_as_its_file_and_the_key() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let (kept, gone) = (client.make_file(&root, "kept"), client.make_file(&root, "gone"));
    let held = fs::File::open(world.path.join("gone")).unwrap();
    client.remove(&root, "gone").unwrap();
    assert_eq!(client.getattr(&gone).unwrap_err(), Stat::NFS3ERR_STALE, "whoever else has it open");
    drop(held);
    fs::rename(world.path.join("kept"), world.path.join("renamed")).unwrap();
    let world = world.restart([9; 32]);
    let mut client = world.client();
    client.getattr(&kept).unwrap();
    assert_eq!(client.lookup(&root, "renamed").unwrap(), kept);
    assert_eq!(client.getattr(&gone).unwrap_err(), Stat::NFS3ERR_STALE);
    // The inode's next file is another one.
    for i in 0..50 {
        client.make_file(&root, format!("n{i}"));
    }
    assert_eq!(client.getattr(&gone).unwrap_err(), Stat::NFS3ERR_STALE);
    let world = world.restart([8; 32]);
    assert_eq!(world.client().getattr(&kept).unwrap_err(), Stat::NFS3ERR_BADHANDLE, "another key");
}

#[test]
fn a_file_that_others_removed_is_not_kept_by_the_server() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let file = client.make_file(&root, "f");
    client.write(&file, 0, &[7; 100_000], stable_how::UNSTABLE).unwrap();
    fs::remove_file(world.path.join("f")).unwrap();
    assert_eq!(client.getattr(&file).unwrap_err(), Stat::NFS3ERR_STALE);
    let own = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let deleted = format!("{}/f (deleted)", world.path.display());
    assert!(!own.into_iter().any(|target| target.to_string_lossy() == deleted));
}

/// Two exports of one file system, one of them closed for this client.
#[test]
fn a_handle_of_one_export_is_none_of_another() {
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    for path in [&a, &b] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::write(b.join("secret"), "x").unwrap();
    let server = Server::start(
        config(vec![export("/a", &a, open_rule()), export("/b", &b, open_rule())]),
        original(),
    )
    .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let (root_a, root_b) = (client.mount("/a").unwrap(), client.mount("/b").unwrap());
    let file = client.make_file(&root_a, "f");
    assert_eq!(client.rename((&root_a, b"f"), (&root_b, b"f")), Err(Stat::NFS3ERR_XDEV));
    assert_eq!(client.link(&file, &root_b, "f"), Err(Stat::NFS3ERR_XDEV));
    let secret = client.lookup(&root_b, "secret").unwrap();
    assert_eq!(client.link(&secret, &root_a, "f2"), Err(Stat::NFS3ERR_XDEV));
    assert_ne!(client.getattr(&root_a).unwrap().fsid, client.getattr(&root_b).unwrap().fsid);
    // There is no way up to the other one.
    assert_eq!(client.lookup(&root_a, "..").unwrap(), root_a);
    drop(server);
    // The same handles, on a server that has only the other export, or does not let this client
    // into it.
    let only_a = Server::start(config(vec![export("/a", &a, open_rule())]), original()).unwrap();
    let mut client = Client::connect(only_a.addresses()[0]);
    client.getattr(&file).unwrap();
    assert_eq!(client.getattr(&secret).unwrap_err(), Stat::NFS3ERR_STALE);
    drop(only_a);
    let closed = ClientRule::new("192.0.2.1".parse().unwrap());
    let server = Server::start(
        config(vec![export("/a", &a, open_rule()), export("/b", &b, closed)]),
        original(),
    )
    .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.getattr(&secret).unwrap_err(), Stat::NFS3ERR_ACCES);
    assert_eq!(client.rename((&root_a, b"f"), (&root_b, b"f")), Err(Stat::NFS3ERR_ACCES));
}

#[test]
fn a_directory_that_is_moved_out_of_its_export_is_gone() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let inside = client.mkdir(&root, "d", mode(0o777)).unwrap();
    let below = client.mkdir(&inside, "e", mode(0o777)).unwrap();
    client.make_file(&below, "f");
    let outside = world.path.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::rename(world.path.join("d"), outside.join("d")).unwrap();
    // While the server has them open, and after it has closed them.
    for uid in [0, 1000] {
        client.act_as(uid, uid, &[]);
        for directory in [&inside, &below] {
            assert_eq!(client.lookup(directory, ".."), Err(Stat::NFS3ERR_STALE));
            assert_eq!(client.lookup(directory, "e"), Err(Stat::NFS3ERR_STALE));
            assert_eq!(client.names(directory), Err(Stat::NFS3ERR_STALE));
            assert_eq!(
                client.create(directory, "n", createhow3::GUARDED(mode(0o644))),
                Err(Stat::NFS3ERR_STALE)
            );
        }
    }
    fs::set_permissions(outside.join("d"), fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(
        client.names(&inside),
        Err(Stat::NFS3ERR_STALE),
        "also where one may read but not search"
    );
    fs::set_permissions(outside.join("d"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::rename(outside.join("d"), world.path.join("d2")).unwrap();
    assert_eq!(client.names(&inside).unwrap(), [b"e".to_vec()], "it is back");
}

#[test]
fn a_link_leads_nowhere() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let link = client.symlink(&root, "l", b"/etc").unwrap();
    assert_eq!(client.lookup(&link, "passwd"), Err(Stat::NFS3ERR_NOTDIR));
    assert_eq!(client.create(&root, "l", createhow3::UNCHECKED(size(0))), Err(Stat::NFS3ERR_EXIST));
    assert!(client.mount("/export/l").is_err());
}

#[test]
fn exports_that_make_no_sense_are_refused() {
    let folder = folder();
    let start = |configs| Server::start(config(configs), original()).map(|_| ());
    for name in ["", "x", "/a//b", "/a/", "/a/../b", "//"] {
        let error = start(vec![export(name, folder.path(), open_rule())]).unwrap_err();
        assert!(matches!(error, ServerError::Export(ExportError::Name(_))), "{name}: {error}");
    }
    let twice =
        vec![export("/a", folder.path(), open_rule()), export("/a", folder.path(), open_rule())];
    assert!(matches!(start(twice).unwrap_err(), ServerError::Export(ExportError::Twice(..))));
    let error = start(vec![export("/a", &folder.path().join("none"), open_rule())]).unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
    let error = start(vec![export("/a", std::path::Path::new("/proc"), open_rule())]).unwrap_err();
    assert!(matches!(error, ServerError::Export(ExportError::NoHandles { .. })), "{error}");
    // Two servers at one address.
    let world = World::new();
    let config = ServerConfig::new(
        vec![export("/a", folder.path(), open_rule())],
        world.server.addresses()[0],
        HandleKey::new([0; 32]),
    );
    assert!(matches!(Server::start(config, original()).unwrap_err(), ServerError::Listen { .. }));
}
