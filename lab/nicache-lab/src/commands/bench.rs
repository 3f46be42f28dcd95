//! `nicache bench`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache_bench::{
    Stop, curves, dynamic, forward, impair, kim, nfs, pipeline, sets, siege, sim, wire, yocum,
};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::card_program;
use crate::cli::{
    BenchCommand, BenchCurvesArgs, BenchDynamicArgs, BenchForwardArgs, BenchImpairArgs,
    BenchKimArgs, BenchNfsArgs, BenchPipelineArgs, BenchSetsArgs, BenchSiegeArgs, BenchSimArgs,
    BenchWireArgs, BenchYocumArgs, DynamicPart, SiegeAttack,
};

/// Measures, and prints what came out.
pub(super) fn execute(command: &BenchCommand) -> Result<ExitCode> {
    match command {
        BenchCommand::Wire(arguments) => run_wire(arguments),
        BenchCommand::Floor { bytes } => wire::floor::serve(*bytes).map(|()| ExitCode::SUCCESS),
        BenchCommand::Curves(arguments) => run_curves(arguments),
        BenchCommand::Dynamic(arguments) => run_dynamic(arguments),
        BenchCommand::Sets(arguments) => run_sets(arguments),
        BenchCommand::Kim(arguments) => run_kim(arguments),
        BenchCommand::Nfs(arguments) => run_nfs(arguments),
        BenchCommand::NfsPeer { unit, folder, nicache } => {
            nfs::peer::serve(unit, folder, nicache).map(|()| ExitCode::SUCCESS)
        }
        BenchCommand::Impair(arguments) => run_impair(arguments),
        BenchCommand::Siege(arguments) => run_siege(arguments),
        BenchCommand::Sim(arguments) => run_sim(arguments),
        BenchCommand::Pipeline(arguments) => run_pipeline(arguments),
        BenchCommand::Forward(arguments) => run_forward(arguments),
        BenchCommand::Yocum(arguments) => run_yocum(arguments),
    }
}

fn run_wire(arguments: &BenchWireArgs) -> Result<ExitCode> {
    let report = match &arguments.from {
        Some(path) => wire::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => wire::run(&wire::Plan {
            nicache: card_program::find()?,
            rounds: arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 }),
            seconds: arguments.seconds.unwrap_or(if arguments.quick { 1 } else { 3 }),
            folder: arguments.folder.clone(),
            few_objects: arguments.quick,
            only: arguments.only.clone(),
            stop: stop()?,
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || wire::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    // Measurements that failed are in the result; whoever only looks at the status shall know of
    // them, too.
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_curves(arguments: &BenchCurvesArgs) -> Result<ExitCode> {
    let report = match &arguments.from {
        Some(path) => curves::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => curves::run(&curves::Plan {
            nicache: card_program::find()?,
            rounds: arguments.rounds,
            seconds: arguments.seconds.unwrap_or(if arguments.quick { 1 } else { 4 }),
            spacing: arguments.arrivals,
            seed: arguments.seed,
            rates: sorted(&arguments.rates),
            folder: arguments.folder.clone(),
            quick: arguments.quick,
            only: arguments.only.clone(),
            stop: stop()?,
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || curves::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_nfs(arguments: &BenchNfsArgs) -> Result<ExitCode> {
    let is_quick = arguments.quick;
    let report = match &arguments.from {
        Some(path) => nfs::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => nfs::run(&nfs::Plan {
            nicache: card_program::find()?,
            laboratory: std::env::current_exe().context("cannot find this program's file")?,
            rounds: arguments.rounds.unwrap_or(if is_quick { 1 } else { 3 }),
            time: Duration::from_secs(
                arguments.seconds.unwrap_or(if is_quick { 1 } else { 3 }).into(),
            ),
            cold_bytes: arguments.megabytes.unwrap_or(if is_quick { 64 } else { 512 }) << 20,
            memory_bytes: if is_quick { 48 << 20 } else { 128 << 20 },
            is_quick,
            only: arguments.only.clone(),
            folder: arguments.folder.clone(),
            stop: stop()?,
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    print(&report, arguments.json, || report.table())?;
    Ok(ExitCode::SUCCESS)
}

fn run_impair(arguments: &BenchImpairArgs) -> Result<ExitCode> {
    let report = match &arguments.from {
        Some(path) => impair::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => impair::run(&impair::Plan {
            nicache: card_program::find()?,
            seed: arguments.seed,
            rounds: arguments.rounds,
            folder: arguments.folder.clone(),
            quick: arguments.quick,
            only: arguments.only.clone(),
            stop: stop()?,
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || impair::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    Ok(if report.failures.is_empty() && report.setting.left_out == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_siege(arguments: &BenchSiegeArgs) -> Result<ExitCode> {
    let mut saved = arguments.from.iter().map(|path| {
        siege::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))
    });
    let report = match saved.next() {
        Some(first) => saved.try_fold(first?, |mut all, next| {
            all.outcomes.extend(next?.outcomes);
            anyhow::Ok(all)
        })?,
        None => siege::run(&siege::Plan {
            nicache: card_program::find()?,
            attacks: match arguments.attacks.as_slice() {
                [] => siege::AttackKind::ALL.to_vec(),
                chosen => chosen.iter().map(|attack| attack_kind(*attack)).collect(),
            },
            strength: siege::Strength {
                syns_per_s: arguments.syns,
                slow: arguments.slow,
                idle: arguments.idle,
                opened_per_s: arguments.opened,
                frames_per_s: arguments.frames,
            },
            quiet_s: arguments.quiet,
            seconds: arguments.seconds,
            return_s: arguments.r#return,
            pause: arguments.pause.into(),
            seed: arguments.seed,
            folder: arguments.folder.clone(),
            options: arguments.options.clone(),
            stop: stop()?,
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || siege::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn attack_kind(attack: SiegeAttack) -> siege::AttackKind {
    match attack {
        SiegeAttack::SynFlood => siege::AttackKind::SynFlood,
        SiegeAttack::SlowReaders => siege::AttackKind::SlowReaders,
        SiegeAttack::SlowSenders => siege::AttackKind::SlowSenders,
        SiegeAttack::Idle => siege::AttackKind::Idle,
        SiegeAttack::Mutants => siege::AttackKind::Mutants,
    }
}

fn run_sim(arguments: &BenchSimArgs) -> Result<ExitCode> {
    let report = match &arguments.from {
        Some(path) => sim::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => sim::run(&sim::Plan {
            nicache: std::env::current_exe().context("cannot find this program's file")?,
            peer: arguments.peer.as_deref().map(std::path::absolute).transpose()?,
            requests: if arguments.quick { 1_000_000 } else { arguments.requests * 1_000_000 },
            objects: arguments.objects,
            exponent: arguments.exponent,
            cache_objects: arguments.cache,
            rounds: arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 }),
            folder: arguments.folder.clone(),
            policies: arguments.policies.iter().map(|choice| choice.policy).collect(),
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || sim::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    Ok(ExitCode::SUCCESS)
}

fn run_kim(arguments: &BenchKimArgs) -> Result<ExitCode> {
    let report = match &arguments.from {
        Some(path) => kim::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => {
            let (mut memories, mut cards) = (arguments.memory.clone(), arguments.cards.clone());
            if arguments.quick {
                memories = [0].into_iter().chain(memories.into_iter().max()).collect();
                cards.truncate(1);
            }
            kim::run(&kim::Plan {
                nicache: card_program::find()?,
                traces: arguments.logs.clone(),
                rounds: arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 3 }),
                megabytes: if arguments.quick {
                    arguments.megabytes.min(100)
                } else {
                    arguments.megabytes
                },
                memories: memories.into_iter().map(|megabytes| megabytes << 20).collect(),
                cards,
                clients: arguments.clients,
                folder: arguments.folder.clone(),
                stop: stop()?,
            })?
        }
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || kim::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    Ok(ExitCode::SUCCESS)
}

fn run_dynamic(arguments: &BenchDynamicArgs) -> Result<ExitCode> {
    let report = match &arguments.from {
        Some(path) => dynamic::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => dynamic::run(&dynamic_plan(arguments)?)?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || dynamic::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn dynamic_plan(arguments: &BenchDynamicArgs) -> Result<dynamic::Plan> {
    Ok(dynamic::Plan {
        nicache: card_program::find()?,
        rounds: arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 5 }),
        seconds: arguments.seconds.unwrap_or(if arguments.quick { 1 } else { 5 }),
        pages: if arguments.only == Some(DynamicPart::Watchers) {
            Vec::new()
        } else {
            arguments.pages.clone()
        },
        subjects: arguments.subjects.clone(),
        edits: sorted(&arguments.edits),
        watchers: arguments.only != Some(DynamicPart::Pages),
        stop: stop()?,
    })
}

/// Ctrl-C ends a run early, which cleans up then.
fn stop() -> Result<Stop> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Who does not want to wait for the end of the cleaning up asks a second time.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&asked))?;
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    Ok(Stop::new(asked))
}

fn sorted(numbers: &[u32]) -> Vec<u32> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn run_sets(arguments: &BenchSetsArgs) -> Result<ExitCode> {
    let quick = arguments.quick;
    let report = match &arguments.from {
        Some(path) => sets::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => sets::run(&sets::Plan {
            requests: arguments.requests.unwrap_or(if quick { 600 } else { 6000 }),
            interval: Duration::from_secs_f64(
                arguments.interval.unwrap_or(if quick { 5.0 } else { 2.0 }) / 1e3,
            ),
            sleep: Duration::from_millis(arguments.sleep.unwrap_or(if quick { 300 } else { 2000 })),
            workers: arguments.workers.unwrap_or(if quick { 150 } else { 1300 }),
            edits: arguments.edits,
            seed: arguments.seed,
            stop: stop()?,
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || sets::draw(&report))?;
    print(&report, arguments.json, || report.table())?;
    Ok(ExitCode::SUCCESS)
}

fn run_pipeline(arguments: &BenchPipelineArgs) -> Result<ExitCode> {
    let time = Duration::from_millis(arguments.time);
    let report = pipeline::run(arguments.rounds, time, |label| label.contains(&arguments.only))?;
    if report.measured.is_empty() {
        bail!("no kind of requests has `{}` in its name", arguments.only);
    }
    print(&report, arguments.json, || report.table())?;
    Ok(ExitCode::SUCCESS)
}

fn run_yocum(arguments: &BenchYocumArgs) -> Result<ExitCode> {
    let (packets, seed, milliseconds) = (arguments.packets, arguments.seed, arguments.milliseconds);
    let report = match &arguments.from {
        Some(path) => yocum::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => yocum::run(&yocum::Plan { packets, seed, milliseconds })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || yocum::draw(&report))?;
    print(&report, arguments.json, || report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn run_forward(arguments: &BenchForwardArgs) -> Result<ExitCode> {
    let report = match &arguments.from {
        Some(path) => forward::read_report(path)
            .with_context(|| format!("cannot read the result {}", path.display()))?,
        None => forward::run(&forward::Plan {
            nicache: card_program::find()?,
            rounds: arguments.rounds,
            length: Duration::from_secs(arguments.seconds.into()),
            only: arguments.only.clone(),
            stop: stop()?,
        })?,
    };
    save(&report, arguments.save.as_deref())?;
    draw(arguments.figure.as_deref(), || forward::draw(&report))?;
    print(&report, arguments.json, || report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Saves a result, if a file is named.
fn save(report: &impl Serialize, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    write(path, &serde_json::to_string(report)?)
}

/// Draws a result, if a file is named.
fn draw(path: Option<&Path>, picture: impl FnOnce() -> String) -> Result<()> {
    path.map_or(Ok(()), |path| write(path, &picture()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints a result, as JSON or as a table.
fn print(report: &impl Serialize, as_json: bool, table: impl FnOnce() -> String) -> Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        print!("{}", table());
    }
    Ok(())
}
