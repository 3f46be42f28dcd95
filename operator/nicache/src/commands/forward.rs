//! `nicache forward`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use nicache_router::config::{LinkPortKind, Plan};
use nicache_router::kernel::{Kernel, Link};

use crate::cli::{ForwardArgs, ForwardCommand};
use crate::control::{Request, Response, ask, unexpected};
use crate::forward;

/// Forwards, or does what else is asked about forwarding.
pub(super) fn execute(arguments: ForwardArgs) -> Result<ExitCode> {
    match arguments.command {
        None => forward::run(&arguments),
        Some(ForwardCommand::Check(check)) => check_file(&check.file),
        Some(ForwardCommand::Why(why)) => {
            match ask(why.target.name.as_deref(), &Request::ForwardWhy { asked: why.address })? {
                Response::ForwardWhy(report) if why.target.json => {
                    println!("{}", serde_json::to_string(&report)?);
                }
                Response::ForwardWhy(report) => print!("{report}"),
                _ => return Err(unexpected()),
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(ForwardCommand::Drain(drain)) => {
            let within_ms = Some(drain.within.0);
            set(drain.target.name.as_deref(), drain.back_end, within_ms, drain.target.json)
        }
        Some(ForwardCommand::Undrain(undrain)) => {
            set(undrain.target.name.as_deref(), undrain.back_end, None, undrain.target.json)
        }
        Some(ForwardCommand::Reload(reload)) => {
            match ask(reload.target.name.as_deref(), &Request::ReloadForward)? {
                Response::ReloadedForward { rules } if reload.target.json => {
                    println!("{}", serde_json::json!({ "rules": rules }));
                }
                Response::ReloadedForward { rules } => println!("{rules} rules are in force"),
                _ => return Err(unexpected()),
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn set(
    name: Option<&str>,
    address: std::net::SocketAddr,
    within_ms: Option<u64>,
    is_json: bool,
) -> Result<ExitCode> {
    match ask(name, &Request::Drain { address, within_ms })? {
        Response::Drained { back_ends } if is_json => {
            println!("{}", serde_json::json!({ "back_ends": back_ends }));
        }
        Response::Drained { .. } if within_ms.is_some() => {
            println!("{address} gets no new connections");
        }
        Response::Drained { .. } => println!("{address} gets connections again"),
        _ => return Err(unexpected()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a file and says what it comes to on this machine.
fn check_file(path: &Path) -> Result<ExitCode> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let links = Kernel::open()
        .and_then(|mut kernel| kernel.links())
        .context("cannot ask the kernel for its interfaces")?;
    let plan =
        Plan::make(&text, &links, 0).map_err(|error| anyhow!("{}, {error}", path.display()))?;
    println!(
        "{} is right: mode {}, {} KB for payload",
        path.display(),
        plan.mode,
        plan.memory / 1024
    );
    for (interface, named) in plan.config.interfaces.iter().zip(&plan.interfaces) {
        let addresses: Vec<String> =
            interface.addresses.iter().map(|(address, len)| format!("{address}/{len}")).collect();
        let external = |number: &usize| plan.config.externals[*number].address.to_string();
        let masquerade: Vec<String> = interface.masquerade.iter().map(external).collect();
        let masquerade = if masquerade.is_empty() {
            String::new()
        } else {
            format!(", masquerades as {}", masquerade.join(", "))
        };
        let port = match plan.links.get(usize::from(interface.port)).map(|link| link.port) {
            Some(LinkPortKind::Xdp) => ", by AF_XDP",
            Some(LinkPortKind::Tap) => ", on a TAP that nicache makes",
            Some(LinkPortKind::Packet) | None => "",
        };
        println!(
            "  interface {}: {}, mtu {}{masquerade}{port}",
            named.name,
            addresses.join(", "),
            interface.mtu
        );
    }
    for (service, name) in plan.config.services.iter().zip(&plan.services) {
        let by = service.by_name.as_ref().map_or_else(String::new, |by_name| {
            let proxy = if by_name.proxy_protocol {
                ", told by PROXY protocol v2 who the client is"
            } else {
                ""
            };
            format!(", chosen by {} among {} names{proxy}", by_name.by, by_name.names.len())
        });
        println!(
            "  service {name}: {} {} for {} back ends{by}",
            service.protocol,
            service.address,
            service.back_ends.len()
        );
    }
    let config = &plan.config;
    println!(
        "  {} routes beside the kernel's, {} port forwards, {} fan-outs, {} rules, {} health checks",
        config.routes.len(),
        config.forwarded.len(),
        config.groups.len(),
        config.rules.len(),
        plan.checks.len()
    );
    let is_ours =
        |link: &Link| plan.links.iter().any(|ours| ours.index == link.index && ours.tap.is_none());
    for link in links.iter().filter(|link| !link.is_up && is_ours(link)) {
        println!("  BEWARE: {} is down: `ip link set {} up`", link.name, link.name);
    }
    Ok(ExitCode::SUCCESS)
}
