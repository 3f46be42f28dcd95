//! Which rates are offered: from little to beyond what the fastest can serve, in steps that are
//! easy to read.

/// Rates at most.
const RATES_MAX: f64 = 16.0;
/// The last rate beside the fastest one's capacity: enough to see what becomes of it beyond.
const BEYOND: f64 = 1.3;
/// First digits of a step.
const STEPS: [f64; 9] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];

/// Rates per second for a capacity per second. They begin with half a step; `few`: a third of them.
pub(super) fn rates(capacity: f64, few: bool) -> Vec<u32> {
    let last = capacity.max(1.0) * BEYOND;
    let most = if few { (RATES_MAX / 3.0).floor() } else { RATES_MAX };
    let step = step(last / most);
    let mut rates: Vec<u32> = (0..=(last / step).ceil() as u32)
        .map(|number| if number == 0 { step / 2.0 } else { f64::from(number) * step })
        .map(|rate| rate.round().max(1.0) as u32)
        .collect();
    rates.dedup();
    rates
}

/// The least step of the list that is as large.
fn step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.max(1.0).log10().floor());
    let digit = STEPS.into_iter().find(|digit| digit * decade >= least * 0.999_999);
    digit.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_are_easy_to_read() {
        let all = rates(73_000.0, false);
        assert_eq!(all[..4], [3_000, 6_000, 12_000, 18_000]);
        assert_eq!(all.last(), Some(&96_000));
        assert_eq!(rates(73_000.0, true), [10_000, 20_000, 40_000, 60_000, 80_000, 100_000]);
        assert_eq!(rates(0.0, false), [1, 2]);
    }

    proptest! {
        #[test]
        fn rates_rise_beyond_the_capacity(capacity in 0.1_f64..1e6, few: bool) {
            let all = rates(capacity, few);
            prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(f64::from(*all.last().unwrap()) >= capacity * BEYOND - 0.5);
            prop_assert!(all.len() <= RATES_MAX as usize + 2, "{all:?}");
        }
    }
}
