//! N1, N2 and N4: power cuts at any moment, with any of the writes since the last flush.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nicache_initiator::MemoryLun;
use nicache_ncache::CacheOptions;
use nicache_payload::{Payload, Stability};

use crate::harness::*;

/// What a file may contain after a cut: the first is what was committed, the others came later.
type States = Vec<Vec<u8>>;

/// Whether each block of a found file is one of the states', up to the found end.
fn check(name: &str, states: &States, found: &[u8], seed: u64) {
    let sizes = states.iter().map(Vec::len);
    let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
    // The size follows the data that arrives, so it may be between two states.
    assert!(
        (least..=most).contains(&found.len()),
        "cut {seed}: {name} has {} bytes, not {least} to {most}",
        found.len()
    );
    for (i, block) in found.chunks(BLOCK).enumerate() {
        let is_known = states.iter().any(|state| {
            let of_state = &state[(i * BLOCK).min(state.len())..((i + 1) * BLOCK).min(state.len())];
            let common = of_state.len().min(block.len());
            block[..common] == of_state[..common] && block[common..].iter().all(|byte| *byte == 0)
        });
        assert!(
            is_known,
            "cut {seed}: block {i} of {name} is nothing that was written ({} states)",
            states.len()
        );
    }
}

/// Writes, commits, cuts and removes, and notes what may be found.
fn work(gateway: &Gateway, models: &Mutex<HashMap<String, States>>, stop: &AtomicBool, thread: u8) {
    let mut random = fastrand::Rng::with_seed(u64::from(thread));
    let nicache = &*gateway.nicache;
    let mut version = 0_u16;
    // Removed names are not used again: a file of the same name would be another file.
    let mut names: Vec<String> = Vec::new();
    let mut made = 0;
    while !stop.load(Ordering::Relaxed) {
        if names.len() < 4 {
            let name = format!("t{thread}-{made}");
            made += 1;
            let (file, _) = gateway.open(&name);
            // As the front end does for CREATE: the name is durable before the reply.
            file.sync_all().unwrap();
            models.lock().unwrap().insert(name.clone(), vec![Vec::new()]);
            names.push(name);
        }
        let at = random.usize(..names.len());
        let name = names[at].clone();
        let (file, id) = gateway.open(&name);
        let mut state = models.lock().unwrap()[&name].last().unwrap().clone();
        version = version.wrapping_add(1);
        let mut is_committed = false;
        match random.u32(0..12) {
            0..6 => {
                let unit = if random.bool() { 4096 } else { 1 };
                let offset = random.usize(..80_000) / unit * unit;
                let len = (length(&mut random, 17) / unit * unit).max(unit);
                let data = pattern(thread, version, offset, len);
                state.resize(state.len().max(offset + len), 0);
                state[offset..offset + len].copy_from_slice(&data);
                models.lock().unwrap().get_mut(&name).unwrap().push(state);
                let stability =
                    if random.u32(0..6) == 0 { Stability::FileSync } else { Stability::Unstable };
                nicache
                    .write(&file, id, offset as u64, &pieces(&mut random, &data), stability)
                    .unwrap();
                is_committed = stability == Stability::FileSync;
            }
            6..8 => {
                state.resize(random.usize(..100_000), 0);
                let size = state.len() as u64;
                models.lock().unwrap().get_mut(&name).unwrap().push(state);
                nicache.resize(&file, id, size).unwrap();
            }
            8 => {
                // Its content may be anything that is left of it from now on.
                models.lock().unwrap().remove(&name);
                names.swap_remove(at);
                std::fs::remove_file(gateway.path(&name)).unwrap();
            }
            _ => {
                nicache.commit(&file, id).unwrap();
                is_committed = true;
            }
        }
        if is_committed {
            let mut models = models.lock().unwrap();
            let states = models.get_mut(&name).unwrap();
            let last = states.pop().unwrap();
            *states = vec![last];
        }
    }
}

fn run(cuts: u64, seed: u64) {
    let lun = Arc::new(MemoryLun::new(64 << 20));
    let options =
        CacheOptions { bytes_max: 8 << 20, dirty_bytes_max: 1 << 20, ..CacheOptions::default() };
    let gateway = Gateway::new(lun.clone(), options, true);
    rustix::fs::syncfs(gateway.mounted.root()).unwrap();
    let models = Mutex::new(HashMap::new());
    let stop = AtomicBool::new(false);
    let mut committed = 0;
    std::thread::scope(|scope| {
        for thread in 1..3 {
            let (gateway, models, stop) = (&gateway, &models, &stop);
            scope.spawn(move || work(gateway, models, stop, thread));
        }
        // The workers end also when a check fails.
        let end = End(&stop);
        let mut random = fastrand::Rng::with_seed(seed);
        for cut in 0..cuts {
            std::thread::sleep(Duration::from_millis(random.u64(0..40)));
            let (expected, after) = {
                let models = models.lock().unwrap();
                (models.clone(), Arc::new(lun.cut(seed << 16 | cut)))
            };
            assert_no_tag(&after, &gateway.cache);
            replayed(&after, |mounted| {
                for (name, states) in &expected {
                    let found = std::fs::read(path(mounted, name));
                    check(
                        name,
                        states,
                        &found.unwrap_or_else(|e| panic!("cut {cut}: {name} is lost: {e}")),
                        cut,
                    );
                    committed += usize::from(!states[0].is_empty());
                }
            });
        }
        drop(end);
    });
    assert!(committed as u64 > cuts, "{committed} files with committed content in {cuts} cuts");
    println!("{cuts} cuts, {committed} committed contents found whole");
    gateway.close();
    assert_unit_clean(&lun);
}

struct End<'s>(&'s AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn fifty_power_cuts() {
    if !skipped() {
        run(50, 1);
    }
}

/// `cargo test --test gateway -- --ignored cuts`; CUTS says how many, SEED with which numbers.
#[test]
#[ignore = "takes minutes: run it with --ignored"]
fn five_hundred_power_cuts() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    run(number("CUTS", 500), number("SEED", 2));
}
