//! `nicache check CONFIG`: each fault of a configuration file, with its line and what to do, and
//! what would be served and followed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::document_roots::{DocumentRoot, document_roots};
use crate::faults::{Fault, read};
use crate::numbers;
use crate::options::{RunPlan, WatchKind};
use crate::supervisor::requirements::is_in_path;

/// What is said of the file.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    /// Because of each of them nicache would not start.
    faults: Vec<FaultReport>,
    /// It would start, but maybe not do what is meant.
    warnings: Vec<FaultReport>,
    /// What would be done, each line a sentence. Empty if there are faults.
    does: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FaultReport {
    line: Option<usize>,
    key: String,
    what: String,
}

impl From<Fault> for FaultReport {
    fn from(fault: Fault) -> Self {
        Self { line: fault.line, key: fault.key, what: fault.what }
    }
}

/// Says it. The status is 1 if there are faults.
pub(super) fn execute(file: &Path, json: bool) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the configuration file {}", file.display()))?;
    let report = check(file, &text);
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", render(&report));
    }
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(file: &Path, text: &str) -> Report {
    let reading = read(text);
    let line_of = |key: &str| {
        let is_it = |line: &str| {
            line.trim_start()
                .strip_prefix(key)
                .is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        text.lines().position(is_it).map(|at| at + 1)
    };
    let fault =
        |key: &str, what: String| FaultReport { line: line_of(key), key: key.to_owned(), what };
    let mut report = Report {
        file: file.display().to_string(),
        faults: reading.faults.into_iter().map(Into::into).collect(),
        warnings: Vec::new(),
        does: Vec::new(),
    };
    let Some(plan) = reading.plan else { return report };
    for (key, program) in
        plan.server.first().map(|program| ("server", program)).into_iter().chain(
            plan.with.iter().filter_map(|words| words.first()).map(|program| ("with", program)),
        )
    {
        if !is_in_path(program) {
            report.faults.push(fault(
                key,
                format!("the program `{program}` was not found: is it installed, and in PATH?"),
            ));
        }
    }
    for (key, path) in [("access-log", &plan.access_log), ("pcap", &plan.pcap)] {
        let folder = path
            .as_ref()
            .and_then(|path| path.parent())
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            report
                .faults
                .push(fault(key, format!("there is no folder {}: make it", folder.display())));
        }
    }
    let interfaces = plan.wire.as_ref().map(|wire| ("wire", wire.interface.clone()));
    for (key, interface) in
        interfaces.into_iter().chain(reading.host.clone().map(|host| ("host", host)))
    {
        if !Path::new("/sys/class/net").join(&interface).exists() {
            report
                .faults
                .push(fault(key, format!("there is no interface {interface} on this machine")));
        }
    }
    for folder in plan.data_folders.iter().filter(|folder| !folder.is_dir()) {
        report
            .warnings
            .push(fault("data-folder", format!("there is no folder {} yet", folder.display())));
    }
    for files in &plan.session_files {
        let folder = files.parent().filter(|folder| !folder.is_dir());
        if let Some(folder) = folder {
            report.warnings.push(fault(
                "session-files",
                format!("there is no folder {} yet", folder.display()),
            ));
        }
    }
    if plan.ignore_cookies.iter().any(|cookie| cookie == "*") {
        let what = "every cookie is ignored: one visitor's page can be shown to another".to_owned();
        report.warnings.push(fault("ignore-cookie", what));
    }
    let roots = match plan.watch {
        WatchKind::Kernel => document_roots(&plan.server, &plan.with),
        WatchKind::Preload => Vec::new(),
    };
    for root in &roots {
        if let Some(kind) = &root.unwatched {
            let what = format!(
                "{} is on {kind}, where nobody sees every change: nothing of it is kept (docs/filesystems.md)",
                root.path.display()
            );
            report.warnings.push(fault("server", what));
        }
    }
    if report.faults.is_empty() {
        report.does = does(&plan, reading.host.as_deref(), &roots);
    }
    report
}

fn does(plan: &RunPlan, host: Option<&str>, roots: &[DocumentRoot]) -> Vec<String> {
    let list = |items: Vec<String>| items.join(", ");
    let ports = list(plan.http_ports.iter().map(u16::to_string).collect());
    let mut does = Vec::new();
    match (host, &plan.wire) {
        (Some(host), _) => {
            does.push(format!("stands in front of the server behind {host} (nicache attach)"));
        }
        (None, _) if plan.server.is_empty() => {
            does.push("runs nginx with the demonstration site: no `server` is set".to_owned());
        }
        (None, _) => does.push(format!("runs {}", plan.server.join(" "))),
    }
    for command in &plan.with {
        does.push(format!("beside it: {}", command.join(" ")));
    }
    does.push(format!("answers plain HTTP on port {ports}; other ports pass"));
    if let Some(wire) = &plan.wire {
        let addresses = list(wire.addresses.iter().map(ToString::to_string).collect());
        let at = if addresses.is_empty() { String::new() } else { format!(", at {addresses}") };
        does.push(format!("clients come by the interface {}{at}", wire.interface));
    } else if host.is_none() {
        does.push(match plan.publish.is_empty() {
            true => {
                "is reached from this machine only: nothing is published (--publish)".to_owned()
            }
            false => format!(
                "published at {}",
                list(plan.publish.iter().map(ToString::to_string).collect())
            ),
        });
    }
    let memory = numbers::bytes(plan.memory_bytes * u64::from(plan.cards));
    let watch = match plan.watch {
        WatchKind::Kernel => "the kernel watches what the server reads",
        WatchKind::Preload => "a library in the server's programs watches",
    };
    does.push(format!("keeps replies in {memory}; {watch}"));
    let rechecks = plan.rechecks;
    does.push(match rechecks.first.0 {
        0 => "keeps files alone: dynamic pages go to the server".to_owned(),
        _ => format!(
            "keeps files and dynamic pages; what nobody can see is {} old at most at first, {} later",
            rechecks.first,
            rechecks.first.max(rechecks.most)
        ),
    });
    for root in roots.iter().filter(|root| root.unwatched.is_none()) {
        does.push(format!("follows changes below {}", root.path.display()));
    }
    for path in &plan.paths {
        let what = match (path.cache, path.recheck) {
            (Some(false), _) => "always to the server".to_owned(),
            (_, Some(recheck)) => {
                format!("kept, what nobody can see is {recheck} old at most at first")
            }
            _ => "kept, with settings of its own".to_owned(),
        };
        does.push(format!("{}{}: {what}", path.host.as_deref().unwrap_or_default(), path.pattern));
    }
    does
}

fn render(report: &Report) -> String {
    let mut text = format!("{}\n", report.file);
    for (list, kind) in [(&report.faults, ""), (&report.warnings, "warning: ")] {
        for fault in list {
            let line = fault.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let key = if fault.key.is_empty() { String::new() } else { format!("{}: ", fault.key) };
            let mut lines = fault.what.lines();
            let _ = writeln!(text, "  {line}{kind}{key}{}", lines.next().unwrap_or_default());
            for more in lines {
                let _ = writeln!(text, "      {more}");
            }
        }
    }
    for line in &report.does {
        let _ = writeln!(text, "  {line}");
    }
    match report.faults.len() {
        0 => text.push_str("nicache would start so\n"),
        1 => text.push_str("1 fault: nicache would not start\n"),
        faults => text.push_str(&format!("{faults} faults: nicache would not start\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_machine() {
        let text = "server = ['no-such-server']\naccess-log = '/no/such/log'\nsession-files = ['/no/such/sess_*']\n";
        let report = check(Path::new("x.toml"), text);
        let told: Vec<_> =
            report.faults.iter().map(|fault| (fault.line, fault.key.as_str())).collect();
        assert_eq!(told, [(Some(1), "server"), (Some(2), "access-log")]);
        assert_eq!(report.warnings[0].line, Some(3));
        let text = render(&report);
        assert!(
            text.contains("line 2: access-log: there is no folder /no/such")
                && text.contains("2 faults"),
            "{text}"
        );
    }

    #[test]
    fn what_would_be_done() {
        let text = "server = ['sleep', '1']\npublish = ['0.0.0.0:80']\nmemory = '1G'\n[[path]]\npattern = '/admin*'\ncache = false\n";
        let text = render(&check(Path::new("x.toml"), text));
        for part in [
            "runs sleep 1",
            "published at 0.0.0.0:80",
            "1.1 GB",
            "/admin*: always to the server",
            "would start",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
