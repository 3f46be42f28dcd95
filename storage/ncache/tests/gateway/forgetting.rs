//! Which files the flusher still has to know, and which it lets go.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_initiator::{Fault, Kind, MemoryLun};
use nicache_ncache::CacheOptions;
use nicache_payload::Payload as _;

use crate::faults::{fail_data, far_file};
use crate::harness::*;

fn until(gateway: &Gateway, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "{:?}", gateway.cache.figures());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many descriptors of a file this process has.
fn descriptors(file: (u64, u64)) -> usize {
    let found = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    found
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .filter(|metadata| (metadata.dev(), metadata.ino()) == file)
        .count()
}

/// N7: the first write to a clean file waits for the unit longer than the flusher keeps clean
/// files. The file is removed afterwards, and nothing of it may stay.
#[test]
fn a_file_whose_first_write_waits_is_not_let_go() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let (file, id) = gateway.open("file");
    write(&*gateway.nicache, &file, 0, &pattern(1, 1, 0, 8192));
    gateway.nicache.commit(&file, id).unwrap();
    let of = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).unwrap();
    let its = of(&file);
    until(&gateway, || descriptors(its) == 1);
    gateway.cache.evict_all();
    lun.set_faults(|kind, _, _| (kind == Kind::Read).then_some(Fault::Stall));
    std::thread::scope(|scope| {
        scope.spawn(|| write(&*gateway.nicache, &file, 100, b"ten bytes."));
        while lun.stalled() == 0 {
            std::thread::yield_now();
        }
        // The flusher looks once a second.
        std::thread::sleep(Duration::from_millis(2500));
        lun.resume();
    });
    assert_eq!(gateway.cache.figures().dirty_chunks, 1);
    drop(file);
    std::fs::remove_file(gateway.path("file")).unwrap();
    until(&gateway, || gateway.cache.figures().dirty_chunks == 0);
    until(&gateway, || descriptors(its) == 0);
    gateway.close();
    assert_unit_clean(&lun);
}

/// A write failed, was repeated, and nobody asks: the file is closed, and who asks later is told.
#[test]
fn a_file_whose_write_failed_is_let_go_and_its_error_is_not() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(128 << 20));
    let options = CacheOptions { dirty_bytes_max: 64 << 10, ..CacheOptions::default() };
    let gateway = Gateway::new(lun.clone(), options, true);
    let (file, _) = far_file(&gateway);
    let its = file.metadata().map(|found| (found.dev(), found.ino())).unwrap();
    let data = pattern(1, 1, 0, 1 << 20);
    let verifier = gateway.nicache.verifier();
    fail_data(&lun, Fault::Failure);
    // More than may be dirty, so the flusher writes it back, in vain.
    write(&*gateway.nicache, &file, 0, &data);
    until(&gateway, || gateway.nicache.verifier() != verifier);
    lun.resume();
    // What may be dirty waits for the kernel.
    until(&gateway, || gateway.cache.figures().dirty_chunks * BLOCK <= 64 << 10);
    drop_all_pages(&file);
    until(&gateway, || gateway.cache.figures().dirty_chunks == 0);
    drop(file);
    until(&gateway, || descriptors(its) == 0);
    let (file, id) = gateway.open("far");
    assert!(gateway.nicache.commit(&file, id).is_err(), "nobody was told");
    gateway.nicache.commit(&file, id).unwrap();
    gateway.cache.evict_all();
    assert!(read(&*gateway.nicache, &file, 0, data.len()) == data);
    let _ = rustix::fs::syncfs(gateway.mounted.root());
    drop(file);
    gateway.close();
    assert_unit_clean(&lun);
}
