//! Draws: a stream of random numbers for each purpose, so one more draw for one purpose moves
//! no other.

use fastrand::Rng;
use nicache_random::mix;

use crate::config::{Identifiers, Processing, Requests, Responses};

/// What the numbers of a stream are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Intervals = 1,
    Identifiers,
    Sizes,
    CardProcessing,
    HostProcessing,
}

/// The stream of that purpose in a run with that seed. SplitMix64's last step keeps neighbouring
/// seeds apart.
pub(crate) fn stream(seed: u64, stream: Stream) -> Rng {
    Rng::with_seed(mix(seed.wrapping_add((stream as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))))
}

/// Exponentially distributed, with a mean of 1.
#[inline]
pub(crate) fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

/// The size of a response, in bytes.
#[inline]
pub(crate) fn size(random: &mut Rng, responses: &Responses) -> u32 {
    random.u32(responses.min_bytes..=responses.max_bytes)
}

/// The sizes of the responses to all identifiers, in bytes.
pub(crate) fn sizes(seed: u64, requests: &Requests, responses: &Responses) -> Vec<u32> {
    let mut random = stream(seed, Stream::Sizes);
    (0..requests.different).map(|_| size(&mut random, responses)).collect()
}

/// Processing times.
#[derive(Debug)]
pub(crate) struct ProcessingTimes {
    random: Rng,
    processing: Processing,
    cycles: f64,
}

impl ProcessingTimes {
    pub(crate) fn new(seed: u64, purpose: Stream, processing: Processing, cycles: f64) -> Self {
        Self { random: stream(seed, purpose), processing, cycles }
    }

    /// The next, in cycles.
    #[inline]
    pub(crate) fn draw(&mut self) -> f64 {
        match self.processing {
            Processing::Constant => self.cycles,
            Processing::Exponential => self.cycles * exponential(&mut self.random),
        }
    }
}

/// Identifiers: numbers below `requests.different`.
#[derive(Debug)]
pub(crate) struct IdentifierDraw {
    random: Rng,
    different: u32,
    alias: Option<Alias>,
}

impl IdentifierDraw {
    pub(crate) fn new(seed: u64, requests: &Requests) -> Self {
        let zipf = || {
            let weights =
                (1..=requests.different).map(|rank| f64::from(rank).powf(-requests.zipf_exponent));
            Alias::new(weights.collect())
        };
        Self {
            random: stream(seed, Stream::Identifiers),
            different: requests.different,
            alias: (requests.identifiers == Identifiers::Zipf).then(zipf),
        }
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u32 {
        let column = self.random.u32(0..self.different);
        match &self.alias {
            None => column,
            Some(alias) => alias.pick(column, self.random.f64()),
        }
    }
}

/// Walker's alias method in Vose's form: a draw from any finite distribution in constant time.
#[derive(Debug)]
struct Alias {
    columns: Vec<(f64, u32)>,
}

impl Alias {
    fn new(weights: Vec<f64>) -> Self {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut columns: Vec<(f64, u32)> =
            weights.iter().zip(0..).map(|(weight, at)| (weight * scale, at)).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..columns.len() as u32).partition(|&at| columns[at as usize].0 < 1.0);
        while let (Some(&high), Some(low)) = (large.last(), small.pop()) {
            columns[low as usize].1 = high;
            let rest = columns[high as usize].0 - (1.0 - columns[low as usize].0);
            columns[high as usize].0 = rest;
            if rest < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        // What is left differs from 1 by rounding only.
        for at in small.into_iter().chain(large) {
            columns[at as usize] = (1.0, at);
        }
        Self { columns }
    }

    #[inline]
    fn pick(&self, column: u32, draw: f64) -> u32 {
        let (own, alias) = self.columns[column as usize];
        if draw < own { column } else { alias }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn zipf_has_the_frequencies_of_its_law() {
        let mut requests = Config::default().requests;
        (requests.identifiers, requests.different, requests.zipf_exponent) =
            (Identifiers::Zipf, 50, 0.9);
        let mut draw = IdentifierDraw::new(3, &requests);
        let mut counts = [0u32; 50];
        let draws = 1_000_000;
        for _ in 0..draws {
            counts[draw.draw() as usize] += 1;
        }
        let norm: f64 = (1..=50).map(|rank| f64::from(rank).powf(-0.9)).sum();
        for (rank, &count) in (1..).zip(&counts) {
            let expected = f64::from(draws) * f64::from(rank).powf(-0.9) / norm;
            assert!(
                (f64::from(count) - expected).abs() < 5.0 * expected.sqrt(),
                "rank {rank}: {count}, not {expected}"
            );
        }
    }

    #[test]
    fn every_column_of_an_alias_table_adds_up() {
        for weights in
            [vec![1.0], vec![1.0, 0.0], vec![5.0, 1.0, 1.0, 1.0], vec![1e-300, 1.0, 1e300]]
        {
            let alias = Alias::new(weights.clone());
            let sum: f64 = weights.iter().sum();
            for (at, weight) in weights.iter().enumerate() {
                let mass: f64 = (0..weights.len())
                    .map(|column| {
                        let (own, other) = alias.columns[column];
                        let own_mass = if column == at { own } else { 0.0 };
                        own_mass + if other as usize == at { 1.0 - own } else { 0.0 }
                    })
                    .sum();
                assert!((mass / weights.len() as f64 - weight / sum).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn streams_of_a_seed_differ() {
        let first = |purpose| stream(7, purpose).u64(..);
        assert_ne!(first(Stream::Intervals), first(Stream::Identifiers));
        assert_ne!(first(Stream::Sizes), stream(8, Stream::Sizes).u64(..));
        assert_eq!(first(Stream::Sizes), first(Stream::Sizes));
    }
}
