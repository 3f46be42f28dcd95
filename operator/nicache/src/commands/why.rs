//! `nicache why`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::purge::parse_url;
use crate::cli::WhyArgs;
use crate::control::{Request, Response, ask};
use crate::inquiry::{EntryReport, PageReport, SourcesReport, WhyReport};
use crate::live::grouped;

/// Says what a running nicache has of a page, and why it has no more.
pub fn execute(arguments: &WhyArgs) -> Result<ExitCode> {
    let (host, target) = parse_url(&arguments.url)?;
    let Response::Why(report) = ask(arguments.target.name.as_deref(), &Request::Why { host, target })? else {
        bail!("an unexpected response");
    };
    if arguments.target.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", render(&arguments.url, &report, if arguments.all { usize::MAX } else { LINES }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Sources of one entry that are shown.
const LINES: usize = 20;

fn render(url: &str, report: &WhyReport, lines: usize) -> String {
    let page = &report.page;
    let mut text = format!("{url}\n");
    if let Some(reason) = &report.unwatched {
        let _ = writeln!(text, "  nothing is stored or served at the moment: {reason}");
    }
    for lack in &report.lacks {
        let _ = writeln!(text, "  less is kept on this kernel: {lack}");
    }
    for (entry, sources) in page.entries.iter().zip(&report.sources) {
        render_entry(&mut text, entry, sources.as_ref(), lines);
    }
    if page.entries_count > page.entries.len() as u64 {
        let _ = writeln!(text, "  and {} more variants", page.entries_count - page.entries.len() as u64);
    }
    if !page.vary.is_empty() {
        let _ = writeln!(text, "  the server chooses among variants by {}", page.vary.join(", "));
    }
    if let Some(stranger) = &page.stranger {
        let _ = writeln!(text, "  requests with the {stranger} go to the server: {}", stranger.advice());
    }
    if page.entries.is_empty() {
        let _ = writeln!(text, "  not in card memory");
        render_absence(&mut text, page);
    }
    text
}

fn render_entry(text: &mut String, entry: &EntryReport, sources: Option<&SourcesReport>, lines: usize) {
    let state = match &*entry.state {
        "good" => format!(
            "served from the card until a source changes, and for {} ms at most (T, as earned: {} ms)",
            entry.left_ms, entry.earned_ms
        ),
        "suspect" => "something that it may depend on has changed: the watcher looks at the next request".to_owned(),
        _ => format!("not served before the server has said the same again (T, as earned: {} ms)", entry.earned_ms),
    };
    let _ = writeln!(text, "  {}, {} bytes of body: {state}", entry.class, grouped(entry.body_bytes));
    let _ = writeln!(text, "  key {}, queue {}, for host {}", entry.key, entry.shard, entry.host);
    let _ = writeln!(
        text,
        "  given by the server to {} classes of clients (by Referer, Sec-Fetch-*, language, kind of program, proxy)",
        entry.classes
    );
    let Some(sources) = sources else {
        let _ = writeln!(text, "  what it depends on was forgotten to save memory; any change ends it");
        return;
    };
    let _ = writeln!(text, "  depends on");
    for table in sources.tables.iter().take(lines) {
        let _ = writeln!(text, "    rows      {table}");
    }
    more(text, sources.tables.len(), lines);
    if sources.tables.iter().take(lines).any(|table| table.contains(" ~ ")) {
        let _ = writeln!(text, "              (~: texts are compared folded, as any collation could hold them equal)");
    }
    for path in sources.paths.iter().take(lines) {
        let revision = path.revision.map(|revision| format!("  (revision {revision})")).unwrap_or_default();
        let _ = writeln!(text, "    {:<9} {}{revision}", path.used, path.path);
    }
    more(text, usize::try_from(sources.paths_count).unwrap_or(usize::MAX), lines);
    if sources.retained > 0 {
        let _ =
            writeln!(text, "    and the {} files that the server has read since its start", grouped(sources.retained));
    }
}

fn more(text: &mut String, count: usize, shown: usize) {
    if count > shown {
        let _ = writeln!(text, "              {} more (--all shows them)", grouped((count - shown) as u64));
    }
}

fn render_absence(text: &mut String, page: &PageReport) {
    if let Some(reason) = &page.bypass {
        let _ = writeln!(text, "  a request for it always goes to the server: {reason}");
    }
    if let Some(left) = page.left_alone_ms {
        let _ = writeln!(
            text,
            "  the server says something else each time although nothing has changed; left alone for {} s more",
            left.div_ceil(1000)
        );
    }
    match (&page.last, page.last_ms) {
        (Some(last), Some(ago)) => {
            let _ = writeln!(text, "  the last reply, {:.1} s ago: {last}", ago as f64 / 1000.0);
            if let Some(advice) = advice(last) {
                let _ = writeln!(text, "  {advice}");
            }
        }
        _ if page.bypass.is_none() => {
            let _ = writeln!(text, "  no reply to it has passed, or not lately: ask for it twice, then try again");
        }
        _ => {}
    }
}

/// What a reason means to an operator, and what there is to do.
fn advice(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "stored" => "It was stored, and has been dropped since: a source has changed, or the room was needed.",
        "first" => "It is computed: a second reply, for another client, must be the same before it is stored.",
        "differed" => {
            "It is computed, and two replies differ although nothing has changed: look for a time, a random number or a counter in it."
        }
        "fill_refused_wrote" => {
            "The server changed a file or a row while it made the page, so a hit would leave that out."
        }
        "fill_refused_changed" => "Something that it depends on changed while it was made. The next one may be stored.",
        "fill_refused_dirty" => {
            "A file that the server keeps in its memory has changed, and the server has not read it since. PHP: opcache.revalidate_freq=0."
        }
        "fill_refused_unwatched_peer" => {
            "The server asked a program that is not watched. Start it with --with; a database on this machine is recognised by itself."
        }
        "fill_refused_database_unclear" => {
            "It was read within a transaction that is older than the request, or from rows that were being changed."
        }
        "fill_refused_unwatched_filesystem" => {
            "A file is on a file system where nobody sees every change (docs/filesystems.md). The log names file and file system."
        }
        "fill_refused_open_for_writing" => "Somebody has one of its files open for writing.",
        "fill_refused_server_older" => {
            "The watcher was not ready when the server was started, and cannot know what the server has in its memory: until nicache is started again, only files are kept."
        }
        "fill_refused_decided" => {
            "It is a file, and another program or a database may have decided that the server sends it; and computed pages are not kept here."
        }
        "fill_refused_events_lost" => "More happened than the watcher could follow. It begins anew by itself.",
        "fill_refused_no_matching_file" | "fill_refused_not_looked_up" => {
            "It is no file of the server's, and computed pages are switched off (--recheck 0)."
        }
        "fill_not_shared_set_cookie" => "The reply sets a cookie, so it is for one client.",
        "fill_not_shared_private" => "The server says `private`: it is for one client.",
        "fill_not_shared_no_store" => "The server says `no-store`.",
        "fill_not_shared_status" => "Only replies with status 200 are stored.",
        "fill_aborted_volatile" => "The server says something else each time; it is left alone for a while.",
        "fill_aborted_too_large" => "It is larger than one object may be: more --memory.",
        "fill_aborted_no_room" => "What is in card memory is asked for more often: more --memory.",
        "fill_aborted_not_admitted" => "It is not asked for often enough to be worth the room.",
        "fill_aborted_no_verdict" => "The watcher did not answer in time.",
        _ => return None,
    })
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
        };
        let path = |path: &str| PathReport { path: path.into(), used: "read".into(), revision: Some(7) };
        let sources = SourcesReport {
            paths: vec![path("/a"), path("/b")],
            paths_count: 2,
            tables: vec!["wp.posts where id ~ 'a'".into()],
            retained: 2000,
        };
        let page = PageReport { entries: vec![entry], entries_count: 1, ..PageReport::default() };
        let report = WhyReport { page, sources: vec![Some(sources)], unwatched: None, lacks: Vec::new() };
        let text = render("/p", &report, 1);
        let (bytes, files) = (format!("{} bytes", grouped(1234)), format!("{} files", grouped(2000)));
        for part in [
            "for 700 ms at most",
            "earned: 2500 ms",
            &bytes,
            "wp.posts where id ~ 'a'",
            "/a  (revision 7)",
            "1 more",
            &files,
            "folded",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("/b"));
    }

    #[test]
    fn the_reason_why_not() {
        let page = PageReport { last: Some("fill_refused_wrote".into()), last_ms: Some(1500), ..PageReport::default() };
        let text = render("/p", &WhyReport { page, sources: Vec::new(), unwatched: None, lacks: Vec::new() }, 1);
        assert!(text.contains("1.5 s ago: fill_refused_wrote") && text.contains("changed a file or a row"), "{text}");
        let stranger = Some(StrangerReport { is_cookie: false, name: "x-odd".into(), requests: 3 });
        let page = PageReport { stranger, ..PageReport::default() };
        let text = render("/p", &WhyReport { page, sources: Vec::new(), unwatched: None, lacks: Vec::new() }, 1);
        assert!(text.contains("the header x-odd") && text.contains("--vary x-odd"), "{text}");
        let unwatched = Some("not watched yet".to_owned());
        let text = render(
            "/p",
            &WhyReport {
                page: PageReport::default(),
                sources: Vec::new(),
                unwatched,
                lacks: vec!["writes: none".into()],
            },
            1,
        );
        assert!(text.contains("ask for it twice") && text.contains("at the moment: not watched yet"), "{text}");
        assert!(text.contains("on this kernel: writes: none"), "{text}");
    }
}
