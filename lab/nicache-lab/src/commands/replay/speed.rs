//! `nicache replay --target`: how fast is a server?

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache::logs;
use nicache_replay::replayer::{Demand, Plan, ReplayerConfig, ServerAddress, run};
use nicache_replay::{SessionConfig, StaticSite, Trace};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::show::{show_card, show_trace};
use crate::cli::ReplayArgs;
use crate::growth::Growth;
use crate::url::server;

/// Infinite demand: connections that are busy all the time.
const CLIENTS_DEFAULT: u32 = 64;
/// Open loop: enough that a session rarely waits for others.
const CLIENTS_OPEN_LOOP: u32 = 1024;
/// Files open beside connections: the server closes some of them a little later, and the process
/// has a few of its own.
const FILES_BESIDE: u64 = 256;

/// Replays a log and prints what came of it.
pub(super) fn execute(arguments: &ReplayArgs, trace: &Trace) -> Result<ExitCode> {
    let demand = match (arguments.speed.speed, arguments.rate) {
        (Some(speed), _) => Demand::Log { speed },
        (None, Some(rate)) => Demand::Rate { sessions_per_second: rate },
        (None, None) => Demand::Infinite,
    };
    let default = if demand == Demand::Infinite { CLIENTS_DEFAULT } else { CLIENTS_OPEN_LOOP };
    let clients = arguments.clients.unwrap_or(default);
    let replayers = u32::from(arguments.speed.replayers);
    if replayers > clients {
        bail!("replayers: each needs a connection, and there are {clients} (--clients)");
    }
    allow_files(u64::from(clients))?;
    if let Some(root) = &arguments.site {
        StaticSite::check(root, trace)?;
    }
    let target = |url: &String| {
        server(url).map(|found| ServerAddress { host: found.host, address: found.address })
    };
    let config = ReplayerConfig {
        targets: arguments.speed.target.iter().map(target).collect::<Result<_>>()?,
        sources: arguments.speed.source.clone(),
        clients: clients as usize,
        replayers: replayers as usize,
        demand,
        duration: arguments.duration.map(Duration::from_secs),
        seed: arguments.seed,
    };
    let sessions = SessionConfig {
        connection_gap_s: arguments.speed.connection_gap,
        pipeline_gap_s: arguments.speed.pipeline_gap,
    };
    let plan = Plan::new(trace, &sessions);
    if !arguments.json {
        show_trace(trace);
        let (sessions, requests) = (plan.sessions().len(), plan.sessions().requests_len());
        let batches = plan.sessions().batches_len();
        println!(
            "plan       {sessions} connections of {:.1} requests in {:.1} batches each",
            requests as f64 / sessions as f64,
            batches as f64 / sessions as f64
        );
    }
    // Only a name says that the target is behind a card here.
    let growth = arguments.name.as_deref().and_then(|name| Growth::begin(Some(name)).ok());
    let start = Instant::now();
    let shows = std::io::stderr().is_terminal();
    let report = run(&plan, &config, &mut |watch| {
        if shows {
            let seconds = start.elapsed().as_secs_f64();
            let megabit = watch.body_bytes() as f64 * 8e-6;
            logs::show_live_line(&format!(
                "{seconds:.0} s, {} replies, {:.0}/s, {:.0} Mb/s, {} errors",
                watch.replies(),
                watch.replies() as f64 / seconds,
                megabit / seconds,
                watch.errors()
            ));
        }
    });
    logs::clear_live_line();
    let report = report?;
    let card = growth.and_then(Growth::end);
    if arguments.json {
        let mut all = serde_json::to_value(&report)?;
        all["clean"] = report.is_clean().into();
        all["trace"] = serde_json::to_value(trace.counts)?;
        all["trace"]["requests"] = trace.requests.len().into();
        all["trace"]["clients"] = trace.clients.into();
        all["trace"]["sessions"] = plan.sessions().len().into();
        all["trace"]["batches"] = plan.sessions().batches_len().into();
        all["card"] = serde_json::to_value(card)?;
        println!("{all}");
    } else {
        print!("{report}");
        if let Some(card) = card {
            show_card(&card);
        }
        println!(
            "{}",
            if report.is_clean() { "every byte of every reply was right" } else { "ERRORS" }
        );
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Raises the limit of open files as far as this user may, and says so if that is not enough.
fn allow_files(clients: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = clients * 2 + FILES_BESIDE;
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        bail!(
            "clients: {clients} connections need {wanted} open files, and the limit is {} (ulimit -Hn)",
            limit.maximum.unwrap_or(u64::MAX)
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
        .context("cannot raise the limit of open files")
}
