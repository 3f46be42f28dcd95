//! Which files the flusher still has to know, and which it lets go.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_initiator::{Fault, Kind, MemoryLun};
use nicache_ncache::CacheOptions;
use nicache_payload::Payload as _;

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
