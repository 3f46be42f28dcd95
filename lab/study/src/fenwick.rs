//! Running sums that can be changed: Fenwick 1994, "A new data structure for cumulative frequency
//! tables".

/// A row of numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fenwick {
    /// Sums of the ranges that end here, as the lowest bit of the place says how long; place 0 is
    /// not used.
    sums: Vec<u64>,
}

impl Fenwick {
    /// So many zeros.
    pub(crate) fn new(length: usize) -> Self {
        Self { sums: vec![0; length + 1] }
    }

    /// Adds to a number; a difference that is less than zero wraps.
    #[inline]
    pub(crate) fn add(&mut self, at: usize, difference: u64) {
        let mut place = at + 1;
        while let Some(sum) = self.sums.get_mut(place) {
            *sum = sum.wrapping_add(difference);
            place += place & place.wrapping_neg();
        }
    }

    /// Sum of all numbers before this one.
    #[inline]
    pub(crate) fn sum_before(&self, at: usize) -> u64 {
        let mut place = at;
        let mut sum = 0u64;
        while place > 0 {
            sum = sum.wrapping_add(self.sums[place]);
            place &= place - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn sums_up(steps in proptest::collection::vec((0usize..70, 0u64..1000), 0..200)) {
            let (mut fenwick, mut model) = (Fenwick::new(70), [0u64; 70]);
            for (at, value) in steps {
                fenwick.add(at, value.wrapping_sub(model[at]));
                model[at] = value;
                for end in 0..=70 {
                    proptest::prop_assert_eq!(
                        fenwick.sum_before(end),
                        model[..end].iter().sum::<u64>()
                    );
                }
            }
        }
    }
}
