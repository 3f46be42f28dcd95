//! The three ways of payload, with the same bytes for clients in two of them.

use std::fs;

use nicache_gateway::{CopyMode, Figures};
use nicache_nfs::protocol::Procedure;

use crate::harness::*;

fn copied(figures: &Figures, class: &str) -> u64 {
    figures.copies.iter().find(|copy| copy.class == class).unwrap().bytes
}

/// Bytes as they come back from the unit itself: nothing is cached in a gateway that has just
/// started.
#[test]
fn what_libnfs_writes_comes_back_in_each_way_and_is_copied_as_the_way_says() {
    if skipped() {
        return;
    }
    let unit = Unit::new();
    let local = tempfile::tempdir().unwrap();
    let data = pattern(1, 1, 5 << 20 | 4321);
    let (source, back) = (local.path().join("source"), local.path().join("back"));
    fs::write(&source, &data).unwrap();

    let gateway = start(&unit.target.url(), CopyMode::Nicache, true);
    let tag = gateway.cache().keyring().tag().to_vec();
    let address = gateway.addresses()[0];
    libnfs("nfs-cp", address, "/data/file", Some(&source), true);
    libnfs("nfs-cp", address, "/data/file", Some(&back), false);
    assert!(fs::read(&back).unwrap() == data);
    let listed = String::from_utf8(libnfs("nfs-ls", address, "/data", None, false)).unwrap();
    assert!(listed.contains("file") && listed.contains(&data.len().to_string()), "{listed}");
    let figures = gateway.figures();
    assert!(figures.calls_of("WRITE") > 0 && figures.calls_of("READ") > 0, "{figures}");
    assert!(figures.hits_fho + figures.hits_lbn >= 1024 && figures.misses == 0, "{figures}");
    // Keys and zeroes instead of payload.
    assert_eq!(
        (copied(&figures, "page_cache_out"), copied(&figures, "page_cache_in")),
        (0, 0),
        "{figures}"
    );
    assert!(copied(&figures, "key") >= data.len() as u64 / 4096 * 4096, "{figures}");
    assert_eq!(figures.trouble, None);
    gateway.close().unwrap();
    unit.assert_clean(Some(&tag));

    let gateway = start(&unit.target.url(), CopyMode::Nicache, false);
    libnfs("nfs-cp", gateway.addresses()[0], "/data/file", Some(&back), false);
    assert!(fs::read(&back).unwrap() == data);
    let figures = gateway.figures();
    assert!(figures.misses >= 1280 && copied(&figures, "page_cache_out") == 0, "{figures}");
    assert!(
        figures.unit_commands.reads.count > 0
            && figures.unit_commands.read_bytes >= data.len() as u64,
        "{figures}"
    );
    gateway.close().unwrap();

    let gateway = start(&unit.target.url(), CopyMode::Original, false);
    let address = gateway.addresses()[0];
    libnfs("nfs-cp", address, "/data/file", Some(&back), false);
    assert!(fs::read(&back).unwrap() == data);
    libnfs("nfs-cp", address, "/data/other", Some(&source), true);
    let figures = gateway.figures();
    assert!(copied(&figures, "page_cache_out") >= data.len() as u64, "{figures}");
    assert!(
        copied(&figures, "page_cache_in") >= data.len() as u64 && copied(&figures, "key") == 0,
        "{figures}"
    );
    gateway.close().unwrap();

    // Junk of the right length, and nothing is copied out for a reply.
    let gateway = start(&unit.target.url(), CopyMode::Baseline, false);
    let mut caller = caller(gateway.addresses()[0]);
    let root = caller.mount("/data").unwrap();
    let other = caller.look_up(&root, "other").unwrap().unwrap();
    assert_eq!(caller.read(&other, 4096, 8192).unwrap().unwrap(), vec![0; 8192]);
    drop(caller);
    assert_eq!(copied(&gateway.figures(), "page_cache_out"), 0);
    gateway.close().unwrap();
    unit.assert_clean(None);
}

/// WRITE, COMMIT, SETATTR and READ one after the other, at odd places.
#[test]
fn a_read_after_a_write_shows_it_and_a_commit_keeps_the_verifier() {
    if skipped() {
        return;
    }
    let unit = Unit::new();
    let gateway = start(&unit.target.url(), CopyMode::Nicache, true);
    let tag = gateway.cache().keyring().tag().to_vec();
    let mut caller = caller(gateway.addresses()[0]);
    let root = caller.mount("/data").unwrap();
    let file = caller.create(&root, "odd").unwrap();
    let mut model = pattern(2, 1, 100_000);
    let first = caller.write(&file, 0, &model, 0).unwrap();
    assert_eq!(first.status, 0);
    for (at, len, version) in
        [(5_000, 1, 2), (8_192, 4_096, 3), (4_095, 70_000, 4), (99_999, 30_000, 5)]
    {
        let data = pattern(2, version, len);
        model.resize(model.len().max(at + len), 0);
        model[at..at + len].copy_from_slice(&data);
        let written = caller.write(&file, at as u64, &data, 0).unwrap();
        assert_eq!((written.status, written.verifier), (0, first.verifier));
        assert!(caller.read(&file, 0, 200_000).unwrap().unwrap() == model, "after {version}");
    }
    assert_eq!(caller.commit(&file).unwrap(), first);
    // SETATTR to a size inside a block, then beyond: what was cut off is zeroes.
    for size in [50_001_usize, 120_000] {
        let mut arguments = nicache_nfs::caller::object(&file);
        let words = [0, 0, 0, 1, 0, size as u32, 0, 0, 0];
        words.iter().for_each(|word: &u32| arguments.extend_from_slice(&word.to_be_bytes()));
        let results = caller.call(Procedure::SetAttr, &arguments).unwrap();
        assert_eq!(nicache_nfs::caller::status_of(results).unwrap(), 0);
        model.resize(size, 0);
        assert!(caller.read(&file, 0, 200_000).unwrap().unwrap() == model, "{size}");
    }
    // Remapping, eviction, and a stable write.
    assert_eq!(caller.commit(&file).unwrap(), first);
    gateway.cache().evict_all();
    assert!(caller.read(&file, 0, 200_000).unwrap().unwrap() == model);
    let data = pattern(2, 9, 4_096);
    model[8_192..12_288].copy_from_slice(&data);
    assert_eq!(caller.write(&file, 8_192, &data, 2).unwrap(), first);
    assert_eq!(gateway.figures().dirty_bytes, 0);
    drop(caller);
    gateway.close().unwrap();
    unit.assert_clean(Some(&tag));
}
