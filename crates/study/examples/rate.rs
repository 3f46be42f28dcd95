//! scratch
use nicache_policy::*;
use nicache_study::*;
use std::collections::HashMap;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let n: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let raw = std::fs::read(path).unwrap();
    let t = std::time::Instant::now();
    let mut ids: HashMap<u64, u32> = HashMap::new();
    let accesses: Vec<Access> = raw
        .chunks_exact(24)
        .map(|r| {
            let id = u64::from_le_bytes(r[4..12].try_into().unwrap());
            let next = ids.len() as u32;
            Access::new(*ids.entry(id).or_insert(next), 1).ending(true)
        })
        .collect();
    println!("interned {} in {:?}", ids.len(), t.elapsed());
    let w = Workload::of(accesses, Room::One);
    let sizes: Vec<u64> = (10..20).map(|b| 1u64 << b).chain([n]).collect();
    let t = std::time::Instant::now();
    let curve = lru_curve(&w, &sizes, |_| {});
    println!(
        "curve {:.4} {:.2} M/s",
        curve.last().unwrap().miss_ratio(),
        w.accesses.len() as f64 / t.elapsed().as_secs_f64() / 1e6
    );
    for _ in 0..2 {
        run("lru", Lru::new(n, n as u32), &w, n);
        run("fifo", Fifo::new(n, n as u32), &w, n);
    }
}
fn run<P: Policy>(name: &str, p: P, w: &Workload, n: u64) {
    let t = std::time::Instant::now();
    let c = simulate(p, w, n, |_| {});
    println!("{name} {:.4} {:.2} M/s", c.miss_ratio(), c.accesses as f64 / t.elapsed().as_secs_f64() / 1e6);
}
