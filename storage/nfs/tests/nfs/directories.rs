//! READDIR and READDIRPLUS.

use std::collections::BTreeSet;
use std::fs::{self, File};

use nfs3_types::nfs3::*;

use crate::world::*;

/// Names with their cookies, the verifier, and whether it is the end.
type Page = (Vec<(Vec<u8>, u64)>, cookieverf3, bool);

/// One page, by either procedure.
fn page(
    client: &mut Client,
    dir: &nfs_fh3,
    cookie: u64,
    verifier: cookieverf3,
    plus: bool,
    count: u32,
) -> Result<Page, Stat> {
    if plus {
        let page = client.readdirplus(dir, cookie, verifier, count / 2, count)?;
        let entries = page.reply.entries.into_inner();
        Ok((
            entries.into_iter().map(|entry| (entry.name.0.to_vec(), entry.cookie)).collect(),
            page.cookieverf,
            page.reply.eof,
        ))
    } else {
        let page = client.readdir(dir, cookie, verifier, count)?;
        let entries = page.reply.entries.into_inner();
        Ok((
            entries.into_iter().map(|entry| (entry.name.0.to_vec(), entry.cookie)).collect(),
            page.cookieverf,
            page.reply.eof,
        ))
    }
}

#[test]
fn a_big_directory_is_read_whole_across_changes_and_a_restart() {
    let mut world = World::new();
    for i in 0..4000 {
        File::create(world.path.join(format!("stays-{i}"))).unwrap();
    }
    for i in 0..300 {
        File::create(world.path.join(format!("goes-{i}"))).unwrap();
    }
    let (mut client, root) = world.mounted();
    let mut seen = Vec::new();
    let (mut cookie, mut verifier, mut pages) = (0, cookieverf3::default(), 0);
    loop {
        let (entries, page_verifier, eof) =
            page(&mut client, &root, cookie, verifier, pages % 2 == 1, 2048).unwrap();
        assert!(!entries.is_empty() || eof);
        pages += 1;
        verifier = page_verifier;
        cookie = entries.last().map_or(cookie, |entry| entry.1);
        seen.extend(entries.into_iter().map(|entry| entry.0));
        if eof {
            break;
        }
        // Others come and go meanwhile.
        if pages <= 300 {
            let _ = fs::remove_file(world.path.join(format!("goes-{}", pages - 1)));
            File::create(world.path.join(format!("comes-{pages}"))).unwrap();
        }
        if pages == 40 {
            world = world.restart([9; 32]);
            client = world.client();
        }
    }
    assert!(pages > 60, "{pages} pages");
    let stayed: Vec<_> = seen.iter().filter(|name| name.starts_with(b"stays")).collect();
    let unique: BTreeSet<_> = stayed.iter().collect();
    assert_eq!((stayed.len(), unique.len()), (4000, 4000), "each one that stays is seen once");
}

#[test]
fn pages_are_no_longer_than_asked_for() {
    let world = World::new();
    for i in 0..200 {
        File::create(world.path.join(format!("{i}{}", "x".repeat(i)))).unwrap();
    }
    let (mut client, root) = world.mounted();
    for plus in [false, true] {
        for count in [400, 512, 1000, 4096, 32_768, 1 << 20, u32::MAX] {
            let (mut cookie, mut verifier, mut seen) = (0, cookieverf3::default(), 0);
            loop {
                let xid = next_xid();
                let (procedure, arguments) = if plus {
                    (
                        17,
                        packed(&READDIRPLUS3args {
                            dir: root.clone(),
                            cookie,
                            cookieverf: verifier,
                            dircount: count,
                            maxcount: count,
                        }),
                    )
                } else {
                    (
                        16,
                        packed(&READDIR3args {
                            dir: root.clone(),
                            cookie,
                            cookieverf: verifier,
                            count,
                        }),
                    )
                };
                let record = client.record(nicache_nfs::protocol::NFS, procedure, xid, &arguments);
                client.send(&record);
                let results = client.results(xid);
                // The status does not count.
                assert!(
                    results.len() - 4 <= count as usize,
                    "{} bytes of {count}, plus {plus}",
                    results.len()
                );
                if results[..4] == (Stat::NFS3ERR_TOOSMALL as u32).to_be_bytes() {
                    assert!(count < 600, "{count}");
                    seen = 202;
                    break;
                }
                let (entries, page_verifier, eof) =
                    page(&mut client, &root, cookie, verifier, plus, count).unwrap();
                verifier = page_verifier;
                cookie = entries.last().map_or(cookie, |entry| entry.1);
                seen += entries.len();
                if eof {
                    break;
                }
            }
            assert_eq!(seen, 202, "{count} bytes at a time, plus {plus}");
        }
        assert_eq!(
            page(&mut client, &root, 0, cookieverf3::default(), plus, 100).unwrap_err(),
            Stat::NFS3ERR_TOOSMALL
        );
        assert_eq!(
            page(&mut client, &root, 0, cookieverf3::default(), plus, 0).unwrap_err(),
            Stat::NFS3ERR_TOOSMALL
        );
    }
}

#[test]
fn a_cookie_of_another_directory_is_refused() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    let other = client.mkdir(&root, "d", mode(0o755)).unwrap();
    let page = client.readdir(&root, 0, cookieverf3::default(), 4096).unwrap();
    let cookie = page.reply.entries.into_inner()[0].cookie;
    client.readdir(&root, cookie, page.cookieverf, 4096).unwrap();
    assert_eq!(
        client.readdir(&other, cookie, page.cookieverf, 4096).unwrap_err(),
        Stat::NFS3ERR_BAD_COOKIE
    );
    assert_eq!(
        client.readdir(&root, cookie, cookieverf3([1; 8]), 4096).unwrap_err(),
        Stat::NFS3ERR_BAD_COOKIE
    );
    assert_eq!(
        client.readdir(&root, u64::MAX, page.cookieverf, 4096).unwrap_err(),
        Stat::NFS3ERR_BAD_COOKIE
    );
    let file = client.make_file(&root, "f");
    assert_eq!(
        client.readdir(&file, 0, cookieverf3::default(), 4096).unwrap_err(),
        Stat::NFS3ERR_NOTDIR
    );
}

#[test]
fn entries_have_the_attributes_and_handles_of_their_files() {
    let world = World::new();
    let (mut client, root) = world.mounted();
    client.make_file(&root, "f");
    client.mkdir(&root, "d", mode(0o750)).unwrap();
    client.symlink(&root, "l", b"d").unwrap();
    client.mknod(&root, "p", mknoddata3::NF3FIFO(mode(0o600))).unwrap();
    let below = client.lookup(&root, "d").unwrap();
    for directory in [&root, &below] {
        let entries = client
            .readdirplus(directory, 0, cookieverf3::default(), 32_768, 32_768)
            .unwrap()
            .reply
            .entries
            .into_inner();
        assert_eq!(entries.len(), if directory == &root { 6 } else { 2 });
        for entry in entries {
            let Nfs3Option::Some(handle) = entry.name_handle else {
                panic!("no handle of {:?}", entry.name)
            };
            let Nfs3Option::Some(attributes) = entry.name_attributes else {
                panic!("no attributes of {:?}", entry.name)
            };
            assert_eq!(client.lookup(directory, &entry.name).unwrap(), handle);
            let found = client.getattr(&handle).unwrap();
            assert_eq!(
                (attributes.fileid, attributes.type_, attributes.fsid),
                (found.fileid, found.type_, found.fsid)
            );
            assert_eq!(entry.fileid, found.fileid, "{:?}", entry.name);
        }
    }
    // The root has nothing above it.
    assert_eq!(client.lookup(&root, "..").unwrap(), root);
    assert_eq!(client.lookup(&below, "..").unwrap(), root);
    // Who may read a directory but not search it sees names only; who may search but not read sees
    // nothing.
    client.setattr(&root, mode(0o744), Nfs3Option::None).unwrap();
    client.act_as(1000, 1000, &[]);
    let entries = client
        .readdirplus(&root, 0, cookieverf3::default(), 32_768, 32_768)
        .unwrap()
        .reply
        .entries
        .into_inner();
    assert_eq!(entries.len(), 6);
    assert!(
        entries.iter().all(|entry| entry.name_handle.is_none() && entry.name_attributes.is_none())
    );
    assert_eq!(client.lookup(&root, "f"), Err(Stat::NFS3ERR_ACCES));
    client.act_as(0, 0, &[]);
    client.setattr(&root, mode(0o711), Nfs3Option::None).unwrap();
    client.act_as(1000, 1000, &[]);
    assert_eq!(client.names(&root), Err(Stat::NFS3ERR_ACCES));
    client.lookup(&root, "f").unwrap();
}
