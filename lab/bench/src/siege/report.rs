//! What is told of a siege: what the client saw, what the card counted, and whether that is as it
//! should be.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::attack::{AttackKind, Strength};
use super::client::{PHASES, Seen};
use super::gauges::Gauges;
use super::generator::Told;
use crate::wire::grouped;

/// Bytes that a process may map for what is none of its data: a thread's stack, the allocator's
/// first pages for a new thread.
const MAPPED_SLACK: u64 = 4 << 20;
/// What entries take beside their bodies: 1 KiB each, one for 4 KiB of card memory
/// ([`nicache_card::CardConfig`]).
const ENTRY_SHARE: u64 = 4;
/// Counters that are told of if they have moved.
const TELLING: [&str; 27] = [
    "hits",
    "misses",
    "bypasses",
    "flows",
    "flows_untracked",
    "flows_opaque",
    "half_open_evicted",
    "silent_evicted",
    "syn_cookies_sent",
    "syn_cookies_accepted",
    "challenges_sent",
    "challenges_refused",
    "segments_unacceptable",
    "clients_gone",
    "clients_slow",
    "clients_window_closed",
    "clients_head_slow",
    "retransmits",
    "corrupt",
    "too_big_obeyed",
    "too_big_ignored",
    "bypass_resources",
    "fill_aborted_slow_client",
    "fill_aborted_resources",
    "purges_by_source",
    "drops_wire",
    "drops_host",
];

/// Gauges that have to return.
pub const RETURNING: [&str; 4] = ["flows_now", "half_open_now", "holds_now", "fills_now"];

/// Everything about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it was done.
    pub setting: Setting,
    /// Attack by attack.
    pub outcomes: Vec<Outcome>,
}

/// How a siege was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Seconds of each attack.
    pub seconds: u32,
    /// Milliseconds that the client paused after each reply while the card got rid of an attack.
    #[serde(default)]
    pub pause_ms: u64,
    /// What all that is random followed from.
    pub seed: u64,
    /// How hard it was.
    pub strength: Strength,
    /// Options of the card.
    pub options: Vec<String>,
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
}

/// What was seen at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the client began.
    pub at_s: f64,
    /// Its replies a second since the last moment.
    pub requests_per_s: f64,
    /// Memory of the card's process.
    pub resident_bytes: u64,
    /// Connections that the card follows.
    pub flows: u64,
    /// Of these: whose handshake is not complete.
    pub half_open: u64,
}

/// A criterion, and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What should be.
    pub what: String,
    /// Whether it is.
    pub passed: bool,
    /// By which figures.
    pub figures: String,
}

/// An attack and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which attack it was.
    pub attack: AttackKind,
    /// Frames that the attackers sent.
    pub sent: u64,
    /// Segments that they got.
    pub received: u64,
    /// What they did.
    pub attackers: BTreeMap<String, u64>,
    /// The client before, during, between and after: between is while the card gets rid of the
    /// attack.
    pub seen: [Seen; PHASES],
    /// The card at the end of the quiet, of the attack, and of the quiet after it.
    pub gauges: [Gauges; 3],
    /// The most that was seen in each of these times.
    pub most: [Gauges; 3],
    /// When the attack began and ended, in seconds since the client began.
    pub attack_s: [f64; 2],
    /// Seconds until all gauges were where they had been, if they ever were.
    pub returned_s: Option<f64>,
    /// Twice a second.
    pub moments: Vec<Moment>,
    /// The criteria.
    pub verdicts: Vec<Verdict>,
}

impl Outcome {
    /// Judges.
    pub(super) fn new(
        attack: AttackKind,
        seen: [Seen; PHASES],
        gauges: [[Gauges; 2]; 3],
        moments: Vec<Moment>,
        attack_s: [f64; 2],
        returned_s: Option<f64>,
        told: &Told,
    ) -> Self {
        let [before, during, after] = gauges;
        let ([before, before_most], [during, during_most], [after, after_most]) =
            (before, during, after);
        let mut outcome = Self {
            attack,
            sent: told.sent,
            received: told.received,
            attackers: told.more.clone(),
            seen,
            gauges: [before, during, after],
            most: [before_most, during_most, after_most],
            attack_s,
            returned_s,
            moments,
            verdicts: Vec::new(),
        };
        outcome.verdicts = outcome.judge();
        outcome
    }

    fn judge(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let mut judge = |what: &str, passed: bool, figures: String| {
            verdicts.push(Verdict { what: what.to_owned(), passed, figures });
        };
        let [before, during, _, after] = &self.seen;
        let hits = self.gauges[1].of("hits").saturating_sub(self.gauges[0].of("hits"));
        judge(
            "hits go on",
            during.requests > during.misses && hits > 0,
            format!(
                "{} requests/s before, {} during, {} after; {} hits during",
                grouped(before.requests_per_s),
                grouped(during.requests_per_s),
                grouped(after.requests_per_s),
                grouped(hits as f64)
            ),
        );
        let wrong: u64 = self.seen.iter().map(|seen| seen.wrong).sum();
        let right: u64 = self.seen.iter().map(|seen| seen.requests).sum();
        judge(
            "every body is right",
            wrong == 0,
            format!("{} right, {wrong} wrong", grouped(right as f64)),
        );
        let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
        for (what, count) in self.seen.iter().flat_map(|seen| &seen.errors) {
            *errors.entry(what).or_default() += count;
        }
        let list: Vec<String> =
            errors.iter().map(|(what, count)| format!("{count} of `{what}`")).collect();
        let said = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
        judge("the client meets no error", errors.is_empty(), said);
        let bound = self.gauges[0].mapped_bytes
            + MAPPED_SLACK
            + self.gauges[0].of("memory_bytes") / ENTRY_SHARE;
        let most = self.most.iter().map(|most| most.resident_bytes).max().unwrap_or(0);
        let mapped = self.most.iter().map(|most| most.mapped_bytes).max().unwrap_or(0);
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        judge(
            "memory stays within its bound",
            most <= bound && mapped <= bound,
            format!(
                "{} MB before, {} at most, {} after, of {} MB; {} MB mapped before, {} at most",
                megabytes(self.gauges[0].resident_bytes),
                megabytes(most),
                megabytes(self.gauges[2].resident_bytes),
                megabytes(bound),
                megabytes(self.gauges[0].mapped_bytes),
                megabytes(mapped)
            ),
        );
        let leaks: Vec<String> = RETURNING
            .iter()
            .map(|name| {
                let at = |gauges: &Gauges| grouped(gauges.of(name) as f64);
                format!(
                    "{name} {} → {} → {}",
                    at(&self.most[0]),
                    at(&self.most[1]),
                    at(&self.gauges[2])
                )
            })
            .collect();
        let time = self
            .returned_s
            .map_or_else(|| "not in time".to_owned(), |seconds| format!("after {seconds:.0} s"));
        judge("nothing leaks", self.returned_s.is_some(), format!("{time}: {}", leaks.join(", ")));
        verdicts
    }

    /// Counters that moved between the quiet before and the end.
    pub fn moved(&self) -> BTreeMap<&'static str, u64> {
        let [before, _, after] = &self.gauges;
        TELLING
            .iter()
            .map(|name| (*name, after.of(name).saturating_sub(before.of(name))))
            .filter(|(_, moved)| *moved > 0)
            .collect()
    }

    /// Whether all criteria are met.
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.passed)
    }
}

impl Report {
    /// Whether all criteria of all attacks are met.
    pub fn passed(&self) -> bool {
        self.outcomes.iter().all(Outcome::passed)
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for outcome in &self.outcomes {
            let [from, to] = outcome.attack_s;
            let _ = writeln!(
                text,
                "{}: {} frames in {:.0} s, {} segments in answer",
                outcome.attack.label(),
                grouped(outcome.sent as f64),
                to - from,
                grouped(outcome.received as f64)
            );
            let _ = writeln!(
                text,
                "  {:<9}{:>13}{:>12}{:>12}{:>12}{:>9}{:>10}",
                "client", "requests/s", "p50 us", "p99 us", "max us", "misses", "errors"
            );
            for (phase, seen) in ["before", "during", "between", "after"].iter().zip(&outcome.seen)
            {
                let _ = writeln!(
                    text,
                    "  {phase:<9}{:>13}{:>12}{:>12}{:>12}{:>9}{:>10}",
                    grouped(seen.requests_per_s),
                    grouped(seen.p50_us),
                    grouped(seen.p99_us),
                    grouped(seen.max_us),
                    grouped(seen.misses as f64),
                    seen.wrong + seen.errors.values().sum::<u64>()
                );
            }
            let list = |counts: &mut dyn Iterator<Item = (String, u64)>| {
                counts
                    .map(|(name, count)| format!("{name} {}", grouped(count as f64)))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let mut attackers =
                outcome.attackers.iter().map(|(name, count)| (name.clone(), *count));
            let _ = writeln!(text, "  attackers: {}", list(&mut attackers));
            let mut card =
                outcome.moved().into_iter().map(|(name, count)| (name.to_owned(), count));
            let _ = writeln!(text, "  card: {}", list(&mut card));
            for verdict in &outcome.verdicts {
                let mark = if verdict.passed { "pass" } else { "FAIL" };
                let _ = writeln!(text, "  {mark}  {}: {}", verdict.what, verdict.figures);
            }
            text.push('\n');
        }
        let setting = &self.setting;
        let _ = writeln!(
            text,
            "Seed {}. Linux {}, {} CPUs; {}. Card: {}.",
            setting.seed,
            setting.kernel,
            setting.cpus,
            setting.versions.join(", "),
            if setting.options.is_empty() {
                "as it comes".to_owned()
            } else {
                setting.options.join(" ")
            }
        );
        if setting.pause_ms > 0 {
            let _ = writeln!(
                text,
                "Between attack and quiet, the client paused for {} ms after each reply.",
                setting.pause_ms
            );
        }
        if setting.busy {
            let percent = setting.load_before * 100.0;
            let _ =
                writeln!(text, "Warning: {percent:.0} % of the machine was busy before the run.");
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn gauges(flows: u64, resident: u64) -> [Gauges; 2] {
        let counters =
            BTreeMap::from([("flows_now".to_owned(), flows), ("hits".to_owned(), resident)]);
        let gauges = Gauges { resident_bytes: resident << 20, mapped_bytes: 200 << 20, counters };
        [gauges.clone(), gauges]
    }

    fn seen() -> [Seen; PHASES] {
        std::array::from_fn(|_| Seen {
            seconds: 1.0,
            requests: 100,
            misses: 1,
            requests_per_s: 100.0,
            ..Seen::default()
        })
    }

    fn outcome(
        attack: AttackKind,
        after: u64,
        returned_s: Option<f64>,
        change: impl FnOnce(&mut [Seen; PHASES]),
    ) -> Outcome {
        let mut seen = seen();
        change(&mut seen);
        let moment = |at_s: f64| Moment {
            at_s,
            requests_per_s: 9.0,
            resident_bytes: 1 << 20,
            flows: 3,
            half_open: 1,
        };
        let gauges = [gauges(10, 100), gauges(5_000, 120), gauges(after, 121)];
        Outcome::new(
            attack,
            seen,
            gauges,
            vec![moment(0.5), moment(9.0)],
            [1.0, 4.0],
            returned_s,
            &Told::default(),
        )
    }

    pub(crate) fn report() -> Report {
        let setting = Setting {
            seconds: 3,
            pause_ms: 0,
            seed: 1,
            strength: Strength::default(),
            options: Vec::new(),
            cpus: 2,
            kernel: "6.18".into(),
            versions: vec!["nginx/1.22".into()],
            load_before: 0.5,
            busy: true,
        };
        let outcomes = AttackKind::ALL
            .into_iter()
            .map(|attack| outcome(attack, 12, Some(5.0), |_| {}))
            .collect();
        Report { setting, outcomes }
    }

    #[test]
    fn each_criterion_can_fail() {
        let kind = AttackKind::Idle;
        let failed = |outcome: Outcome| {
            let failed: Vec<String> = outcome
                .verdicts
                .into_iter()
                .filter(|verdict| !verdict.passed)
                .map(|verdict| verdict.what)
                .collect();
            failed.join(", ")
        };
        assert!(report().passed());
        assert_eq!(failed(outcome(kind, 12, Some(1.0), |seen| seen[1].requests = 1)), "hits go on");
        assert_eq!(
            failed(outcome(kind, 12, Some(1.0), |seen| seen[3].wrong = 1)),
            "every body is right"
        );
        let error = |seen: &mut [Seen; PHASES]| {
            seen[1].errors.insert("reset".into(), 1);
        };
        assert_eq!(failed(outcome(kind, 12, Some(1.0), error)), "the client meets no error");
        assert_eq!(failed(outcome(kind, 12, None, |_| {})), "nothing leaks");
        let mut large = outcome(kind, 12, Some(1.0), |_| {});
        large.most[1].resident_bytes = 300 << 20;
        large.verdicts = large.judge();
        assert_eq!(failed(large), "memory stays within its bound");
    }

    #[test]
    fn the_table_tells_what_failed() {
        let mut report = report();
        report.outcomes.push(outcome(AttackKind::Mutants, 12, None, |_| {}));
        let table = report.table();
        assert!(
            table.contains("FAIL  nothing leaks") && table.contains("50 % of the machine"),
            "{table}"
        );
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
