//! How sure what a sample says is.

use crate::shards::STUDENT_T;
use crate::workload::{objects_max, sampled_memory};
use crate::{Choice, GROUPS, Objective, Size, SplitBy, Workload, split};

/// Half of the 95 % interval of a share that a cache of this size answers, 0 to 1, where a sample
/// of the objects says it: from the spread of [`GROUPS`] parts of the sample, each with its part of
/// the memory. 0 if it is not a sample.
pub fn spread(workload: &Workload, choice: Choice, size: Size, objective: Objective) -> f64 {
    let Some(sampled) = workload.sampled else { return 0.0 };
    let groups = GROUPS as f64;
    let memory = (sampled_memory(workload, size) / GROUPS as u64).max(1);
    let all = match objective {
        Objective::Requests => sampled.requests as f64,
        Objective::Bytes => sampled.bytes as f64,
    };
    let misses = |part: &Workload| {
        let fit = objects_max(&part.least_rooms(), memory);
        let counts = choice.simulate(part, memory, fit, |_| {});
        let misses = match objective {
            Objective::Requests => counts.requests - counts.request_hits,
            Objective::Bytes => counts.bytes - counts.hit_bytes,
        };
        misses as f64 / (all * sampled.rate / groups).max(1.0)
    };
    let ratios: Vec<f64> = split(workload, GROUPS, SplitBy::Objects).iter().map(misses).collect();
    let mean = ratios.iter().sum::<f64>() / groups;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / (groups - 1.0);
    STUDENT_T * (variance / groups).sqrt()
}

#[cfg(test)]
mod tests {
    use nicache_trace::{Record, mix};

    use super::*;
    use crate::{LoadConfig, Loader, Point, PolicyName, sweep};

    /// Requests of Zipf's kind; hit rates of a sample are near those of all of them, by as much as
    /// it says.
    #[test]
    fn a_sample_is_as_near_as_it_says() {
        let mut all = Loader::new(&LoadConfig::default());
        let mut some = Loader::new(&LoadConfig { sample: Some(6000), ..LoadConfig::default() });
        let mut state = 5;
        for _ in 0..300_000 {
            state = mix(state + 1);
            let object = 60_000f64.powf((state >> 11) as f64 / (1u64 << 53) as f64) as u64;
            let record = Record {
                status: 200,
                object,
                bytes: Some(1 + mix(object) % 4096),
                ..Record::default()
            };
            all.push(&record).unwrap();
            some.push(&record).unwrap();
        }
        let ((all, totals), (some, sampled)) = (all.finish().unwrap(), some.finish().unwrap());
        assert_eq!(
            (totals.requests, totals.bytes, totals.cacheable),
            (sampled.requests, sampled.bytes, sampled.cacheable)
        );
        assert!(some.sampled.unwrap().rate < 0.2 && some.accesses.len() < all.accesses.len());
        let near = |exact: f64, got: f64, error: f64| {
            assert!((exact - got).abs() < error, "{exact} {got} {error}");
        };
        near(all.footprint() as f64, some.footprint() as f64, 0.1 * all.footprint() as f64);
        let sizes = [Size(4 << 20), Size(16 << 20), Size(64 << 20)];
        for policy in [PolicyName::Lru, PolicyName::S3Fifo, PolicyName::Gdsf] {
            let choice = Choice::from(policy);
            let points = |workload: &Workload| -> Vec<Point> {
                sweep(std::slice::from_ref(workload), &[choice], &sizes, 1, &|_| {})
                    .remove(0)
                    .points
            };
            for (exact, got) in points(&all).iter().zip(points(&some)) {
                for objective in [Objective::Requests, Objective::Bytes] {
                    let error = spread(&some, choice, exact.size, objective);
                    assert!(error > 0.0 && error < 0.1, "{error}");
                    near(objective.share(exact), objective.share(&got), 2.5 * error + 0.01);
                }
                assert_eq!(exact.counts.requests, got.counts.requests);
            }
            assert_eq!(spread(&all, choice, sizes[0], Objective::Requests), 0.0);
        }
    }
}
