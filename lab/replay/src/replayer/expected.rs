//! What each body must be.

use std::cmp::Reverse;

use crate::content::{VERSION, render};
use crate::trace::Trace;

/// Bytes of bodies kept ready; those of other objects are made again while they are compared, which
/// takes about ten times as long.
const KEPT_BYTES_MAX: u64 = 2 << 30;
/// Bytes made at once of a body that is not kept.
const CHUNK_BYTES: usize = 4096;

/// The bodies of a trace's objects, in memory as far as [`KEPT_BYTES_MAX`] allows, most requested
/// first.
#[derive(Debug)]
pub(super) struct Expected {
    objects: Vec<Place>,
    kept: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    bytes: u64,
    kept_at: Option<usize>,
}

impl Expected {
    /// The bodies of the files that [`crate::StaticSite`] makes for `trace`.
    pub(super) fn of(trace: &Trace) -> Self {
        Self::with_limit(trace, KEPT_BYTES_MAX)
    }

    fn with_limit(trace: &Trace, kept_bytes_max: u64) -> Self {
        let mut requests = vec![0u32; trace.objects.len()];
        trace.requests.iter().for_each(|request| requests[request.object as usize] += 1);
        let mut order: Vec<usize> = (0..trace.objects.len()).collect();
        order.sort_by_key(|&object| Reverse(requests[object]));
        let place = |object: &crate::trace::Object| Place {
            id: object.id,
            bytes: object.bytes,
            kept_at: None,
        };
        let mut objects: Vec<Place> = trace.objects.iter().map(place).collect();
        let mut kept_bytes = 0;
        for object in order {
            let place = &mut objects[object];
            if kept_bytes + place.bytes <= kept_bytes_max {
                place.kept_at = Some(kept_bytes as usize);
                kept_bytes += place.bytes;
            }
        }
        let mut kept = vec![0; kept_bytes as usize];
        for place in &objects {
            if let Some(at) = place.kept_at {
                render(place.id, VERSION, 0, &mut kept[at..at + place.bytes as usize]);
            }
        }
        Self { objects, kept }
    }

    /// Bytes of an object.
    pub(super) fn bytes(&self, object: u32) -> u64 {
        self.objects[object as usize].bytes
    }

    /// Id of an object.
    pub(super) fn id(&self, object: u32) -> u64 {
        self.objects[object as usize].id
    }

    /// Where the first byte of `got`, the object's bytes from `offset` on, is wrong. `None` if all
    /// are right.
    ///
    /// # Panics
    /// If they reach beyond the object's end.
    pub(super) fn difference(&self, object: u32, offset: u64, got: &[u8]) -> Option<u64> {
        let place = self.objects[object as usize];
        assert!(offset + got.len() as u64 <= place.bytes);
        if let Some(at) = place.kept_at {
            let start = at + offset as usize;
            return first_difference(&self.kept[start..start + got.len()], got)
                .map(|at| offset + at as u64);
        }
        let mut made = [0; CHUNK_BYTES];
        let mut at = offset;
        for chunk in got.chunks(CHUNK_BYTES) {
            render(place.id, VERSION, at, &mut made[..chunk.len()]);
            if let Some(wrong) = first_difference(&made[..chunk.len()], chunk) {
                return Some(at + wrong as u64);
            }
            at += chunk.len() as u64;
        }
        None
    }
}

fn first_difference(right: &[u8], got: &[u8]) -> Option<usize> {
    // Comparing whole slices is memcmp; the place is looked for only if there is one.
    if right == got { None } else { right.iter().zip(got).position(|(right, got)| right != got) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{SyntheticConfig, synthetic};

    #[test]
    fn kept_and_made_again_it_is_the_same() {
        let config = SyntheticConfig {
            objects: 20,
            requests: 500,
            bytes_max: 20_000,
            ..SyntheticConfig::default()
        };
        let trace = synthetic(&config);
        let all = Expected::of(&trace);
        let some = Expected::with_limit(&trace, trace.footprint_bytes() / 2);
        let none = Expected::with_limit(&trace, 0);
        assert!(some.kept.len() > trace.footprint_bytes() as usize / 4);
        assert!(none.kept.is_empty());
        for object in 0..trace.objects.len() as u32 {
            let mut body = vec![0; all.bytes(object) as usize];
            render(all.id(object), VERSION, 0, &mut body);
            for expected in [&all, &some, &none] {
                assert_eq!(expected.difference(object, 0, &body), None);
                let at = body.len() - 1;
                assert_eq!(expected.difference(object, at as u64, &body[at..]), None);
            }
            let at = body.len() * 2 / 3;
            body[at] ^= 1;
            for expected in [&all, &some, &none] {
                assert_eq!(expected.difference(object, 10, &body[10..]), Some(at as u64));
            }
        }
    }
}
