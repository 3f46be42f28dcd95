//! What came out, as data and as a table.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::methods::{Method, Purges, Sizes};
use super::site::Script;

/// Everything that a run has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Under which conditions.
    pub setting: Setting,
    /// One for each kind of script.
    pub cases: Vec<CaseReport>,
}

/// The conditions of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Scripts, each with a file of its own.
    pub scripts: usize,
    /// Files that scripts include.
    pub includes: usize,
    /// Requests of each kind of script.
    pub requests: usize,
    /// Clients.
    pub clients: usize,
    /// Mean time between two requests of all clients together, in milliseconds.
    pub interval_ms: f64,
    /// How long a slow script sleeps, in milliseconds.
    pub sleep_ms: f64,
    /// Processes of PHP for slow scripts.
    pub workers: u32,
    /// Exponent of Zipf's law.
    pub alpha: f64,
    /// Edits per second.
    pub edits_per_s: f64,
    /// Version of the kernel.
    pub kernel: String,
    /// Of the programs.
    pub versions: Vec<String>,
    /// Of the machine.
    pub cpus: usize,
    /// Something else used the machine before the run.
    pub busy: bool,
}

/// What was found with one kind of script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// Which kind.
    pub script: Script,
    /// Processes of PHP.
    pub workers: u32,
    /// Requests that were answered.
    pub answered: usize,
    /// Answered requests that were not successes; they count nowhere else.
    pub failed: usize,
    /// Requests whose execution was known; the others got the union.
    pub identified: usize,
    /// Requests in flight, on average over time.
    pub in_flight: f64,
    /// Edits made.
    pub edits: usize,
    /// What each method made of it.
    pub methods: Vec<MethodReport>,
    /// The course of it.
    pub points: Vec<Point>,
}

/// What a method made of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MethodReport {
    /// Which method it is.
    pub method: Method,
    /// The sets at the end.
    pub last: Sizes,
    /// What edits have led to.
    pub purges: Purges,
}

/// The sets after so many requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests answered so far.
    pub requests: usize,
    /// By [`Method::DRAWN`].
    pub sizes: [Sizes; Method::DRAWN.len()],
}

impl Point {
    /// Share of the sets that are too large, 0 to 1.
    pub fn share(&self, method: usize) -> f64 {
        let sizes = self.sizes[method];
        sizes.too_large as f64 / sizes.pages.max(1) as f64
    }
}

/// Reads a saved report.
///
/// # Errors
/// It is not there, or none.
pub fn read_report(path: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(path)?;
    serde_json::from_str(&text).context("this is not a result of bench sets")
}

impl Setting {
    /// The setting in a line of words.
    pub fn words(&self) -> String {
        format!(
            "{} scripts, {} clients, {} requests of each kind, one every {} ms on average (paper: 1 ms), slow scripts sleep {} ms \
             (paper: 1000 ms) in {} processes, {} edits per second",
            self.scripts,
            self.clients,
            self.requests,
            self.interval_ms,
            self.sleep_ms,
            self.workers,
            self.edits_per_s
        )
    }
}

impl Report {
    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{}\nLinux {}; {}\n",
            self.setting.words(),
            self.setting.kernel,
            self.setting.versions.join("; ")
        );
        if self.setting.busy {
            out.push_str("The machine was busy with something else.\n");
        }
        for case in &self.cases {
            let _ = writeln!(
                out,
                "\n{}: {:.1} requests in flight on average, execution known of {} of {}, {} failed, {} edits",
                case.script.label(),
                case.in_flight,
                case.identified,
                case.answered,
                case.failed,
                case.edits
            );
            let _ = writeln!(
                out,
                "{:<30} {:>18} {:>12} {:>13} {:>8} {:>8} {:>8} {:>9}",
                "",
                "sets too large",
                "largest",
                "at the end",
                "right",
                "wrong",
                "missed",
                "refused"
            );
            let _ = writeln!(
                out,
                "{:<30} {:>18} {:>12} {:>13} {:>8} {:>8} {:>8} {:>9}",
                "method",
                "at worst",
                "excess",
                "too large",
                "purges",
                "purges",
                "purges",
                "needlessly"
            );
            for found in &case.methods {
                let drawn = Method::DRAWN.iter().position(|method| *method == found.method);
                let (worst, excess) = match drawn {
                    Some(at) => (
                        case.points.iter().map(|point| point.share(at)).fold(0.0, f64::max),
                        case.points.iter().map(|point| point.sizes[at].excess).max().unwrap_or(0),
                    ),
                    None => (f64::NAN, 0),
                };
                let sizes = if drawn.is_some() {
                    let end = found.last.too_large as f64 / found.last.pages.max(1) as f64;
                    format!("{:>17.1}% {:>12} {:>12.1}%", worst * 100.0, excess, end * 100.0)
                } else {
                    format!("{:>18} {:>12} {:>13}", "-", "-", "-")
                };
                let Purges { right, wrong, missed, refused } = found.purges;
                let _ = writeln!(
                    out,
                    "{:<30} {sizes} {right:>8} {wrong:>8} {missed:>8} {refused:>9}",
                    found.method.label()
                );
            }
        }
        out
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One with every method in it.
    pub(crate) fn report() -> Report {
        let sizes = |too_large, excess| Sizes { pages: 100, too_large, excess };
        let purges = Purges { right: 5, wrong: 7, missed: 9, refused: 0 };
        let case = |script| CaseReport {
            script,
            workers: 10,
            answered: 200,
            failed: 0,
            identified: 200,
            in_flight: 12.0,
            edits: 4,
            methods: Method::ALL
                .map(|method| MethodReport { method, last: sizes(1, 2), purges })
                .into(),
            points: [100, 200]
                .map(|requests| Point {
                    requests,
                    sizes: [sizes(20, 30), sizes(0, 0), sizes(100, 60)],
                })
                .into(),
        };
        Report {
            setting: Setting {
                scripts: 1000,
                includes: 20,
                requests: 200,
                clients: 3,
                interval_ms: 2.0,
                sleep_ms: 500.0,
                workers: 10,
                alpha: 0.75,
                edits_per_s: 5.0,
                kernel: "6".into(),
                versions: vec!["nginx 1".into()],
                cpus: 2,
                busy: false,
            },
            cases: Script::ALL.map(case).into(),
        }
    }

    #[test]
    fn it_comes_back_from_json_and_names_every_method() {
        let report = report();
        assert_eq!(
            serde_json::from_str::<Report>(&serde_json::to_string(&report).unwrap()).unwrap(),
            report
        );
        let table = report.table();
        for method in Method::ALL {
            assert_eq!(table.matches(method.label()).count(), 2, "{table}");
        }
        assert!(table.contains("20.0%") && !table.contains("NaN"), "{table}");
    }
}
