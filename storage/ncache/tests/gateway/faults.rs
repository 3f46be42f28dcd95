//! A unit that fails, stalls, or is full; memory that runs out.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use bytes::Bytes;
use nicache_initiator::{Fault, Kind, MemoryLun};
use nicache_ncache::{Baseline, CacheOptions, Original};
use nicache_payload::{Payload, Stability};

use crate::harness::*;

/// Payload goes to the second half of these units, far from inodes, bitmaps and journal.
pub(crate) fn fail_data(lun: &MemoryLun, fault: Fault) {
    lun.set_faults(move |kind, offset, _| {
        (kind == Kind::Write && offset >= 48 << 20).then_some(fault)
    });
}

/// A file whose blocks are in the second half.
pub(crate) fn far_file(gateway: &Gateway) -> (std::fs::File, nicache_payload::FileId) {
    let (ballast, _) = gateway.open("ballast");
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, 60 << 20).unwrap();
    let (file, id) = gateway.open("far");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).unwrap();
    ballast.sync_all().unwrap();
    file.sync_all().unwrap();
    let extents = nicache_filemap::extents(&file, 0, 1 << 20, true).unwrap();
    assert!(!extents.is_empty());
    (file, id)
}

#[test]
fn an_error_of_a_write_reaches_commit_and_nothing_is_lost() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(128 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let nicache = &*gateway.nicache;
    let (file, id) = far_file(&gateway);
    let data = pattern(1, 1, 0, 1 << 20);
    write(nicache, &file, 0, &data);
    let verifier = nicache.verifier();
    fail_data(&lun, Fault::Failure);
    let result = nicache.commit(&file, id);
    lun.resume();
    assert!(result.is_err(), "where is the file's data?");
    assert_ne!(nicache.verifier(), verifier);
    // This server did not crash, so it still has the bytes; and the next commit writes them.
    assert!(read(nicache, &file, 0, data.len()) == data);
    nicache.commit(&file, id).unwrap();
    assert_eq!(gateway.cache.figures().dirty_chunks, 0);
    gateway.cache.evict_all();
    assert!(read(nicache, &file, 0, data.len()) == data);
    assert_no_tag(&lun, &gateway.cache);
    // The kernel tells everybody of the error once.
    let _ = rustix::fs::syncfs(gateway.mounted.root());
    let cut = Arc::new(lun.cut(1));
    replayed(&cut, |mounted| {
        let found = std::fs::read(path(mounted, "far")).unwrap();
        let wrong: Vec<usize> = (0..256)
            .filter(|i| found[i * BLOCK..(i + 1) * BLOCK] != data[i * BLOCK..(i + 1) * BLOCK])
            .collect();
        let zero = wrong
            .iter()
            .filter(|i| found[*i * BLOCK..(*i + 1) * BLOCK].iter().all(|b| *b == 0))
            .count();
        assert!(
            wrong.is_empty(),
            "blocks {wrong:?} of {} bytes, {zero} of them zeroes",
            found.len()
        );
    });
    drop(file);
    gateway.close();
}

/// The kernel tells one of two that wait for a file's write-back that it failed. The other one must
/// see it by the verifier.
#[test]
fn whoever_is_not_told_of_an_error_finds_another_verifier() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(128 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let nicache = &*gateway.nicache;
    let (file, id) = far_file(&gateway);
    for round in 0..100 {
        let before = nicache.verifier();
        write(nicache, &file, 0, &pattern(1, round, 0, 1 << 16));
        fail_data(&lun, Fault::Failure);
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    barrier.wait();
                    let committed = nicache.commit(&file, id);
                    assert!(committed.is_err() || nicache.verifier() != before, "round {round}");
                });
            }
        });
        lun.resume();
        // It puts again what was not written; perhaps it is told of the error, too.
        let _ = nicache.commit(&file, id);
    }
    nicache.commit(&file, id).unwrap();
    assert!(read(nicache, &file, 0, 1 << 16) == pattern(1, 99, 0, 1 << 16));
    // The kernel tells everybody of the error once.
    let _ = rustix::fs::syncfs(gateway.mounted.root());
    drop(file);
    gateway.close();
}

/// Write-back fails while somebody reads the file, so its keys cannot be put again at once. They
/// are later, although no client ever commits, and the payload is no longer pinned.
#[test]
fn what_was_not_written_under_a_lock_is_written_later() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(128 << 20));
    let options = CacheOptions { dirty_bytes_max: 16 * BLOCK, ..CacheOptions::default() };
    let gateway = Gateway::new(lun.clone(), options, true);
    let nicache = &*gateway.nicache;
    let (file, id) = far_file(&gateway);
    let (cold, data) = (pattern(1, 1, 512 << 10, BLOCK), pattern(1, 2, 0, 16 * BLOCK));
    write(nicache, &file, 512 << 10, &cold);
    nicache.commit(&file, id).unwrap();
    gateway.cache.evict_all();
    write(nicache, &file, 0, &data);
    let verifier = nicache.verifier();
    lun.set_faults(|kind, offset, _| match kind {
        _ if offset < 48 << 20 => None,
        Kind::Read => Some(Fault::Stall),
        Kind::Write => Some(Fault::Failure),
        Kind::Flush => None,
    });
    // One more dirty block is too many.
    let (other, _) = gateway.open("other");
    let press = || write(nicache, &other, 0, &pattern(2, 1, 0, BLOCK));
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(std::time::Instant::now() < deadline, "{what}: {:?}", gateway.cache.figures());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(read(nicache, &file, 512 << 10, BLOCK) == cold));
        until("the file is read", &|| lun.stalled() > 0);
        press();
        until("a write fails", &|| nicache.verifier() != verifier);
        // The flusher is told, and finds the file locked.
        std::thread::sleep(Duration::from_millis(500));
        assert!(gateway.cache.figures().dirty_chunks >= 16);
        lun.resume();
    });
    until("the payload is pinned", &|| {
        press();
        gateway.cache.figures().dirty_chunks <= 1
    });
    gateway.cache.evict_all();
    assert!(read(nicache, &file, 0, data.len()) == data);
    // The kernel tells everybody of the error once.
    let _ = rustix::fs::syncfs(gateway.mounted.root());
    drop((file, other));
    gateway.close();
}

#[test]
fn an_error_of_a_flush_reaches_commit() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let (file, id) = gateway.open("file");
    write(&*gateway.nicache, &file, 0, &pattern(1, 1, 0, 8192));
    gateway.nicache.commit(&file, id).unwrap();
    let verifier = gateway.nicache.verifier();
    // Overwriting needs no journal, so only this flush can tell.
    write(&*gateway.nicache, &file, 0, &pattern(1, 2, 0, 8192));
    lun.set_faults(|kind, _, _| (kind == Kind::Flush).then_some(Fault::Failure));
    assert!(gateway.nicache.commit(&file, id).is_err());
    assert_ne!(gateway.nicache.verifier(), verifier);
    lun.resume();
    drop(file);
    let Gateway { nicache, mounted, .. } = gateway;
    drop(nicache);
    // The file system may have stopped itself.
    let _ = mounted.close();
}

#[test]
fn a_full_file_system_says_so_and_keeps_what_it_has() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(32 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let nicache = &*gateway.nicache;
    let (file, id) = gateway.open("file");
    let (mut written, part) = (0, 300_000);
    let error = loop {
        let data = [Bytes::from(pattern(1, 1, written, part))];
        match nicache.write(&file, id, written as u64, &data, Stability::Unstable) {
            Ok(()) => written += part,
            Err(error) => break error,
        }
        assert!(written < 40 << 20);
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    nicache.commit(&file, id).unwrap();
    assert!(read(nicache, &file, 0, written) == pattern(1, 1, 0, written));
    assert_eq!(gateway.cache.figures().dirty_chunks, 0);
    nicache.resize(&file, id, 5000).unwrap();
    // The space is there again, and what was in it is not seen (N5).
    let (other, other_id) = gateway.open("other");
    nicache.resize(&other, other_id, 4 << 20).unwrap();
    write(nicache, &other, 1 << 20, &pattern(2, 1, 1 << 20, 4096));
    let mut model = vec![0; 4 << 20];
    model[1 << 20..(1 << 20) + 4096].copy_from_slice(&pattern(2, 1, 1 << 20, 4096));
    assert!(read(nicache, &other, 0, 4 << 20) == model);
    drop((file, other));
    assert_no_tag(&lun, &gateway.cache);
    gateway.close();
    assert_unit_clean(&lun);
}

#[test]
fn a_stalled_unit_holds_commits_and_not_hits() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let (file, id) = gateway.open("file");
    let data = pattern(1, 1, 0, 65536);
    write(&*gateway.nicache, &file, 0, &data);
    lun.set_faults(|kind, _, _| (kind != Kind::Read).then_some(Fault::Stall));
    let is_committed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gateway.nicache.commit(&file, id).unwrap();
            is_committed.store(true, Ordering::SeqCst);
        });
        while lun.stalled() == 0 {
            std::thread::yield_now();
        }
        assert!(read(&*gateway.nicache, &file, 0, data.len()) == data);
        assert!(!is_committed.load(Ordering::SeqCst));
        lun.resume();
    });
    drop(file);
    gateway.close();
}

/// N7, with back-pressure: more is written than fits, by several at once, onto a unit that keeps
/// nothing in memory.
#[test]
fn memory_is_bounded_and_writers_wait() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(256 << 20));
    let options =
        CacheOptions { bytes_max: 6 << 20, dirty_bytes_max: 2 << 20, ..CacheOptions::default() };
    let gateway = Gateway::new(lun.clone(), options, true);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let gateway = &gateway;
            scope.spawn(move || {
                let (file, id) = gateway.open(&format!("file{thread}"));
                let step = 1 << 20;
                for at in (0..20 * step).step_by(step) {
                    // Half of them across blocks, so with copies.
                    write(
                        &*gateway.nicache,
                        &file,
                        at as u64 + u64::from(thread),
                        &pattern(thread, 1, at, step),
                    );
                }
                for at in (0..20 * step).step_by(step) {
                    let back = read(&*gateway.nicache, &file, at as u64 + u64::from(thread), step);
                    assert!(back == pattern(thread, 1, at, step), "file {thread} at {at}");
                }
                gateway.nicache.commit(&file, id).unwrap();
            });
        }
    });
    let figures = gateway.cache.figures();
    assert!(figures.bytes_most <= 6 << 20 && figures.dirty_chunks == 0, "{figures:?}");
    gateway.close();
    assert_unit_clean(&lun);
}

#[test]
fn replies_that_nobody_takes_stop_readers_and_not_the_cache() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let options = CacheOptions {
        bytes_max: 4 << 20,
        patience: Duration::from_millis(200),
        ..CacheOptions::default()
    };
    let gateway = Gateway::new(lun, options, true);
    let (file, id) = gateway.open("file");
    for part in 0..8 {
        write(&*gateway.nicache, &file, part << 20, &pattern(1, 1, (part as usize) << 20, 1 << 20));
        // Nothing has to wait for room, as readers will.
        gateway.nicache.commit(&file, id).unwrap();
    }
    let mut replies = Vec::new();
    let error = loop {
        match gateway.nicache.read(&file, id, (replies.len() as u64) << 19, 1 << 19) {
            Ok(reply) => replies.push(reply),
            Err(error) => break error,
        }
        assert!(replies.len() < 16);
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    // Each still has its own bytes.
    for (i, reply) in replies.iter().enumerate() {
        assert!(reply.concat() == pattern(1, 1, i << 19, 1 << 19));
    }
    drop(replies);
    assert!(read(&*gateway.nicache, &file, 0, 1 << 20) == pattern(1, 1, 0, 1 << 20));
    drop(file);
    gateway.close();
}

#[test]
fn the_space_of_what_is_removed_comes_back() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    rustix::fs::syncfs(gateway.mounted.root()).unwrap();
    let free = || rustix::fs::fstatvfs(gateway.mounted.root()).unwrap().f_bfree;
    let before = free();
    let (file, _) = gateway.open("file");
    write(&*gateway.nicache, &file, 0, &pattern(1, 1, 0, 4 << 20));
    assert!(free() < before);
    drop(file);
    std::fs::remove_file(gateway.path("file")).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while free() < before || gateway.cache.figures().dirty_chunks > 0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", gateway.cache.figures());
        std::thread::sleep(Duration::from_millis(20));
    }
    gateway.close();
    assert_unit_clean(&lun);
}

/// Clients would send everything again, and again with each further reader of a bad sector.
#[test]
fn an_error_of_a_read_does_not_change_the_verifier() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let nicache = &*gateway.nicache;
    let (file, id) = gateway.open("file");
    let data = pattern(1, 1, 0, 8192);
    write(nicache, &file, 0, &data);
    nicache.commit(&file, id).unwrap();
    gateway.cache.evict_all();
    let verifier = nicache.verifier();
    lun.set_faults(|kind, _, _| (kind == Kind::Read).then_some(Fault::Failure));
    // By the cache, and by the kernel.
    nicache.read(&file, id, 0, 8192).unwrap_err();
    file.read_exact_at(&mut [0; 10], 0).unwrap_err();
    lun.resume();
    assert_eq!(nicache.verifier(), verifier);
    assert!(read(nicache, &file, 0, data.len()) == data);
    drop(file);
    gateway.close();
}

/// Whoever has the file open at COMMIT may have opened it after the error.
#[test]
fn an_error_of_write_back_changes_the_verifier_of_each_way() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(128 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let original = Original::new(Arc::clone(&gateway.cache));
    let baseline = Baseline::new(Arc::clone(&gateway.cache));
    let (file, _) = far_file(&gateway);
    write(&original, &file, 0, &pattern(1, 1, 0, 8192));
    let ways: [&dyn Payload; 3] = [&*gateway.nicache, &original, &baseline];
    let before = ways.map(Payload::verifier);
    fail_data(&lun, Fault::Failure);
    nicache_filemap::write_back(&file, 0, 0, nicache_filemap::Wait::Yes).unwrap_err();
    lun.resume();
    for (way, before) in ways.iter().zip(before) {
        assert_ne!(way.verifier(), before);
    }
    // The kernel tells everybody of the error once.
    let _ = rustix::fs::syncfs(gateway.mounted.root());
    drop(file);
    gateway.close();
}
