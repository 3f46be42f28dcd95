//! The control socket: answers `nicache status`, `top`, `purge`, `bypass`, `why` and `who`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cards::Cards;
use super::databases::databases;
use super::orders::OrderDesk;
use super::sampler::Sampler;
use super::watch_link::{WatchLink, Watching};
use crate::asking::AskedRequest;
use crate::control::{
    ANSWER_TIMEOUT, Answer, Question, Request, Response, Status, misfit, read_line, write_line,
};
use crate::inquiry::{FromWatch, ToWatch, WhoReport, WhyReport};
use crate::page::PageName;

const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// A bound control socket; its file goes with it.
#[derive(Debug)]
pub(super) struct ControlServer {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlServer {
    /// Binds the path, replacing what a killed nicache left there: the caller holds the lock on the
    /// name, so nobody lives behind it.
    pub(super) fn bind(path: &Path) -> Result<Self> {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot make the control socket {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Serves from a thread until the process ends, one client at a time. `status`: what does not
    /// change.
    pub(super) fn serve(
        self,
        status: Status,
        started: Instant,
        card: Arc<Cards>,
        watch: Arc<WatchLink>,
        sampler: Arc<Sampler>,
        desk: OrderDesk,
    ) -> Result<Self> {
        let listener = self.listener.try_clone()?;
        let body = move || {
            for client in listener.incoming().flatten() {
                if let Err(error) = answer(client, &status, started, &card, &watch, &sampler, &desk)
                {
                    tracing::debug!("control socket: {error:#}");
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(body)?;
        Ok(self)
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer(
    mut client: UnixStream,
    status: &Status,
    started: Instant,
    card: &Cards,
    watch: &WatchLink,
    sampler: &Sampler,
    desk: &OrderDesk,
) -> Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let response = read_line(&client)
        .and_then(|request| respond(request, status, started, card, watch, sampler, desk));
    let response =
        response.unwrap_or_else(|error| Response::Error { reason: format!("{error:#}") });
    write_line(&mut client, &response)
}

fn respond(
    request: Request,
    status: &Status,
    started: Instant,
    card: &Cards,
    watch: &WatchLink,
    sampler: &Sampler,
    desk: &OrderDesk,
) -> Result<Response> {
    Ok(match request {
        Request::Status => {
            let counters = card.counters()?;
            let (uptime_s, databases) = (started.elapsed().as_secs(), databases(status, watch));
            let (card_pids, card_restarts) = (card.pids(), card.restarts());
            let card_pid = card_pids.first().copied().unwrap_or(0);
            let Watching { pid: watch_pid, unavailable: watch_unavailable, lacks: watch_lacks } =
                watch.watching();
            Response::Status(Box::new(Status {
                uptime_s,
                card_pid,
                card_pids,
                card_restarts,
                watch_pid,
                watch_unavailable,
                watch_lacks,
                hint: card.hint(),
                databases,
                counters,
                ..status.clone()
            }))
        }
        Request::Sample => Response::Sample(Box::new((*sampler.take(true)?).clone())),
        Request::Upgrade { program } => Response::Upgraded { card_pid: desk.upgrade(program)? },
        Request::Card { question } => Response::Card { answer: card.ask(question)? },
        Request::Why { page, requests, .. } => {
            Response::Why(Box::new(why(page, &requests, status, card, watch)?))
        }
        Request::Who { source } => match watch.watching().unavailable {
            Some(reason) => bail!("nothing is watched, and so nothing is cached: {reason}"),
            None => Response::Who(Box::new(who(source, card, watch)?)),
        },
        Request::ForwardWhy { .. } | Request::Drain { .. } | Request::ReloadForward => {
            bail!("this is not a `nicache forward`: say which one with --name")
        }
    })
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
