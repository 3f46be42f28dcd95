//! N3 and N5 under concurrency: readers, writers, truncation, eviction, write-back and removal,
//! against what the files must contain.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use nicache_initiator::MemoryLun;
use nicache_ncache::CacheOptions;
use nicache_payload::{Payload, Stability};
use nicache_policy::{ChosenPolicy, PolicyName};

use crate::harness::*;

const FILES: u8 = 6;

/// Every byte of a file is of this file and of its place, or zero; which version it is of is not
/// looked at.
fn assert_own(file: u8, offset: usize, data: &[u8]) {
    let own = pattern(file, 0, offset, data.len());
    for (i, (byte, own)) in data.iter().zip(own).enumerate() {
        let is_version = matches!((offset + i) % 8, 1 | 2);
        assert!(
            *byte == 0 || *byte == own || is_version,
            "file {file} at {}: {byte:#x}, not {own:#x}",
            offset + i
        );
    }
}

/// What a run is about.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    time: Duration,
    policy: ChosenPolicy,
    /// The longest file.
    bytes_max: usize,
}

impl Plan {
    /// Files that fit into the memory: chunks go by themselves only to make room for what is dirty.
    fn new(seed: u64, time: Duration) -> Self {
        Self { seed, time, policy: ChosenPolicy::LRU, bytes_max: 300_000 }
    }
}

fn run(Plan { seed, time, policy, bytes_max }: Plan) {
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let options = CacheOptions {
        bytes_max: 4 << 20,
        dirty_bytes_max: 1 << 19,
        policy,
        ..CacheOptions::default()
    };
    let gateway = Gateway::new(lun.clone(), options, true);
    let models: Vec<RwLock<Vec<u8>>> = (0..FILES).map(|_| RwLock::default()).collect();
    let stop = AtomicBool::new(false);
    let (gateway_ref, models_ref, stop_ref) = (&gateway, &models, &stop);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed << 8 | thread);
                let mut version = 0_u16;
                while !stop_ref.load(Ordering::Relaxed) {
                    let number = random.u8(..FILES);
                    let nicache = &*gateway_ref.nicache;
                    // Readers go on with the file that they opened, also when it is removed.
                    let mut model = models_ref[usize::from(number)].write().unwrap();
                    let (file, id) = gateway_ref.open(&format!("file{number}"));
                    match random.u32(0..20) {
                        0..10 => {
                            version = version.wrapping_add(1);
                            let is_aligned = random.bool();
                            let unit = if is_aligned { 4096 } else { 1 };
                            let offset = random.usize(..bytes_max / 2) / unit * unit;
                            let len = (length(&mut random, 17) / unit * unit).max(unit);
                            let data = pattern(number + 1, version, offset, len);
                            let pieces = pieces(&mut random, &data);
                            let stability = if random.u32(0..20) == 0 {
                                Stability::FileSync
                            } else {
                                Stability::Unstable
                            };
                            nicache.write(&file, id, offset as u64, &pieces, stability).unwrap();
                            let size = model.len().max(offset + len);
                            model.resize(size, 0);
                            model[offset..offset + len].copy_from_slice(&data);
                        }
                        10..13 => {
                            let size = match random.u32(0..3) {
                                0 => random.usize(..bytes_max),
                                1 => model.len().saturating_sub(random.usize(..5000)),
                                _ => model.len() / 2,
                            };
                            nicache.resize(&file, id, size as u64).unwrap();
                            model.resize(size, 0);
                        }
                        13 => {
                            std::fs::remove_file(gateway_ref.path(&format!("file{number}")))
                                .unwrap();
                            model.clear();
                        }
                        14..16 => nicache.commit(&file, id).unwrap(),
                        16..18 => gateway_ref.cache.evict_all(),
                        _ => {
                            assert!(
                                read(nicache, &file, 0, bytes_max * 2) == *model,
                                "file {number}"
                            );
                        }
                    }
                }
            });
        }
        for thread in 10..13_u64 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed << 8 | thread);
                while !stop_ref.load(Ordering::Relaxed) {
                    let number = random.u8(..FILES);
                    let (offset, len) = (random.usize(..bytes_max), length(&mut random, 18));
                    if random.bool() {
                        let model = models_ref[usize::from(number)].read().unwrap();
                        let (file, _) = gateway_ref.open(&format!("file{number}"));
                        let expected =
                            &model[offset.min(model.len())..(offset + len).min(model.len())];
                        let back = read(&*gateway_ref.nicache, &file, offset as u64, len);
                        assert!(back == expected, "file {number}, {len} at {offset}");
                    } else {
                        // At the same time as writers.
                        let (file, _) = gateway_ref.open(&format!("file{number}"));
                        assert_own(
                            number + 1,
                            offset,
                            &read(&*gateway_ref.nicache, &file, offset as u64, len),
                        );
                    }
                }
            });
        }
        let begun = Instant::now();
        let has_all = || {
            let figures = gateway.cache.figures();
            [figures.hits_fho, figures.hits_lbn, figures.misses, figures.remapped, figures.evicted]
                .iter()
                .all(|count| *count > 0)
        };
        while begun.elapsed() < time || !has_all() && begun.elapsed() < 20 * time {
            std::thread::sleep(Duration::from_millis(20));
            assert_no_tag(&lun, &gateway.cache);
        }
        stop.store(true, Ordering::Relaxed);
    });
    for (number, model) in models.iter().enumerate() {
        let (file, id) = gateway.open(&format!("file{number}"));
        gateway.nicache.commit(&file, id).unwrap();
        assert!(
            read(&*gateway.nicache, &file, 0, bytes_max * 2) == *model.read().unwrap(),
            "file {number} at the end"
        );
    }
    let figures = gateway.cache.figures();
    assert!(
        figures.hits_fho > 0 && figures.hits_lbn > 0 && figures.misses > 0 && figures.remapped > 0,
        "{policy}: {figures:?}"
    );
    assert!(figures.evicted > 0 && figures.bytes_most <= 4 << 20, "{policy}: {figures:?}");
    gateway.close();
    assert_unit_clean(&lun);
    replayed(&lun, |mounted| {
        for (number, model) in models.iter().enumerate() {
            assert!(
                std::fs::read(path(mounted, &format!("file{number}"))).unwrap()
                    == *model.read().unwrap()
            );
        }
    });
}

#[test]
fn reads_return_what_was_written() {
    if !skipped() {
        run(Plan::new(1, Duration::from_secs(5)));
    }
}

/// The same with files of which a third fits into the memory, so each policy has to choose all the
/// time, while files are written back under pressure.
#[test]
fn reads_return_what_was_written_under_every_policy() {
    if skipped() {
        return;
    }
    let settings = ["s3-fifo:small=50%:uses=1", "popularity:period=0.05"];
    let named = PolicyName::ALL.into_iter().filter_map(ChosenPolicy::new);
    let set = settings.into_iter().map(|text| text.parse().unwrap());
    for (seed, policy) in (100..).zip(named.chain(set)) {
        run(Plan { policy, bytes_max: 2 << 20, ..Plan::new(seed, Duration::from_secs(1)) });
    }
}

/// `cargo test --test gateway -- --ignored oracle`; SECONDS says for how long, SEED with which
/// numbers.
#[test]
#[ignore = "takes as long as SECONDS says"]
fn reads_return_what_was_written_for_long() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    run(Plan::new(number("SEED", 7), Duration::from_secs(number("SECONDS", 60))));
}
