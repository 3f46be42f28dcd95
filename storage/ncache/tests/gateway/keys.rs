//! Keys that nobody made, keys that come twice, and the blocks that the kernel itself changes.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use nicache_initiator::MemoryLun;
use nicache_ncache::{CacheOptions, Sequence};
use nicache_payload::Payload;

use crate::harness::*;

#[test]
fn forged_unknown_and_used_keys_are_errors_and_go_nowhere() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let keyring = gateway.cache.keyring().clone();
    let mut forged = keyring.seal(Sequence(1), 4096);
    forged[20] ^= 1;
    let unknown = keyring.seal(Sequence(1 << 60), 4096);
    // One that stood for something, and has arrived.
    let (file, id) = gateway.open("real");
    write(&*gateway.nicache, &file, 0, &pattern(1, 1, 0, 4096));
    let used = keyring.seal(Sequence(1), 4096);
    gateway.nicache.commit(&file, id).unwrap();
    for (name, key) in [("forged", forged), ("unknown", unknown), ("used", used)] {
        let (file, _) = gateway.open(name);
        let verifier = gateway.nicache.verifier();
        let mut block = vec![0; 4096];
        block[..key.len()].copy_from_slice(&key);
        // Past the front end, which would have taken it for payload.
        file.write_all_at(&block, 0).unwrap();
        assert!(file.sync_all().is_err(), "{name}");
        assert_ne!(gateway.nicache.verifier(), verifier, "{name}");
        drop(file);
        std::fs::remove_file(gateway.path(name)).unwrap();
    }
    assert!(gateway.cache.figures().refused_keys >= 3);
    assert_eq!(read(&*gateway.nicache, &file, 0, 4096), pattern(1, 1, 0, 4096));
    // Whoever writes such bytes as payload gets them back: they are content, not keys.
    write(&*gateway.nicache, &file, 0, &[&unknown[..], &[1; 4096 - 48]].concat());
    assert_eq!(read(&*gateway.nicache, &file, 0, 48), unknown);
    write(&*gateway.nicache, &file, 0, &pattern(1, 2, 0, 4096));
    drop(file);
    // The kernel tells everybody of the errors above once.
    assert!(rustix::fs::syncfs(gateway.mounted.root()).is_err());
    gateway.close();
    // A tag in content is content, so the overwritten block is not looked for here; every other is
    // clean.
    assert_unit_clean(&lun);
}

/// The kernel's own view of a file, from the device.
fn by_kernel(file: &std::fs::File) -> Vec<u8> {
    drop_all_pages(file);
    let mut content = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

#[test]
fn ends_inside_blocks_move_down_and_up() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let nicache = &*gateway.nicache;
    let ends = [0, 1, 47, 48, 63, 64, 1000, 4095, 4096, 4097, 4096 + 10, 8191, 8192, 3 * 4096 + 20];
    let mut version = 1;
    for (i, from) in ends.into_iter().enumerate() {
        for to in ends {
            for is_arrived in [false, true] {
                let (file, id) = gateway.open("file");
                let mut model = pattern(1, version, 0, from);
                write(nicache, &file, 0, &model);
                if is_arrived {
                    nicache.commit(&file, id).unwrap();
                    if i % 2 == 0 {
                        gateway.cache.evict_all();
                    }
                }
                nicache.resize(&file, id, to as u64).unwrap();
                model.resize(to, 0);
                assert!(
                    read(nicache, &file, 0, 1 << 20) == model,
                    "{from} to {to}, arrived {is_arrived}: read"
                );
                // A write right after it, into the block that the kernel has just changed.
                let at = to.saturating_sub(3);
                let more = pattern(1, version + 1, at, 10);
                write(nicache, &file, at as u64, &more);
                model.resize(model.len().max(at + 10), 0);
                model[at..at + 10].copy_from_slice(&more);
                assert!(
                    read(nicache, &file, 0, 1 << 20) == model,
                    "{from} to {to}, arrived {is_arrived}: write"
                );
                // And one behind a gap.
                let at = model.len() + 5000;
                let more = pattern(1, version + 1, at, 100);
                write(nicache, &file, at as u64, &more);
                model.resize(at, 0);
                model.extend(&more);
                assert!(
                    read(nicache, &file, 0, 1 << 20) == model,
                    "{from} to {to}, arrived {is_arrived}: gap"
                );
                assert!(
                    by_kernel(&file) == model,
                    "{from} to {to}, arrived {is_arrived}: by the kernel"
                );
                assert!(
                    read(nicache, &file, 0, 1 << 20) == model,
                    "{from} to {to}, arrived {is_arrived}: at the end"
                );
                drop(file);
                std::fs::remove_file(gateway.path("file")).unwrap();
                version += 2;
            }
        }
    }
    assert_no_tag(&lun, &gateway.cache);
    gateway.close();
    assert_unit_clean(&lun);
}

#[test]
fn files_whose_data_would_go_elsewhere_are_refused() {
    if skipped() {
        return;
    }
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let gateway = Gateway::new(lun.clone(), CacheOptions::default(), true);
    let (file, id) = gateway.open("journaled");
    let flags = rustix::fs::ioctl_getflags(&file).unwrap() | rustix::fs::IFlags::JOURNALING;
    if let Err(error) = rustix::fs::ioctl_setflags(&file, flags) {
        println!("skipped: +j cannot be set here: {error}");
    } else {
        let data = [bytes::Bytes::from_static(&[1; 4096])];
        let error = gateway
            .nicache
            .write(&file, id, 0, &data, nicache_payload::Stability::Unstable)
            .unwrap_err();
        assert!(error.to_string().contains("journal"), "{error}");
    }
    drop(file);
    gateway.close();
}
