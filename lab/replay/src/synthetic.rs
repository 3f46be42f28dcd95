//! A trace without a log: popularity by Zipf's law, sizes log-uniform, as web logs roughly are.

use nicache_random::SplitMix64 as Random;
use nicache_trace::{Record, Verb};

use crate::trace::Trace;

/// What it is like.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticConfig {
    /// Number of objects.
    pub objects: u32,
    /// Number of requests.
    pub requests: u32,
    /// Exponent of Zipf's law; web traces have 0.6 to 1.
    pub exponent: f64,
    /// Least bytes of an object.
    pub bytes_min: u64,
    /// Most bytes of an object.
    pub bytes_max: u64,
    /// Equal seeds give equal traces.
    pub seed: u64,
}

impl Default for SyntheticConfig {
    fn default() -> Self {
        Self {
            objects: 400,
            requests: 50_000,
            exponent: 0.8,
            bytes_min: 64,
            bytes_max: 512 << 10,
            seed: 1,
        }
    }
}

/// Makes a trace; one request in 32 is a HEAD. Each is of another client, one a second.
pub fn synthetic(config: &SyntheticConfig) -> Trace {
    let mut random = Random::new(config.seed);
    let spread = (config.bytes_max as f64 / config.bytes_min as f64).ln();
    let objects: Vec<(u64, u64)> = (0..config.objects)
        .map(|_| {
            (random.next_u64(), (config.bytes_min as f64 * (spread * random.unit()).exp()) as u64)
        })
        .collect();
    let mut total = 0.0;
    let cumulated: Vec<f64> = (1..=config.objects)
        .map(|rank| {
            total += f64::from(rank).powf(-config.exponent);
            total
        })
        .collect();
    let mut trace = Trace::default();
    for number in 0..u64::from(config.requests) {
        let point = random.unit() * total;
        let rank = cumulated.partition_point(|&sum| sum <= point).min(objects.len() - 1);
        let (id, bytes) = objects[rank];
        let verb = if random.below(32) == 0 { Verb::Head } else { Verb::Get };
        let (time_us, bytes) = (number * 1_000_000, Some(bytes));
        let record = Record {
            time_us,
            client: number,
            object: id,
            verb,
            status: 200,
            bytes,
            ..Record::default()
        };
        // The only error is that of a log with too many requests.
        if trace.push(&record).is_err() {
            break;
        }
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_objects_are_the_popular_ones_and_a_seed_repeats() {
        let config = SyntheticConfig::default();
        let trace = synthetic(&config);
        assert_eq!(trace.requests.len(), 50_000);
        let mut counts = vec![0u32; trace.objects.len()];
        trace.requests.iter().for_each(|request| counts[request.object as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = counts[..counts.len() / 10].iter().sum();
        assert!((20_000..35_000).contains(&top), "{top}");
        assert!(trace.objects.iter().all(|object| (64..=512 << 10).contains(&object.bytes)));
        assert_eq!(trace.requests, synthetic(&config).requests);
        assert_ne!(trace.requests, synthetic(&SyntheticConfig { seed: 2, ..config }).requests);
    }
}
