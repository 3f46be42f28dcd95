//! What is told of a run: goodput side by side, as a table and as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::spread::{ShareMean, Spread};
use super::subject::Subject;

/// Share of Linux' goodput below which a condition is told of by name.
pub(super) const SHARE_MIN: f64 = 0.9;

/// Everything about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it was measured.
    pub setting: Setting,
    /// Condition by condition.
    pub cells: Vec<Cell>,
    /// What could not be measured.
    pub failures: Vec<Failure>,
    /// What the means are of.
    pub samples: Vec<Sample>,
}

/// How a run was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// What everything random followed from.
    pub seed: u64,
    /// Times that everything was measured.
    pub rounds: u32,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Versions of the programs.
    pub versions: Vec<String>,
    /// Share of the CPUs that was busy before the run, 0 to 1.
    pub load_before: f64,
    /// Whether that was too much for figures that mean something.
    pub busy: bool,
    /// Conditions that were not measured since somebody has ended the run.
    #[serde(default)]
    pub left_out: u32,
}

/// The transfers of one subject under one condition. Those of the same place met the same path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who answered.
    pub subject: Subject,
    /// What the path did.
    pub condition: Condition,
    /// Goodput of each transfer.
    pub mbit_per_s: Vec<f64>,
    /// Transfers that took too long.
    pub cut: u32,
}

impl Sample {
    /// Nothing was measured yet.
    pub fn new(subject: Subject, condition: Condition) -> Self {
        Self { subject, condition, mbit_per_s: Vec::new(), cut: 0 }
    }

    /// Adds another repetition.
    pub fn append(&mut self, mut more: Self) {
        self.mbit_per_s.append(&mut more.mbit_per_s);
        self.cut += more.cut;
    }
}

/// A repetition that could not be measured; it counts for nobody.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Who should have answered.
    pub subject: Subject,
    /// What the path did.
    pub condition: Condition,
    /// Why it could not be measured.
    pub reason: String,
}

/// One subject under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Who answered.
    pub subject: Subject,
    /// What the path did.
    pub condition: Condition,
    /// Goodput.
    pub goodput: Spread,
    /// The median beside that of Linux.
    pub share: Option<f64>,
    /// The geometric mean beside that of Linux.
    pub share_mean: Option<ShareMean>,
    /// Transfers that took too long.
    pub cut: u32,
}

impl Report {
    /// Makes the report of all samples.
    pub fn new(setting: Setting, samples: Vec<Sample>, failures: Vec<Failure>) -> Self {
        let linux = |condition: &Condition| {
            samples
                .iter()
                .find(|sample| sample.subject == Subject::Linux && sample.condition == *condition)
        };
        let cells = samples
            .iter()
            .map(|sample| {
                let goodput = Spread::of(&sample.mbit_per_s);
                let linux = linux(&sample.condition).map(|linux| &linux.mbit_per_s);
                Cell {
                    subject: sample.subject,
                    condition: sample.condition,
                    goodput,
                    share: linux.map(|linux| goodput.median / Spread::of(linux).median),
                    share_mean: linux
                        .and_then(|linux| ShareMean::of_pairs(&sample.mbit_per_s, linux)),
                    cut: sample.cut,
                }
            })
            .collect();
        Self { setting, cells, failures, samples }
    }

    /// Conditions that were measured, in their order.
    pub fn conditions(&self) -> Vec<Condition> {
        let mut conditions: Vec<Condition> = Vec::new();
        for cell in &self.cells {
            if !conditions.contains(&cell.condition) {
                conditions.push(cell.condition);
            }
        }
        conditions
    }

    /// The cell of a kind.
    pub fn cell(&self, condition: &Condition, subject: Subject) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.condition == *condition && cell.subject == subject)
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _ = write!(text, "{:<48}{:>22}", "Mbit/s: median (quartiles)", Subject::Linux.label());
        for subject in &Subject::ALL[1..] {
            let _ = write!(text, "{:>24}{:>7}{:>18}", subject.label(), "share", "in the mean");
        }
        text.push('\n');
        for condition in self.conditions() {
            let _ = write!(text, "{:<48}", condition.label());
            for subject in Subject::ALL {
                let cell = self.cell(&condition, subject);
                let width = if subject == Subject::Linux { 22 } else { 24 };
                let goodput = cell.map_or_else(|| "-".to_owned(), |cell| cell.goodput.to_string());
                let _ = write!(text, "{goodput:>width$}");
                if subject != Subject::Linux {
                    let share = cell
                        .and_then(|cell| cell.share)
                        .map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"));
                    let mean = cell
                        .and_then(|cell| cell.share_mean)
                        .map_or_else(|| "-".to_owned(), |mean| mean.to_string());
                    let _ = write!(text, "{share:>7}{mean:>18}");
                }
            }
            text.push('\n');
        }
        self.write_notes(&mut text);
        text
    }

    fn write_notes(&self, text: &mut String) {
        for subject in &Subject::ALL[1..] {
            let cells = self.cells.iter().filter(|cell| cell.subject == *subject);
            let (medians, means): (Vec<f64>, Vec<ShareMean>) =
                cells.filter_map(|cell| cell.share.zip(cell.share_mean)).unzip();
            let least =
                |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
            let below = |values: &mut dyn Iterator<Item = f64>| {
                values.filter(|value| *value < SHARE_MIN).count()
            };
            let _ = writeln!(
                text,
                "{} beside Linux in {} conditions: medians {:.2} at least, {} below {SHARE_MIN}; means {:.2} at least, {} below {SHARE_MIN}, {} of them \
                 for certain (95 %).",
                subject.label(),
                medians.len(),
                least(&mut medians.iter().copied()),
                below(&mut medians.iter().copied()),
                least(&mut means.iter().map(|mean| mean.share)),
                below(&mut means.iter().map(|mean| mean.share)),
                below(&mut means.iter().map(|mean| mean.high)),
            );
        }
        let setting = &self.setting;
        let _ = writeln!(
            text,
            "In the mean: geometric mean of the shares of pairs, and where it is with 95 %. Seed {}, {} rounds. Linux {}, {} CPUs, CUBIC by route at both ends; {}.",
            setting.seed,
            setting.rounds,
            setting.kernel,
            setting.cpus,
            setting.versions.join(", ")
        );
        if setting.busy {
            let percent = setting.load_before * 100.0;
            let _ =
                writeln!(text, "Warning: {percent:.0} % of the machine was busy before the run.");
        }
        if setting.left_out > 0 {
            let _ =
                writeln!(text, "Ended early: {} conditions were not measured.", setting.left_out);
        }
        for failure in &self.failures {
            let _ = writeln!(
                text,
                "Failed: {}, {}: {}",
                failure.subject.label(),
                failure.condition.label(),
                failure.reason
            );
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn report() -> Report {
        let setting = Setting {
            seed: 1,
            rounds: 1,
            cpus: 2,
            kernel: "6.18".into(),
            versions: vec!["nginx/1.22".into()],
            load_before: 0.5,
            busy: true,
            left_out: 2,
        };
        let mut samples = Vec::new();
        for (number, subject) in Subject::ALL.into_iter().enumerate() {
            for condition in Condition::matrix(true) {
                let rate = 10.0 * (number + 1) as f64;
                samples.push(Sample {
                    subject,
                    condition,
                    mbit_per_s: vec![rate / 2.0, rate * 2.0],
                    cut: 0,
                });
            }
        }
        Report::new(setting, samples, Vec::new())
    }

    #[test]
    fn shares_are_those_of_medians_and_of_pairs() {
        let report = report();
        let condition = Condition::matrix(true)[0];
        assert!(
            (report.cell(&condition, Subject::Linux).unwrap().goodput.median - 12.5).abs() < 1e-9
        );
        let card = report.cell(&condition, Subject::Card).unwrap();
        assert!((card.share.unwrap() - 3.0).abs() < 1e-9);
        assert!((card.share_mean.unwrap().share - 3.0).abs() < 1e-9);
        let table = report.table();
        assert!(
            table.contains("3.00")
                && table.contains("50 % of the machine")
                && table.contains("Ended early: 2"),
            "{table}"
        );
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap().cells.len(), report.cells.len());
    }
}
