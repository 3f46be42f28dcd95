//! Pages, and which of them is asked for next.

use std::time::Duration;

/// A page to read.
#[derive(Clone, Debug)]
pub struct Page {
    /// Path and query, beginning with `/`.
    pub target: String,
    /// Request fields of whoever asks, without line ends: several pages may have one target and be
    /// for different clients.
    pub fields: Vec<String>,
    /// What the page says to this visitor, and to nobody else.
    pub says: Option<String>,
    /// Names of the subjects it must show; `None`: those that it shows before the run.
    pub shows: Option<Vec<String>>,
    /// It prints the UNIX time, which may be so old at most when the request is sent.
    pub within: Option<Duration>,
    /// Whether all markers of a subject in one reply must be of one version. A page that the server
    /// itself puts together while the subject changes is not atomic; it may lack the marker then,
    /// too, and while any other subject changes: a template that both are made of.
    pub atomic: bool,
    /// Whether it always shows its subjects. A page that the server itself gives without its
    /// content for moments is not steady.
    pub steady: bool,
}

impl Page {
    /// A page that shows what it shows, at once.
    pub fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            fields: Vec::new(),
            says: None,
            shows: None,
            within: None,
            atomic: true,
            steady: true,
        }
    }

    /// Its target, and who asks for it.
    pub(crate) fn name(&self) -> String {
        let fields = self.fields.join(", ");
        if fields.is_empty() { self.target.clone() } else { format!("{} ({fields})", self.target) }
    }
}

/// How often each page is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// All alike.
    Uniform,
    /// By Zipf's law with this exponent, the first page most; 0.6 to 1 is usual.
    Zipf(f64),
}

/// Chooses pages at random.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    /// Sum of the weights up to each page.
    cumulated: Vec<f64>,
}

impl Chooser {
    pub(crate) fn new(pages: usize, popularity: Popularity) -> Self {
        let exponent = if let Popularity::Zipf(exponent) = popularity { exponent } else { 0.0 };
        let mut total = 0.0;
        let weights = (1..=pages).map(|rank| {
            total += (rank as f64).powf(-exponent);
            total
        });
        Self { cumulated: weights.collect() }
    }

    pub(crate) fn choose(&self, random: &mut fastrand::Rng) -> usize {
        let Some(total) = self.cumulated.last().filter(|_| self.cumulated.len() > 1) else {
            return 0;
        };
        let point = random.f64() * total;
        self.cumulated.partition_point(|&sum| sum <= point).min(self.cumulated.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(popularity: Popularity) -> Vec<u32> {
        let chooser = Chooser::new(10, popularity);
        let mut random = fastrand::Rng::with_seed(3);
        let mut counts = vec![0; 10];
        (0..10_000).for_each(|_| counts[chooser.choose(&mut random)] += 1);
        counts
    }

    #[test]
    fn popularity() {
        let even = counts(Popularity::Uniform);
        assert!(even.iter().all(|count| (850..1150).contains(count)), "{even:?}");
        let zipf = counts(Popularity::Zipf(1.0));
        assert!((3200..3650).contains(&zipf[0]) && (250..450).contains(&zipf[9]), "{zipf:?}");
        assert_eq!(
            Chooser::new(1, Popularity::Uniform).choose(&mut fastrand::Rng::with_seed(1)),
            0
        );
    }
}
