//! `nicache prove`.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache::{logs, numbers};
use nicache_prove::{
    Breach, CommandEditor, Direct, Editor, Marker, Outcome, Page, Plan, Popularity, Progress,
    Readers, Report, Subject, prove,
};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::{HitKind, ProveArgs};
use crate::growth::{Grown, Growth};
use crate::options::Milliseconds;
use crate::url::server;

/// Name of a subject that has none.
const USUAL_NAME: &str = "version";
/// When neither duration nor numbers are given.
const USUAL_DURATION: Duration = Duration::from_secs(10);
/// Nothing is proven.
const NOTHING_PROVEN: u8 = 2;

/// Reads while commands edit, and prints what came of it. A run that could not be is not proof
/// either.
pub(super) fn execute(arguments: &ProveArgs) -> ExitCode {
    run(arguments).unwrap_or_else(|error| {
        logs::clear_live_line();
        eprintln!("nicache: {error:#}");
        ExitCode::from(NOTHING_PROVEN)
    })
}

fn run(arguments: &ProveArgs) -> Result<ExitCode> {
    let plan = plan(arguments)?;
    for signal in [SIGINT, SIGTERM] {
        // The second one does not wait for the report.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            NOTHING_PROVEN.into(),
            Arc::clone(&plan.stop),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&plan.stop))?;
    }
    let growth = growth(arguments)?;
    let report = follow(plan)?;
    let card = growth.and_then(Growth::end);
    let proof = Proof::new(report, card, arguments.expect_hits);
    if arguments.json {
        println!("{}", proof.to_json()?);
    } else {
        print!("{}", proof.render());
    }
    Ok(proof.status())
}

/// Runs a plan, with a live line for people.
pub(super) fn follow(plan: Plan) -> Result<Report> {
    let shows = std::io::stderr().is_terminal();
    let report = prove(plan, |progress| {
        if shows {
            logs::show_live_line(&live_line(progress));
        }
    });
    logs::clear_live_line();
    Ok(report?)
}

/// What came out, and what the card did meanwhile.
pub(super) struct Proof {
    report: Report,
    card: Option<Grown>,
    outcome: Outcome,
}

impl Proof {
    /// The outcome is worth nothing without hits of the expected kind.
    pub(super) fn new(report: Report, card: Option<Grown>, expected: Option<HitKind>) -> Self {
        let outcome = outcome(&report, card.as_ref(), expected);
        Self { report, card, outcome }
    }

    pub(super) fn is_proven(&self) -> bool {
        self.outcome == Outcome::Proven
    }

    pub(super) fn status(&self) -> ExitCode {
        match self.outcome {
            Outcome::Proven => ExitCode::SUCCESS,
            Outcome::Violated => ExitCode::FAILURE,
            Outcome::NothingProven(_) => ExitCode::from(NOTHING_PROVEN),
        }
    }

    pub(super) fn to_json(&self) -> Result<serde_json::Value> {
        let mut all = serde_json::to_value(&self.report)?;
        all["card"] = serde_json::to_value(&self.card)?;
        let (word, reasons) = match &self.outcome {
            Outcome::Proven => ("proven", &Vec::new()),
            Outcome::Violated => ("violated", &Vec::new()),
            Outcome::NothingProven(reasons) => ("nothing_proven", reasons),
        };
        all["outcome"] = word.into();
        all["reasons"] = serde_json::to_value(reasons)?;
        Ok(all)
    }

    pub(super) fn render(&self) -> String {
        let mut text = self.report.to_string();
        if let Some(card) = &self.card {
            text += &render(card);
        }
        if let Some(hint) = hint(&self.report, self.card.as_ref()) {
            let _ = writeln!(text, "hint       {hint}");
        }
        let _ = match &self.outcome {
            Outcome::Proven => writeln!(text, "PROVEN: no reply was older than an edit"),
            Outcome::Violated => {
                writeln!(text, "VIOLATED: {} wrong replies", self.report.violations)
            }
            Outcome::NothingProven(reasons) => {
                writeln!(text, "NOTHING PROVEN: {}", reasons.join("; "))
            }
        };
        text
    }
}

fn live_line(progress: &Progress) -> String {
    format!(
        "{:.0} s, {}: {} replies, {} edits, {} violations",
        progress.seconds,
        progress.phase,
        numbers::grouped(progress.replies),
        numbers::grouped(progress.edits),
        numbers::grouped(progress.violations)
    )
}

/// From now on, of the card that was named or the only one. If none was asked for, none need be
/// there.
fn growth(arguments: &ProveArgs) -> Result<Option<Growth>> {
    match Growth::begin(arguments.name.as_deref()) {
        Err(error) if arguments.name.is_some() || arguments.expect_hits.is_some() => Err(error),
        growth => Ok(growth.ok()),
    }
}

fn outcome(report: &Report, card: Option<&Grown>, expected: Option<HitKind>) -> Outcome {
    let counter = match expected {
        None => return report.outcome(),
        Some(HitKind::Dynamic) => "hits_dynamic",
        Some(HitKind::Any) => "hits",
    };
    if card.is_some_and(|card| count(card, counter) > 0) {
        return report.outcome();
    }
    let mut reasons = match report.outcome() {
        Outcome::Violated => return Outcome::Violated,
        Outcome::NothingProven(reasons) => reasons,
        Outcome::Proven => Vec::new(),
    };
    reasons.push(match card {
        Some(_) => {
            format!("the card's counter {counter} did not move: the replies were the server's own")
        }
        None => "nicache ended or started again meanwhile".to_owned(),
    });
    Outcome::NothingProven(reasons)
}

/// What to look at if replies are stale and it is not sure whose fault that is.
fn hint(report: &Report, card: Option<&Grown>) -> Option<&'static str> {
    if report.count(Breach::Stale) == 0 {
        None
    } else if card.is_some_and(|card| count(card, "hits") == 0) {
        Some(
            "the card answered nothing: these are the server's own replies. If that is how it should be, declare --server-lag",
        )
    } else if report.direct_replies == 0 {
        Some("it may be the server that is behind: --direct reads it without the card")
    } else {
        None
    }
}

fn count(card: &Grown, name: &str) -> u64 {
    card.get(name).copied().unwrap_or(0)
}

fn render(card: &Grown) -> String {
    let of = |name: &str| count(card, name);
    let mut text = format!(
        "card       {} hits ({} dynamic), {} misses, {} bypasses, {} fills stored, {} agreed, {} renewed, {} purges, {} waits\n",
        of("hits"),
        of("hits_dynamic"),
        of("misses"),
        of("bypasses"),
        of("fills_stored"),
        of("agreed"),
        of("renewed"),
        of("purges_by_source"),
        of("waits")
    );
    let refused: Vec<String> = card
        .iter()
        .filter_map(|(name, value)| Some(format!("{value} {}", name.strip_prefix("fill_")?)))
        .collect();
    let refused = if refused.is_empty() { "none".to_owned() } else { refused.join(", ") };
    let _ = writeln!(text, "not stored {refused}");
    text
}

fn plan(arguments: &ProveArgs) -> Result<Plan> {
    let server_of = |url: &str| server(url).with_context(|| format!("`{url}`"));
    let url = server_of(&arguments.url)?;
    let subjects = subjects(arguments)?;
    let pages = pages(arguments)?;
    for header in &arguments.header {
        if !header.contains(':') || header.contains(['\r', '\n']) {
            bail!("header: `{header}` is not like `NAME: VALUE`");
        }
    }
    if !(0.0..=1e6).contains(&arguments.edits_per_second) {
        bail!("edits-per-second: between 0 and 1000000");
    }
    let is_counted = arguments.replies.is_some() || arguments.edits.is_some();
    let mut plan = Plan::new(url.address, pages, subjects);
    plan.host = url.host;
    plan.headers.clone_from(&arguments.header);
    let direct = arguments.direct.as_deref().map(server_of).transpose()?;
    plan.direct = direct.map(|direct| Direct { address: direct.address, namespace: None });
    plan.popularity = arguments.zipf.map_or(Popularity::Uniform, Popularity::Zipf);
    plan.edits_per_second = arguments.edits_per_second;
    plan.burst = arguments.burst;
    plan.least_gap = time(arguments.least_gap);
    plan.readers = Readers {
        connections: arguments.readers.into(),
        direct_connections: arguments.direct_readers.into(),
        threads: arguments.threads.into(),
        pipeline: arguments.pipeline.into(),
        from: arguments.from.clone(),
        timeout: time(arguments.timeout),
    };
    plan.clock = Marker::new(&arguments.clock)?;
    plan.clock_slack = time(arguments.clock_slack);
    plan.statuses.clone_from(&arguments.allow_status);
    plan.first_version = arguments.first_version;
    plan.duration =
        arguments.duration.map(time).or_else(|| (!is_counted).then_some(USUAL_DURATION));
    plan.replies = arguments.replies.unwrap_or(1);
    plan.edits = arguments.edits.unwrap_or(1);
    plan.quiet = time(arguments.quiet);
    plan.seed = arguments.seed;
    Ok(plan)
}

fn time(milliseconds: Milliseconds) -> Duration {
    Duration::from_millis(milliseconds.0)
}

fn subjects(arguments: &ProveArgs) -> Result<Vec<Subject>> {
    let timeout = time(arguments.edit_timeout);
    let editors = arguments.edit.iter().map(|text| {
        let (name, command) = named(text);
        Box::new(CommandEditor::new(name.unwrap_or(USUAL_NAME), command, timeout))
            as Box<dyn Editor>
    });
    let mut subjects = Subject::group(editors);
    for text in &arguments.marker {
        let (name, pattern) = named(text);
        // Without the name of a subject, what looks like one belongs to the pattern.
        let of_name =
            name.and_then(|name| subjects.iter().position(|subject| subject.name == name));
        let (at, pattern) = match of_name {
            Some(at) => (at, pattern),
            None if subjects.len() == 1 => (0, text.as_str()),
            None => bail!("marker: say whose it is, like `{}: {text}`", subjects[0].name),
        };
        subjects[at].marker = Marker::new(pattern)?;
    }
    for text in &arguments.server_lag {
        let (name, lag) = assigned(text, "server-lag")?;
        subject_named(&mut subjects, name, "server-lag")?.lag = lag;
    }
    for subject in &mut subjects {
        subject.one_state = arguments.one_state;
        subject.as_server = arguments.as_server;
    }
    Ok(subjects)
}

fn subject_named<'a>(
    subjects: &'a mut [Subject],
    name: &str,
    option: &str,
) -> Result<&'a mut Subject> {
    let names: Vec<String> = subjects.iter().map(|subject| subject.name.clone()).collect();
    let found = subjects.iter_mut().find(|subject| subject.name == name);
    found
        .with_context(|| format!("{option}: nothing edits `{name}`; there is {}", names.join(", ")))
}

fn pages(arguments: &ProveArgs) -> Result<Vec<Page>> {
    let mut pages: Vec<Page> = Vec::new();
    for target in &arguments.pages {
        if !target.starts_with('/')
            || target.contains(|other: char| other.is_ascii_whitespace() || other == '#')
        {
            bail!(
                "pages: `{target}` is not a path that begins with / and that a client would request"
            );
        }
        if pages.iter().any(|page| page.target == *target) {
            bail!("pages: {target} is given twice");
        }
        pages.push(Page::new(target));
    }
    let targets = arguments.pages.join(", ");
    let mut page_named = |target: &str, option: &str, change: &dyn Fn(&mut Page)| {
        let page = pages.iter_mut().find(|page| page.target == target);
        page.map(change)
            .with_context(|| format!("{option}: `{target}` is none of the pages {targets}"))
    };
    for target in &arguments.non_atomic {
        page_named(target, "non-atomic", &|page| page.atomic = false)?;
    }
    for target in &arguments.unsteady {
        page_named(target, "unsteady", &|page| page.steady = false)?;
    }
    for text in &arguments.within {
        let (target, within) = assigned(text, "within")?;
        page_named(target, "within", &|page| page.within = Some(within))?;
    }
    for text in &arguments.clients {
        let page = client(text, &pages)?;
        pages.push(page);
    }
    Ok(pages)
}

/// `/PATH NAME: VALUE => TEXT`: that page for another kind of client.
fn client(text: &str, pages: &[Page]) -> Result<Page> {
    let parts = text
        .split_once(" => ")
        .and_then(|(asked, says)| Some((asked.split_once(' ')?, says.trim())));
    let Some(((target, field), says)) = parts else {
        bail!("client: `{text}` is not of the form `/PATH NAME: VALUE => TEXT`");
    };
    if says.is_empty() || field.contains(['\r', '\n']) || !field.contains(':') {
        bail!("client: `{text}` names no request field, or no text to be told");
    }
    let page = pages.iter().find(|page| page.target == target);
    let page = page.with_context(|| format!("client: `{target}` is none of the pages"))?;
    Ok(Page { fields: vec![field.trim().to_owned()], says: Some(says.to_owned()), ..page.clone() })
}

/// `NAME: REST`, or only a rest.
fn named(text: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c))
    };
    match text.split_once(':') {
        Some((name, rest)) if is_name(name) => (Some(name), rest.trim_start()),
        _ => (None, text),
    }
}

/// `WHAT=TIME`; there may be more `=` in it.
fn assigned<'a>(text: &'a str, option: &str) -> Result<(&'a str, Duration)> {
    let (name, value) =
        text.rsplit_once('=').with_context(|| format!("{option}: `{text}` is not like NAME=2s"))?;
    let value: Milliseconds =
        value.parse().map_err(|error| anyhow::anyhow!("{option}: {error}"))?;
    Ok((name, time(value)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(more: &[&str]) -> Result<Plan> {
        let usual =
            ["nicache", "prove", "--url", "http://10.0.0.2/", "--edit", "a: echo $NICACHE_VERSION"];
        match Cli::try_parse_from(usual.iter().chain(more))?.command {
            Command::Prove(arguments) => plan(&arguments),
            other => panic!("{other:?}"),
        }
    }

    fn error(more: &[&str]) -> String {
        format!("{:#}", parsed(more).unwrap_err())
    }

    #[test]
    fn a_plan_from_arguments() {
        let plan =
            parsed(&["--pages", "/,/b?x=1", "--within", "/b?x=1=2s", "--non-atomic", "/"]).unwrap();
        assert_eq!((plan.host.as_str(), plan.server.port()), ("10.0.0.2", 80));
        assert_eq!(plan.duration, Some(Duration::from_secs(10)));
        assert_eq!(
            (plan.pages[0].atomic, plan.pages[1].within),
            (false, Some(Duration::from_secs(2)))
        );
        assert_eq!(plan.subjects[0].marker.to_string(), r"\ba=(\d+)");
        let plan = parsed(&[
            "--edit",
            "b: true",
            "--edit",
            "a: false",
            "--server-lag",
            "b=2s",
            "--replies",
            "9",
        ])
        .unwrap();
        let subjects: Vec<_> =
            plan.subjects.iter().map(|subject| (&*subject.name, subject.editors.len())).collect();
        assert_eq!(subjects, [("a", 2), ("b", 1)]);
        assert_eq!(
            (plan.subjects[1].lag, plan.duration, plan.replies),
            (Duration::from_secs(2), None, 9)
        );
    }

    #[test]
    fn markers_with_and_without_names() {
        let marker = |text: &str| {
            parsed(&["--marker", text]).map(|plan| plan.subjects[0].marker.to_string())
        };
        assert_eq!(marker(r"v(\d+)").unwrap(), r"v(\d+)");
        assert_eq!(marker(r"a: v(\d+)").unwrap(), r"v(\d+)");
        assert_eq!(marker(r"id:(\d+)").unwrap(), r"id:(\d+)");
        assert!(error(&["--marker", "v="]).contains("no group"));
        assert!(error(&["--edit", "b: true", "--marker", r"v(\d+)"]).contains("say whose it is"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(error(&["--pages", "index.html"]).contains("begins with /"));
        assert!(error(&["--pages", "/,/"]).contains("twice"));
        let plan = parsed(&["--client", "/ Accept-Language: de => for=de"]).unwrap();
        assert_eq!(
            (&*plan.pages[1].target, &plan.pages[1].fields),
            ("/", &vec!["Accept-Language: de".to_owned()])
        );
        assert_eq!(plan.pages[1].says.as_deref(), Some("for=de"));
        for wrong in [
            "/ Accept-Language: de",
            "/x Accept-Language: de => for=de",
            "/ nothing => for=de",
            "/ A: b => ",
        ] {
            assert!(error(&["--client", wrong]).contains("client"), "{wrong}");
        }
        assert!(error(&["--within", "/x=1s"]).contains("none of the pages"));
        assert!(error(&["--within", "/=soon"]).contains("not a time"));
        assert!(error(&["--server-lag", "b=1s"]).contains("there is a"));
        assert!(error(&["--header", "x"]).contains("NAME: VALUE"));
        assert!(error(&["--edits-per-second=-1"]).contains("edits-per-second"));
        assert!(error(&["--url", "https://x/"]).contains("http"));
    }

    #[test]
    fn commands_with_and_without_names() {
        assert_eq!(named("a: mv x y"), (Some("a"), "mv x y"));
        assert_eq!(named("mv x:y z"), (None, "mv x:y z"));
        assert_eq!(named("true"), (None, "true"));
    }

    #[test]
    fn a_stale_server_is_told_from_a_stale_card() {
        let stale = Report { breaches: [(Breach::Stale, 1)].into(), ..Report::default() };
        assert_eq!(hint(&Report::default(), None), None);
        assert!(hint(&stale, None).unwrap().contains("--direct"));
        assert!(hint(&stale, Some(&Grown::new())).unwrap().contains("server's own"));
        assert!(
            hint(&stale, Some(&Grown::from([("hits".to_owned(), 1)])))
                .unwrap()
                .contains("--direct")
        );
        assert_eq!(hint(&Report { direct_replies: 1, ..stale }, None), None);
    }

    #[test]
    fn without_the_expected_hits_nothing_is_proven() {
        let mut report = Report::default();
        report.subjects.push(nicache_prove::SubjectReport { edits: 1, ..Default::default() });
        let card = |name: &str| Grown::from([(name.to_owned(), 1)]);
        let with = |card: &Grown, expected| outcome(&report, Some(card), expected);
        assert_eq!(with(&card("misses"), None), Outcome::Proven);
        assert_eq!(with(&card("hits"), Some(HitKind::Any)), Outcome::Proven);
        assert_eq!(with(&card("hits_dynamic"), Some(HitKind::Dynamic)), Outcome::Proven);
        assert!(matches!(with(&card("hits"), Some(HitKind::Dynamic)), Outcome::NothingProven(_)));
        assert!(matches!(outcome(&report, None, Some(HitKind::Any)), Outcome::NothingProven(_)));
        let violated = Report { violations: 1, ..report.clone() };
        assert_eq!(outcome(&violated, None, Some(HitKind::Any)), Outcome::Violated);
    }
}
