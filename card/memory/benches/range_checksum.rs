//! Nanoseconds of a range checksum and of a walk over extents, against summing the bytes; and of
//! filling a body.
//!
//! `cargo bench -p nicache-memory`. Ranges begin at random places of a memory far larger than the
//! caches ("cold") or of 256 KiB of it ("warm"). Times are CPU time of the thread, the least of
//! several batches, so other work on the machine disturbs them little.

use std::hint::black_box;

use nicache_memory::checksum::sum_directly;

use nicache_memory::{BodyId, CardMemory, HugePages, SLOT_BYTES};

const MEMORY_BYTES: usize = 512 << 20;
const BODY_BYTES: usize = 1 << 20;

fn main() {
    let mut memory = CardMemory::new(MEMORY_BYTES, HugePages::Try).expect("512 MiB of memory");
    println!("pages: {:?}", memory.pages());
    let bytes: Vec<u8> = (0..BODY_BYTES)
        .map(|at| (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[7])
        .collect();
    let fill = cpu_ns();
    let bodies: Vec<BodyId> =
        (0..MEMORY_BYTES / BODY_BYTES).map(|_| store(&mut memory, &bytes, 1448)).collect();
    let ns = cpu_ns() - fill;
    println!(
        "append of 1448 bytes + hash: {:.0} ns, {:.2} GB/s",
        ns * 1448.0 / MEMORY_BYTES as f64,
        MEMORY_BYTES as f64 / ns
    );

    measure("contiguous", &memory, &bodies);

    let mut scattered = comb();
    let bodies: Vec<BodyId> = (0..100).map(|_| store(&mut scattered, &bytes, 1448)).collect();
    measure("scattered (worst case: every slot apart)", &scattered, &bodies);

    let rounds = 1_000_000;
    let start = cpu_ns();
    for at in 0..rounds {
        let id = bodies[at % bodies.len()];
        scattered.pin(black_box(id)).unwrap();
        scattered.unpin(black_box(id)).unwrap();
    }
    println!("pin + unpin: {:.1} ns", (cpu_ns() - start) / rounds as f64);

    measure_allocation();
}

fn measure_allocation() {
    let mut small = CardMemory::new(64 << 20, HugePages::Try).unwrap();
    for len in [1000u64, 16 << 10, 1 << 20, 32 << 20] {
        let rounds = 20_000;
        let start = cpu_ns();
        for _ in 0..rounds {
            let id = small.allocate(black_box(len)).unwrap();
            small.release(id).unwrap();
        }
        println!(
            "allocate + release of {len} bytes: {:.0} ns",
            (cpu_ns() - start) / f64::from(rounds)
        );
    }
}

fn store(memory: &mut CardMemory, bytes: &[u8], piece: usize) -> BodyId {
    let id = memory.allocate(bytes.len() as u64).unwrap();
    for piece in bytes.chunks(piece) {
        memory.append(id, piece).unwrap();
    }
    memory.seal(id).unwrap();
    id
}

/// A memory with every other slot taken.
fn comb() -> CardMemory {
    let slots = MEMORY_BYTES / SLOT_BYTES;
    let mut memory = CardMemory::new(slots * SLOT_BYTES, HugePages::Try).unwrap();
    let ids: Vec<BodyId> = (0..slots).map(|_| store(&mut memory, &[1], 1)).collect();
    for id in ids.into_iter().step_by(2) {
        memory.release(id).unwrap();
    }
    memory
}

fn measure(layout: &str, memory: &CardMemory, bodies: &[BodyId]) {
    for (warmth, reach) in [("warm", 1), ("cold", bodies.len())] {
        for len in [1448u64, 64 << 10] {
            let window = if warmth == "warm" { 256 << 10 } else { BODY_BYTES as u64 };
            let prefix = time(bodies, reach, window - len, |id, start| {
                u64::from(memory.checksum(id, start..start + len).unwrap())
            });
            let walk = time(bodies, reach, window - len, |id, start| {
                memory
                    .extents(id, start..start + len)
                    .unwrap()
                    .map(|piece| piece.as_ptr() as u64 ^ piece.len() as u64)
                    .sum()
            });
            let direct = time(bodies, reach, window - len, |id, start| {
                memory
                    .extents(id, start..start + len)
                    .unwrap()
                    .map(|piece| u64::from(sum_directly(piece)))
                    .sum()
            });
            println!(
                "{layout}, {warmth}, {len} bytes: checksum {prefix:.1} ns, extents {walk:.1} ns, summing every byte {direct:.0} ns"
            );
        }
    }
}

fn time(
    bodies: &[BodyId],
    reach: usize,
    window: u64,
    mut operation: impl FnMut(BodyId, u64) -> u64,
) -> f64 {
    let rounds = 20_000u64;
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut least = f64::INFINITY;
    for _ in 0..15 {
        let mut all = 0;
        let start = cpu_ns();
        for _ in 0..rounds {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Multiplications instead of divisions, which would cost as much as what is measured.
            let body = ((state >> 32) * reach as u64) >> 32;
            all ^= operation(bodies[body as usize], ((state & 0xFFFF_FFFF) * window) >> 32);
        }
        black_box(all);
        least = least.min((cpu_ns() - start) / rounds as f64);
    }
    least
}

fn cpu_ns() -> f64 {
    nicache_clock::thread_cpu_ns() as f64
}
