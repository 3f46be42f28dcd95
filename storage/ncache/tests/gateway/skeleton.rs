//! The straight way, against a real target; and the three modes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use nicache_initiator::{IscsiLun, IscsiOptions, MemoryLun};
use nicache_ncache::{Baseline, CacheOptions, CopyClass, Original};
use nicache_payload::Payload;
use nicache_target::{Target, TargetOptions};

use crate::harness::*;

#[test]
fn a_file_on_a_real_target() {
    if skipped() {
        return;
    }
    if let Some(missing) = nicache_target::missing() {
        return println!("skipped: there is no {missing}");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("unit");
    File::create(&image).unwrap().set_len(128 << 20).unwrap();
    let target = Target::start(&image, &TargetOptions::default()).unwrap();
    target.enter().unwrap();
    let open = || {
        Arc::new(IscsiLun::open(&target.url().parse().unwrap(), &IscsiOptions::default()).unwrap())
    };
    let gateway = Gateway::new(open(), CacheOptions::default(), true);
    let (file, id) = gateway.open("file");
    let data = pattern(1, 1, 0, 4 << 20);
    write(&*gateway.nicache, &file, 0, &data);
    assert!(read(&*gateway.nicache, &file, 0, data.len()) == data, "before COMMIT");
    gateway.nicache.commit(&file, id).unwrap();
    let figures = gateway.cache.figures();
    assert_eq!((figures.remapped, figures.dirty_chunks), (1024, 0), "{figures:?}");
    assert!(read(&*gateway.nicache, &file, 0, data.len()) == data, "after remapping");
    gateway.cache.evict_all();
    assert!(read(&*gateway.nicache, &file, 0, data.len()) == data, "from the target");
    assert_eq!(gateway.cache.figures().misses, 1024);
    // The page cache holds nothing of it, and what the kernel itself reads are true bytes.
    assert_eq!(nicache_filemap::cached_pages(&file).map_or(0, |pages| pages.cached), 0);
    let mut by_kernel = vec![0; data.len()];
    file.read_exact_at(&mut by_kernel, 0).unwrap();
    assert!(by_kernel == data, "by the kernel");
    drop(file);
    let tag = *gateway.cache.keyring().tag();
    gateway.close();
    let unit = std::fs::read(&image).unwrap();
    assert!(!has_tag(&unit, &tag), "the tag is on the unit");
    assert!(unit.windows(64).step_by(4096).any(|window| window == &data[..64]), "the payload is");
    drop(unit);
    assert_clean(&image);
    // Another mount has other secrets, and the same file.
    let gateway = Gateway::new(open(), CacheOptions::default(), false);
    let (file, _) = gateway.open("file");
    assert!(read(&*gateway.nicache, &file, 0, data.len()) == data, "after another mount");
    drop(file);
    gateway.close();
}

#[test]
fn three_modes_and_their_copies() {
    if skipped() {
        return;
    }
    let gateway = Gateway::new(Arc::new(MemoryLun::new(64 << 20)), CacheOptions::default(), true);
    let copies = gateway.cache.copies();
    let bytes = |class| copies.counted(class).bytes;
    let data = pattern(1, 1, 0, 1 << 20);

    let (file, id) = gateway.open("nicache");
    write(&*gateway.nicache, &file, 0, &data);
    let before = CopyClass::ALL.map(bytes);
    assert!(read(&*gateway.nicache, &file, 0, data.len()) == data);
    assert_eq!(CopyClass::ALL.map(bytes), before, "a hit copies nothing");
    assert_eq!(
        (bytes(CopyClass::PageCacheIn), bytes(CopyClass::Edge)),
        (0, 0),
        "a write of whole blocks copies no payload"
    );
    assert_eq!(bytes(CopyClass::Key), 1 << 20);
    gateway.nicache.commit(&file, id).unwrap();
    // Chunks are the request's own memory.
    let sent = bytes::Bytes::from(data.clone());
    gateway
        .nicache
        .write(&file, id, 0, std::slice::from_ref(&sent), nicache_payload::Stability::Unstable)
        .unwrap();
    let back = gateway.nicache.read(&file, id, 4096, 4096).unwrap();
    assert_eq!(back[0].as_ptr(), sent[4096..].as_ptr());

    drop(file);
    let original = Original::new(Arc::clone(&gateway.cache));
    let (file, id) = gateway.open("original");
    write(&original, &file, 100, &data);
    assert!(read(&original, &file, 100, data.len() + 5) == data);
    original.commit(&file, id).unwrap();
    original.resize(&file, id, 10).unwrap();
    assert_eq!(read(&original, &file, 0, 100), [0; 10]);
    assert_eq!(
        (bytes(CopyClass::PageCacheIn), bytes(CopyClass::PageCacheOut)),
        (1 << 20, (1 << 20) + 10)
    );

    drop(file);
    let baseline = Baseline::new(Arc::clone(&gateway.cache));
    let (file, id) = gateway.open("baseline");
    write(&baseline, &file, 0, &data);
    baseline.commit(&file, id).unwrap();
    let before = bytes(CopyClass::PageCacheOut);
    assert_eq!(read(&baseline, &file, 4096, data.len()).len(), data.len() - 4096);
    assert_eq!(bytes(CopyClass::PageCacheOut), before);
    drop(file);
    gateway.close();
}
