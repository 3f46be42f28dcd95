//! Which size and policy to take.
//!
//! The *knee* of a curve is where it is farthest above the straight line between its ends, sizes
//! and shares of hits each from 0 to 1: before it, memory buys more than on average, after it less
//! (Satopaa et al. 2011, "Finding a 'Kneedle' in a haystack"). The recommended size is the first
//! power of two at or after the knee, because memory comes so; the recommended policy the one with
//! the most hits there.

use serde::Serialize;

use crate::{Choice, Curve, Point, PolicyName, Size};

/// What the advice is to have most of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Requests that the server does not see.
    #[default]
    Requests,
    /// Bytes that do not cross the bus.
    Bytes,
}

impl Objective {
    /// How much of it a cache gets, 0 to 1.
    pub fn share(self, point: &Point) -> f64 {
        let counts = &point.counts;
        match self {
            Self::Requests => counts.request_hits as f64 / counts.requests.max(1) as f64,
            Self::Bytes => counts.hit_bytes as f64 / counts.bytes.max(1) as f64,
        }
    }
}

/// The policy and the size to take, with what they do.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// What was wanted.
    pub objective: Objective,
    /// The policy to take.
    pub choice: Choice,
    /// The size to take, and what the policy does at the nearest size that was played back, which
    /// is not larger.
    pub size: Size,
    /// What the policy does at that size, or at the nearest one that was played back and is not
    /// larger.
    pub at: Point,
    /// Where the policy's curve has its knee.
    pub knee: Size,
    /// What it does with the largest size.
    pub most: Point,
    /// What LRU does at the same size, if it was played back.
    pub lru: Option<Point>,
    /// What no policy can surpass there, whatever the sizes ([`crate::Bound`]), if it was worked
    /// out.
    pub bound: Option<Point>,
    /// What a policy that knows the future does there, if it was played back; a bound only where
    /// [`crate::Workload::has_optimum`].
    pub belady: Option<Point>,
}

/// Policies that differ by less than this many requests in a thousand are taken for equal, and the
/// first of them is recommended: the caller names the simpler ones first.
const PER_MILLE: f64 = 0.001;

/// Weighs curves that have the same sizes, ascending. None if nothing is ever found in any cache.
/// The bound is not a policy to recommend.
pub fn advise(curves: &[Curve], objective: Objective) -> Option<Advice> {
    let real = || {
        curves
            .iter()
            .filter(|curve| !curve.choice.policy.knows_the_future() && !curve.points.is_empty())
    };
    let best_at = |at: usize| {
        let most = real().map(|curve| objective.share(&curve.points[at])).fold(0.0, f64::max);
        real().find(|curve| objective.share(&curve.points[at]) >= most - PER_MILLE)
    };
    // The knee of what is best at each size; then the policy that is best there, and its own knee.
    let sizes: Vec<Size> = real().next()?.points.iter().map(|point| point.size).collect();
    let envelope: Vec<(Size, f64)> = (0..sizes.len())
        .filter_map(|at| Some((sizes[at], objective.share(&best_at(at)?.points[at]))))
        .collect();
    let at_knee = sizes.iter().position(|size| Some(*size) == knee(&envelope))?;
    let curve = best_at(at_knee)?;
    let own: Vec<(Size, f64)> =
        curve.points.iter().map(|point| (point.size, objective.share(point))).collect();
    let knee = knee(&own)?;
    let size = Size(knee.0.checked_next_power_of_two().unwrap_or(knee.0));
    let at = sizes.iter().rposition(|played| *played <= size)?;
    let of = |policy: PolicyName| {
        let curve = curves.iter().find(|curve| curve.choice == Choice::from(policy))?;
        curve.points.get(at).copied()
    };
    Some(Advice {
        objective,
        choice: curve.choice,
        size,
        at: curve.points[at],
        knee,
        most: *curve.points.last()?,
        lru: of(PolicyName::Lru),
        bound: of(PolicyName::PfooL),
        belady: of(PolicyName::Belady),
    })
}

/// Where a curve of sizes and shares is farthest above the line from nothing at size 0 to its end.
/// None if it is nowhere above zero.
pub fn knee(curve: &[(Size, f64)]) -> Option<Size> {
    let &(last, most) = curve.last()?;
    if most <= 0.0 {
        return None;
    }
    let above = |&(size, share): &(Size, f64)| share / most - size.0 as f64 / last.0.max(1) as f64;
    let farthest = curve.iter().map(above).fold(f64::MIN, f64::max);
    curve.iter().find(|point| above(point) >= farthest - 1e-12).map(|point| point.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counts;

    fn curve(policy: PolicyName, hits: &[u64]) -> Curve {
        let point = |(at, &hits): (usize, &u64)| {
            let counts = Counts {
                requests: 1000,
                request_hits: hits,
                bytes: 1000,
                hit_bytes: hits / 2,
                ..Counts::default()
            };
            Point { size: Size(1 << (20 + at)), counts }
        };
        Curve { choice: policy.into(), points: hits.iter().enumerate().map(point).collect() }
    }

    #[test]
    fn the_knee_is_where_more_memory_begins_to_buy_less() {
        let sizes = |shares: &[f64]| -> Vec<(Size, f64)> {
            shares.iter().enumerate().map(|(at, &share)| (Size(1 + at as u64), share)).collect()
        };
        assert_eq!(knee(&sizes(&[0.2, 0.4, 0.6, 0.61, 0.62])), Some(Size(3)));
        assert_eq!(knee(&sizes(&[0.0, 0.0])), None);
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn the_best_policy_at_the_knee_is_recommended_and_the_bound_is_not() {
        let curves = [
            curve(PolicyName::Lru, &[100, 300, 600, 640, 660]),
            curve(PolicyName::S3Fifo, &[200, 400, 700, 710, 720]),
            curve(PolicyName::Sieve, &[200, 400, 700, 710, 720]),
            curve(PolicyName::Belady, &[500, 600, 750, 900, 900]),
            curve(PolicyName::PfooL, &[500, 650, 800, 900, 900]),
        ];
        let advice = advise(&curves, Objective::Requests).unwrap();
        assert_eq!(
            (advice.choice.policy, advice.size, advice.knee),
            (PolicyName::S3Fifo, Size(4 << 20), Size(4 << 20))
        );
        assert_eq!(advice.at.counts.request_hits, 700);
        assert_eq!(advice.lru.map(|point| point.counts.request_hits), Some(600));
        assert_eq!(advice.bound.map(|point| point.counts.request_hits), Some(800));
        assert_eq!(advise(&curves, Objective::Bytes).unwrap().at.counts.hit_bytes, 350);
        assert!(advise(&[curve(PolicyName::Lru, &[0, 0])], Objective::Requests).is_none());
        assert!(advise(&[], Objective::Requests).is_none());
    }
}
