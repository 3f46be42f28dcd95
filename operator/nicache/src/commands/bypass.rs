//! `nicache bypass`.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::{BypassArgs, Switch};
use crate::control::{Answer, Question, Request, Response, ask, unexpected};

/// Switches the caching of a running nicache off or on.
pub(super) fn execute(arguments: &BypassArgs) -> Result<ExitCode> {
    let question = Question::Bypass { on: arguments.state == Switch::On };
    match ask(arguments.target.name.as_deref(), &Request::Card { question })? {
        Response::Card { answer: Answer::Bypass { on } } if arguments.target.json => {
            println!("{}", serde_json::json!({ "bypass": on }));
        }
        Response::Card { answer: Answer::Bypass { on: true } } => {
            println!("bypass is on: every request goes to the server");
        }
        Response::Card { answer: Answer::Bypass { on: false } } => {
            println!("bypass is off: the card answers again");
        }
        Response::Card { answer: Answer::Refused { reason } } => bail!("{reason}"),
        _ => return Err(unexpected()),
    }
    Ok(ExitCode::SUCCESS)
}
