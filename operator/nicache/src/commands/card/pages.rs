//! What an operator asks the card about pages, and has it do with them.

use std::sync::Arc;

use anyhow::Result;
use nicache_cache::{Entry, Outcome, PutAside};
use nicache_card::{Asked, EntryView, Meeting};
use nicache_tcp::Time;

use crate::asking::AskedRequest;
use crate::control::Answer;
use crate::engine::{Shards, monotonic, strangers};
use crate::inquiry::{
    self, ASKED_MAX, ENTRIES_MAX, ENTRY_FIELDS_BYTES_MAX, EntryReport, FIELDS_BYTES_MAX,
    MeetingReport, PageReport,
};
use crate::page::PageName;

/// Drops the entries of these pages, or all.
pub(super) fn purge(shards: &Shards, which: Option<PageName>) -> Result<Answer> {
    let mut entries = 0;
    for shard in shards {
        let which = which.clone();
        let is_meant = move |entry: &Entry| {
            which
                .as_ref()
                .is_none_or(|page| page.matches(&entry.host, &entry.target, entry.request()))
        };
        entries += shard.ask(move |card| card.purge(is_meant))? as u64;
    }
    Ok(Answer::Purged { entries })
}

pub(super) type Chosen = Arc<dyn Fn(&Entry) -> bool + Send + Sync>;

/// The entries that are meant, at most [`ENTRIES_MAX`], and how many there are.
pub(super) fn entries_where(shards: &Shards, chosen: Chosen) -> Result<(Vec<EntryReport>, u64)> {
    let (mut entries, mut count) = (Vec::new(), 0);
    for (number, shard) in shards.iter().enumerate() {
        let (room, chosen) = (ENTRIES_MAX - entries.len(), Arc::clone(&chosen));
        let now = monotonic();
        let (found, found_count) =
            shard.ask(move |card| card.entries_where(|entry| chosen(entry), room, now))?;
        entries.extend(found.into_iter().map(|view| entry_report(number, view, now)));
        count += found_count as u64;
    }
    Ok((entries, count))
}

fn entry_report(shard: usize, view: EntryView, now: Time) -> EntryReport {
    EntryReport {
        key: hexadecimal(&view.key.0),
        shard,
        host: inquiry::text(&view.host),
        target: inquiry::text(&view.target),
        class: if view.is_dynamic { "dynamic" } else { "static" }.to_owned(),
        state: view.state.label().to_owned(),
        body_bytes: view.body_len,
        left_ms: millis(view.expires.0.saturating_sub(now.0)),
        earned_ms: millis(view.earned.as_nanos() as u64),
        classes: view.classes,
        record: view.record.0,
        request: inquiry::fields(&view.request, ENTRY_FIELDS_BYTES_MAX),
    }
}

/// What there is of a page, and what these requests would meet.
pub(super) fn describe(
    shards: &Shards,
    page: PageName,
    requests: Vec<AskedRequest>,
) -> Result<Answer> {
    let mut report = PageReport::default();
    let wanted = page.clone();
    let chosen =
        Arc::new(move |entry: &Entry| wanted.matches(&entry.host, &entry.target, entry.request()));
    (report.entries, report.entries_count) = entries_where(shards, chosen)?;
    // Without a host: that of an entry, because the reasons are kept by host and path.
    let host = page
        .host
        .or_else(|| report.entries.first().map(|entry| entry.host.clone()))
        .unwrap_or_default();
    let requests: Vec<AskedRequest> = requests.into_iter().take(ASKED_MAX).collect();
    let mut newest = None;
    for (number, shard) in shards.iter().enumerate() {
        let (host, target, asked) = (host.clone(), page.target.clone(), requests.clone());
        let now = monotonic();
        let (state, asked) = shard.ask(move |card| {
            let state = card.page_state(&host, &target);
            let (entries, _) =
                card.entries_where(|entry| *entry.target == *target.as_bytes(), ENTRIES_MAX, now);
            let last = state.last.iter().map(|last| &*last.head);
            let known: Vec<&[u8]> =
                last.chain(entries.iter().map(|entry| &*entry.request)).collect();
            let meet = |request: &AskedRequest| {
                let head = request.head(&host, &target, &known);
                (
                    card.meets(head.as_bytes(), now),
                    inquiry::fields(head.as_bytes(), FIELDS_BYTES_MAX),
                )
            };
            let met: Vec<_> = asked.iter().map(meet).collect();
            (state, met)
        })?;
        for (index, (asked, fields)) in asked.into_iter().enumerate() {
            if let Some((outcome, at)) = asked.last
                && newest.is_none_or(|newest| at > newest)
            {
                newest = Some(at);
                note_last(&mut report, outcome, at, now, &[]);
            }
            if report.vary.is_empty() {
                report.vary.clone_from(&asked.vary);
            }
            let meeting = meeting_report(&requests[index].title, asked, fields, now);
            report.put_aside_ms = report.put_aside_ms.max(meeting.put_aside_ms);
            match number {
                0 => report.asked.push(meeting),
                _ => report.asked[index].join(meeting),
            }
        }
        report.stranger =
            report.stranger.or_else(|| state.stranger.map(|name| strangers::report(&name, 1)));
        if let Some(last) = state.last
            && newest.is_none_or(|newest| last.at >= newest)
        {
            newest = Some(last.at);
            note_last(&mut report, last.outcome, last.at, now, &last.head);
        }
        if let Some((reason, at)) = state.bypassed {
            let ago = millis(now.0.saturating_sub(at.0));
            if report.bypass_ms.is_none_or(|before| ago < before) {
                report.bypass = Some(format!("bypass_{}", reason.label()));
                report.bypass_ms = Some(ago);
            }
        }
    }
    report.key = report.asked.first().and_then(|asked| asked.key.clone());
    Ok(Answer::Page(Box::new(report)))
}

fn note_last(report: &mut PageReport, outcome: Outcome, at: Time, now: Time, head: &[u8]) {
    report.last = Some(outcome_label(outcome));
    report.last_ms = Some(millis(now.0.saturating_sub(at.0)));
    report.last_request = inquiry::fields(head, FIELDS_BYTES_MAX);
}

fn meeting_report(title: &str, asked: Asked, fields: Vec<String>, now: Time) -> MeetingReport {
    let mut report = MeetingReport {
        title: title.to_owned(),
        queues: 1,
        key: asked.key.map(|key| hexadecimal(&key.0)),
        fields,
        ..MeetingReport::default()
    };
    if let Some((outcome, at)) = asked.last {
        report.last = Some(outcome_label(outcome));
        report.last_ms = Some(millis(now.0.saturating_sub(at.0)));
    }
    report.meets = match asked.meeting {
        Meeting::Bypass(reason) => format!("bypass_{}", reason.label()),
        Meeting::Off(reason) => format!("bypass_{}", reason.label()),
        Meeting::Hit => "hit".to_owned(),
        Meeting::OtherClass(missing) => {
            report.missing = missing.iter().map(|of| of.label().to_owned()).collect();
            "other_class".to_owned()
        }
        Meeting::Suspect => "suspect".to_owned(),
        Meeting::Lapsed => "lapsed".to_owned(),
        Meeting::Excluded => "excluded".to_owned(),
        Meeting::PutAside(why, until) => {
            report.put_aside_ms = Some(millis(until.0.saturating_sub(now.0)));
            match why {
                PutAside::Differs => "differs",
                PutAside::NotWorth => "not_worth",
            }
            .to_owned()
        }
        Meeting::Absent | Meeting::Partial => "absent".to_owned(),
    };
    report.queues_hit = usize::from(report.meets == "hit");
    report
}

/// What became of a fill, by the name of the counter that has counted it.
fn outcome_label(outcome: Outcome) -> String {
    match outcome {
        Outcome::Stored => "stored".to_owned(),
        Outcome::First => "first".to_owned(),
        Outcome::Differed => "differed".to_owned(),
        Outcome::NotShared(reason) => format!("fill_not_shared_{}", reason.label()),
        Outcome::Aborted(reason) => format!("fill_aborted_{}", reason.label()),
        Outcome::Refused(reason) => format!("fill_refused_{}", reason.label()),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn millis(ns: u64) -> u64 {
    ns / 1_000_000
}
