//! `nicache purge`.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::PurgeArgs;
use crate::control::{Answer, Question, Request, Response, ask, unexpected};
use crate::page::PageName;

/// Drops entries from the card of a running nicache.
pub(super) fn execute(arguments: &PurgeArgs) -> Result<ExitCode> {
    let question = match &arguments.url {
        None => Question::PurgeAll,
        Some(url) => Question::PurgeTarget { page: PageName::parse_pattern(url)? },
    };
    let name = arguments.target.name.as_deref();
    match ask(name, &Request::Card { question: question.clone() })? {
        Response::Card { answer: Answer::Purged { entries } } if arguments.target.json => {
            println!("{}", serde_json::json!({ "purged": entries }));
        }
        Response::Card { answer: Answer::Purged { entries } } => {
            println!("{}", dropped(entries));
            if entries == 0
                && let Question::PurgeTarget { page } = question
                && let Some(hosts) = other_hosts(name, page)?
            {
                println!("it is kept for {hosts}: a path without a host drops it for all of them");
            }
        }
        Response::Card { answer: Answer::Refused { reason } } => bail!("{reason}"),
        _ => return Err(unexpected()),
    }
    Ok(ExitCode::SUCCESS)
}

fn dropped(entries: u64) -> String {
    match entries {
        1 => "1 reply dropped".to_owned(),
        entries => format!("{entries} replies dropped"),
    }
}

/// For which other hosts the page is kept.
fn other_hosts(name: Option<&str>, page: PageName) -> Result<Option<String>> {
    if page.host.is_none() || page.is_beginning {
        return Ok(None);
    }
    let question = Question::Page { page: PageName { host: None, ..page }, requests: Vec::new() };
    let Response::Card { answer: Answer::Page(report) } = ask(name, &Request::Card { question })?
    else {
        return Err(unexpected());
    };
    let mut hosts: Vec<String> = report.entries.into_iter().map(|entry| entry.host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    Ok((!hosts.is_empty()).then(|| hosts.join(", ")))
}
