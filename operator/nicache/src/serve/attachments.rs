//! Which attachment is at work. Both sides of one may find it broken, and the second report may
//! come when there is another one already: that would be replaced for nothing, and be counted.

/// The attachments of a card, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Attachments(u64);

impl Attachments {
    /// The number of one that is new, and at work from now on.
    pub(crate) fn begin(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// Whether what is told of an attachment is told of the one at work. Processes of earlier
    /// versions tell no number, and are believed.
    pub(crate) fn is_at_work(&self, told: Option<u64>) -> bool {
        told.is_none_or(|number| number == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_one_is_at_work() {
        let mut attachments = Attachments::default();
        let (first, second) = (attachments.begin(), attachments.begin());
        let at_work = [Some(first), Some(second), None].map(|told| attachments.is_at_work(told));
        assert_eq!(at_work, [false, true, true]);
    }
}
