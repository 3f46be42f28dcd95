//! `nicache purge`.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::PurgeArgs;
use crate::control::{Answer, Question, Request, Response, ask};

/// Drops entries from the card of a running nicache.
pub fn execute(arguments: &PurgeArgs) -> Result<ExitCode> {
    let question = match &arguments.url {
        None => Question::PurgeAll,
        Some(url) => {
            let (host, target) = parse_url(url)?;
            Question::PurgeTarget { host, target }
        }
    };
    match ask(arguments.target.name.as_deref(), &Request::Card { question })? {
        Response::Card { answer: Answer::Purged { entries } } if arguments.target.json => {
            println!("{}", serde_json::json!({ "purged": entries }));
        }
        Response::Card { answer: Answer::Purged { entries } } => println!("{entries} entries dropped"),
        Response::Card { answer: Answer::Refused { reason } } => bail!("{reason}"),
        other => bail!("an unexpected response: {other:?}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Host and target of a URL, or of a path for any host.
pub fn parse_url(url: &str) -> Result<(Option<String>, String)> {
    if url.starts_with('/') {
        return Ok((None, url.to_owned()));
    }
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("`{url}` is neither an http:// URL nor a path that begins with /");
    };
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(at);
    if host.is_empty() || path.contains('#') {
        bail!("`{url}` is no URL that a client would request");
    }
    let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((Some(host.to_owned()), target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths() {
        let parse = parse_url;
        let purge = |host: Option<&str>, target: &str| (host.map(str::to_owned), target.to_owned());
        assert_eq!(parse("/a?b").unwrap(), purge(None, "/a?b"));
        assert_eq!(parse("http://x.example:8080/a/b?c").unwrap(), purge(Some("x.example:8080"), "/a/b?c"));
        assert_eq!(parse("http://x").unwrap(), purge(Some("x"), "/"));
        assert_eq!(parse("http://x?q").unwrap(), purge(Some("x"), "/?q"));
        for wrong in ["x", "https://x/", "http:///a", "http://x/#a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
