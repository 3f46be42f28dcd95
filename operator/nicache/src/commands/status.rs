//! `nicache status`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::StatusArgs;
use crate::control::{Request, Response, Status, ask};
use crate::live;

/// Prints the status of a running nicache.
pub fn execute(arguments: &StatusArgs) -> Result<ExitCode> {
    let (text, json) = match ask(arguments.target.name.as_deref(), &Request::Status)? {
        Response::Status(status) => (render(&status), serde_json::to_string(&status)?),
        Response::Forward(status) => (status.to_string(), serde_json::to_string(&status)?),
        Response::Serve(status) => (status.to_string(), serde_json::to_string(&status)?),
        Response::Nfs(figures) => (figures.to_string(), serde_json::to_string(&figures)?),
        _ => bail!("an unexpected response"),
    };
    if arguments.target.json {
        println!("{json}");
    } else {
        print!("{text}");
    }
    Ok(ExitCode::SUCCESS)
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
    let (used, all) = (live::bytes(counters.memory_used_bytes), live::bytes(counters.memory_bytes));
    line("memory", format!("{used} of {all} in {} entries", live::grouped(counters.entries)));
    let (to, from) = (live::bytes(counters.bus_to_host_bytes), live::bytes(counters.bus_from_host_bytes));
    line("bus", format!("{to} to the host, {from} from it"));
    for database in &status.databases {
        let is_kept =
            if database.in_step { "pages are kept" } else { "pages are not kept: nothing is heard of its relay" };
        let (events, changes) = (live::grouped(database.events), live::grouped(database.changes));
        let voided = live::grouped(database.voided);
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
        let requests = live::grouped(stranger.requests);
        line("not known", format!("{stranger} in {requests} requests: {}", stranger.advice()));
    }
    for (name, value) in counters.more.iter().filter(|(_, value)| **value > 0) {
        line("", format!("{name} {}", live::grouped(*value)));
    }
    text
}
