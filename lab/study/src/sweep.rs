//! Many caches for one workload, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Serialize;

use crate::workload::{objects_max, sampled_memory};
use crate::{Bound, Choice, Counts, PolicyName, Size, Workload, is_exact, lru_curve};

/// What a policy does at several sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The policy.
    pub choice: Choice,
    /// What it did, by size.
    pub points: Vec<Point>,
}

/// What a cache did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Its size: bytes, or objects where each has room 1.
    pub size: Size,
    /// What it did.
    #[serde(flatten)]
    pub counts: Counts,
}

/// So many simulations cost less than one pass for all sizes.
const SIMULATED_MAX: usize = 2;

/// One pass over (a part of) the workload.
enum Job {
    /// All sizes of LRU, or of the bound, at once.
    Pass { curve: usize },
    /// One cache.
    Cache { curve: usize, size: usize },
}

/// Plays a workload back against each policy at each size. `parts` are the workload of each cache:
/// one, or several that share it, each with a memory of this size ([`crate::split()`]). `progress`
/// hears, from several threads, of accesses played back; there are [`accesses_of`] in all.
pub fn sweep(
    parts: &[Workload],
    choices: &[Choice],
    sizes: &[Size],
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Vec<Curve> {
    let jobs = jobs(parts, choices, sizes);
    let rooms: Vec<Vec<u64>> = parts.iter().map(Workload::least_rooms).collect();
    let result = Mutex::new(vec![vec![Counts::default(); sizes.len()]; choices.len()]);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(ref job, part)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let workload = &parts[part];
            match *job {
                Job::Pass { curve } => {
                    let bytes: Vec<u64> =
                        sizes.iter().map(|size| sampled_memory(workload, *size)).collect();
                    let counts = if choices[curve].policy == PolicyName::PfooL {
                        let bound = Bound::new(workload);
                        progress(workload.accesses.len() as u64);
                        bytes.iter().map(|memory| bound.at(*memory)).collect()
                    } else {
                        lru_curve(workload, &bytes, progress)
                    };
                    let mut result =
                        result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    for (sum, counts) in result[curve].iter_mut().zip(&counts) {
                        sum.add(counts);
                    }
                }
                Job::Cache { curve, size } => {
                    let memory = sampled_memory(workload, sizes[size]);
                    let fit = objects_max(&rooms[part], memory);
                    let counts = choices[curve].simulate(workload, memory, fit, progress);
                    let mut result =
                        result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    result[curve][size].add(&counts);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(work);
        }
    });
    let result = result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let counted = |part: &Workload| part.accesses.len().saturating_sub(part.warm_up);
    let all: usize = parts.iter().map(|part| part.accesses.len()).sum();
    let counted = parts.iter().map(counted).sum::<usize>() as f64 / all.max(1) as f64;
    let scaled = |counts: Counts| match parts.first().and_then(|part| part.sampled) {
        Some(sampled) => sampled.scale(&counts, counted),
        None => counts,
    };
    let curve = |(choice, counts): (&Choice, Vec<Counts>)| {
        let counts = counts.into_iter().map(scaled);
        let points =
            sizes.iter().zip(counts).map(|(&size, counts)| Point { size, counts }).collect();
        Curve { choice: *choice, points }
    };
    choices.iter().zip(result).map(curve).collect()
}

/// Accesses that a sweep plays back.
pub fn accesses_of(parts: &[Workload], choices: &[Choice], sizes: &[Size]) -> u64 {
    jobs(parts, choices, sizes).iter().map(|(_, part)| parts[*part].accesses.len() as u64).sum()
}

/// The longest ones first, so no core is left with one in the end: large caches before small
/// ones.
fn jobs(parts: &[Workload], choices: &[Choice], sizes: &[Size]) -> Vec<(Job, usize)> {
    let bytes: Vec<u64> = sizes.iter().map(|size| size.0).collect();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&size| std::cmp::Reverse(bytes[size]));
    let mut jobs = Vec::new();
    for (part, workload) in parts.iter().enumerate() {
        let memories: Vec<u64> = sizes.iter().map(|size| sampled_memory(workload, *size)).collect();
        let in_one_pass = sizes.len() > SIMULATED_MAX && is_exact(workload, &memories);
        for (curve, choice) in choices.iter().enumerate() {
            let is_bound = choice.policy == PolicyName::PfooL;
            if is_bound || (*choice == Choice::from(PolicyName::Lru) && in_one_pass) {
                jobs.push((Job::Pass { curve }, part));
            } else {
                jobs.extend(order.iter().map(|&size| (Job::Cache { curve, size }, part)));
            }
        }
    }
    jobs
}

/// Sizes from `least` to `most`, so many from each to its double, both ends included.
pub fn sizes_between(least: Size, most: Size, per_doubling: u32) -> Vec<Size> {
    let (least, most) = (least.0.max(1), most.0.max(1));
    let mut sizes = Vec::new();
    let mut base = least;
    while base < most {
        for step in 0..per_doubling.max(1) {
            let more = u128::from(base) * u128::from(step) / u128::from(per_doubling.max(1));
            let size = base.saturating_add(more as u64);
            if size < most && sizes.last() != Some(&Size(size)) {
                sizes.push(Size(size));
            }
        }
        base = base.saturating_mul(2);
    }
    sizes.push(Size(most));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Room, SplitBy, split};

    fn workload() -> Workload {
        let accesses = (0..6000u64).map(|at| {
            let object = ((at * at / 7) % 97) as u32;
            Access::new(object, 10 + u64::from(object) % 5).ending(true)
        });
        Workload::of(accesses.collect(), Room::Bytes)
    }

    #[test]
    fn every_policy_is_between_nothing_and_the_bound_whatever_the_threads() {
        let parts = [workload()];
        let choices = PolicyName::ALL.map(Choice::from);
        let sizes = [Size(100), Size(400), Size(2000)];
        let seen = AtomicUsize::new(0);
        let progress = |accesses: u64| {
            seen.fetch_add(accesses as usize, Ordering::Relaxed);
        };
        let curves = sweep(&parts, &choices, &sizes, 3, &progress);
        assert_eq!(seen.load(Ordering::Relaxed) as u64, accesses_of(&parts, &choices, &sizes));
        let again = sweep(&parts, &choices, &sizes, 1, &|_| {});
        let first_uses = parts[0].least_rooms().len() as u64;
        for (curve, again) in curves.iter().zip(&again) {
            for (point, same) in curve.points.iter().zip(&again.points) {
                assert_eq!(point.counts, same.counts, "{} {}", curve.choice, point.size);
                assert_eq!(point.counts.requests, 6000);
                assert!(point.counts.hits > 0, "{} {}", curve.choice, point.size);
            }
            // All fits.
            if curve.choice.policy == PolicyName::PfooL {
                for others in &curves {
                    for (bound, point) in curve.points.iter().zip(&others.points) {
                        assert!(point.counts.hits <= bound.counts.hits, "{}", others.choice);
                    }
                }
            }
            let admitted_late = curve.choice.policy == PolicyName::Popularity;
            let most = 6000 - if admitted_late { 2 * first_uses } else { first_uses };
            assert_eq!(curve.points[2].counts.hits, most, "{}", curve.choice);
        }
    }

    #[test]
    fn caches_that_share_a_workload_are_added_up() {
        let parts = split(&workload(), 2, SplitBy::Requests);
        let curves = sweep(
            &parts,
            &[PolicyName::Lru.into(), PolicyName::Fifo.into()],
            &[Size(300)],
            2,
            &|_| {},
        );
        for curve in curves {
            assert_eq!(curve.points[0].counts.requests, 6000);
        }
    }

    #[test]
    fn sizes_are_spread_over_doublings() {
        let sizes = |least, most, per| {
            sizes_between(Size(least), Size(most), per)
                .iter()
                .map(|size| size.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(64, 256, 2), [64, 96, 128, 192, 256]);
        assert_eq!(sizes(1, 5, 3), [1, 2, 3, 4, 5]);
        assert_eq!(sizes(7, 7, 4), [7]);
        assert_eq!(sizes(9, 7, 4), [7]);
        assert_eq!(sizes(0, 0, 0), [1]);
        assert!(sizes(1, u64::MAX, 4).len() < 260);
    }
}
