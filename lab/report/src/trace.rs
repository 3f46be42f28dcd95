//! Paths of curves, bands and bars. Curves of more points than the paper can show are thinned: what
//! is kept of each half pixel is its first, lowest, highest and last point, so the drawing is
//! the same (M4: Jugel, Jerzak, Hackenbroich, Markl, "M4: A Visualization-Oriented Time Series Data
//! Aggregation", 2014).

use std::fmt::Write as _;

use crate::pen::number;

/// A point on paper.
pub(crate) type Place = (f64, f64);

/// Runs with up to so many points are drawn as they are.
const UNTHINNED_MAX: usize = 400;

/// The runs of points that a line joins: a point without a place ends one.
pub(crate) fn runs<P: Copy>(places: impl Iterator<Item = Option<P>>) -> Vec<Vec<P>> {
    let mut runs = vec![Vec::new()];
    for place in places {
        match (place, runs.last_mut()) {
            (Some(place), Some(run)) => run.push(place),
            (None, Some(run)) if !run.is_empty() => runs.push(Vec::new()),
            _ => {}
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// The path through a run; a single point is a dot where lines have round ends.
pub(crate) fn path(run: &[Place], steps: bool) -> String {
    let thinned = thin(run);
    let mut out = String::with_capacity(thinned.len() * 10);
    let mut before = (f64::NAN, f64::NAN);
    for (index, (x, y)) in thinned.into_iter().enumerate() {
        let (x, y) = ((x * 10.0).round() / 10.0, (y * 10.0).round() / 10.0);
        if index == 0 {
            let _ = write!(out, "M{} {}", number(x), number(y));
            if run.len() == 1 {
                out.push_str("h0.01");
            }
        } else if (x, y) != before {
            if steps {
                let _ = write!(out, "H{}V{}", number(x), number(y));
            } else {
                let _ = write!(out, "L{} {}", number(x), number(y));
            }
        }
        before = (x, y);
    }
    out
}

/// The area between the lower and upper ends of a run of (x, low, high).
pub(crate) fn band(run: &[(f64, f64, f64)], steps: bool) -> String {
    let edge = |of: fn(&(f64, f64, f64)) -> f64| -> Vec<Place> {
        let plain: Vec<Place> = run.iter().map(|it| (it.0, of(it))).collect();
        if steps { stepped(&plain) } else { plain }
    };
    let mut out = path(&edge(|it| it.2), false);
    let mut lower = edge(|it| it.1);
    lower.reverse();
    out.push_str(&path(&lower, false).replacen('M', "L", 1));
    out + "Z"
}

fn stepped(run: &[Place]) -> Vec<Place> {
    let mut out = Vec::with_capacity(2 * run.len());
    for (index, place) in run.iter().enumerate() {
        if index > 0 {
            out.push((place.0, run[index - 1].1));
        }
        out.push(*place);
    }
    out
}

fn thin(run: &[Place]) -> Vec<Place> {
    if run.len() <= UNTHINNED_MAX {
        return run.to_vec();
    }
    let mut out: Vec<Place> = Vec::new();
    let mut from = 0;
    while from < run.len() {
        let column = (run[from].0 * 2.0).floor();
        let length =
            run[from..].iter().take_while(|place| (place.0 * 2.0).floor() == column).count().max(1);
        let part = &run[from..from + length];
        let by_height = |a: &&(usize, &Place), b: &&(usize, &Place)| a.1.1.total_cmp(&b.1.1);
        let indexed: Vec<(usize, &Place)> = part.iter().enumerate().collect();
        let lowest = indexed.iter().min_by(by_height).map_or(0, |it| it.0);
        let highest = indexed.iter().max_by(by_height).map_or(0, |it| it.0);
        let mut kept = [0, lowest.min(highest), lowest.max(highest), length - 1].to_vec();
        kept.dedup();
        out.extend(kept.into_iter().map(|index| part[index]));
        from += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn points_without_a_place_interrupt() {
        let places = [None, Some(1), Some(2), None, None, Some(3), None];
        assert_eq!(runs(places.into_iter()), [vec![1, 2], vec![3]]);
        assert_eq!(runs(std::iter::empty::<Option<u8>>()), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn paths_are_lines_steps_and_dots() {
        assert_eq!(path(&[(0.0, 1.0), (2.0, 3.25)], false), "M0 1L2 3.3");
        assert_eq!(path(&[(0.0, 1.0), (2.0, 3.0)], true), "M0 1H2V3");
        assert_eq!(path(&[(5.0, 5.0)], false), "M5 5h0.01");
        assert_eq!(band(&[(0.0, 4.0, 2.0), (9.0, 5.0, 1.0)], false), "M0 2L9 1L9 5L0 4Z");
        assert_eq!(band(&[(0.0, 4.0, 2.0), (9.0, 5.0, 1.0)], true), "M0 2L9 2L9 1L9 5L9 4L0 4Z");
    }

    proptest! {
        #[test]
        fn thinning_keeps_extremes_of_each_column(
            heights in prop::collection::vec(0.0..400.0_f64, 401..3000),
        ) {
            let run: Vec<Place> =
                heights.iter().enumerate().map(|(i, y)| (i as f64 * 0.05, *y)).collect();
            let thinned = thin(&run);
            prop_assert!(thinned.len() <= 4 * (run.len() / 10 + 2));
            let extremes = |run: &[Place], column: f64| {
                let of = run.iter().filter(|place| (place.0 * 2.0).floor() == column);
                of.fold((f64::MAX, f64::MIN), |(low, high), place| {
                    (low.min(place.1), high.max(place.1))
                })
            };
            for column in 0..=((run[run.len() - 1].0 * 2.0) as u32) {
                prop_assert_eq!(
                    extremes(&run, f64::from(column)),
                    extremes(&thinned, f64::from(column))
                );
            }
            prop_assert!(thinned.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        }
    }
}
