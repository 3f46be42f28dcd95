//! Card memory against a naive model: each body a `Vec<u8>`, and nothing else.

use std::collections::HashMap;
use std::ops::Range;

use nicache_memory::checksum::sum_directly;
use nicache_memory::{
    AccessError, AllocateError, AppendError, BodyId, CardMemory, HugePages, MemoryConfig, PinError,
    SLOT_BYTES, SealError,
};
use proptest::prelude::*;

const BODIES_MAX: u32 = 24;
const FILLS_MAX: u32 = 6;

struct ModelBody {
    id: BodyId,
    len: u64,
    bytes: Vec<u8>,
    /// How many of them count for the hash.
    hashed: usize,
    pins: u32,
    sealed: bool,
    released: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Append(usize, usize, u8),
    Fill(usize, u8),
    Seal(usize, usize),
    Copy(usize, usize),
    Pin(usize),
    Unpin(usize),
    Release(usize),
    Read(usize, u64, u64),
    Stale(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let body = 0usize..1000;
    prop_oneof![
        4 => prop_oneof![0u64..200, 0u64..8_000, 2000u64..100_000].prop_map(Step::Allocate),
        4 => (body.clone(), prop_oneof![0usize..200, 0usize..6000], any::<u8>())
            .prop_map(|(b, n, s)| Step::Append(b, n, s)),
        4 => (body.clone(), any::<u8>()).prop_map(|(b, s)| Step::Fill(b, s)),
        2 => (body.clone(), prop_oneof![4 => Just(0), 1 => 1usize..12])
            .prop_map(|(b, n)| Step::Seal(b, n)),
        2 => (body.clone(), body.clone()).prop_map(|(to, from)| Step::Copy(to, from)),
        2 => body.clone().prop_map(Step::Pin),
        2 => body.clone().prop_map(Step::Unpin),
        3 => body.clone().prop_map(Step::Release),
        6 => (body.clone(), any::<u64>(), any::<u64>()).prop_map(|(b, s, n)| Step::Read(b, s, n)),
        1 => body.prop_map(Step::Stale),
    ]
}

fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Runs of 0x00 and 0xFF try the two zeros of ones'-complement.
            match seed % 4 {
                0 => 0,
                1 => 0xFF,
                _ => state as u8,
            }
        })
        .collect()
}

fn read(memory: &CardMemory, id: BodyId, range: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in memory.extents(id, range).unwrap() {
        assert!(!piece.is_empty());
        bytes.extend_from_slice(piece);
    }
    bytes
}

fn check_range(memory: &CardMemory, body: &ModelBody, range: Range<u64>) {
    let expected = &body.bytes[range.start as usize..range.end as usize];
    assert_eq!(memory.extents(body.id, range.clone()).unwrap().bytes_left(), expected.len() as u64);
    assert_eq!(read(memory, body.id, range.clone()), expected);
    assert_eq!(
        memory.checksum(body.id, range.clone()).unwrap(),
        sum_directly(expected),
        "{range:?}"
    );
}

/// Where each piece lies, as addresses: shows two bodies that share a slot.
fn places(memory: &CardMemory, body: &ModelBody) -> Vec<Range<usize>> {
    memory
        .extents(body.id, 0..body.bytes.len() as u64)
        .unwrap()
        .map(|piece| piece.as_ptr() as usize..piece.as_ptr() as usize + piece.len())
        .collect()
}

fn run(slots: usize, steps: Vec<Step>) {
    let config = MemoryConfig {
        bytes: slots * SLOT_BYTES + 77,
        bodies_max: BODIES_MAX,
        fills_max: FILLS_MAX,
        huge_pages: HugePages::No,
    };
    let mut memory = CardMemory::with_config(&config).unwrap();
    let total = (slots * SLOT_BYTES) as u64;
    let mut bodies: Vec<ModelBody> = Vec::new();
    let mut stale: Vec<BodyId> = Vec::new();

    for step in steps {
        match step {
            Step::Allocate(len) => {
                let free = memory.free_bytes();
                let fills = bodies.iter().filter(|body| !body.sealed && !body.released).count();
                match memory.allocate(len) {
                    Ok(id) => {
                        assert!(!stale.contains(&id) && bodies.iter().all(|body| body.id != id));
                        assert!(free - memory.free_bytes() >= CardMemory::occupied_bytes(len));
                        bodies.push(ModelBody {
                            id,
                            len,
                            bytes: Vec::new(),
                            hashed: 0,
                            pins: 0,
                            sealed: false,
                            released: false,
                        });
                    }
                    Err(AllocateError::TooLong) => assert!(len > total),
                    Err(AllocateError::TooManyFills) => assert_eq!(fills, FILLS_MAX as usize),
                    Err(AllocateError::NoBodies) => assert_eq!(bodies.len(), BODIES_MAX as usize),
                    Err(AllocateError::NoSpace { missing }) => {
                        // A scattered body of this size needs one slot of index for every 512 of
                        // data, rounded up.
                        assert!(missing > 0);
                        assert!(CardMemory::occupied_bytes(len) + 2 * SLOT_BYTES as u64 > free);
                    }
                }
            }
            Step::Append(at, count, seed) if !bodies.is_empty() => {
                let at = at % bodies.len();
                append(&mut memory, &mut bodies[at], &noise(seed, count));
            }
            Step::Fill(at, seed) if !bodies.is_empty() => {
                let at = at % bodies.len();
                let rest = bodies[at].len as usize - bodies[at].bytes.len();
                append(&mut memory, &mut bodies[at], &noise(seed, rest));
            }
            Step::Seal(at, tail) if !bodies.is_empty() => {
                let at = at % bodies.len();
                let body = &mut bodies[at];
                let missing = body.len - body.bytes.len() as u64;
                let tail = noise(9, tail);
                let expected = match () {
                    () if body.sealed || body.released => Err(SealError::NotFilling),
                    () if missing != tail.len() as u64 => Err(SealError::Incomplete { missing }),
                    () => Ok(()),
                };
                assert_eq!(memory.seal_with(body.id, &tail), expected);
                if expected.is_ok() {
                    body.sealed = true;
                    body.hashed = body.bytes.len();
                    body.bytes.extend(tail);
                }
            }
            Step::Copy(to, from) if !bodies.is_empty() => {
                let (to, from) = (to % bodies.len(), from % bodies.len());
                let (bytes, source) = (bodies[from].bytes.clone(), bodies[from].id);
                let target = &mut bodies[to];
                let overruns = (target.bytes.len() + bytes.len()) as u64 > target.len;
                let expected = match () {
                    () if overruns => Err(AppendError::Overrun),
                    () if target.sealed || target.released => Err(AppendError::NotFilling),
                    () => Ok(()),
                };
                assert_eq!(memory.append_from(target.id, source), expected);
                if expected.is_ok() {
                    target.bytes.extend(bytes);
                }
            }
            Step::Pin(at) if !bodies.is_empty() => {
                let at = at % bodies.len();
                let body = &mut bodies[at];
                let expected = if body.released { Err(PinError::Released) } else { Ok(()) };
                assert_eq!(memory.pin(body.id), expected);
                body.pins += u32::from(expected.is_ok());
            }
            Step::Unpin(at) if !bodies.is_empty() => {
                let at = at % bodies.len();
                let body = &mut bodies[at];
                let expected = if body.pins == 0 { Err(PinError::Unbalanced) } else { Ok(()) };
                assert_eq!(memory.unpin(body.id), expected);
                body.pins = body.pins.saturating_sub(1);
                if body.released && body.pins == 0 {
                    stale.push(bodies.swap_remove(at).id);
                }
            }
            Step::Release(at) if !bodies.is_empty() => {
                let at = at % bodies.len();
                let body = &mut bodies[at];
                let expected = if body.released { Err(PinError::Released) } else { Ok(()) };
                assert_eq!(memory.release(body.id), expected);
                body.released = true;
                if body.pins == 0 {
                    stale.push(bodies.swap_remove(at).id);
                }
            }
            Step::Read(at, start, length) if !bodies.is_empty() => {
                let body = &bodies[at % bodies.len()];
                let have = body.bytes.len() as u64;
                let start = start % (have + 1);
                let end = start + length % (have - start + 1);
                check_range(&memory, body, start..end);
                assert!(matches!(
                    memory.extents(body.id, start..have + 1),
                    Err(AccessError::Range)
                ));
                assert_eq!(memory.checksum(body.id, start..have + 1), Err(AccessError::Range));
                assert_eq!(
                    memory.checksum(body.id, Range { start: 1, end: 0 }),
                    Err(AccessError::Range)
                );
            }
            Step::Stale(at) if !stale.is_empty() => {
                let id = stale[at % stale.len()];
                assert_eq!(memory.append(id, &[]), Err(AppendError::Stale));
                assert_eq!(memory.seal(id), Err(SealError::Stale));
                assert_eq!(memory.pin(id), Err(PinError::Stale));
                assert_eq!(memory.unpin(id), Err(PinError::Stale));
                assert_eq!(memory.release(id), Err(PinError::Stale));
                assert_eq!(memory.body_len(id), None);
                assert_eq!(memory.appended(id), None);
                assert_eq!(memory.hash(id), None);
                assert_eq!(memory.checksum(id, 0..0), Err(AccessError::Stale));
                assert!(matches!(memory.extents(id, 0..0), Err(AccessError::Stale)));
            }
            _ => {}
        }
        check_all(&memory, &bodies, total);
    }

    for body in &bodies {
        check_range(&memory, body, 0..body.bytes.len() as u64);
        assert_eq!(
            memory.hash(body.id),
            body.sealed.then(|| *blake3::hash(&body.bytes[..body.hashed]).as_bytes())
        );
    }
    while let Some(body) = bodies.pop() {
        if !body.released {
            memory.release(body.id).unwrap();
        }
        for _ in 0..body.pins {
            memory.unpin(body.id).unwrap();
        }
    }
    check_all(&memory, &[], total);
    assert_eq!(memory.free_bytes(), total, "everything came back");
    let whole = memory.allocate(total).expect("and in one piece");
    assert_eq!(memory.free_bytes(), 0);
    memory.release(whole).unwrap();
}

fn append(memory: &mut CardMemory, body: &mut ModelBody, bytes: &[u8]) {
    let expected = match () {
        () if body.sealed || body.released => Err(AppendError::NotFilling),
        () if (body.bytes.len() + bytes.len()) as u64 > body.len => Err(AppendError::Overrun),
        () => Ok(()),
    };
    assert_eq!(memory.append(body.id, bytes), expected);
    if expected.is_ok() {
        body.bytes.extend_from_slice(bytes);
    }
}

fn check_all(memory: &CardMemory, bodies: &[ModelBody], total: u64) {
    assert_eq!(memory.free_bytes() + memory.used_bytes(), total);
    assert_eq!(memory.bodies(), bodies.len());
    assert_eq!(memory.pinned() as usize, bodies.iter().filter(|body| body.pins > 0).count());
    assert_eq!(
        memory.filling(),
        bodies.iter().filter(|body| !body.sealed && !body.released).count()
    );
    let needed: u64 = bodies.iter().map(|body| CardMemory::occupied_bytes(body.len)).sum();
    assert!(memory.used_bytes() >= needed);
    let mut taken: HashMap<usize, usize> = HashMap::new();
    for (at, body) in bodies.iter().enumerate() {
        assert_eq!(memory.body_len(body.id), Some(body.len));
        assert_eq!(memory.appended(body.id), Some(body.bytes.len() as u64));
        for place in places(memory, body) {
            for slot in place.start / SLOT_BYTES..place.end.div_ceil(SLOT_BYTES) {
                assert_eq!(*taken.entry(slot).or_insert(at), at, "two bodies in one slot");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_vectors(slots in 1usize..120, steps in prop::collection::vec(step(), 0..160)) {
        run(slots, steps);
    }

    #[test]
    fn checksum_of_any_range_is_the_direct_sum(
        bytes in prop::collection::vec(
            prop_oneof![Just(0u8), Just(0xFFu8), any::<u8>()],
            0..12_000,
        ),
        cuts in prop::collection::vec(1usize..3000, 1..20),
        ranges in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            1..50,
        ),
    ) {
        let mut memory = CardMemory::new(64 << 10, HugePages::No).unwrap();
        let id = memory.allocate(bytes.len() as u64).unwrap();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*cut));
            memory.append(id, piece).unwrap();
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        memory.seal(id).unwrap();
        for (a, b) in ranges {
            let (a, b) = (a.index(bytes.len() + 1), b.index(bytes.len() + 1));
            let (start, end) = (a.min(b), a.max(b));
            prop_assert_eq!(
                memory.checksum(id, start as u64..end as u64).unwrap(),
                sum_directly(&bytes[start..end]),
                "{}..{}",
                start,
                end
            );
        }
    }
}

/// A memory in which every other slot is taken, so every larger body is scattered over an
/// index of depth 1 or 2.
fn comb(slots: usize) -> (CardMemory, Vec<BodyId>) {
    let mut memory = CardMemory::with_config(&MemoryConfig {
        fills_max: 4,
        ..MemoryConfig::new(slots * SLOT_BYTES, HugePages::No)
    })
    .unwrap();
    let all: Vec<_> = (0..slots)
        .map(|at| {
            let id = memory.allocate(8).unwrap();
            memory.append(id, &(at as u64).to_le_bytes()).unwrap();
            memory.seal(id).unwrap();
            id
        })
        .collect();
    for id in all.iter().step_by(2) {
        memory.release(*id).unwrap();
    }
    (memory, all.into_iter().skip(1).step_by(2).collect())
}

#[test]
fn scattered_bodies_of_each_depth() {
    let (mut memory, teeth) = comb(4096);
    for data_slots in [2usize, 512, 513, 1200, 2043] {
        let bytes = noise(2, data_slots * SLOT_BYTES - 3);
        let free = memory.free_bytes();
        let id = memory.allocate(bytes.len() as u64).unwrap();
        let index_slots = (free - memory.free_bytes()) as usize / SLOT_BYTES - data_slots;
        assert_eq!(index_slots, if data_slots <= 512 { 1 } else { data_slots.div_ceil(512) + 1 });
        for piece in bytes.chunks(1448) {
            memory.append(id, piece).unwrap();
        }
        memory.seal(id).unwrap();
        assert_eq!(memory.hash(id), Some(*blake3::hash(&bytes).as_bytes()));
        assert_eq!(read(&memory, id, 0..bytes.len() as u64), bytes);
        for start in (0..bytes.len()).step_by(4093) {
            let end = bytes.len().min(start + 65_161);
            assert_eq!(
                memory.checksum(id, start as u64..end as u64).unwrap(),
                sum_directly(&bytes[start..end])
            );
        }
        memory.release(id).unwrap();
        assert_eq!(memory.free_bytes(), free);
    }
    // 2044 data slots and 5 of index are more than the 2048 that are free.
    assert_eq!(
        memory.allocate(2044 * SLOT_BYTES as u64),
        Err(AllocateError::NoSpace { missing: 1 })
    );
    assert_eq!(memory.free_bytes(), 2048 * SLOT_BYTES as u64);
    for (at, id) in teeth.iter().enumerate() {
        assert_eq!(
            read(&memory, *id, 0..8),
            (2 * at as u64 + 1).to_le_bytes(),
            "the neighbours are untouched"
        );
    }
}

#[test]
fn bounds_of_the_arguments() {
    assert!(CardMemory::new(SLOT_BYTES - 1, HugePages::No).is_err());
    let mut memory = CardMemory::new(4 * SLOT_BYTES, HugePages::Try).unwrap();
    assert_eq!(memory.allocate(4 * SLOT_BYTES as u64 + 1), Err(AllocateError::TooLong));
    assert_eq!(memory.allocate(u64::MAX), Err(AllocateError::TooLong));
    let empty = memory.allocate(0).unwrap();
    memory.seal(empty).unwrap();
    assert_eq!(memory.hash(empty), Some(*blake3::hash(b"").as_bytes()));
    assert_eq!(memory.checksum(empty, 0..0), Ok(0));
    assert_eq!(memory.extents(empty, 0..0).unwrap().count(), 0);
    assert_eq!(memory.free_bytes(), 4 * SLOT_BYTES as u64);
    let full = memory.allocate(4 * SLOT_BYTES as u64).unwrap();
    assert_eq!(memory.allocate(1), Err(AllocateError::NoSpace { missing: 1 }));
    memory.append(full, &[0xFF; 4 * SLOT_BYTES]).unwrap();
    assert_eq!(memory.append(full, &[0]), Err(AppendError::Overrun));
    memory.seal(full).unwrap();
    assert_eq!(
        memory.extents(full, 1..4 * SLOT_BYTES as u64).unwrap().count(),
        1,
        "adjacent slots are one piece"
    );
}

#[test]
fn a_released_body_lives_as_long_as_its_pins() {
    let mut memory = CardMemory::new(2 * SLOT_BYTES, HugePages::No).unwrap();
    let id = memory.allocate(3000).unwrap();
    memory.append(id, &[7; 3000]).unwrap();
    memory.seal(id).unwrap();
    memory.pin(id).unwrap();
    memory.pin(id).unwrap();
    memory.release(id).unwrap();
    assert_eq!(memory.lingering_bytes(), 2 * SLOT_BYTES as u64);
    memory.unpin(id).unwrap();
    assert_eq!(memory.allocate(1), Err(AllocateError::NoSpace { missing: 1 }));
    assert_eq!(read(&memory, id, 0..3000), [7; 3000]);
    assert_eq!(memory.checksum(id, 1..2), Ok(0x0700));
    memory.unpin(id).unwrap();
    assert_eq!((memory.lingering_bytes(), memory.pinned(), memory.bodies()), (0, 0, 0));
    let other = memory.allocate(3000).unwrap();
    assert_ne!(other, id);
    assert_eq!(memory.unpin(id), Err(PinError::Stale));
}
