//! What a supervisor answers commands: `nicache status`, `top`, `upgrade`, `purge`, `bypass`, `why`
//! and `who`.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};

use super::cards::Cards;
use super::databases::databases;
use super::orders::OrderDesk;
use super::sampler::Sampler;
use super::watch_link::{WatchLink, Watching};
use crate::asking::AskedRequest;
use crate::control::{ANSWER_TIMEOUT, Answer, Question, Request, Response, Status, misfit};
use crate::inquiry::{FromWatch, ToWatch, WhoReport, WhyReport};
use crate::page::PageName;

/// What the answers are made of.
pub(super) struct Answering {
    /// What does not change.
    pub status: Status,
    /// When it was started.
    pub started: Instant,
    /// Its cards.
    pub cards: Arc<Cards>,
    /// Its watcher.
    pub watch: Arc<WatchLink>,
    /// What viewers show.
    pub sampler: Arc<Sampler>,
    /// Orders to the supervisor.
    pub desk: OrderDesk,
}

impl Answering {
    /// The response to a request.
    ///
    /// # Errors
    /// Card or watcher do not answer, refuse, or are not what is asked about.
    pub(super) fn respond(&self, request: Request) -> Result<Response> {
        let Self { status, cards, watch, .. } = self;
        Ok(match request {
            Request::Status => {
                let counters = cards.counters()?;
                let (uptime_s, databases) =
                    (self.started.elapsed().as_secs(), databases(status, watch));
                let (card_pids, card_restarts) = (cards.pids(), cards.restarts());
                let card_pid = card_pids.first().copied().unwrap_or(0);
                let Watching { pid, unavailable, lacks } = watch.watching();
                Response::Status(Box::new(Status {
                    uptime_s,
                    card_pid,
                    card_pids,
                    card_restarts,
                    watch_pid: pid,
                    watch_unavailable: unavailable,
                    watch_lacks: lacks,
                    hint: cards.hint(),
                    databases,
                    counters,
                    ..status.clone()
                }))
            }
            Request::Sample => Response::Sample(Box::new((*self.sampler.take(true)?).clone())),
            Request::Upgrade { program } => {
                Response::Upgraded { card_pid: self.desk.upgrade(program)? }
            }
            Request::Card { question } => Response::Card { answer: cards.ask(question)? },
            Request::Why { page, requests, .. } => {
                Response::Why(Box::new(why(page, &requests, status, cards, watch)?))
            }
            Request::Who { source } => match watch.watching().unavailable {
                Some(reason) => bail!("nothing is watched, and so nothing is cached: {reason}"),
                None => Response::Who(Box::new(who(source, cards, watch)?)),
            },
            Request::ForwardWhy { .. } | Request::Drain { .. } | Request::ReloadForward => {
                bail!("this is not a `nicache forward`: say which one with --name")
            }
        })
    }
}

fn why(
    name: PageName,
    requests: &[AskedRequest],
    status: &Status,
    card: &Cards,
    watch: &WatchLink,
) -> Result<WhyReport> {
    let ask_page =
        |page: PageName| match card.ask(Question::Page { page, requests: requests.to_vec() })? {
            Answer::Page(page) => Ok(*page),
            Answer::Refused { reason } => bail!("{reason}"),
            _ => Err(misfit("the card")),
        };
    let mut page = ask_page(name.clone())?;
    if name.host.is_none() && page.entries.is_empty() {
        let own = status.url.trim_start_matches("http://").trim_end_matches('/');
        page = ask_page(PageName { host: Some(own.to_owned()), ..name })?;
    }
    let mut sources = Vec::new();
    for entry in &page.entries {
        match watch.ask(&ToWatch::Explain { record: entry.record }, ANSWER_TIMEOUT)? {
            FromWatch::Explained { sources: explained } => sources.push(explained),
            _ => return Err(misfit("the watcher")),
        }
    }
    Ok(WhyReport {
        page,
        sources,
        unwatched: watch.watching().unavailable,
        lacks: watch.watching().lacks,
    })
}

fn who(source: String, card: &Cards, watch: &WatchLink) -> Result<WhoReport> {
    let question = match source.starts_with('/') {
        true => ToWatch::DependsOnPath { path: source },
        false => ToWatch::DependsOnTable { table: source },
    };
    let FromWatch::Dependents { records, every_dynamic, .. } =
        watch.ask(&question, ANSWER_TIMEOUT)?
    else {
        return Err(misfit("the watcher"));
    };
    match card.ask(Question::EntriesOf { records, every_dynamic })? {
        Answer::Entries { entries, count } => {
            Ok(WhoReport { entries, entries_count: count, every_dynamic })
        }
        Answer::Refused { reason } => bail!("{reason}"),
        _ => Err(misfit("the card")),
    }
}
