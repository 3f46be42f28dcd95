//! A flood of SYNs from random sources that never answer (RFC 4987 section 2).

use nicache_tcp::{Flags, HeadRepr, Seq, SynOptions, Timestamps};

use super::generator::{Attack, Pace};
use super::wire::{SERVER_PORT, Segment, Wire, address};

/// The flood.
#[derive(Debug)]
pub(super) struct Flood {
    pace: Pace,
    random: fastrand::Rng,
}

impl Flood {
    /// So many SYNs a second.
    pub(super) fn new(per_second: u32, seed: u64) -> Self {
        Self { pace: Pace::new(per_second), random: fastrand::Rng::with_seed(seed) }
    }
}

impl Attack for Flood {
    fn step(&mut self, now_s: f64, wire: &mut Wire) {
        for _ in 0..self.pace.due(now_s) {
            let random = &mut self.random;
            let options = SynOptions {
                mss: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps: random.bool().then(|| Timestamps { val: random.u32(..), ecr: 0 }),
                ecn: false,
            };
            let head = HeadRepr {
                src_port: random.u16(1024..),
                dst_port: SERVER_PORT,
                seq: Seq(random.u32(..)),
                flags: Flags::SYN,
                window: 64_240,
                syn_options: Some(options),
                ..HeadRepr::default()
            };
            let from = address(random.u32(..));
            wire.send(from, &head, &[]);
        }
    }

    fn handle(&mut self, _: f64, _: Segment<'_>, _: &mut Wire) {
        // Who is not there does not answer.
    }
}
