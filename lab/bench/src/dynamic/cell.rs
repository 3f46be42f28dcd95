//! One measurement: a subject, a page, and how often the page changes meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checker::Checker;
use super::configuration;
use super::cores::Cores;
use super::editor::Editor;
use super::fpm;
use super::oracle::{Clock, Log, version_in};
use super::page::Page;
use super::site::Site;
use super::subject::{Running, Subject};
use crate::wire::load::{Client, Totals};
use crate::wire::{CLIENT_CPU, SERVER_CPU};

/// Seconds of warm-up before each measurement.
const WARM_UP_SECONDS: u32 = 1;
/// Seconds of it before a page's first one: programs that have just started are slow, and a cache
/// may want to see a page several times.
const FIRST_WARM_UP_SECONDS: u32 = 4;
/// Seconds of further warm-up while a card has not stored the page. The end of a load cuts fills
/// off, so it is not too short.
const CARD_WARM_UP_SECONDS: u32 = 3;
/// How often there is such a warm-up at most.
const CARD_TRIES: u32 = 4;
/// Share of hits from which on the card has stored it.
const CARD_ANSWERS: f64 = 0.5;
/// Share of a CPU from which on it is called full.
pub(super) const FULL: f64 = 0.93;

/// What one measurement gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who answered.
    pub subject: Subject,
    /// What was asked for.
    pub page: Page,
    /// How often it was changed, by intention.
    pub edits_per_s: u32,
    /// When, from 0.
    pub round: usize,
    /// Replies to the load.
    pub requests: u64,
    /// Replies to the load per second.
    pub requests_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// Requests that PHP executed.
    pub executions: u64,
    /// Requests that PHP executed per second.
    pub executions_per_s: f64,
    /// CPU time of the subject's processes per request, the application's included.
    pub server_cpu_us: f64,
    /// CPU time of the whole machine per request.
    pub machine_cpu_us: f64,
    /// Busy share of the client's CPU, 0 to 1.
    pub client_busy: f64,
    /// Busy share of the serving side's CPU, 0 to 1.
    pub server_busy: f64,
    /// Edits that were made.
    pub edits: u64,
    /// Replies whose body was looked at.
    pub checked: u64,
    /// Checked replies that were stale.
    pub stale: u64,
    /// How long the shown version had been replaced when the request was sent, at worst.
    pub worst_stale_ms: f64,
    /// Replies with a version that could not be.
    pub impossible: u64,
    /// Share of requests that the card answered, 0 to 1, if there is a card.
    pub hit_share: Option<f64>,
    /// Requests per second of a file with the page's bytes, if there is a card and the page does
    /// not change.
    pub file_requests_per_s: Option<f64>,
    /// Why the card did not answer others, and what it did not store, most frequent first.
    pub card_reasons: Vec<(String, u64)>,
}

/// A page of a subject that serves, with what changes it.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    /// Which page.
    pub page: Page,
    /// The text of its file.
    pub template: &'a str,
    /// All its edits so far.
    pub log: &'a mut Log,
    /// The clock by which edits and replies are put in order.
    pub clock: Clock,
    /// Its site.
    pub site: &'a Site,
    /// The load.
    pub load: &'a Client,
    /// Whether it has been measured before, since the subject was started.
    pub is_warm: bool,
}

impl Bench<'_> {
    /// Sees to it that the page shows a version that the log knows.
    ///
    /// # Errors
    /// The page does not come, or shows another version after the change.
    pub(super) fn prepare(&mut self, running: &mut Running) -> Result<Editor> {
        // A database may start later than the web server. Asked for by another name, so no
        // cache has the page before it is known.
        let path = self.page.path();
        let other = format!("{path}{}start=1", if path.contains('?') { '&' } else { '?' });
        running.wait_for(&other, |reply| {
            version_in(&reply.body).is_some() || self.page == Page::WordPressFront
        })?;
        let mut editor = Editor::open(self.page, self.site.folder(), self.template, CLIENT_CPU)?;
        let version = self.log.next_version();
        self.log.extend([editor.edit(version, &self.clock)?]);
        running.wait_for(path, |reply| version_in(&reply.body) == Some(version))?;
        Ok(editor)
    }

    /// Warms up, and measures while the page changes `rate` times per second.
    ///
    /// # Errors
    /// Requests or edits failed.
    pub(super) fn measure(
        &mut self,
        running: &Running,
        subject: Subject,
        editor: &mut Editor,
        rate: u32,
        round: usize,
        seconds: u32,
    ) -> Result<Sample> {
        let url = format!("http://{}{}", running.server().ip(), self.page.path());
        let load = |seconds| {
            self.load.run(running.client(), &url, 1, self.page.connections(), false, seconds)
        };
        // A page may be so slow that there is not one reply yet. What is wrong for good shows in
        // the measurement.
        let warm_up = |seconds| drop(load(seconds));
        if !self.is_warm {
            warm_up(FIRST_WARM_UP_SECONDS);
            wait_for_card(running, || warm_up(CARD_WARM_UP_SECONDS))?;
            self.is_warm = true;
        }
        warm_up(WARM_UP_SECONDS);

        let executed = fpm::accepted(&self.site.php())?;
        let counters = running.counters()?;
        let cpu = running.cpu_time()?;
        let cores = Cores::now([CLIENT_CPU, SERVER_CPU])?;
        let checker = Checker::start(
            running.client(),
            running.server(),
            self.page.path(),
            CLIENT_CPU,
            self.clock,
        );
        let stop = Arc::new(AtomicBool::new(false));
        let (first, clock) = (self.log.next_version(), self.clock);
        let (totals, edits) = std::thread::scope(|scope| {
            let editing = scope.spawn(|| editor.run(rate, first, &clock, &stop));
            let totals = load(seconds);
            stop.store(true, Ordering::Relaxed);
            (totals, editing.join().expect("an editor does not panic"))
        });
        let [client_busy, server_busy] = Cores::now([CLIENT_CPU, SERVER_CPU])?.shares_since(&cores);
        let observations = checker.finish();
        let cpu = running.cpu_time()?.since(&cpu);
        let (hit_share, card_reasons) = match (counters, running.counters()?) {
            (Some(before), Some(after)) => card_account(&before, &after),
            _ => (None, Vec::new()),
        };
        // The question itself is one of those that are counted.
        let executions = fpm::accepted(&self.site.php())?.saturating_sub(executed + 1);
        let edits = edits.context("an edit")?;
        self.log.extend(edits.iter().copied());
        let (totals, observations) = (totals?, observations?);
        let is_twin_measured = subject == Subject::Nicache && rate == 0;
        let file_requests_per_s =
            is_twin_measured.then(|| self.measure_file(running, seconds)).transpose()?;
        ensure!(!observations.is_empty(), "the checking client got no reply");

        let findings = self.log.judge(&observations);
        let Totals { requests, microseconds, p50_us, p99_us, .. } = totals;
        let measured_s = microseconds.max(1) as f64 / 1e6;
        // The checking client's requests cost what all others cost.
        let all = requests as f64 + findings.checked as f64;
        Ok(Sample {
            subject,
            page: self.page,
            edits_per_s: rate,
            round,
            requests,
            requests_per_s: requests as f64 / measured_s,
            p50_us: p50_us as f64,
            p99_us: p99_us as f64,
            executions,
            executions_per_s: executions as f64 / measured_s,
            server_cpu_us: cpu.processes_us / all,
            machine_cpu_us: cpu.machine_us / all,
            client_busy,
            server_busy,
            edits: edits.len() as u64,
            checked: findings.checked,
            stale: findings.stale,
            worst_stale_ms: findings.worst_ns as f64 / 1e6,
            impossible: findings.impossible,
            hit_share,
            file_requests_per_s,
            card_reasons,
        })
    }

    /// Requests per second of a file with the page's bytes.
    fn measure_file(&self, running: &Running, seconds: u32) -> Result<f64> {
        let (server, path) = (running.server(), self.page.path());
        let page = running
            .client()
            .run(move || nicache_applications::Client::new(server).get(path))
            .context("the page's bytes")?;
        std::fs::write(self.site.folder().join(configuration::FILE), &page.body)?;
        let url = format!("http://{}{}", server.ip(), configuration::FILE_PATH);
        let load = |seconds| {
            self.load.run(running.client(), &url, 1, self.page.connections(), false, seconds)
        };
        load(FIRST_WARM_UP_SECONDS)?;
        let totals = load(seconds)?;
        Ok(totals.requests as f64 * 1e6 / totals.microseconds.max(1) as f64)
    }
}

/// Repeats a load until the card answers, if there is one: it stores a dynamic page when it has
/// seen it twice alike, which takes a slow page seconds. A page that it does not store is measured
/// as it is.
fn wait_for_card(running: &Running, load: impl Fn()) -> Result<()> {
    for _ in 0..CARD_TRIES {
        let Some(before) = running.counters()? else { break };
        load();
        let after = running.counters()?.unwrap_or_default();
        if card_account(&before, &after).0.is_some_and(|share| share > CARD_ANSWERS) {
            break;
        }
    }
    Ok(())
}

/// Share of hits, and the reasons against others, between two moments.
fn card_account(before: &Value, after: &Value) -> (Option<f64>, Vec<(String, u64)>) {
    let grown = |name: &str| {
        after[name].as_u64().unwrap_or(0).saturating_sub(before[name].as_u64().unwrap_or(0))
    };
    let (hits, others) = (grown("hits"), grown("misses") + grown("bypasses"));
    let share = (hits + others > 0).then(|| hits as f64 / (hits + others) as f64);
    let telling = |name: &str| {
        ["bypass_", "fill", "refus", "purge"].iter().any(|start| name.starts_with(start))
    };
    let names = after.as_object().into_iter().flat_map(|counters| counters.keys());
    let mut reasons: Vec<(String, u64)> = names
        .filter(|name| telling(name))
        .map(|name| (name.clone(), grown(name)))
        .filter(|(_, count)| *count > 0)
        .collect();
    reasons.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    (share, reasons)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_has_grown_counts() {
        let before = json!({ "hits": 10, "misses": 5, "bypasses": 1, "fill_refused": 2,
            "bypass_x": 7, "not_caching": null });
        let after = json!({ "hits": 70, "misses": 20, "bypasses": 6, "fill_refused": 3,
            "bypass_x": 12, "not_caching": null });
        let (share, reasons) = card_account(&before, &after);
        assert_eq!(share, Some(0.75));
        assert_eq!(reasons, [("bypass_x".to_owned(), 5), ("fill_refused".to_owned(), 1)]);
        assert_eq!(card_account(&after, &after), (None, Vec::new()));
    }
}
