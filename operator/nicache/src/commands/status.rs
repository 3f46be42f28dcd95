//! `nicache status`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::StatusArgs;
use crate::control::{Counters, Request, Response, Status, ask, unexpected};
use crate::engine::meaning;
use crate::{live, numbers, words};

/// Prints the status of a running nicache.
pub(super) fn execute(arguments: &StatusArgs) -> Result<ExitCode> {
    let (text, json) = match ask(arguments.target.name.as_deref(), &Request::Status)? {
        Response::Status(status) => (render(&status), serde_json::to_string(&status)?),
        Response::Forward(status) => (status.to_string(), serde_json::to_string(&status)?),
        Response::Serve(status) => (status.to_string(), serde_json::to_string(&status)?),
        Response::Nfs(figures) => (figures.to_string(), serde_json::to_string(&figures)?),
        _ => return Err(unexpected()),
    };
    if arguments.target.json {
        println!("{json}");
    } else {
        print!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Reasons that were counted, those first that were most often.
fn reasons(text: &mut String, title: &str, counters: &Counters, prefixes: &[&str]) {
    let is_one = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let mut counted: Vec<(&String, u64)> = counters
        .more
        .iter()
        .filter(|(name, value)| is_one(name) && **value > 0)
        .map(|(name, value)| (name, *value))
        .collect();
    if counted.is_empty() {
        return;
    }
    counted.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    let _ = writeln!(text, "\n{title}");
    for (name, value) in counted {
        let words = words::of(name);
        let because =
            words.map_or_else(|| name.replace('_', " "), |words| words.because.to_owned());
        let _ = writeln!(text, "  {:>14}  {because} ({name})", numbers::grouped(value));
        if let Some(advice) = words.and_then(|words| words.advice) {
            let _ = writeln!(text, "  {:>14}  {advice}", "");
        }
    }
}

fn render(status: &Status) -> String {
    let counters = &status.counters;
    let list = |items: Vec<String>| {
        if items.is_empty() { "none".to_owned() } else { items.join(", ") }
    };
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    line("name", format!("{} (process {}, up {} s)", status.name, status.pid, status.uptime_s));
    line("server", format!("{} (process {})", status.server.join(" "), status.server_pid));
    for command in &status.with {
        line("with", command.join(" "));
    }
    line("address", format!("{} by way of {} ({})", status.url, status.interface, status.gateway));
    line("published", list(status.published.clone()));
    if let Some(admin) = status.admin {
        line("admin", format!("http://{admin}/"));
    }
    line("shared", list(status.shared.iter().map(ToString::to_string).collect()));
    line("requests", live::render(counters));
    let (used, all) =
        (numbers::bytes(counters.memory_used_bytes), numbers::bytes(counters.memory_bytes));
    line("memory", format!("{used} of {all} in {} entries", numbers::grouped(counters.entries)));
    let (to, from) =
        (numbers::bytes(counters.bus_to_host_bytes), numbers::bytes(counters.bus_from_host_bytes));
    line("bus", format!("{to} to the host, {from} from it"));
    for database in &status.databases {
        let is_kept = if database.in_step {
            "pages are kept"
        } else {
            "pages are not kept: nothing is heard of its relay"
        };
        let (events, changes) =
            (numbers::grouped(database.events), numbers::grouped(database.changes));
        let voided = numbers::grouped(database.voided);
        let told = format!("{events} events, {changes} changes, voided {voided} times");
        line("database", format!("{}: {is_kept}; {told}", database.database));
    }
    if let Some(reason) = &status.watch_unavailable {
        line("watcher", reason.clone());
    }
    for lack in &status.watch_lacks {
        line("not kept", format!("{lack} (`nicache check` says more)"));
    }
    for stranger in &counters.unknown_names {
        let requests = numbers::grouped(stranger.requests);
        line("not known", format!("{stranger} in {requests} requests: {}", stranger.advice()));
    }
    if let Some(hint) = &status.hint {
        line("hint", hint.clone());
    }
    reasons(&mut text, "Why requests went to the server", counters, &["bypass_"]);
    let not_kept = ["fill_refused_", "fill_not_shared_", "fill_aborted_"];
    reasons(&mut text, "Why replies were not kept", counters, &not_kept);
    let is_reason =
        |name: &str| ["bypass_"].iter().chain(&not_kept).any(|prefix| name.starts_with(prefix));
    let others = counters.more.iter().filter(|(name, value)| **value > 0 && !is_reason(name));
    let _ = writeln!(text, "\nCounters since the card's start");
    for (name, value) in others {
        let meaning = meaning(name).unwrap_or_default();
        let _ = writeln!(text, "  {:>14}  {name}: {meaning}", numbers::grouped(*value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_explained() {
        let mut counters = Counters::default();
        for name in words::all_names().into_iter().filter(|name| name.contains('_')) {
            counters.more.insert(name, 1234);
        }
        counters.more.insert("hits_dynamic".into(), 7);
        let mut text = String::new();
        reasons(&mut text, "Why", &counters, &["bypass_", "fill_"]);
        assert_eq!(text.matches("1 234").count(), counters.more.len() - 1, "{text}");
        assert!(
            text.contains("it carries a cookie, so the page may be for one client (bypass_cookie)"),
            "{text}"
        );
        assert!(text.contains("for those of analytics, --ignore-cookie @analytics"), "{text}");
        assert_eq!(meaning("hits_dynamic").as_deref(), Some("Hits of dynamic replies."));
    }
}
