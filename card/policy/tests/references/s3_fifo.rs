//! S3-FIFO against three vectors.

use nicache_policy::{Occupancy, Removal, S3Fifo, S3FifoConfig};
use proptest::prelude::*;

use crate::naive::{BYTES_MAX, Model, Naive, compare, endure_senseless_sizes, steps};

/// Oldest first; key, bytes, uses.
type Fifo = Vec<(u64, u64, u8)>;

pub(crate) struct Queues {
    small: Fifo,
    main: Fifo,
    ghosts: Fifo,
    /// The ghost for whose object a victim was wanted last.
    returning: Option<(u64, u64, u8)>,
    main_bytes_max: u64,
    main_objects_max: usize,
    ghost_bytes_max: u64,
    ghosts_max: usize,
    uses_to_main: u8,
    is_smalls_turn: bool,
}

fn bytes(fifo: &Fifo) -> u64 {
    fifo.iter().map(|object| object.1).sum()
}

fn take(fifo: &mut Fifo, key: u64) -> Option<(u64, u64, u8)> {
    fifo.iter().position(|object| object.0 == key).map(|at| fifo.remove(at))
}

impl Queues {
    /// Shares in tenths.
    pub(crate) fn new(
        bytes_max: u64,
        objects_max: usize,
        small: u64,
        ghosts: u64,
        uses_to_main: u8,
    ) -> Self {
        Self {
            small: Fifo::new(),
            main: Fifo::new(),
            ghosts: Fifo::new(),
            returning: None,
            main_bytes_max: bytes_max - bytes_max * small / 10,
            main_objects_max: objects_max - objects_max * small as usize / 10,
            ghost_bytes_max: bytes_max * ghosts / 10,
            ghosts_max: objects_max * ghosts as usize / 10,
            uses_to_main,
            is_smalls_turn: false,
        }
    }

    fn find(&mut self, key: u64) -> Option<&mut (u64, u64, u8)> {
        self.small.iter_mut().chain(&mut self.main).find(|object| object.0 == key)
    }

    fn remember(&mut self, object: (u64, u64, u8)) {
        if object.1 <= self.ghost_bytes_max && self.ghosts_max > 0 {
            self.ghosts.push(object);
            while self.ghosts.len() > self.ghosts_max || bytes(&self.ghosts) > self.ghost_bytes_max
            {
                self.ghosts.remove(0);
            }
        }
    }
}

impl Model for Queues {
    fn contains(&self, key: u64) -> bool {
        self.small.iter().chain(&self.main).any(|object| object.0 == key)
    }
    fn hit(&mut self, key: u64) {
        let object = self.find(key).unwrap();
        object.2 = 3.min(object.2 + 1);
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        let returns = self.returning.take_if(|ghost| ghost.0 == key).is_some();
        if take(&mut self.ghosts, key).is_some() || returns {
            self.main.push((key, bytes, 0));
        } else {
            self.small.push((key, bytes, 0));
        }
    }
    fn resize(&mut self, key: u64, bytes: u64) {
        self.find(key).unwrap().1 = bytes;
    }
    fn remove(&mut self, key: u64, removal: Removal) {
        let from_small = take(&mut self.small, key);
        take(&mut self.main, key);
        if removal == Removal::Evicted {
            self.is_smalls_turn = false;
            if let Some(object) = from_small {
                self.remember(object);
            }
        }
    }
    fn victim(&mut self, but: Option<u64>) -> Option<u64> {
        if let Some(ghost) = but.and_then(|key| take(&mut self.ghosts, key))
            && let Some(other) = self.returning.replace(ghost)
        {
            self.remember(other);
        }
        if self.small.iter().chain(&self.main).all(|object| Some(object.0) == but) {
            // Nobody can go; the small queue is gone through all the same.
            self.main.extend(self.small.drain(..).map(|object| (object.0, object.1, 0)));
            self.is_smalls_turn = false;
            return None;
        }
        let main_gives = self.main.iter().any(|object| Some(object.0) != but);
        let main_is_over =
            bytes(&self.main) > self.main_bytes_max || self.main.len() > self.main_objects_max;
        if self.is_smalls_turn || !(main_gives && main_is_over) {
            self.is_smalls_turn = true;
            while let Some(&(key, bytes, uses)) = self.small.first() {
                if uses < self.uses_to_main && Some(key) != but {
                    return Some(key);
                }
                self.small.remove(0);
                self.main.push((key, bytes, 0));
            }
        }
        self.is_smalls_turn = false;
        loop {
            let oldest = &mut self.main[0];
            if oldest.2 == 0 && Some(oldest.0) != but {
                return Some(oldest.0);
            }
            oldest.2 = oldest.2.saturating_sub(1);
            self.main.rotate_left(1);
        }
    }
    fn occupancy(&self) -> Occupancy {
        Occupancy {
            objects: self.small.len() + self.main.len(),
            bytes: bytes(&self.small) + bytes(&self.main),
            ghosts: self.ghosts.len() + self.returning.iter().len(),
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_three_vectors(
        objects_max in 1usize..16,
        small in 0u64..=10,
        ghosts in 0u64..=10,
        uses_to_main in 0u8..=3,
        steps in steps(),
    ) {
        let config = S3FifoConfig {
            small_share: small as f64 / 10.0,
            ghost_share: ghosts as f64 / 10.0,
            uses_to_main,
            ..S3FifoConfig::new(BYTES_MAX, objects_max as u32)
        };
        let model = Queues::new(BYTES_MAX, objects_max, small, ghosts, uses_to_main);
        compare(S3Fifo::with_config(&config), Naive::new(model, BYTES_MAX, objects_max), steps)?;
    }

    #[test]
    fn the_defaults_are_the_papers(steps in steps()) {
        let model = Queues::new(BYTES_MAX, 16, 1, 9, 2);
        compare(S3Fifo::new(BYTES_MAX, 16), Naive::new(model, BYTES_MAX, 16), steps)?;
    }
}

#[test]
fn senseless_sizes_and_settings_do_not_panic() {
    endure_senseless_sizes(S3Fifo::new);
    for share in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.0] {
        endure_senseless_sizes(|bytes_max, objects_max| {
            S3Fifo::with_config(&S3FifoConfig {
                small_share: share,
                ghost_share: share,
                uses_to_main: u8::MAX,
                ..S3FifoConfig::new(bytes_max, objects_max)
            })
        });
    }
}
