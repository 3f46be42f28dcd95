//! `nicache why`.

mod compare;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};

use self::compare::{Comparison, compare};
use crate::asking::AskedRequest;
use crate::cli::WhyArgs;
use crate::control::{Request, Response, ask, ask_server_status, unexpected};
use crate::inquiry::{EntryReport, MeetingReport, PageReport, SourcesReport, WhyReport};
use crate::numbers::grouped;
use crate::page::PageName;
use crate::top::text::shown;
use crate::words;

/// Says what a running nicache has of a page, or a `nicache nfs` of a file, and why not the rest.
pub(super) fn execute(arguments: &WhyArgs) -> Result<ExitCode> {
    let page = PageName::parse(&arguments.url)?;
    let requests = match arguments.headers.is_empty() && !arguments.http10 {
        true => vec![AskedRequest::of_browser(&page), AskedRequest::of_curl(&page)],
        false => vec![AskedRequest::of_fields(&page, &arguments.headers, arguments.http10)?],
    };
    let path = arguments.url.starts_with('/').then(|| arguments.url.clone());
    // The last one is curl's, which takes no coding in which nothing could be shown.
    let (asked_page, to_compare) = (page.clone(), requests[requests.len() - 1].clone());
    let report = match ask(
        arguments.target.name.as_deref(),
        &Request::Why { page, requests, path },
    )? {
        Response::Why(report) => report,
        Response::NfsWhy(_)
            if !arguments.headers.is_empty() || arguments.http10 || arguments.compare =>
        {
            bail!(
                "this is a `nicache nfs`: its files are asked for without --header, --http10 and --compare"
            )
        }
        Response::NfsWhy(report) => {
            match arguments.target.json {
                true => println!("{}", serde_json::to_string(&report)?),
                false => print!("{}", report.text(arguments.all)),
            }
            return Ok(ExitCode::SUCCESS);
        }
        _ => return Err(unexpected()),
    };
    let compared = arguments.compare.then(|| compare_replies(arguments, &asked_page, &to_compare));
    let compared = compared.transpose()?;
    if arguments.target.json {
        let mut json = serde_json::to_value(&report)?;
        if let (Some(compared), Some(fields)) = (&compared, json.as_object_mut()) {
            fields.insert("compared".into(), serde_json::to_value(compared)?);
        }
        println!("{json}");
    } else {
        print!(
            "{}",
            render(&arguments.url, &report, if arguments.all { usize::MAX } else { LINES })
        );
        if let Some(compared) = &compared {
            print!("{}", compared.text(&to_compare.title));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn compare_replies(
    arguments: &WhyArgs,
    page: &PageName,
    request: &AskedRequest,
) -> Result<Comparison> {
    let status = ask_server_status(arguments.target.name.as_deref())?;
    compare(&status, arguments.server.as_deref(), page, request)
}

/// Sources of one entry that are shown.
const LINES: usize = 20;

fn render(url: &str, report: &WhyReport, lines: usize) -> String {
    let page = &report.page;
    let mut text = format!("{}\n", shown(url));
    if let Some(reason) = &report.unwatched {
        let _ = writeln!(text, "  nothing is stored or served at the moment: {reason}");
    }
    for lack in &report.lacks {
        let _ = writeln!(text, "  less is kept on this kernel: {lack}");
    }
    let mut told = Vec::new();
    for meeting in &page.asked {
        render_meeting(&mut text, meeting, &mut told);
    }
    if page.entries.is_empty() {
        let _ = writeln!(text, "  not in card memory");
    }
    for (entry, sources) in page.entries.iter().zip(&report.sources) {
        render_entry(&mut text, entry, sources.as_ref(), lines);
    }
    if page.entries_count > page.entries.len() as u64 {
        let _ = writeln!(
            text,
            "  and {} more variants",
            page.entries_count - page.entries.len() as u64
        );
    }
    if !page.vary.is_empty() {
        let _ = writeln!(text, "  the server chooses among variants by {}", page.vary.join(", "));
    }
    render_last(&mut text, page, &mut told);
    if let Some(stranger) = &page.stranger {
        let _ = writeln!(
            text,
            "  requests with the {stranger} go to the server: {}",
            stranger.advice()
        );
    }
    text
}

/// Why a page is not answered by the card, in one sentence or two. `None`: the first request that
/// was asked about is.
pub fn reason(report: &WhyReport) -> Option<String> {
    let page = &report.page;
    let asked = page.asked.first()?;
    if let Some(reason) = &report.unwatched {
        return Some(format!("nothing is kept: {reason}"));
    }
    let last = asked.last.as_ref().or(page.last.as_ref());
    let name = match &*asked.meets {
        "hit" => return None,
        "other_class" => {
            return Some("the server has not answered a client of this kind lately".to_owned());
        }
        "suspect" => {
            return Some("something that it may depend on changes again and again".to_owned());
        }
        "excluded" => return Some("the settings for its path exclude it".to_owned()),
        "differs" => "differed",
        "not_worth" => return Some("it is dropped before it is asked for again".to_owned()),
        "lapsed" | "absent" => match last.map(String::as_str) {
            None => {
                return Some(
                    "no reply to it was judged in time: is the machine overloaded?".to_owned(),
                );
            }
            Some("stored") => {
                return Some(
                    "it was kept, and has been dropped because something changed".to_owned(),
                );
            }
            Some(last) => last,
        },
        reason => reason,
    };
    let advice = words::of(name)
        .and_then(|words| words.advice)
        .map(|advice| format!(". {advice}"))
        .unwrap_or_default();
    Some(format!("{}{advice}", because(name)))
}

/// What there is to do, each once.
fn advise(text: &mut String, reason: &str, told: &mut Vec<&str>) {
    if let Some(advice) = words::of(reason).and_then(|words| words.advice)
        && !told.contains(&advice)
    {
        told.push(advice);
        let _ = writeln!(text, "    {advice}");
    }
}

fn render_meeting(text: &mut String, meeting: &MeetingReport, told: &mut Vec<&str>) {
    let title = &meeting.title;
    let queues = match (meeting.queues_hit, meeting.queues) {
        (hit, queues) if hit < queues && hit > 0 => {
            format!(" (by {hit} of {queues} queues, as connections fall)")
        }
        _ => String::new(),
    };
    let left = meeting.put_aside_ms.map_or(0, |left| left.div_ceil(1000));
    let says = match &*meeting.meets {
        "hit" => format!("is answered by the card{queues}"),
        "other_class" => format!(
            "goes to the server, and then the next ones like it do not: nobody of its kind has been answered lately (by {})",
            meeting.missing.join(", ")
        ),
        "suspect" => {
            "waits for the watcher: something that the page may depend on has changed".to_owned()
        }
        "lapsed" => "goes to the server, which has to say the same again".to_owned(),
        "excluded" => {
            "goes to the server: the page is excluded by the settings for its path".to_owned()
        }
        "differs" => {
            format!(
                "goes to the server: its replies differ although nothing has changed; put aside for {left} s more"
            )
        }
        "not_worth" => {
            format!(
                "goes to the server: the page is dropped before it is used; put aside for {left} s more"
            )
        }
        "absent" => "goes to the server: no reply to it is kept".to_owned(),
        reason => format!("goes to the server, because {}", because(reason)),
    };
    let _ = writeln!(text, "  {title} request {says}");
    advise(text, &meeting.meets, told);
    if meeting.meets == "absent"
        && let (Some(last), Some(ago)) = (&meeting.last, meeting.last_ms)
    {
        let _ = writeln!(
            text,
            "    the last reply to such a request, {}: {}",
            since(ago),
            outcome(last)
        );
        advise(text, last, told);
    }
}

/// A reason in words; one that this program does not know, as it came.
fn because(reason: &str) -> String {
    words::of(reason)
        .map_or_else(|| shown(&reason.replace('_', " ")), |words| words.because.to_owned())
}

/// What became of a reply.
fn outcome(last: &str) -> String {
    match last {
        "stored" => {
            "it was kept, and has been dropped since: a source has changed, or the room was needed"
                .to_owned()
        }
        "first" | "differed" => format!("not kept yet: {}", because(last)),
        reason => format!("not kept, because {}", because(reason)),
    }
}

fn since(ms: u64) -> String {
    format!("{:.1} s ago", ms as f64 / 1000.0)
}

/// What last became of requests that went to the server, whoever sent them.
fn render_last(text: &mut String, page: &PageReport, told: &mut Vec<&str>) {
    if let (Some(reason), Some(ago)) = (&page.bypass, page.bypass_ms) {
        let _ = writeln!(
            text,
            "  {}, a client's request went to the server, because {}",
            since(ago),
            because(reason)
        );
        advise(text, reason, told);
    }
    match (&page.last, page.last_ms) {
        (Some(last), Some(ago)) if page.entries.is_empty() => {
            let _ = writeln!(text, "  the last reply, {}: {}", since(ago), outcome(last));
            advise(text, last, told);
            if !page.last_request.is_empty() {
                let fields: Vec<String> =
                    page.last_request.iter().map(|field| shown(field)).collect();
                let _ = writeln!(text, "    its request had {}", fields.join(", "));
            }
        }
        (None, _) if page.entries.is_empty() && page.bypass.is_none() => {
            let _ = writeln!(
                text,
                "  no reply to it has passed, or not lately: ask for it twice, then try again"
            );
        }
        _ => {}
    }
}

fn render_entry(
    text: &mut String,
    entry: &EntryReport,
    sources: Option<&SourcesReport>,
    lines: usize,
) {
    let state = match &*entry.state {
        "good" => format!(
            "served from the card until a source changes, and for {} ms at most (T, as earned: {} ms)",
            entry.left_ms, entry.earned_ms
        ),
        "suspect" => {
            "something that it may depend on has changed: the watcher looks at the next request"
                .to_owned()
        }
        _ => format!(
            "not served before the server has said the same again (T, as earned: {} ms)",
            entry.earned_ms
        ),
    };
    let _ =
        writeln!(text, "  {}, {} bytes of body: {state}", entry.class, grouped(entry.body_bytes));
    let _ = writeln!(
        text,
        "  key {}, queue {}, for host {}",
        entry.key,
        entry.shard,
        shown(&entry.host)
    );
    if !entry.request.is_empty() {
        let fields: Vec<String> = entry.request.iter().map(|field| shown(field)).collect();
        let _ = writeln!(text, "  for requests with {}", fields.join(", "));
    }
    let _ = writeln!(
        text,
        "  given by the server to {} classes of clients (by Referer, Sec-Fetch-*, language, kind of program, what it accepts, proxy)",
        entry.classes
    );
    let Some(sources) = sources else {
        let _ =
            writeln!(text, "  what it depends on was forgotten to save memory; any change ends it");
        return;
    };
    let _ = writeln!(text, "  depends on");
    for table in sources.tables.iter().take(lines) {
        let _ = writeln!(text, "    rows      {}", shown(table));
    }
    more(text, sources.tables.len(), lines);
    if sources.tables.iter().take(lines).any(|table| table.contains(" ~ ")) {
        let _ = writeln!(
            text,
            "              (~: texts are compared folded, as any collation could hold them equal)"
        );
    }
    for path in sources.paths.iter().take(lines) {
        let revision =
            path.revision.map(|revision| format!("  (revision {revision})")).unwrap_or_default();
        let _ = writeln!(text, "    {:<9} {}{revision}", path.used, shown(&path.path));
    }
    more(text, usize::try_from(sources.paths_count).unwrap_or(usize::MAX), lines);
    if sources.retained > 0 {
        let _ = writeln!(
            text,
            "    and the {} files that the server has read since its start",
            grouped(sources.retained)
        );
    }
}

fn more(text: &mut String, count: usize, shown: usize) {
    if count > shown {
        let _ = writeln!(
            text,
            "              {} more (--all shows them)",
            grouped((count - shown) as u64)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::StrangerReport;
    use crate::inquiry::PathReport;

    #[test]
    fn an_entry_and_its_sources() {
        let entry = EntryReport {
            key: "ab".into(),
            shard: 0,
            host: "x".into(),
            target: "/p".into(),
            class: "dynamic".into(),
            state: "good".into(),
            body_bytes: 1234,
            left_ms: 700,
            earned_ms: 2500,
            classes: 4,
            record: 1,
            request: vec!["Accept: text/html".into()],
        };
        let path =
            |path: &str| PathReport { path: path.into(), used: "read".into(), revision: Some(7) };
        let sources = SourcesReport {
            paths: vec![path("/a"), path("/b")],
            paths_count: 2,
            tables: vec!["wp.posts where id ~ 'a'".into()],
            retained: 2000,
        };
        let page = PageReport { entries: vec![entry], entries_count: 1, ..PageReport::default() };
        let report =
            WhyReport { page, sources: vec![Some(sources)], unwatched: None, lacks: Vec::new() };
        let text = render("/p", &report, 1);
        let (bytes, files) =
            (format!("{} bytes", grouped(1234)), format!("{} files", grouped(2000)));
        for part in [
            "for 700 ms at most",
            "earned: 2500 ms",
            &bytes,
            "wp.posts where id ~ 'a'",
            "/a  (revision 7)",
            "1 more",
            &files,
            "folded",
            "for requests with Accept: text/html",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("/b"));
    }

    fn of_page(page: PageReport) -> String {
        render(
            "/p",
            &WhyReport { page, sources: Vec::new(), unwatched: None, lacks: Vec::new() },
            1,
        )
    }

    #[test]
    fn the_reason_why_not() {
        let page = PageReport {
            last: Some("fill_refused_wrote".into()),
            last_ms: Some(1500),
            last_request: vec!["Accept: a/b".into()],
            ..PageReport::default()
        };
        let text = of_page(page);
        assert!(
            text.contains("1.5 s ago: not kept, because the server changed a file or a row"),
            "{text}"
        );
        assert!(
            text.contains("its request had Accept: a/b") && text.contains("session files"),
            "{text}"
        );
        let stranger = Some(StrangerReport { is_cookie: false, name: "x-odd".into(), requests: 3 });
        let text = of_page(PageReport { stranger, ..PageReport::default() });
        assert!(text.contains("the header x-odd") && text.contains("--vary x-odd"), "{text}");
        let unwatched = Some("not watched yet".to_owned());
        let (page, lacks) = (PageReport::default(), vec!["writes: none".into()]);
        let text = render("/p", &WhyReport { page, sources: Vec::new(), unwatched, lacks }, 1);
        assert!(
            text.contains("ask for it twice") && text.contains("at the moment: not watched yet"),
            "{text}"
        );
        assert!(text.contains("on this kernel: writes: none"), "{text}");
    }

    #[test]
    fn no_output_names_a_reason_by_its_counter() {
        let mut meets = words::all_names();
        meets.extend(
            ["hit", "other_class", "suspect", "lapsed", "excluded", "differs", "not_worth"]
                .map(str::to_owned),
        );
        for name in meets {
            let asked = MeetingReport {
                title: "this".into(),
                meets: name.clone(),
                ..MeetingReport::default()
            };
            let page = PageReport {
                asked: vec![asked],
                bypass: Some(name.clone()),
                bypass_ms: Some(1),
                last: Some(name.clone()),
                last_ms: Some(1),
                ..PageReport::default()
            };
            let told = WhyReport {
                page: page.clone(),
                sources: Vec::new(),
                unwatched: None,
                lacks: Vec::new(),
            };
            let told = reason(&told).unwrap_or_default();
            assert_eq!(told.is_empty(), name == "hit", "{name}");
            assert!(!name.contains('_') || !told.contains(&name), "{name}: {told}");
            let text = of_page(page);
            assert!(!name.contains('_') || !text.contains(&name), "{name}: {text}");
            assert!(!text.contains("Some(") && !text.contains("::"), "{text}");
        }
    }
}
