//! What decides on frames: one sequence of random words for a direction, or one for each of its
//! *lanes*.

use nicache_random::SplitMix64;

/// Words drawn for a frame.
pub(super) const WORDS: usize = 8;

/// Words with which nothing happens that need not happen.
const UNEVENTFUL: [u64; WORDS] = [u64::MAX; WORDS];

/// Tells the lane of a frame by its first bytes, which hold all headers. Frames without a lane meet
/// no fault but the latency.
pub type LaneOf = fn(&[u8]) -> Option<u16>;

/// The generators of one direction.
#[derive(Debug)]
pub(super) struct Draw {
    whole: SplitMix64,
    lanes: Option<(LaneOf, Box<[SplitMix64]>)>,
}

impl Draw {
    /// One sequence for all frames.
    pub(super) fn new(seed: u64) -> Self {
        Self { whole: SplitMix64::new(seed), lanes: None }
    }

    /// A sequence for each lane. Costs 512 KB.
    pub(super) fn with_lanes(seed: u64, lane_of: LaneOf) -> Self {
        let lanes = (0..=u16::MAX).map(|lane| lane_generator(seed, lane)).collect();
        Self { whole: SplitMix64::new(seed), lanes: Some((lane_of, lanes)) }
    }

    /// All sequences from their beginning.
    pub(super) fn restart(&mut self, seed: u64) {
        self.whole = SplitMix64::new(seed);
        if let Some((_, lanes)) = &mut self.lanes {
            (0..=u16::MAX)
                .zip(lanes)
                .for_each(|(lane, random)| *random = lane_generator(seed, lane));
        }
    }

    /// The words for the next frame, which begins with `head`.
    pub(super) fn words(&mut self, head: &[u8]) -> [u64; WORDS] {
        let random = match &mut self.lanes {
            None => &mut self.whole,
            Some((lane_of, lanes)) => match lane_of(head) {
                Some(lane) => &mut lanes[usize::from(lane)],
                None => return UNEVENTFUL,
            },
        };
        std::array::from_fn(|_| random.next_u64())
    }
}

/// Seeds are words of a generator themselves: sequences of seeds that lie near each other could
/// overlap.
fn lane_generator(seed: u64, lane: u16) -> SplitMix64 {
    SplitMix64::new(SplitMix64::new(seed ^ u64::from(lane)).next_u64())
}
