//! `nicache demo`: a real application behind the card, measured with and without it, and changed.

mod proof;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_applications::{Application, Client, Settings, Site};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::prove::{Proof, follow};
use crate::behind::Behind;
use crate::cli::{DemoArgs, HitKind};
use crate::growth::Growth;
use nicache::asking::AskedRequest;
use nicache::control::{
    Answer, Counters, Question, Request, Response, ask, ask_server_status, unexpected,
};
use nicache::page::PageName;

const PORT: u16 = 80;
/// How long databases and the like may take after the web server listens.
const START: Duration = Duration::from_secs(60);
/// Requests before a measurement, so caches of the application itself are warm.
const WARM_UP: u32 = 5;
/// How long the card may take until it answers a page, before it is measured all the same. Longer
/// than a busy machine needs for two executions.
const WARM_UP_MAX: Duration = Duration::from_secs(20);
/// Hits in a row after which a page is warm.
const WARM_HITS: u64 = 3;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Prepares, runs, measures and changes an application.
pub(super) fn execute(arguments: &DemoArgs) -> Result<ExitCode> {
    if !(0.0..=1000.0).contains(&arguments.edits_per_second) {
        bail!("edits-per-second: between 0 and 1000");
    }
    let application = arguments.application;
    install(application)?;
    say(arguments, &format!("preparing {application}: {}", application.description()));
    let settings =
        Settings { port: PORT, primary: arguments.prove.is_some(), ..Settings::default() };
    let site = application.prepare_with(&settings)?;
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    let run = run_options(arguments, &site)?;
    let mut behind = Behind::start(&run, site.with(), site.server())?;
    wait_for_front_page(&site, &mut behind, &asked)?;
    say(
        arguments,
        &format!("{} is served through the card {}", behind.status.url, behind.status.interface),
    );
    say(arguments, &format!("its files are in {}", site.folder().display()));
    let Some(report) = measure_all(arguments, &site, &behind, &asked)? else {
        return Ok(ExitCode::SUCCESS);
    };
    if !arguments.json && !report.pages.is_empty() {
        print(report.render().trim_end());
    }
    let proof = match arguments.prove {
        Some(duration) => {
            Some(prove(arguments, &site, &behind, Duration::from_millis(duration.0), &asked)?)
        }
        None => None,
    };
    if arguments.json {
        let mut all = serde_json::to_value(&report)?;
        if let Some(proof) = &proof {
            all["proof"] = proof.to_json()?;
        }
        print(&all.to_string());
    } else if let Some(proof) = &proof {
        print(proof.render().trim_end());
    }
    if report.edit.as_ref().is_some_and(|edit| !edit.visible) {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(proof) = proof.filter(|proof| !proof.is_proven()) {
        return Ok(proof.status());
    }
    if !arguments.once {
        say(arguments, "it goes on until Ctrl-C");
        serve(&mut behind, &asked)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn install(application: Application) -> Result<()> {
    let missing = application.missing_packages();
    if !missing.is_empty() {
        eprintln!("installing {} (apt-get; no service is started)", missing.join(" "));
    }
    application.install()
}

/// With the application's own settings as a configuration file, unless there is one already.
fn run_options(arguments: &DemoArgs, site: &Site) -> Result<Vec<String>> {
    let mut options = arguments.run.clone();
    let is_own = |option: &String| option == "--config" || option.starts_with("--config=");
    if site.configuration().is_empty() || options.iter().any(is_own) {
        return Ok(options);
    }
    let file = site.folder().join("nicache.toml");
    std::fs::write(&file, site.configuration())
        .with_context(|| format!("cannot write {}", file.display()))?;
    say(
        arguments,
        &format!("settings of nicache ({}):\n\n{}", file.display(), site.configuration()),
    );
    options.push(format!("--config={}", file.display()));
    Ok(options)
}

fn wait_for_front_page(site: &Site, behind: &mut Behind, asked: &AtomicBool) -> Result<()> {
    let page = &site.pages()[0];
    let begun = Instant::now();
    loop {
        let reply = Client::new(behind.server()).get(&page.path);
        if reply
            .as_ref()
            .is_ok_and(|reply| reply.status == 200 && reply.text().contains(&page.shows))
        {
            return Ok(());
        }
        if behind.ended()?.is_some() {
            bail!("`nicache run` ended; its own message is above");
        }
        if begun.elapsed() > START || asked.load(Ordering::Relaxed) {
            let shown = reply.map_or_else(
                |error| format!("{error:#}"),
                |reply| format!("status {}", reply.status),
            );
            bail!(
                "the front page was not there within {} s: {shown}; see {}",
                begun.elapsed().as_secs(),
                site.folder().join("log").display()
            );
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn prove(
    arguments: &DemoArgs,
    site: &Site,
    behind: &Behind,
    duration: Duration,
    asked: &Arc<AtomicBool>,
) -> Result<Proof> {
    say(arguments, &format!("reading for {} s while everything is changed", duration.as_secs()));
    let plan = proof::plan(
        site,
        behind.server(),
        duration,
        arguments.edits_per_second,
        asked,
        Arc::new(behind.namespace()?),
    )?;
    let growth = Growth::begin(Some(&behind.status.name))?;
    let report = follow(plan)?;
    Ok(Proof::new(report, growth.end(), Some(HitKind::Dynamic)))
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
struct Report {
    application: &'static str,
    url: String,
    pages: Vec<PageReport>,
    /// With measurements only.
    #[serde(skip_serializing_if = "Option::is_none")]
    edit: Option<EditReport>,
}

#[derive(Debug, Serialize)]
struct PageReport {
    path: String,
    about: &'static str,
    bytes: usize,
    /// With the card's cache bypassed.
    server: Measurement,
    /// With it.
    card: Measurement,
    /// Why the card answered hardly any request, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_few_hits: Option<String>,
}

/// One connection, one request at a time.
#[derive(Debug, Serialize)]
struct Measurement {
    requests: usize,
    per_second: f64,
    median_us: f64,
    /// Requests that the card answered.
    hits: u64,
}

#[derive(Debug, Serialize)]
struct EditReport {
    name: &'static str,
    path: String,
    marker: String,
    /// Whether the very next reply showed it.
    visible: bool,
}

/// `None`: Ctrl-C.
fn measure_all(
    arguments: &DemoArgs,
    site: &Site,
    behind: &Behind,
    asked: &AtomicBool,
) -> Result<Option<Report>> {
    let time = Duration::from_secs(arguments.seconds.into());
    let mut pages = Vec::new();
    let measured = if time.is_zero() { 0 } else { 2 };
    for page in &site.pages()[..measured] {
        say(
            arguments,
            &format!(
                "measuring {} for {} s, and again with the card's cache",
                page.path, arguments.seconds
            ),
        );
        let mut measured = Vec::new();
        let mut bytes = 0;
        for bypass in [true, false] {
            set_bypass(behind, bypass)?;
            let (measurement, body) = measure(behind, &page.path, time, bypass, asked)?;
            if asked.load(Ordering::Relaxed) {
                return Ok(None);
            }
            measured.push(measurement);
            bytes = body;
        }
        let (card, server) = (measured.pop(), measured.pop());
        let (Some(card), Some(server)) = (card, server) else {
            bail!("two measurements were made")
        };
        let few = card.requests as u64 / 2;
        let why_few_hits = if card.hits <= few { why(behind, &page.path)? } else { None };
        pages.push(PageReport {
            path: page.path.clone(),
            about: page.about,
            bytes,
            server,
            card,
            why_few_hits,
        });
    }
    let edit = (!time.is_zero()).then(|| edit(site, behind)).transpose()?;
    Ok(Some(Report {
        application: site.application().name(),
        url: behind.status.url.clone(),
        pages,
        edit,
    }))
}

/// The measurement, and the size of the body.
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn measure(
    behind: &Behind,
    path: &str,
    time: Duration,
    bypass: bool,
    asked: &AtomicBool,
) -> Result<(Measurement, usize)> {
    let mut client = Client::new(behind.server());
    let mut bytes = 0;
    for _ in 0..WARM_UP {
        bytes = client.get(path)?.body.len();
    }
    if !bypass {
        warm(&mut client, behind, path, asked)?;
    }
    let hits = counters(behind)?.hits;
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < time && !asked.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let reply = client.get(path)?;
        times.push(sent.elapsed());
        if reply.status != 200 {
            bail!("{path}: status {}", reply.status);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let measurement = Measurement {
        requests: times.len(),
        per_second: times.len() as f64 / seconds,
        median_us: median.as_secs_f64() * 1e6,
        hits: counters(behind)?.hits.saturating_sub(hits),
    };
    Ok((measurement, bytes))
}

/// Asks for a page until the card answers it, or not in time.
fn warm(client: &mut Client, behind: &Behind, path: &str, asked: &AtomicBool) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < WARM_UP_MAX && !asked.load(Ordering::Relaxed) {
        let before = counters(behind)?.hits;
        for _ in 0..WARM_HITS {
            client.get(path)?;
        }
        if counters(behind)?.hits >= before + WARM_HITS {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Why the card does not answer a request of ours for a page.
fn why(behind: &Behind, path: &str) -> Result<Option<String>> {
    let page = PageName::parse(path)?;
    let requests = vec![AskedRequest::of_fields(&page, &[], false)?];
    match ask(Some(&behind.status.name), &Request::Why { page, requests, path: None })? {
        Response::Why(report) => Ok(nicache::why_not_kept(&report)),
        _ => Err(unexpected()),
    }
}

/// Changes something, and looks at once.
fn edit(site: &Site, behind: &Behind) -> Result<EditReport> {
    let edit = site
        .edits()
        .iter()
        .find(|edit| edit.delay().is_zero())
        .context("there is nothing to edit")?;
    let mut client = Client::new(behind.server());
    // As somebody who has just looked at it, so there is an old page that could be shown.
    client.get(edit.path())?;
    let marker = edit.make(behind.server())?;
    let visible = client.get(edit.path())?.text().contains(&marker);
    Ok(EditReport { name: edit.name(), path: edit.path().to_owned(), marker, visible })
}

fn counters(behind: &Behind) -> Result<Counters> {
    Ok(ask_server_status(Some(&behind.status.name))?.counters)
}

fn set_bypass(behind: &Behind, on: bool) -> Result<()> {
    match ask(Some(&behind.status.name), &Request::Card { question: Question::Bypass { on } })? {
        Response::Card { answer: Answer::Bypass { on: now } } if now == on => Ok(()),
        _ => Err(unexpected()),
    }
}

/// Until Ctrl-C, or until the run ends by itself.
fn serve(behind: &mut Behind, asked: &AtomicBool) -> Result<()> {
    while !asked.load(Ordering::Relaxed) {
        if behind.ended()?.is_some() {
            bail!("`nicache run` ended; its own message is above");
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

impl Report {
    fn render(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:<32} {:>10}  {:>11} {:>11}  {:>11} {:>11}  {:>7}",
            "page", "bytes", "server", "", "with card", "", "hits"
        );
        for page in &self.pages {
            let (server, card) = (&page.server, &page.card);
            let share = 100.0 * ratio(card.hits, card.requests);
            let _ = writeln!(
                text,
                "{:<32} {:>10}  {:>9.0}/s {:>8.0} µs  {:>9.0}/s {:>8.0} µs  {share:>5.0} %",
                page.path,
                page.bytes,
                server.per_second,
                server.median_us,
                card.per_second,
                card.median_us
            );
            if let Some(why) = &page.why_few_hits {
                let _ = writeln!(text, "    few hits, because {why}");
            }
        }
        let Some(edit) = &self.edit else { return text };
        let seen = if edit.visible {
            "the very next reply showed it"
        } else {
            "THE NEXT REPLY DID NOT SHOW IT"
        };
        let _ = writeln!(text, "edit `{}` of {}: {} ({})", edit.name, edit.path, seen, edit.marker);
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown without decimals")]
fn ratio(hits: u64, requests: usize) -> f64 {
    if requests == 0 { 0.0 } else { hits as f64 / requests as f64 }
}

/// Tells people what happens.
fn say(arguments: &DemoArgs, line: &str) {
    if !arguments.json {
        print(line);
    }
}

/// Prints a line, in the place of the live line that `nicache run` shows on the same terminal.
/// Whether anybody reads it does not matter.
fn print(line: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let measurement =
            |hits| Measurement { requests: 100, per_second: 1234.5, median_us: 800.4, hits };
        let page = PageReport {
            path: "/x".into(),
            about: "a page",
            bytes: 5,
            server: measurement(0),
            card: measurement(50),
            why_few_hits: Some("it rains".into()),
        };
        let edit =
            EditReport { name: "e", path: "/x".into(), marker: "version=1.".into(), visible: true };
        let report = Report {
            application: "flask",
            url: "http://10.0.0.2/".into(),
            pages: vec![page],
            edit: Some(edit),
        };
        let text = report.render();
        assert!(
            text.contains("800 µs") && text.contains("50 %") && text.contains("version=1."),
            "{text}"
        );
        assert!(text.contains("few hits, because it rains"), "{text}");
    }
}
