//! What is told of a run: medians with the least and the most, as a table and as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::cell::{Mode, Sample};
use super::site::Object;
use super::subject::Subject;
use crate::Summary;

/// Everything about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it was measured.
    pub setting: Setting,
    /// Medians.
    pub cells: Vec<Cell>,
    /// Subjects that did not take part.
    pub skipped: Vec<Skipped>,
    /// Measurements that failed.
    pub failures: Vec<Failure>,
    /// What the medians are of.
    pub samples: Vec<Sample>,
}

/// How a run was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Times that everything was measured.
    pub rounds: u32,
    /// Seconds of one measurement.
    pub seconds: u32,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Settings of nginx.
    pub nginx: String,
    /// Settings of the other servers and caches, each with its name.
    #[serde(default)]
    pub others: Vec<String>,
    /// Versions of the programs.
    pub versions: Vec<String>,
    /// Share of the CPUs that was busy before the run, 0 to 1.
    pub load_before: f64,
    /// Whether that was too much for figures that mean something.
    pub busy: bool,
    /// Measurements that were made again, because the card did not answer every request of them.
    pub repeated: u32,
}

/// A subject that did not take part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which subject did not take part.
    pub subject: Subject,
    /// Why it did not take part.
    pub reason: String,
}

/// A measurement that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Who should have answered.
    pub subject: Subject,
    /// What was asked for.
    pub object: Object,
    /// When, from 0.
    pub round: usize,
    /// Why the measurement failed.
    pub reason: String,
}

/// All samples of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Who answered.
    pub subject: Subject,
    /// What was asked for.
    pub object: Object,
    /// How the client asked.
    pub mode: Mode,
    /// Samples.
    pub samples: usize,
    /// Replies per second.
    pub requests_per_s: Summary,
    /// Gigabits per second.
    pub gbit_per_s: Summary,
    /// Median latency.
    pub p50_us: Summary,
    /// 99th percentile of the latency.
    pub p99_us: Summary,
    /// CPU time per request of the serving side.
    pub server_cpu_us: Summary,
    /// CPU time per request of the whole machine.
    pub machine_cpu_us: Summary,
}

impl Report {
    /// Makes the report of all samples.
    pub fn new(
        setting: Setting,
        samples: Vec<Sample>,
        skipped: Vec<Skipped>,
        failures: Vec<Failure>,
    ) -> Self {
        let mut kinds: Vec<(Mode, Object, Subject)> =
            samples.iter().map(|s| (s.mode, s.object, s.subject)).collect();
        kinds.sort_by_key(|(mode, object, subject)| (*mode, object.bytes, *subject));
        kinds.dedup();
        let cells = kinds
            .into_iter()
            .map(|(mode, object, subject)| {
                let of: Vec<&Sample> = samples
                    .iter()
                    .filter(|s| (s.mode, s.object, s.subject) == (mode, object, subject))
                    .collect();
                let summary =
                    |value: fn(&Sample) -> f64| Summary::of(of.iter().map(|sample| value(sample)));
                Cell {
                    subject,
                    object,
                    mode,
                    samples: of.len(),
                    requests_per_s: summary(|s| s.requests_per_s),
                    gbit_per_s: summary(|s| s.gbit_per_s),
                    p50_us: summary(|s| s.p50_us),
                    p99_us: summary(|s| s.p99_us),
                    server_cpu_us: summary(|s| s.server_cpu_us),
                    machine_cpu_us: summary(|s| s.machine_cpu_us),
                }
            })
            .collect();
        Self { setting, cells, skipped, failures, samples }
    }

    /// The cell of a kind.
    pub fn cell(&self, mode: Mode, object: &Object, subject: Subject) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.mode == mode && cell.object == *object && cell.subject == subject)
    }

    /// Objects that were measured, small to large.
    pub fn objects(&self) -> Vec<Object> {
        let mut objects: Vec<Object> = self.cells.iter().map(|cell| cell.object).collect();
        objects.sort_by_key(|object| object.bytes);
        objects.dedup();
        objects
    }

    /// Subjects that were measured, in their order.
    pub fn subjects(&self) -> Vec<Subject> {
        Subject::ALL
            .into_iter()
            .filter(|subject| self.cells.iter().any(|cell| cell.subject == *subject))
            .collect()
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for mode in Mode::ALL {
            let _ = writeln!(text, "{}", heading(mode));
            let _ = writeln!(
                text,
                "  {:<8}{:<27}{:>27}{:>7}{:>7}{:>9}{:>9}{:>11}{:>11}",
                "object",
                "answered by",
                "requests/s (min..max)",
                "nginx=",
                "Gb/s",
                "p50 us",
                "p99 us",
                "server us",
                "machine us"
            );
            for object in self.objects() {
                let nginx =
                    self.cell(mode, &object, Subject::Nginx).map(|cell| cell.requests_per_s.median);
                for (number, subject) in self.subjects().into_iter().enumerate() {
                    let Some(cell) = self.cell(mode, &object, subject) else { continue };
                    let name = if number == 0 { object.label() } else { String::new() };
                    let ratio = nginx.map_or_else(
                        || "-".to_owned(),
                        |nginx| format!("{:.2}", cell.requests_per_s.median / nginx),
                    );
                    let rate = &cell.requests_per_s;
                    let rate = format!(
                        "{} ({}..{})",
                        grouped(rate.median),
                        grouped(rate.min),
                        grouped(rate.max)
                    );
                    let _ = writeln!(
                        text,
                        "  {name:<8}{:<27}{rate:>27}{ratio:>7}{:>7.2}{:>9.0}{:>9.0}{:>11.1}{:>11.1}",
                        subject.label(),
                        cell.gbit_per_s.median,
                        cell.p50_us.median,
                        cell.p99_us.median,
                        cell.server_cpu_us.median,
                        cell.machine_cpu_us.median
                    );
                }
            }
            text.push('\n');
        }
        self.write_notes(&mut text);
        text
    }

    fn write_notes(&self, text: &mut String) {
        let setting = &self.setting;
        let _ = writeln!(
            text,
            "Medians of {} rounds of {} s. Client (wrk) on cpu 0, the whole serving side on cpu 1, or both on both where it says so; namespaces of their own; CUBIC, \
             receive coalescing on.\nnginx: {}.\n{}\"server us\" and \"machine us\" are CPU time per request: of the serving side's \
             processes, and of the whole machine with the client.\nLinux {}, {} CPUs; {}.",
            setting.rounds,
            setting.seconds,
            setting.nginx,
            setting.others.iter().map(|other| format!("{other}.\n")).collect::<String>(),
            setting.kernel,
            setting.cpus,
            setting.versions.join(", ")
        );
        if setting.busy {
            let _ = writeln!(
                text,
                "Warning: {:.0} % of the machine was busy before the run: these figures say little.",
                setting.load_before * 100.0
            );
        }
        if setting.repeated > 0 {
            let _ = writeln!(
                text,
                "{} measurements were made again, because the card did not answer all requests.",
                setting.repeated
            );
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "Skipped: {}: {}", skipped.subject.label(), skipped.reason);
        }
        for failure in &self.failures {
            let (subject, object) = (failure.subject.label(), failure.object.label());
            let _ = writeln!(
                text,
                "Failed: {subject}, {object}, round {}: {}",
                failure.round + 1,
                failure.reason
            );
        }
    }
}

fn heading(mode: Mode) -> String {
    match mode {
        Mode::KeepAlive => "Connections kept open (64; 16 for 100 KB, 4 for 1 MB)".to_owned(),
        Mode::One => "One connection kept open".to_owned(),
        Mode::Close => {
            "A connection for each request (64 at a time; 16 for 100 KB, 4 for 1 MB)".to_owned()
        }
        Mode::Shared => {
            "Connections kept open (64; 16 for 100 KB, 4 for 1 MB), both CPUs for both sides"
                .to_owned()
        }
    }
}

/// 12,345.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn report() -> Report {
        let setting = Setting {
            rounds: 2,
            seconds: 1,
            cpus: 2,
            kernel: "6.18".into(),
            nginx: "1 worker".into(),
            others: vec!["Apache: 2 processes".into()],
            versions: vec!["nginx/1.22".into()],
            load_before: 0.5,
            busy: true,
            repeated: 1,
        };
        let mut samples = Vec::new();
        for (number, subject) in Subject::ALL.into_iter().enumerate() {
            for object in super::super::site::OBJECTS {
                for mode in Mode::ALL {
                    for round in [1.0, 3.0] {
                        let requests_per_s = 100_000.0 * round * (number + 1) as f64;
                        samples.push(Sample {
                            subject,
                            object,
                            mode,
                            requests: 5,
                            requests_per_s,
                            gbit_per_s: 1.0,
                            p50_us: 10.0 * round,
                            p99_us: 20.0,
                            server_cpu_us: 4.0,
                            machine_cpu_us: 8.0,
                        });
                    }
                }
            }
        }
        Report::new(setting, samples, Vec::new(), Vec::new())
    }

    #[test]
    fn medians_ratios_and_warnings_are_told() {
        let report = report();
        assert_eq!(report.cells.len(), Subject::ALL.len() * 5 * Mode::ALL.len());
        let table = report.table();
        assert!(table.contains("400,000 (200,000..600,000)   2.00"), "{table}");
        assert!(table.contains("nginx: 1 worker.\nApache: 2 processes.\n"), "{table}");
        assert!(table.contains("50 % of the machine was busy"), "{table}");
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(12.0), "12");
    }
}
