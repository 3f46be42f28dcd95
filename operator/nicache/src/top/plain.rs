//! `--once` and `--json`: for programs, and where no terminal is.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use nicache_admin::Change;

use super::model::Model;
use super::source;
use super::text::{bytes, percent, rate, shown, span};

/// Lines of a list at most.
const LINES_MAX: usize = 10;

/// Prints what happens in one interval, or in each until nobody reads.
///
/// # Errors
/// No nicache answers (any longer).
pub(super) fn run(
    name: Option<&str>,
    interval: Duration,
    once: bool,
    json: bool,
) -> Result<ExitCode> {
    let samples = source::start(name, interval)?;
    let mut model = Model::default();
    for sample in samples {
        let sample = match sample {
            Ok(sample) => *sample,
            Err(error) => bail!("{error}"),
        };
        model.handle_sample(Ok(sample));
        let Some(change) = &model.change else { continue };
        let text = if json { line(&model, change)? } else { summary(&model, change) };
        let mut out = std::io::stdout().lock();
        // Nobody reads any longer: that is a way to end it.
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() || once {
            return Ok(ExitCode::SUCCESS);
        }
    }
    bail!("the thread that takes samples has ended")
}

fn line(model: &Model, change: &Change) -> Result<String> {
    let line = serde_json::json!({ "change": change, "sample": model.now });
    Ok(format!("{}\n", serde_json::to_string(&line)?))
}

fn summary(model: &Model, change: &Change) -> String {
    let Some(sample) = &model.now else { return String::new() };
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    let up = span(Duration::from_millis(sample.uptime_ms));
    line("name", format!("{} (process {}, up {up})", shown(&sample.name), sample.pid));
    line("serves", format!("{} at {}", shown(&sample.serves), sample.urls.join(" ")));
    let state = match (&sample.watcher.unavailable, &sample.not_caching) {
        _ if sample.bypass_on => "bypass on: everything passes to the server".to_owned(),
        (Some(reason), _) | (None, Some(reason)) => format!("not caching: {}", shown(reason)),
        (None, None) => "caching".to_owned(),
    };
    line("state", state);
    let rates = [change.hits_per_s, change.misses_per_s, change.bypasses_per_s].map(rate);
    let [hits, misses, bypasses] = rates;
    line(
        "per second",
        format!(
            "{} requests: {hits} hits, {misses} misses, {bypasses} bypasses",
            rate(change.requests_per_s)
        ),
    );
    line("hit rate", percent(change.hit_rate));
    line("from card", format!("{}/s", bytes(change.sent_bytes_per_s)));
    let classes = change.bus_bytes_per_s.iter();
    let classes = classes
        .map(|(class, value)| format!("{} {}/s", shown(&class.replace('_', " ")), bytes(*value)));
    line("bus", classes.collect::<Vec<_>>().join(", "));
    let total = sample.total();
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let memory = [total.memory_used_bytes, total.memory_bytes].map(|value| bytes(value as f64));
    line(
        "memory",
        format!(
            "{} of {} in {} entries",
            memory[0],
            memory[1],
            crate::numbers::grouped(total.entries)
        ),
    );
    for object in model.objects().into_iter().take(LINES_MAX) {
        line(
            "object",
            format!(
                "{:>8}/s {}{}",
                rate(object.hits_per_s),
                shown(&object.host),
                shown(&object.target)
            ),
        );
    }
    for reason in model.reasons().into_iter().take(LINES_MAX) {
        line(
            "reason",
            format!(
                "{:>8}/s {} ({}), {} so far{}",
                rate(reason.per_s),
                reason.name,
                reason.kind,
                reason.count,
                reason.because.map(|because| format!(": {because}")).unwrap_or_default()
            ),
        );
    }
    text
}
