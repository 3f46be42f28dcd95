//! `nicache who`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::WhoArgs;
use crate::control::{Request, Response, ask, unexpected};
use crate::numbers::grouped;

/// Says which pages a change of a file, a folder or a table would purge.
pub(super) fn execute(arguments: &WhoArgs) -> Result<ExitCode> {
    let source = source(&arguments.source)?;
    let Response::Who(report) =
        ask(arguments.target.name.as_deref(), &Request::Who { source: source.clone() })?
    else {
        return Err(unexpected());
    };
    if arguments.target.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    if report.every_dynamic {
        println!(
            "{source} was read by the server, which may keep it in its memory: every dynamic page depends on it"
        );
    }
    for entry in &report.entries {
        println!("{:<8} http://{}{}", entry.class, entry.host, entry.target);
    }
    let shown = report.entries.len() as u64;
    match report.entries_count {
        0 => println!("no page in card memory depends on {source}"),
        count if count > shown => println!("and {} more", grouped(count - shown)),
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// A table, or a path made absolute: one with a slash in it, or the name of a file that is here.
fn source(text: &str) -> Result<String> {
    if text.is_empty() {
        bail!("the name of a file, a folder or a table is needed");
    }
    if !text.contains('/') && !Path::new(text).exists() {
        return Ok(text.to_owned());
    }
    let path = std::path::absolute(text).with_context(|| format!("`{text}`"))?;
    path.into_os_string().into_string().ok().with_context(|| format!("`{text}` is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_paths() {
        assert_eq!(source("wp.posts").unwrap(), "wp.posts");
        assert_eq!(source("/srv/a").unwrap(), "/srv/a");
        assert!(source("./a").unwrap().starts_with('/'));
        assert!(source("Cargo.toml").unwrap().ends_with("/Cargo.toml"));
        assert!(source("").is_err());
    }
}
