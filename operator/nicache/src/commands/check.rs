//! `nicache check`.

mod config;

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;

use anyhow::Result;
use nicache_fastpath::Programs;
use nicache_kernel::{ASSUMPTIONS, Feature, Findings, Kernel};
use nicache_watch::KernelWatcher;
use nicache_xdp::{verify_l0_at_driver, verify_l0_at_tap, verify_sieve, verify_steering};
use serde::Serialize;

use crate::cli::CheckArgs;
use crate::numbers;

/// What the verifier goes through at most.
const VERIFIED_MAX: u32 = 1_000_000;

#[derive(Serialize)]
struct Check {
    kernel: String,
    features: Vec<FeatureCheck>,
    programs: Vec<ProgramCheck>,
}

#[derive(Serialize)]
struct FeatureCheck {
    feature: &'static str,
    #[serde(skip)]
    title: &'static str,
    available: bool,
    /// Why not, each a sentence.
    why_not: Vec<String>,
    /// What is done in another way than on the newest kernels.
    instead: Vec<String>,
}

#[derive(Serialize)]
struct ProgramCheck {
    program: String,
    /// Instructions that the verifier went through; 0: the kernel does not say.
    verified: u32,
    /// What the kernel said, if it refused the program.
    refused: Option<String>,
}

/// The programs of the witness that the kernel calls at its functions, which it may refuse
/// together.
const AT_FUNCTIONS: &str = "witnesses at functions";

/// Says what this machine's kernel has, or what a configuration file would do.
pub(super) fn execute(arguments: &CheckArgs) -> Result<ExitCode> {
    if let Some(file) = &arguments.config {
        return config::execute(file, arguments.json);
    }
    let check = check()?;
    if arguments.json {
        println!("{}", serde_json::to_string(&check)?);
    } else {
        print!("{}", render(&check));
    }
    let works = check
        .features
        .iter()
        .any(|feature| feature.feature == Feature::Watching.label() && feature.available);
    // Without those at functions everything works in another way.
    let is_refused = check
        .programs
        .iter()
        .any(|program| program.refused.is_some() && program.program != AT_FUNCTIONS);
    Ok(if works && !is_refused { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check() -> Result<Check> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut machine = Kernel::read(ASSUMPTIONS)?;
    let mut findings = machine.findings(ASSUMPTIONS);
    let mut check = Check { kernel, features: Vec::new(), programs: Vec::new() };
    let watcher = findings.has(Feature::Watching).then(|| KernelWatcher::load(0));
    let watcher = match watcher {
        Some(Err(error)) => {
            check.programs.push(refused("witness", format!("{error}")));
            None
        }
        Some(Ok(watcher)) => Some(watcher),
        None => None,
    };
    if let Some(why) = watcher.as_ref().and_then(KernelWatcher::functions_refused) {
        check.programs.push(refused(AT_FUNCTIONS, why.to_owned()));
        machine.take_no_functions();
        findings = machine.findings(ASSUMPTIONS);
    }
    for program in watcher.iter().flat_map(KernelWatcher::programs) {
        check.programs.push(ProgramCheck {
            program: program.name.clone(),
            verified: program.verified,
            refused: None,
        });
    }
    if watcher.as_ref().is_some_and(|watcher| watcher.functions_refused().is_none()) {
        match KernelWatcher::verify_without_functions() {
            Ok(programs) => {
                let is_new = |check: &Check, name: &str| {
                    !check.programs.iter().any(|known| known.program == name)
                };
                for program in programs.into_iter().flatten() {
                    if is_new(&check, &program.name) {
                        check.programs.push(ProgramCheck {
                            program: program.name,
                            verified: program.verified,
                            refused: None,
                        });
                    }
                }
            }
            Err(error) => {
                check.programs.push(refused("witness without functions", format!("{error}")));
            }
        }
    }
    let mut verify =
        |feature, name: &str, verify: &dyn Fn(BorrowedFd<'_>) -> Result<u32, String>| {
            let Some(watcher) = watcher.as_ref().filter(|_| findings.has(feature)) else { return };
            check.programs.push(match verify(watcher.control_fd()) {
                Ok(verified) => ProgramCheck { program: name.to_owned(), verified, refused: None },
                Err(why) => refused(name, why),
            });
        };
    verify(Feature::Xdp, "steering", &|_| verify_steering().map_err(|error| error.to_string()));
    verify(Feature::Xdp, "sieve", &|_| verify_sieve().map_err(|error| error.to_string()));
    verify(Feature::L0AtTap, "l0_at_tap", &|control| {
        verify_l0_at_tap(control).map_err(|error| error.to_string())
    });
    verify(Feature::L0AtDriver, "l0_at_driver", &|control| {
        verify_l0_at_driver(control).map_err(|error| error.to_string())
    });
    if findings.has(Feature::FastPath) {
        check.programs.push(match Programs::load(1) {
            Ok(programs) => ProgramCheck {
                program: "fast_path".to_owned(),
                verified: programs.verified(),
                refused: None,
            },
            Err(error) => refused("fast_path", error.to_string()),
        });
    }
    check.features = Feature::ALL
        .iter()
        .map(|feature| feature_check(*feature, &findings, &check.programs))
        .collect();
    Ok(check)
}

fn refused(program: &str, why: String) -> ProgramCheck {
    ProgramCheck { program: program.to_owned(), verified: 0, refused: Some(why) }
}

fn feature_check(feature: Feature, findings: &Findings, programs: &[ProgramCheck]) -> FeatureCheck {
    let needs: &[&str] = match feature {
        Feature::Watching
        | Feature::Ext4
        | Feature::ChangeTimes
        | Feature::Btrfs
        | Feature::Xfs
        | Feature::Dynamic => &["witness"],
        Feature::L0AtTap => &["witness", "l0_at_tap"],
        Feature::L0AtDriver => &["witness", "steering", "l0_at_driver"],
        Feature::Xdp => &["steering"],
        Feature::FastPath => &["fast_path"],
    };
    let mut why_not: Vec<String> = findings.lacks_of(feature).map(ToString::to_string).collect();
    if !findings.has(Feature::Watching) && !matches!(feature, Feature::Watching | Feature::FastPath)
    {
        why_not.push(format!("it needs {}", Feature::Watching.title()));
    }
    if !findings.has(Feature::ChangeTimes) && matches!(feature, Feature::Btrfs | Feature::Xfs) {
        why_not.extend(findings.lacks_of(Feature::ChangeTimes).map(ToString::to_string));
    }
    for program in programs.iter().filter(|program| needs.contains(&program.program.as_str())) {
        if let Some(why) = &program.refused {
            why_not.push(format!("the kernel refuses {}: {}", program.program, first_line(why)));
        }
    }
    let is_other = |&(assumption, way): &(&nicache_kernel::Assumption, &nicache_kernel::Way)| {
        assumption.feature == feature && !std::ptr::eq(way, &raw const assumption.ways[0])
    };
    let taken = findings.taken.iter().filter(|taken| is_other(&(taken.0, taken.1)));
    let tell =
        |(assumption, way): (&nicache_kernel::Assumption, &nicache_kernel::Way)| match way.tests {
            [] => format!("{}: not seen, and what depends on it is not kept", assumption.name),
            _ => format!("{} by {way}", assumption.name),
        };
    let instead = taken.map(|taken| tell((taken.0, taken.1))).collect();
    FeatureCheck {
        feature: feature.label(),
        title: feature.title(),
        available: why_not.is_empty(),
        why_not,
        instead,
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn render(check: &Check) -> String {
    let mut text = format!("Linux {}\n", check.kernel);
    for feature in &check.features {
        let answer = if feature.available { "yes" } else { "no" };
        let _ = writeln!(text, "  {:<40} {answer}", feature.title);
        for why in feature.why_not.iter().chain(&feature.instead) {
            let _ = writeln!(text, "      {why}");
        }
    }
    let _ = writeln!(
        text,
        "Programs in the kernel, and what each costs its verifier ({} at most)",
        numbers::grouped(u64::from(VERIFIED_MAX))
    );
    for program in &check.programs {
        let cost = match (&program.refused, program.verified) {
            (Some(why), _) => format!("refused\n{why}"),
            (None, 0) => "taken".to_owned(),
            (None, verified) => numbers::grouped(u64::from(verified)),
        };
        let _ = writeln!(text, "  {:<40} {cost}", program.program);
    }
    text
}
