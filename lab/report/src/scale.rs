//! How values become places along an axis, where an axis begins and ends, and its ticks.
//!
//! Ticks of a linear axis are multiples of 1, 2 or 5 times a power of ten (of a power of 1,024 for
//! bytes); those of a logarithmic one are powers of two or ten, with 2 and 5 between where there is
//! room (Cleveland, "The Elements of Graphing Data", 1994, section 2.5).

use crate::{Axis, Scale, Unit};

/// Values beyond it are as if not finite: differences of two such would not be.
const SIZE_MAX: f64 = 1e300;
/// The least value with a place on a logarithmic axis.
const LOGARITHM_MIN: f64 = 1e-300;
/// More ticks than that are never looked at.
const TICKS_MAX: usize = 64;

/// An axis with its ends on paper.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Projection {
    pub(crate) scale: Scale,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Where `min` is drawn.
    pub(crate) from: f64,
    /// Where `max` is drawn.
    pub(crate) to: f64,
}

/// A tick and its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

impl Projection {
    /// The axis's own ends, or where those are not given or impossible, the data's.
    pub(crate) fn new(axis: &Axis, values: impl Iterator<Item = f64>, zero: bool) -> Self {
        let scale = axis_scale(axis);
        if !axis.names.is_empty() {
            return Self {
                scale,
                min: -0.5,
                max: axis.names.len() as f64 - 0.5,
                from: 0.0,
                to: 1.0,
            };
        }
        let placed = |value: f64| has_place(scale, value);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| placed(*value)) {
            (min, max) = (min.min(value), max.max(value));
        }
        if min > max {
            (min, max) = if scale == Scale::Linear { (0.0, 1.0) } else { (1.0, 1000.0) };
        }
        if scale == Scale::Linear && zero {
            // A curve that stays far from zero shows more without it.
            min = if min > 0.0 && (min <= max / 2.0 || min == max) { 0.0 } else { min };
            max = if max < 0.0 && (max >= min / 2.0 || min == max) { 0.0 } else { max };
        }
        let (given_min, given_max) =
            (axis.min.filter(|it| placed(*it)), axis.max.filter(|it| placed(*it)));
        (min, max) = (given_min.unwrap_or(min), given_max.unwrap_or(max));
        if min > max && given_min.is_some() && given_max.is_some() {
            (min, max) = (max, min);
        }
        let (min, max) = widened(scale, min, max);
        Self { scale, min, max, from: 0.0, to: 1.0 }
    }

    /// Lays the axis on paper, from one place on it to another.
    pub(crate) fn onto(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    /// Moves the ends of the axis to ticks, but for an end that `axis` gives; percentages do not
    /// end above 100.
    pub(crate) fn rounded(mut self, axis: &Axis, values_max: f64) -> Self {
        if self.scale != Scale::Linear || !axis.names.is_empty() {
            return self;
        }
        let step = step_above(
            (self.max - self.min) / 8.0,
            axis.unit.tick_base(self.max.abs().max(self.min.abs())),
        );
        if axis.min.is_none() {
            self.min = (self.min / step).floor() * step;
        }
        if axis.max.is_none() {
            let max = (self.max / step - 1e-9).ceil() * step;
            self.max = if axis.unit == Unit::Percent && values_max <= 100.0 {
                max.min(100.0)
            } else {
                max
            };
        }
        (self.min, self.max) = widened(self.scale, self.min, self.max);
        self
    }

    /// Where a value is drawn; none if it has no place. What lies beyond the ends is beyond them on
    /// paper, too.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        has_place(self.scale, value).then(|| {
            let along = |value: f64| if self.scale == Scale::Linear { value } else { value.ln() };
            let share = (along(value) - along(self.min)) / (along(self.max) - along(self.min));
            self.from + share.clamp(-100.0, 101.0) * (self.to - self.from)
        })
    }

    /// Is the value between the ends?
    pub(crate) fn contains(&self, value: f64) -> bool {
        has_place(self.scale, value) && value >= self.min && value <= self.max
    }

    /// The densest ticks of which `fits` says that their labels do.
    pub(crate) fn ticks(&self, axis: &Axis, fits: impl Fn(&[Tick]) -> bool) -> Vec<Tick> {
        let mut sparsest = Vec::new();
        for values in self.candidates(axis) {
            let labels = if axis.names.is_empty() {
                axis.unit.format_ticks(&values, self.scale == Scale::Linear)
            } else {
                values
                    .iter()
                    .map(|value| axis.names.get(*value as usize).cloned().unwrap_or_default())
                    .collect()
            };
            let ticks: Vec<Tick> = values
                .into_iter()
                .zip(labels)
                .map(|(value, label)| Tick { value, label })
                .collect();
            if fits(&ticks) {
                return ticks;
            }
            sparsest = ticks;
        }
        sparsest.truncate(1);
        sparsest
    }

    /// Sets of ticks, the densest first.
    fn candidates(&self, axis: &Axis) -> Vec<Vec<f64>> {
        if !axis.names.is_empty() {
            let step = |step: usize| {
                (0..axis.names.len()).step_by(step).map(|index| index as f64).collect()
            };
            return [1, 2, 5, 10, 20, 50, 100].map(step).to_vec();
        }
        let mut sets = match self.scale {
            Scale::Linear => Vec::new(),
            Scale::Log2 => [1, 2, 4, 5, 10, 20, 50, 100, 200]
                .map(|step| self.powers(2.0, step, &[1.0]))
                .to_vec(),
            Scale::Log10 => {
                let mut sets = vec![self.powers(10.0, 1, &[1.0, 2.0, 5.0])];
                sets.extend(
                    [1, 2, 3, 5, 10, 20, 50, 100].map(|step| self.powers(10.0, step, &[1.0])),
                );
                sets
            }
        };
        sets.retain(|set| set.len() >= 2 && set.len() <= TICKS_MAX);
        if sets.is_empty() {
            sets = self.multiples(axis.unit);
        }
        sets
    }

    fn multiples(&self, unit: Unit) -> Vec<Vec<f64>> {
        let base = unit.tick_base(self.max.abs().max(self.min.abs()));
        let range = self.max - self.min;
        let mut step = step_above(range / 20.0, base);
        let mut sets = Vec::new();
        while step <= range * 1.01 && step.is_finite() && step > 0.0 {
            if unit != Unit::Count || step >= 1.0 {
                let first = (self.min / step - 1e-9).ceil();
                let set: Vec<f64> = (0..TICKS_MAX)
                    // Zero is zero, not a negative one.
                    .map(|index| (first + index as f64) * step + 0.0)
                    .take_while(|value| *value <= self.max + step * 1e-9)
                    .collect();
                sets.push(set);
            }
            step = step_above(step * 1.01, base);
        }
        sets.retain(|set| set.len() >= 2);
        if sets.is_empty() {
            sets.push(vec![self.min, self.max]);
        }
        sets
    }

    fn powers(&self, base: f64, step: i32, factors: &[f64]) -> Vec<f64> {
        let first = (self.min.log(base) / f64::from(step)).floor() as i32 - 1;
        let last = (self.max.log(base) / f64::from(step)).ceil() as i32 + 1;
        let mut values = Vec::new();
        for power in (first..=last).take(4 * TICKS_MAX) {
            for factor in factors {
                let value = factor * base.powi(power * step);
                if self.contains(value) {
                    values.push(value);
                }
            }
        }
        values
    }
}

/// The scale that is used: names are always equally far apart.
pub(crate) fn axis_scale(axis: &Axis) -> Scale {
    if axis.names.is_empty() { axis.scale } else { Scale::Linear }
}

fn has_place(scale: Scale, value: f64) -> bool {
    value.is_finite()
        && value.abs() <= SIZE_MAX
        && (scale == Scale::Linear || value >= LOGARITHM_MIN)
}

/// Ends that are far enough apart to tell values between them from each other.
fn widened(scale: Scale, min: f64, max: f64) -> (f64, f64) {
    if scale == Scale::Linear {
        let least = (min.abs().max(max.abs()) * 1e-9).max(1e-290);
        if max - min >= least {
            (min, max)
        } else if min == 0.0 {
            (0.0, 1.0)
        } else {
            (min - min.abs() * 0.1, min + min.abs() * 0.1)
        }
    } else if max / min >= 1.0 + 1e-9 {
        (min, max)
    } else {
        (min / 2.0, min * 2.0)
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not less than `least`, in multiples of
/// `base`.
fn step_above(least: f64, base: f64) -> f64 {
    let least = least / base;
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= least * (1.0 - 1e-9))
        .unwrap_or(10.0);
    factor * power * base
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(axis: &Axis, values: &[f64], most: usize) -> Vec<String> {
        let projection = Projection::new(axis, values.iter().copied(), false);
        projection
            .ticks(axis, |ticks| ticks.len() <= most)
            .into_iter()
            .map(|tick| tick.label)
            .collect()
    }

    #[test]
    fn ticks_are_what_a_reader_expects() {
        let bytes = Axis::new("", Unit::Bytes, Scale::Log2);
        let ends = [1_048_576.0, 1_073_741_824.0];
        assert_eq!(labels(&bytes, &ends, 6), ["1 MB", "4 MB", "16 MB", "64 MB", "256 MB", "1 GB"]);
        assert_eq!(labels(&bytes, &ends, 3), ["1 MB", "16 MB", "256 MB"]);
        let counts = Axis::new("", Unit::Count, Scale::Log10);
        assert_eq!(
            labels(&counts, &[1.0, 1e6], 7),
            ["1", "10", "100", "1 k", "10 k", "100 k", "1 M"]
        );
        let percent = Axis::new("", Unit::Percent, Scale::Linear);
        assert_eq!(
            labels(&percent, &[0.0, 100.0], 6),
            ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
        );
        let linear = Axis::new("", Unit::Bytes, Scale::Linear);
        assert_eq!(
            labels(&linear, &[0.0, 3.0 * 1_073_741_824.0], 4),
            ["0", "1 GB", "2 GB", "3 GB"]
        );
    }

    #[test]
    fn ends_that_cannot_be_are_not_used() {
        let axis = Axis {
            min: Some(-5.0),
            max: Some(f64::NAN),
            ..Axis::new("", Unit::Number, Scale::Log10)
        };
        let projection = Projection::new(&axis, [2.0, 8.0].into_iter(), false);
        assert_eq!((projection.min, projection.max), (2.0, 8.0));
    }

    #[test]
    fn percentages_end_at_a_hundred() {
        let axis = Axis::new("", Unit::Percent, Scale::Linear);
        let projection = Projection::new(&axis, [3.0, 97.0].into_iter(), true).rounded(&axis, 97.0);
        assert_eq!((projection.min, projection.max), (0.0, 100.0));
    }

    proptest! {
        #[test]
        fn ticks_are_sane(
            values in prop::collection::vec(any::<f64>(), 0..20),
            scale in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
            unit in prop::sample::select(
                vec![Unit::Bytes, Unit::Percent, Unit::Count, Unit::Seconds, Unit::Number]),
            min in prop::option::of(any::<f64>()),
            max in prop::option::of(any::<f64>()),
            most in 2_usize..12,
        ) {
            let axis = Axis { min, max, ..Axis::new("", unit, scale) };
            let projection = Projection::new(&axis, values.iter().copied(), true)
                .rounded(&axis, f64::INFINITY)
                .onto(0.0, 500.0);
            prop_assert!(
                projection.min < projection.max
                    && projection.min.is_finite()
                    && projection.max.is_finite()
            );
            let ticks = projection.ticks(&axis, |ticks| ticks.len() <= most);
            prop_assert!(!ticks.is_empty() && ticks.len() <= most, "{projection:?}");
            for pair in ticks.windows(2) {
                prop_assert!(pair[0].value < pair[1].value);
                prop_assert!(projection.place(pair[0].value) < projection.place(pair[1].value));
            }
            for tick in &ticks {
                let place = projection.place(tick.value).unwrap();
                prop_assert!(
                    (-0.1..=500.1).contains(&place),
                    "{tick:?} at {place} of {projection:?}"
                );
            }
            for value in values {
                prop_assert!(projection.place(value).is_none_or(f64::is_finite));
            }
        }
    }
}
