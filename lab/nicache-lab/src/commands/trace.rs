//! `nicache trace`.

mod advise;
mod convert;
mod info;

use std::process::ExitCode;

use anyhow::Result;
use nicache_replay::{StaticSite, Trace};

use super::replay::show_trace;
use crate::cli::{TraceCommand, TraceSiteArgs};

/// Does what the command says.
pub(super) fn execute(command: &TraceCommand) -> Result<ExitCode> {
    match command {
        TraceCommand::Info(arguments) => info::execute(arguments),
        TraceCommand::Advise(arguments) => advise::execute(arguments),
        TraceCommand::Convert(arguments) => convert::execute(arguments),
        TraceCommand::Site(arguments) => make_site(arguments),
    }
}

fn make_site(arguments: &TraceSiteArgs) -> Result<ExitCode> {
    let trace = Trace::open(&arguments.log, arguments.format)?;
    StaticSite::create(&arguments.folder, &trace)?;
    if arguments.json {
        let mut all = serde_json::to_value(trace.counts)?;
        all["files"] = trace.objects.len().into();
        all["bytes"] = trace.footprint_bytes().into();
        all["requests"] = trace.requests.len().into();
        all["cut_off"] = trace.cut_off.clone().into();
        println!("{all}");
    } else {
        show_trace(&trace);
        println!("made       {} files in {}", trace.objects.len(), arguments.folder.display());
    }
    Ok(ExitCode::SUCCESS)
}
