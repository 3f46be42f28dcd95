use super::super::connections::Failures;
use super::*;

fn setting() -> Setting {
    Setting {
        rounds: 2,
        seconds: 1,
        spacing: Spacing::Poisson,
        seed: 1,
        connections_max: 1_024,
        cpus: 2,
        kernel: "6.18".into(),
        nginx: "1 worker".into(),
        versions: vec!["nginx/1.22".into()],
        load_before: 0.0,
        busy: false,
        repeated: 0,
    }
}

fn time(us: f64) -> TimeSummary {
    TimeSummary {
        count: 10,
        mean_us: us,
        median_us: us * 0.8,
        p99_us: us * 4.0,
        deviation_us: us * 2.0,
    }
}

/// Subjects that follow what is offered up to a capacity, and are slower beyond; two rounds that
/// differ by a reply in each window.
pub(crate) fn report() -> Report {
    let mut samples = Vec::new();
    for (number, subject) in SUBJECTS.into_iter().enumerate() {
        let capacity = 20_000 * (number as u32 + 1);
        for bytes in [1, 10_000, 1_000_000] {
            for round in 0..2 {
                let hits = (subject != Subject::Nginx).then_some(1.0);
                for rate in [5_000, 10_000, 20_000, 40_000, 80_000] {
                    let replied = rate.min(capacity) / 10 + round;
                    let outcome = Outcome::Rate(AtRate {
                        offered: u64::from(rate),
                        refused: u64::from(rate.saturating_sub(capacity)),
                        connected: vec![replied; 10],
                        replied: vec![replied; 10],
                        time: time(if rate > capacity {
                            20_000.0
                        } else {
                            100.0 + f64::from(rate) / 100.0
                        }),
                        failures: Failures { timeout: 1, ..Failures::default() },
                        replies: 0,
                        late_p99_us: 2.0,
                    });
                    samples.push(Sample {
                        subject,
                        bytes,
                        round,
                        load: Load::Rate(rate),
                        outcome,
                        hits,
                    });
                }
                for connections in [1, 16, 256] {
                    let outcome = Outcome::Connections(AtFullSpeed {
                        replied: vec![(connections * 1_000).min(capacity) / 10; 10],
                        time: time(f64::from(connections) * 40.0),
                        failures: Failures::default(),
                        replies: 0,
                    });
                    samples.push(Sample {
                        subject,
                        bytes,
                        round,
                        load: Load::Connections(connections),
                        outcome,
                        hits,
                    });
                }
            }
        }
    }
    Report::new(setting(), samples, Vec::new())
}

#[test]
fn rounds_are_put_together() {
    let report = report();
    assert_eq!((report.rates.len(), report.connections.len()), (3 * 3 * 5, 3 * 3 * 3));
    assert_eq!(report.sizes(), [1, 10_000, 1_000_000]);
    let cell = report
        .rates
        .iter()
        .find(|cell| cell.subject == Subject::Nginx && cell.rate == 40_000)
        .unwrap();
    assert_eq!((cell.refused, cell.failed, cell.hits), (0.5, 2, None));
    // Windows of 2000 and 2001 replies: means of 20,000 and 20,010 a second.
    assert_eq!(cell.replies_per_s.mean, 20_005.0);
    assert!((5.0..5.3).contains(&cell.replies_per_s.deviation), "{}", cell.replies_per_s.deviation);
    assert_eq!(report.best(1, Subject::CardHit).unwrap().rate, 80_000);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn the_table_tells_ratios_and_what_went_wrong() {
    let mut report = report();
    report.setting.busy = true;
    report.samples[0].hits = Some(0.5);
    let (subject, load) = (Subject::CardHit, Load::Rate(7));
    report.failures.push(Failure { subject, bytes: 1, load, round: 1, reason: "it broke".into() });
    let table = report.table();
    for line in [
        "  1 B     nginx                           20,005      80,000    1.00\n",
        "card, hits                      40,005      80,000    2.00\n",
        "      40,000",
        "Warning: 0 % of the machine was busy",
        "Few hits: 1 B, nginx, 5000/s, round 1: 50.0 %",
        "Failed: 1 B, card, hits, 7/s, round 2: it broke",
        "2 rounds of 1 s each, arrivals poisson (seed 1), at most 1024 connections",
    ] {
        assert!(table.contains(line), "no `{line}` in\n{table}");
    }
}
