//! 2Q against three vectors.

use nicache_policy::{Occupancy, Removal, TwoQ, TwoQConfig};
use proptest::prelude::*;

use crate::naive::{BYTES_MAX, Model, Naive, compare, endure_senseless_sizes, steps};

/// The next to go first; key and bytes.
type Line = Vec<(u64, u64)>;

pub(crate) struct Queues {
    a1_in: Line,
    a1_out: Line,
    am: Line,
    /// The key of `a1_out` for whose object a victim was wanted last.
    returning: Option<(u64, u64)>,
    in_bytes_max: u64,
    in_max: usize,
    out_bytes_max: u64,
    out_max: usize,
}

fn bytes(line: &Line) -> u64 {
    line.iter().map(|object| object.1).sum()
}

fn take(line: &mut Line, key: u64) -> Option<(u64, u64)> {
    line.iter().position(|object| object.0 == key).map(|at| line.remove(at))
}

impl Queues {
    /// Shares in eighths.
    pub(crate) fn new(bytes_max: u64, objects_max: usize, kin: u64, kout: u64) -> Self {
        Self {
            a1_in: Line::new(),
            a1_out: Line::new(),
            am: Line::new(),
            returning: None,
            in_bytes_max: bytes_max * kin / 8,
            in_max: objects_max * kin as usize / 8,
            out_bytes_max: bytes_max * kout / 8,
            out_max: objects_max * kout as usize / 8,
        }
    }

    fn remember(&mut self, object: (u64, u64)) {
        if object.1 <= self.out_bytes_max && self.out_max > 0 {
            self.a1_out.push(object);
            while self.a1_out.len() > self.out_max || bytes(&self.a1_out) > self.out_bytes_max {
                self.a1_out.remove(0);
            }
        }
    }
}

impl Model for Queues {
    fn contains(&self, key: u64) -> bool {
        self.a1_in.iter().chain(&self.am).any(|object| object.0 == key)
    }
    fn hit(&mut self, key: u64) {
        self.am.sort_by_key(|object| object.0 == key);
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        let returns = self.returning.take_if(|ghost| ghost.0 == key).is_some();
        if take(&mut self.a1_out, key).is_some() || returns {
            self.am.push((key, bytes));
        } else {
            self.a1_in.push((key, bytes));
        }
    }
    fn resize(&mut self, key: u64, bytes: u64) {
        self.a1_in.iter_mut().chain(&mut self.am).find(|object| object.0 == key).unwrap().1 = bytes;
    }
    fn remove(&mut self, key: u64, removal: Removal) {
        take(&mut self.am, key);
        if let Some(object) = take(&mut self.a1_in, key)
            && removal == Removal::Evicted
        {
            self.remember(object);
        }
    }
    fn victim(&mut self, but: Option<u64>) -> Option<u64> {
        if let Some(ghost) = but.and_then(|key| take(&mut self.a1_out, key))
            && let Some(other) = self.returning.replace(ghost)
        {
            self.remember(other);
        }
        let in_is_over = bytes(&self.a1_in) > self.in_bytes_max || self.a1_in.len() > self.in_max;
        let lines = if in_is_over { [&self.a1_in, &self.am] } else { [&self.am, &self.a1_in] };
        lines.into_iter().flatten().map(|object| object.0).find(|&key| Some(key) != but)
    }
    fn occupancy(&self) -> Occupancy {
        Occupancy {
            objects: self.a1_in.len() + self.am.len(),
            bytes: bytes(&self.a1_in) + bytes(&self.am),
            ghosts: self.a1_out.len() + self.returning.iter().len(),
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_three_vectors(
        objects_max in 1usize..16,
        kin in 0u64..=8,
        kout in 0u64..=8,
        steps in steps(),
    ) {
        let config = TwoQConfig {
            in_share: kin as f64 / 8.0,
            out_share: kout as f64 / 8.0,
            ..TwoQConfig::new(BYTES_MAX, objects_max as u32)
        };
        let model = Queues::new(BYTES_MAX, objects_max, kin, kout);
        compare(TwoQ::with_config(&config), Naive::new(model, BYTES_MAX, objects_max), steps)?;
    }

    #[test]
    fn the_defaults_are_the_papers(steps in steps()) {
        compare(
            TwoQ::new(BYTES_MAX, 16),
            Naive::new(Queues::new(BYTES_MAX, 16, 2, 4), BYTES_MAX, 16),
            steps,
        )?;
    }
}

#[test]
fn senseless_sizes_and_settings_do_not_panic() {
    endure_senseless_sizes(TwoQ::new);
    for share in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.0] {
        endure_senseless_sizes(|bytes_max, objects_max| {
            let config = TwoQConfig::new(bytes_max, objects_max);
            TwoQ::with_config(&TwoQConfig { in_share: share, out_share: share, ..config })
        });
    }
}
